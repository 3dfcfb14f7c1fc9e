"""What a statement amounts to: the largest epsilon of a study, and how much surer somebody may become of a thing.

The largest epsilon is that of the observer who learns most among all whom the threshold allows, whoever asks; reports,
consoles and lists take it from here, so that nobody reads two figures as one. The bounds on posterior odds are proven
in ``docs/theory/beliefs.md``. Epsilon and delta bound chances of conclusions; the odds that somebody gives to a thing
may rise by more than e^epsilon with a chance above delta, so their bound has a figure of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.observers import Adjacency, Observer, Trust, check_delta
from colonnade.privacy.statement import Statement, StatementRow


@dataclass(frozen=True)
class LargestEpsilon:
    """Who learns most from a study."""

    row: StatementRow | None
    """Of all observers within the threshold; infinite where one of them is promised nothing."""
    condition: str
    """Under which that row holds, with regard to noise."""
    missing: StatementRow | None
    """Of the rows that hold if owners draw otherwise; infinite where one of them promises nothing then."""
    beyond: tuple[StatementRow, ...]
    """Observers against whom nothing is promised."""

    @classmethod
    def of(cls, statement: Statement) -> LargestEpsilon:
        """The largest epsilon of a statement."""
        return cls.of_rows(statement.rows, statement.missing_noise, statement.trust)

    @classmethod
    def parse(cls, statement: Mapping[str, Any]) -> LargestEpsilon:
        """That of a statement that was written down."""
        rows, missing = map(parse_row, statement["rows"]), map(parse_row, statement.get("missing_noise", ()))
        return cls.of_rows(tuple(rows), tuple(missing), Trust.from_dict(statement["trust"]))

    @classmethod
    def of_rows(cls, rows: Iterable[StatementRow], missing: Iterable[StatementRow], trust: Trust) -> LargestEpsilon:
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
    def figures(self) -> tuple[tuple[StatementRow, str], ...]:
        """Both rows that are there, each with the condition under which it holds."""
        pairs = ((self.row, self.condition), (self.missing, "" if self.missing is None else self.missing.condition))
        return tuple((row, condition) for row, condition in pairs if row is not None)


def parse_row(value: Mapping[str, Any]) -> StatementRow:
    """A row as a statement wrote it down."""
    given = dict(value)
    epsilon = math.inf if given.pop("epsilon") is None else float(value["epsilon"])
    observer, adjacency = Observer.parse(given.pop("observer")), Adjacency(given.pop("adjacency"))
    return StatementRow(observer=observer, adjacency=adjacency, epsilon=epsilon, **given)


def _epsilon(row: StatementRow) -> float:
    return row.epsilon


def _condition(trust: Trust) -> str:
    if not trust.missing:
        return "if every owner draws its noise"
    return f"even if {'1 owner draws' if trust.missing == 1 else f'{trust.missing} owners draw'} no noise"


PRIORS = (0.01, 0.1, 0.5, 0.9)
"""Beliefs beforehand for which tables say what they may become."""
_PLACES, _REACH, _MORE = 97, 1.0, 2.0
_ROUNDING = 1e-12


def log_odds(statement: Statement, observer: Observer | str, *, missing: int | None = None) -> float:
    """The most by which log-odds about one person rise, but for a chance of delta; infinite if nothing protects.

    With ``missing``, if so many owners besides the observer draw no noise.
    """
    at_delta = statement.epsilon(observer, missing=missing)
    if math.isinf(at_delta):
        return math.inf
    return bound_log_odds(
        lambda epsilons: statement.profile(observer, epsilons, missing=missing), at_delta, statement.delta
    )


def log_odds_by_row(statement: Statement) -> dict[str, float | None]:
    """By how much log-odds rise at most, for each row of a statement by its name; ``None``: no limit."""
    found = {}
    for row in (*statement.rows, *statement.missing_noise):
        rise = math.inf if math.isinf(row.epsilon) else log_odds(statement, row.observer, missing=row.missing)
        found[row_name(row)] = None if math.isinf(rise) else rise
    return found


def row_name(row: StatementRow) -> str:
    """The name of a row, which no other row of its statement has."""
    return row.observer.label if row.missing is None else f"{row.observer.label} {row.condition}"


def bound_log_odds(profile: Callable[[Sequence[float]], Sequence[float]], start: float, chance: float) -> float:
    """The least x for which log-odds rise by more than x with at most this chance, for a whole guarantee.

    ``profile`` gives the delta of each epsilon, and ``start`` is an epsilon whose delta is about ``chance``. The bound
    holds for every choice of epsilons at which the profile is asked; more of them only make it smaller.
    """
    check_delta(chance)
    epsilons = start + (_REACH + _MORE * start) * np.linspace(0.0, 1.0, _PLACES) ** 2
    deltas: NDArray[np.float64] = np.asarray(profile([float(epsilon) for epsilon in epsilons]), dtype=np.float64)
    held = deltas < chance
    if not held.any():
        return math.inf
    found = epsilons[held] - np.log1p(-deltas[held] / chance)
    return float(found.min()) * (1 + _ROUNDING) + _ROUNDING


def posterior(prior: float, rise: float) -> float:
    """The largest belief after log-odds rose by this, for a belief before."""
    if math.isinf(rise):
        return 1.0 if prior > 0 else 0.0
    if prior in (0.0, 1.0):
        return prior
    return 1 / (1 + (1 - prior) / prior * math.exp(-rise))
