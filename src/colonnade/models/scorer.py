"""Fitted models with public linear weights, as questions about new people see them: parts, columns, digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.models.roster import Roster
from colonnade.tables import Schema


@runtime_checkable
class Scorer(Protocol):
    """What a fitted model must have: public linear weights, each party's part of the scores, and what scores predict.

    ``coef_`` has a row for each class and a column for each of ``feature_names_in_`` ("party.column" or
    "party.column=value"), for encoded values. The parts of all parties and ``intercept_`` add up to the scores.
    """

    schemas_: dict[str, Schema]
    feature_names_in_: list[str]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def partial(self, party: str, source: Any) -> NDArray[np.float64]:
        """One party's part of the scores, (rows, classes), of a table that need not have the label; no intercept."""

    def answers(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """What scores of shape (rows, classes) predict."""


def features(scorer: Scorer, party: str) -> tuple[str, ...]:
    """The columns of a party that have weights; the label has none."""
    schema = scorer.schemas_.get(party)
    known = set(scorer.feature_names_in_)
    columns = schema.columns.items() if schema else ()
    return tuple(name for name, column in columns if f"{party}.{name}{column.parts[0]}" in known)


def digest(scorer: Scorer) -> str:
    """SHA-256 of the weights and of what they apply to, down to the last bit."""
    content = [
        {name: schema.digest for name, schema in scorer.schemas_.items()},
        list(scorer.feature_names_in_),
        [[float(weight).hex() for weight in row] for row in np.atleast_2d(scorer.coef_).tolist()],
        [float(value).hex() for value in np.atleast_1d(scorer.intercept_).tolist()],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_columns(scorer: Scorer, roster: Roster) -> None:
    """Raise an error unless every party with weights takes part, with the columns that the model was fitted with."""
    for party, schema in scorer.schemas_.items():
        used = features(scorer, party)
        if not used:
            continue
        if party not in roster.schemas:
            raise StudyError(
                f"the model has weights for columns of {party}, which takes no part in the prediction [ST206]"
            )
        given = roster.schemas[party]
        if missing := [name for name in used if name not in given.columns]:
            raise StudyError(
                f"the model needs the column {missing[0]} of {party}, which its schema does not have [ST207]"
            )
        if given.select(used) != schema.select(used):
            raise StudyError(
                f"the schema of {party} describes its columns otherwise than the model was fitted with [ST208]"
            )
