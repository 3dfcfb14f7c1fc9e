"""What a page says about one kind of model; the caller of ``render`` passes the section that fits the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from colonnade.drawing.markup import Html
from colonnade.models import Estimator
from colonnade.privacy.observers import Trust
from colonnade.report.promise import who_saw_what
from colonnade.report.words import mapping

Model = TypeVar("Model", bound=Estimator)
Run = Mapping[str, Any]
"""What ``run.json`` holds; anything may be missing."""


def seen_on_shares(model: Estimator, run: Run, trust: Trust) -> Html:
    """Who saw what, where a committee computes on shares."""
    found = mapping(run.get("alignment"))
    return who_saw_what(trust, model.recipient, aligned=bool(found), hidden=found.get("hidden") is True)


@dataclass(frozen=True)
class Section(Generic[Model]):
    """The parts of a page that depend on the kind of the model.

    ``title`` says in a few words what was computed, from the model and the number of its columns (0: not known).
    ``result`` shows what a fitted model learned; its last argument is the names of the parties.
    ``columns`` counts the encoded columns of a fitted model.
    ``seen`` says who saw what during the run.
    ``noise`` is the name of the noise that ``run.json`` records.
    """

    title: Callable[[Model, int], str]
    result: Callable[[Model, Run, Sequence[str]], Html]
    columns: Callable[[Model], int]
    seen: Callable[[Model, Run, Trust], Html] = seen_on_shares
    noise: str = "Noise in all, on the grid"
