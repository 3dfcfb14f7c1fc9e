"""What a study about new people is given: the public model, and each party's own weights where these are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, StudyError
from colonnade.models import Estimator, KeptScores
from colonnade.models.glm.fitted import FittedGLM
from colonnade.models.prediction import Scorer, features
from colonnade.study.tasks import AnyTask, KeptScoresPart
from colonnade.tables import Schema

_TOLD = "its kept weights cannot be used; its own log says why"


def public_model(path: Path, task: AnyTask, study: Path) -> Estimator:
    """The model in a file, if it is of the kind that the task is about."""
    found, where = Estimator.load(path), f"{study}: task.model - {path}"
    if isinstance(task, KeptScoresPart):
        if not isinstance(found, FittedGLM):
            raise StudyError(f'{where} is no model of kind "glm", whose parties keep weights of their own')
        return found
    if isinstance(found, FittedGLM) and found.get_params()["release"] is not True:
        raise StudyError(f'{where} has no weights, its parties keep them: ask for scores with kind = "glm-scores"')
    if not isinstance(found, Scorer):
        raise StudyError(f"{where} is no linear or logistic regression")
    return found


def without_label(model: Any, party: str, schema: Schema) -> Schema:
    """A schema without the columns that a model was fitted with and has no weights for: of new people, no label."""
    used, known = features(model, party), model.schemas_.get(party, schema).names
    unused = [name for name in schema.names if name in known and name not in used]
    return schema.without(unused) if used and unused else schema


def bring(question: KeptScores, party: str, kept: Path | None, config: Path) -> None:
    """Give a question the weights that this party keeps, as they lie on its own machine; others hear no path."""
    with _private():
        if kept is None:
            raise StudyError(
                f'{config.name} of {party} names no kept weights, which this study is about: add kept = "PATH", the '
                f"kept.json that {party} wrote when the model was fitted"
            )
        question.bring(kept, party)
        if os.name == "posix" and kept.stat().st_mode & 0o077:
            raise StudyError(f"{kept} can be read by others, and holds private weights: run `chmod 600 {kept}`")


def check_folder(task: AnyTask, kept: Path | None, out: Path) -> None:
    """Refuse to ask where the weights lie: a run moves the files of an earlier one away."""
    if isinstance(task, KeptScoresPart) and kept is not None and kept.parent.resolve() == out.resolve():
        raise StudyError(f"the kept weights lie in {out}, whose files a new run moves away: choose another --out")


@contextmanager
def _private() -> Iterator[None]:
    try:
        yield
    except ColonnadeError as error:
        error.told = _TOLD
        raise
