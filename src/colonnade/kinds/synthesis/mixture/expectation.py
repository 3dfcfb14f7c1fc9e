"""Which parameters fit noisy sums of a column's statistics best: the step of expectation maximisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.families import INSIDE, Bernoulli, Beta, Categorical, Family, Gaussian
from colonnade.kinds.synthesis.mixture.model import Matrix
from colonnade.tables.columns import Column

_LEAST_SHARE, _LEAST_DEVIATION = 0.02, 0.02
_MOST_SPREAD = 0.8  # of the variance that a share with this mean can have at most


def maximised_column(
    sums: Matrix, people: NDArray[np.float64], variance: float, column: Column, family: Family
) -> Matrix:
    """The parameters of one column, (K, ``family.width``), from sums whose noise has this variance."""
    if isinstance(family, Categorical):
        counts = sums if column.may_be_missing else sums + (people / family.size)[:, None]
        present = np.maximum(counts.sum(axis=1), 1.0) if column.may_be_missing else people
        shares = simplex(shrunk(counts / present[:, None], present, variance))
        return np.log((shares * present[:, None] + 1) / (present + family.size)[:, None])
    if isinstance(family, Bernoulli):
        chance = shrunk(0.5 + sums / people[:, None], people, variance)
        chance = (np.clip(chance, 0, 1) * people[:, None] + 1) / (people[:, None] + 2)
        return np.log(chance / (1 - chance))
    present = np.maximum(2 * sums[:, 2], 1.0) if column.may_be_missing else people
    moments = shrunk(sums[:, :2] / present[:, None], present, variance)
    middle = np.clip(0.5 + moments[:, 0], _LEAST_SHARE, 1 - _LEAST_SHARE)
    spread = 0.125 + moments[:, 1] - moments[:, 0] ** 2
    return from_moments(middle, spread, family)


def from_moments(middle: NDArray[np.float64], spread: NDArray[np.float64], family: Family) -> Matrix:
    """Parameters of a number's column whose mean and variance, as shares of its range, are these or the nearest."""
    spread = np.clip(spread, _LEAST_DEVIATION**2, _MOST_SPREAD * middle * (1 - middle))
    if isinstance(family, Gaussian):
        return np.column_stack([middle, 0.5 * np.log(spread)])
    if not isinstance(family, Beta):
        raise TypeError(f"{family} has no moments [VA142]")
    inside, variance = INSIDE + (1 - 2 * INSIDE) * middle, (1 - 2 * INSIDE) ** 2 * spread
    certainty = inside * (1 - inside) / variance - 1
    return np.log(np.column_stack([inside * certainty, (1 - inside) * certainty]))


def shrunk(found: Matrix, people: NDArray[np.float64], variance: float) -> Matrix:
    """Estimates of all components, pulled to their common mean as far as their distance from it may be noise.

    The positive-part rule of James and Stein, a component at a time; the deviation of the noise is known.
    """
    common = people @ found / people.sum()
    away = found - common
    noise = found.shape[1] * variance / people**2
    kept = np.maximum(0.0, 1 - noise / np.maximum((away**2).sum(axis=1), 1e-300))
    return np.asarray(common + kept[:, None] * away)


def simplex(found: Matrix) -> Matrix:
    """The nearest probability vector of every row."""
    ordered = -np.sort(-found, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, found.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    return np.asarray(np.maximum(found - excess[np.arange(len(found)), last][:, None], 0.0))
