"""Expectation maximisation of a mixture from noisy sums: the public part, equal at every participant.

A round opens, for every component, the sum of responsibilities and the sums of each owner's statistics weighted by
them, over all rows. Statistics of earlier rounds are averaged in, with weights that fall as in stochastic
approximation: the noise is fresh in every round, while the responsibilities soon change little
(docs/theory/mixture-model.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.families import INSIDE, Bernoulli, Beta, Categorical, Family, Gaussian
from colonnade.kinds.synthesis.mixture.model import MixtureModel
from colonnade.kinds.synthesis.mixture.statistics import OwnStatistics
from colonnade.tables.columns import Column

Matrix = NDArray[np.float64]
_FORGETTING = 0.6
_LEAST_SHARE, _LEAST_DEVIATION = 0.02, 0.02
_MOST_SPREAD = 0.8  # of the variance that a share with this mean can have at most


class Expectation:
    """The parameters so far; :meth:`step` takes what was opened at :attr:`parameters`.

    ``deviation`` is that of the noise on every opened number, in people; it is public, and says how far sums are
    believed.
    """

    def __init__(self, model: MixtureModel, start: Matrix, deviation: float) -> None:
        self.model = model
        self.statistics = tuple(OwnStatistics(own) for own in model.owns)
        self.parameters = start.copy()
        ends = np.cumsum([1, *(own.width for own in self.statistics)])
        self.parts = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
        """Which of the opened sums belong to which owner; the first is that of the responsibilities."""
        self.width = int(ends[-1])
        self._deviation = deviation
        self._sums, self._variance, self._done = np.zeros((model.components, self.width)), 0.0, 0

    def step(self, sums: Matrix) -> None:
        """The next parameters from the opened sums, (K, ``width``), in people."""
        self._done += 1
        fresh = self._done**-_FORGETTING
        self._sums += fresh * (sums - self._sums)
        self._variance = (1 - fresh) ** 2 * self._variance + fresh**2 * self._deviation**2
        self.parameters = self.maximised(self._sums, self._variance)

    def maximised(self, sums: Matrix, variance: float) -> Matrix:
        """The parameters that fit the sums best under the priors, whose noise has this variance."""
        found = np.empty_like(self.parameters)
        people = np.maximum(sums[:, 0], max(np.sqrt(variance), 1.0))
        found[:, 0] = np.log(people + 1)
        for own, part, place in zip(self.statistics, self.parts, self.model.parts, strict=True):
            held, out = sums[:, part], found[:, place]
            for name, family in own.own.families.items():
                column, target = own.own.schema.columns[name], out[:, own.own.places[name]]
                target[:] = _fitted(held[:, own.places[name]], people, variance, column, family)
        return np.clip(found, -LIMIT, LIMIT)


def _fitted(sums: Matrix, people: NDArray[np.float64], variance: float, column: Column, family: Family) -> Matrix:
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


def expected_sums(statistics: Sequence[Matrix], joint: Matrix) -> Matrix:
    """The sums that a round opens, before noise: of responsibilities and of every owner's weighted statistics."""
    weights = softmax(joint, axis=1)
    return np.column_stack([weights.sum(axis=0), *(weights.T @ held for held in statistics)])
