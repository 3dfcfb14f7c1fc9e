"""The largest epsilon of a study: one meaning for reports, consoles and lists, so that nobody reads two figures as one.

It is that of the observer who learns most among all whom the threshold allows, whoever asks. Beside it stands the same
for owners who leave out their part of the noise, and who is promised nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.privacy.observers import Adjacency, Observer, Trust
from colonnade.privacy.rows import Row
from colonnade.privacy.statement import Statement


@dataclass(frozen=True)
class Largest:
    """Who learns most from a study."""

    row: Row | None
    """Of all observers within the threshold; infinite where one of them is promised nothing."""
    condition: str
    """Under which that row holds, with regard to noise."""
    missing: Row | None
    """Of the rows that hold if owners draw otherwise; infinite where one of them promises nothing then."""
    beyond: tuple[Row, ...]
    """Observers against whom nothing is promised."""

    @classmethod
    def of(cls, statement: Statement) -> Largest:
        """The largest epsilon of a statement."""
        return cls.among(statement.rows, statement.missing_noise, statement.trust)

    @classmethod
    def written(cls, statement: Mapping[str, Any]) -> Largest:
        """That of a statement that was written down."""
        rows, missing = map(row_of, statement["rows"]), map(row_of, statement.get("missing_noise", ()))
        return cls.among(tuple(rows), tuple(missing), Trust.from_dict(statement["trust"]))

    @classmethod
    def among(cls, rows: Iterable[Row], missing: Iterable[Row], trust: Trust) -> Largest:
        """That of rows, and of those about missing noise."""
        known = tuple(rows)
        within = (row for row in known if trust.broken(row.observer) is None)
        return cls(
            max(within, key=_epsilon, default=None),
            _condition(trust),
            max(missing, key=_epsilon, default=None),
            tuple(row for row in known if math.isinf(row.epsilon)),
        )

    @property
    def figures(self) -> tuple[tuple[Row, str], ...]:
        """Both rows that are there, each with the condition under which it holds."""
        pairs = ((self.row, self.condition), (self.missing, "" if self.missing is None else self.missing.condition))
        return tuple((row, condition) for row, condition in pairs if row is not None)


def row_of(value: Mapping[str, Any]) -> Row:
    """A row as a statement wrote it down."""
    given = dict(value)
    epsilon = math.inf if given.pop("epsilon") is None else float(value["epsilon"])
    observer, adjacency = Observer.parse(given.pop("observer")), Adjacency(given.pop("adjacency"))
    return Row(observer=observer, adjacency=adjacency, epsilon=epsilon, **given)


def _epsilon(row: Row) -> float:
    return row.epsilon


def _condition(trust: Trust) -> str:
    if not trust.missing:
        return "if every owner draws its noise"
    return f"even if {'1 owner draws' if trust.missing == 1 else f'{trust.missing} owners draw'} no noise"
