"""What an attacker sees of people through a model, from the model itself and the people's tables.

A split network that tells embeddings shows them, with their noise; any other model that scores people shows their exact
scores. Slopes come back only where encoders learn together with the party that has the label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.labels import Returned
from colonnade.audit.attacks.promises import Promise
from colonnade.errors import StudyError
from colonnade.models.base import Estimator
from colonnade.tables import Table

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """What is seen of each person, the columns behind it as the party encodes them, and a name for what is seen."""

    numbers: Matrix
    columns: Matrix
    what: str


def seen_of(model: Estimator, party: str, people: Mapping[str, Table], seed: int = 0) -> Seen:
    """What an attacker sees of a party's columns: what it tells about each person, or else the person's scores."""
    columns = _columns(model, party, people[party])
    shown = getattr(model, "shown", None)
    if shown is not None:
        numbers, what = shown(party, people, seed)
        return Seen(np.asarray(numbers), columns, what)
    if not hasattr(model, "scores"):
        raise StudyError(f"a {type(model).__name__} shows nothing of one person, so there is nothing to invert")
    return Seen(np.asarray(model.scores(people)), columns, "exact scores")


def with_kept(model: Any, paths: Iterable[Path]) -> Any:
    """The model with what parties keep of it, such as their encoders: an attacker may have these too."""
    for path in paths:
        if not hasattr(model, "load_kept"):
            raise StudyError(f"nobody keeps anything of a {type(model).__name__}, so --kept has no use")
        model.load_kept(path)
    return model


def promised(model: Any) -> Promise | None:
    """What is proven against whoever has the model; ``None`` also where its scores need weights that nobody published.

    Whoever has these has more than the statement speaks of.
    """
    if not getattr(model, "has_public_weights", True):
        return None
    return Promise.of(model.privacy_, model.recipient or "analyst")


def returned_by(model: Estimator, people: Mapping[str, Table], known: int, seed: int = 0) -> Returned:
    """The slopes that are returned about people, as training would return them; the first by lot are known."""
    returned = getattr(model, "returned", None)
    found: Any = None if returned is None else returned(people, seed)
    if found is None:
        raise StudyError(
            "nobody is returned slopes while this model is learned, so labels cannot be guessed from them: the attack "
            "is for split networks whose encoders learn in rounds with the party that has the label"
        )
    slopes, labels, classes, epsilon = found
    places = np.random.default_rng(seed).permutation(len(labels))[:known]
    return Returned(np.asarray(slopes), np.asarray(labels, dtype=np.intp), places, classes, epsilon)


def _columns(model: Any, party: str, table: Table) -> Matrix:
    """A party's encoded columns without the label."""
    owner, _, column = str(getattr(model, "label_", None)).rpartition(".")
    return (table.without([column]) if party == owner else table).unclipped().matrix()
