"""Which section shows which kind of model."""

from __future__ import annotations

from typing import Any

from colonnade.errors import StudyError
from colonnade.report import answers, components, exchange, regression
from colonnade.report.section import Section

_SECTIONS: dict[str, Section[Any]] = {
    "pca": components.SECTION,
    "linear": regression.SECTION,
    "logistic": regression.SECTION,
    "polynomial": answers.SUMS,
    "prediction": answers.PREDICTIONS,
    "glm": exchange.SECTION,
    "glm-scores": exchange.SCORES,
}


def section_of(kind: str) -> Section[Any]:
    """The section for a kind of model, such as ``"pca"``."""
    if kind not in _SECTIONS:
        raise StudyError(f"no report can show a model of kind {kind!r}; the kinds are {', '.join(_SECTIONS)}")
    return _SECTIONS[kind]
