"""Renyi and Gaussian accounting of integer noise, also averaged over the coins of batches where an observer knows them.

Renyi divergences are computed order by order; orders are whole numbers, as the Skellam and the sampling bounds demand
(``docs/theory/skellam-renyi.md``, ``poisson-sampling.md``, ``pure-epsilon.md``). Theorem T (``gaussian-transfer.md``)
turns a figure for the Gaussian into one for the noise we draw. It speaks of the noise alone, so it holds for sampled
batches too. An average over how often one person took part is in ``known-coins.md``. Whatever is cut off or merged here
is counted on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from colonnade.privacy.accounting import special
from colonnade.privacy.accounting.loss_distributions import (
    HAIR,
    Array,
    find_last_nonpositive,
    gaussian_epsilon,
    log_gaussian_deltas,
)
from colonnade.privacy.noise_laws import PURE, View, law_of_event, ratio

_EVERY = 256
ORDERS: Array = np.array(
    [*range(2, _EVERY + 1), *range(272, 513, 16), *range(576, 1025, 64), *range(1280, 4097, 256)], dtype=np.float64
)
"""Whole orders; up to 256 without a gap, because the bound for a sample of order a uses all orders below a."""


# --- one release


def pure_rdp(epsilon: float, orders: Array = ORDERS) -> Array:
    """The largest Renyi divergence of a mechanism of pure ``epsilon``: that of binary randomised response."""
    # cosh((2a-1)e/2) / cosh(e/2) is 1 + 2 sinh(ae/2) sinh((a-1)e/2) / cosh(e/2): exact where it is near 1.
    small = np.minimum(orders * epsilon, 1.0) / orders
    near = np.log1p(2 * np.sinh(orders * small / 2) * np.sinh((orders - 1) * small / 2) / np.cosh(small / 2))
    far = (orders - 1) * epsilon + np.log1p(np.exp(-(2 * orders - 1) * epsilon)) - math.log1p(math.exp(-epsilon))
    return np.asarray(np.where(orders * epsilon <= 1, near, far) / (orders - 1) * (1 + 100 * HAIR))


def release_rdp(view: View) -> Array:
    """One release to everybody, at every order of :data:`ORDERS`."""
    if view.kind == PURE:
        return pure_rdp(view.pure)
    return law_of_event(view.kind).renyi(view, ORDERS)


# --- batches


@lru_cache(maxsize=1)
def _binomials() -> Array:
    """Logarithms of C(a, l) at [a - 2, l - 2] for a, l from 2 to 256; -inf above the diagonal."""
    a, each = np.arange(2, _EVERY + 1)[:, None], np.arange(2, _EVERY + 1)[None, :]
    logs = special.gammaln(a + 1) - special.gammaln(each + 1) - special.gammaln(np.maximum(a - each, 0) + 1)
    return np.asarray(np.where(each <= a, logs, -np.inf))


def secret_batch_rdp(tau: Array, rate: float) -> Array:
    """A Poisson sample whose coins the observer does not know; adding or removing one person."""
    known = tau[: _EVERY - 1]
    a, each = np.arange(2.0, _EVERY + 1)[:, None], np.arange(2.0, _EVERY + 1)[None, :]
    grown = (each - 1) * known
    with np.errstate(divide="ignore", over="ignore"):
        # The weights of l = 0 and l = 1 make up for the rest, so the sum is 1 plus these terms.
        excess = grown + np.log(-np.expm1(-grown))
        stay = (a - each) * math.log1p(-rate) if rate < 1 else np.where(a == each, 0.0, -np.inf)
        terms = _binomials() + np.where(each <= a, stay, -np.inf) + each * math.log(rate) + excess
    top = np.max(terms, axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total = np.log(np.sum(np.exp(terms - top), axis=1)) + top[:, 0]
    found = np.logaddexp(0.0, total) / (a[:, 0] - 1)
    found = np.where(np.isinf(np.maximum.accumulate(known)), math.inf, found)
    rest = np.full(len(ORDERS) - len(found), math.inf)
    return np.concatenate([found * (1 + 100 * HAIR) + 1e-15, rest])


def known_batch_rdp(tau: Array, rate: float) -> Array:
    """A Poisson sample whose coins the observer knows."""
    if rate == 1:
        return tau
    grown = (ORDERS - 1) * tau
    found = np.logaddexp(math.log1p(-rate), math.log(rate) + grown) / (ORDERS - 1)
    # log(1 - q + q e^x) of a small x is found without cancellation.
    small = grown < 1e-3
    found[small] = np.log1p(rate * np.expm1(grown[small])) / (ORDERS[small] - 1)
    return np.asarray(found * (1 + 100 * HAIR))


def view_rdp(view: View) -> Array:
    """All releases of a view together."""
    tau = release_rdp(view)
    if view.rate < 1:
        sampled = secret_batch_rdp if view.secret_batch else known_batch_rdp
        tau = sampled(tau, float(view.rate))
    return view.times * tau


# --- conversion


_FIXED = np.log1p(-1 / ORDERS) - np.log(ORDERS) / (ORDERS - 1)


def log_deltas(tau: Array, epsilon: float) -> Array:
    """Logarithm of the least delta over all orders; the last axis of ``tau`` runs over the orders."""
    exponents = (ORDERS - 1) * (tau - epsilon) + ORDERS * np.log1p(-1 / ORDERS) - np.log(ORDERS - 1)
    return np.asarray(np.minimum(np.min(exponents, axis=-1), 0.0))


class RenyiProfile:
    """The route that adds up Renyi divergences, such as those of :func:`view_rdp`."""

    name = "renyi"

    def __init__(self, tau: Array) -> None:
        """``tau`` are the sums at every order of :data:`ORDERS`; an infinite one proves nothing at its order."""
        self.tau = tau

    def epsilon(self, delta: float) -> float:
        """The least epsilon over all orders."""
        best = float(np.min(self.tau + _FIXED - math.log(delta) / (ORDERS - 1)))
        return max(0.0, best + HAIR * abs(best))

    def deltas(self, epsilons: Array) -> Array:
        """The least delta over all orders, at each epsilon."""
        return np.asarray([math.exp(float(log_deltas(self.tau, epsilon))) * (1 + HAIR) for epsilon in epsilons])


REACHES = (9.0, 12.0, 18.0, 27.0, 37.0)
"""Deviations within which the noise is compared: farther is less close but leaves less outside.

The last is the farthest at which a float still holds what is outside.
"""
MOST_CLOSENESS = 340.0
"""Theorem T holds for any; with more, epsilon would be above what the exponentials of the accountant hold."""
_CLOSE_ENOUGH = 1e-6


@dataclass(frozen=True)
class GaussianCloseness:
    """What Theorem T adds: ``close`` to the exponent, ``outside`` to delta."""

    close: float = 0.0
    outside: float = 0.0


EXACTLY_GAUSSIAN = (GaussianCloseness(),)


def gaussian_square(view: View) -> float:
    """Squared sensitivity of one release in standard deviations of the unknown noise."""
    return ratio(Fraction(view.l2_squared), law_of_event(view.kind).unit * view.noise)


def closeness(views: Sequence[View]) -> tuple[GaussianCloseness, ...]:
    """All noisy numbers of all views together, for each reach at which the noise is near enough to a Gaussian."""
    found = []
    for z in REACHES:
        parts = [closeness_of(view, z) for view in views]
        total = GaussianCloseness(math.fsum(one.close for one in parts), math.fsum(one.outside for one in parts))
        if total.close <= MOST_CLOSENESS:
            found.append(total)
        if not total.close:
            break
    # A nearer reach is closer, and leaves more outside: it is for noise so coarse that closeness tells.
    return tuple(found[1:] if len(found) > 1 and found[1].close <= _CLOSE_ENOUGH else found)


def closeness_of(view: View, z: float) -> GaussianCloseness:
    """What Theorem T adds for all noisy numbers of one view, compared within ``z`` deviations."""
    if view.kind == PURE:
        return GaussianCloseness()
    law = law_of_event(view.kind)
    if law.unit * view.noise < z * z:
        return GaussianCloseness(math.inf, math.inf)
    (gap, excess), count = law.gaussian_gap(view, z), view.dimension * view.times
    return GaussianCloseness(count * gap, count * 2 * math.exp(min(0.0, -z * z / 2 + excess)))


_MOST_ATOMS = 4096
_LOST = 1e-6  # of delta may go to what is cut off
_MOST_EPSILON = 1e7


@dataclass(frozen=True)
class DiscreteDistribution:
    """A law with few values: ``values`` rise, ``chances`` add up to at most 1, ``lost`` is what lies above."""

    values: Array
    chances: Array
    lost: float = 0.0

    def plus(self, other: DiscreteDistribution) -> DiscreteDistribution:
        """The law of the sum of two independent variables, merged upwards to few values."""
        values = np.add.outer(self.values, other.values).ravel()
        chances = np.multiply.outer(self.chances, other.chances).ravel()
        order = np.argsort(values)
        values, chances = values[order], chances[order]
        if len(values) > _MOST_ATOMS:
            ends = np.unique(np.linspace(0, len(values), _MOST_ATOMS + 1, dtype=np.int64))
            chances = np.add.reduceat(chances, ends[:-1])
            values = values[ends[1:] - 1]
        return DiscreteDistribution(values, chances, self.lost + other.lost)


def participation_counts(times: int, rate: float, lost: float) -> DiscreteDistribution:
    """The law of the number of batches, out of ``times``, that a person is in, up to a tail of at most ``lost``."""
    if rate >= 1:
        return DiscreteDistribution(np.array([float(times)]), np.array([1.0]))
    middle, spread = times * rate, math.sqrt(times * rate * (1 - rate)) + 1
    reach = 6.0
    while _above(high := min(times, math.ceil(middle + reach * spread)), times, rate) > lost:
        reach *= 1.25
    low = max(0, math.floor(middle - reach * spread))
    counts = np.arange(low, high + 1, dtype=np.float64)
    logs = special.gammaln(times + 1) - special.gammaln(counts + 1) - special.gammaln(times - counts + 1)
    logs += counts * math.log(rate) + (times - counts) * math.log1p(-rate)
    # gammaln of a large number is right to about 1e-15 of itself, which is what the margin grows with.
    chances = np.exp(logs) * (1 + 1e-14 * (10 + 8 * float(special.gammaln(times + 2))))
    if low > 0:
        # Fewer than the least count are taken for the least.
        chances[0] += float(special.betainc(times - low + 1, low, 1 - rate)) * (1 + 1e-6)
    return DiscreteDistribution(counts, chances, _above(high, times, rate) * (1 + 1e-6))


def _above(count: int, times: int, rate: float) -> float:
    """The chance of more than ``count`` successes."""
    return float(special.betainc(count + 1, times - count, rate)) if count < times else 0.0


class GaussianMixture:
    """The exact profile of Gaussian releases, averaged over the batches one person was in."""

    def __init__(self, parts: Sequence[tuple[float, int, float]]) -> None:
        """``parts``: squared sensitivity in deviations of one release, how many releases, and their rate."""
        self.full = math.fsum(square * times for square, times, rate in parts if rate >= 1)
        self.sampled = [part for part in parts if part[2] < 1]
        self._known: dict[float, DiscreteDistribution] = {}

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        if not self.sampled:
            return gaussian_epsilon(math.sqrt(self.full) * (1 + HAIR), delta)
        atoms = self._atoms(delta * _LOST)
        mus = np.sqrt(atoms.values) * (1 + HAIR)
        return _average_epsilon(atoms, delta, lambda epsilon: log_gaussian_deltas(mus, epsilon))

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        atoms = self._atoms(1e-20)
        mus = np.sqrt(atoms.values) * (1 + HAIR)
        logs = log_gaussian_deltas(mus[:, None], epsilons).reshape(len(mus), len(epsilons))
        return np.asarray(atoms.chances @ np.exp(logs) + atoms.lost)

    def _atoms(self, lost: float) -> DiscreteDistribution:
        if lost not in self._known:
            total = DiscreteDistribution(np.array([self.full]), np.array([1.0]))
            for square, times, rate in self.sampled:
                counted = participation_counts(times, rate, lost / len(self.sampled))
                total = total.plus(DiscreteDistribution(counted.values * square, counted.chances, counted.lost))
            self._known[lost] = total
        return self._known[lost]


class RenyiMixture:
    """The same average over Renyi profiles, for one kind of sampled release beside others that are not."""

    name = "renyi, averaged over known coins"

    def __init__(self, sampled: View, others: Sequence[View]) -> None:
        self.sampled, self.unit = sampled, release_rdp(sampled)
        self.fixed = np.sum([view_rdp(view) for view in others], axis=0) if others else np.zeros_like(self.unit)

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        atoms = participation_counts(self.sampled.times, float(self.sampled.rate), delta * _LOST)
        tau = self._tau(atoms)
        return _average_epsilon(atoms, delta, lambda epsilon: log_deltas(tau, epsilon))

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        atoms = participation_counts(self.sampled.times, float(self.sampled.rate), 1e-20)
        tau = self._tau(atoms)
        found = [float(atoms.chances @ np.exp(log_deltas(tau, epsilon))) for epsilon in epsilons]
        return np.asarray(found) + atoms.lost

    def _tau(self, atoms: DiscreteDistribution) -> Array:
        with np.errstate(invalid="ignore"):
            tau = self.fixed + np.where(atoms.values[:, None] == 0, 0.0, atoms.values[:, None] * self.unit)
        return np.asarray(tau)


def _average_epsilon(atoms: DiscreteDistribution, delta: float, log_deltas_at: Callable[[float], Array]) -> float:
    """The least epsilon, rounded up, at which the average of the atoms' deltas is at most ``delta``."""
    with np.errstate(divide="ignore"):
        logs = np.log(atoms.chances)
    target = math.log(delta - atoms.lost)

    def excess(epsilon: float) -> float:
        return float(np.logaddexp.reduce(logs + log_deltas_at(epsilon))) + HAIR - target

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while not excess(high) <= 0:
        high *= 2
        if high > _MOST_EPSILON:
            return math.inf
    return find_last_nonpositive(excess, high / 2 if high > 1 else 0.0, high) * (1 + HAIR)
