"""How much surer somebody may become of a thing about one person, from the guarantee against an observer.

The bounds are proven in ``docs/theory/beliefs.md``. Epsilon and delta bound chances of conclusions; the odds that
somebody gives to a thing may rise by more than e^epsilon with a chance above delta, so their bound has a figure of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.observers import Observer, check_delta
from colonnade.privacy.rows import Row
from colonnade.privacy.statement import Statement

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
    return bound(lambda epsilons: statement.profile(observer, epsilons, missing=missing), at_delta, statement.delta)


def rises(statement: Statement) -> dict[str, float | None]:
    """By how much log-odds rise at most, for each row of a statement by its name; ``None``: no limit."""
    found = {}
    for row in (*statement.rows, *statement.missing_noise):
        rise = math.inf if math.isinf(row.epsilon) else log_odds(statement, row.observer, missing=row.missing)
        found[name_of(row)] = None if math.isinf(rise) else rise
    return found


def name_of(row: Row) -> str:
    """The name of a row, which no other row of its statement has."""
    return row.observer.label if row.missing is None else f"{row.observer.label} {row.condition}"


def bound(profile: Callable[[Sequence[float]], Sequence[float]], start: float, chance: float) -> float:
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


def afterwards(prior: float, rise: float) -> float:
    """The largest belief after log-odds rose by this, for a belief before."""
    if math.isinf(rise):
        return 1.0 if prior > 0 else 0.0
    if prior in (0.0, 1.0):
        return prior
    return 1 / (1 + (1 - prior) / prior * math.exp(-rise))
