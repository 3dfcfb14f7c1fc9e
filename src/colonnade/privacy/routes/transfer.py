"""Gaussian accounting for integer noise: how far our noise is from the Gaussian it is accounted as.

Theorem T (``docs/theory/gaussian-transfer.md``) turns a figure for the Gaussian into one for the noise we
draw. It speaks of the noise alone, so it holds for sampled batches too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.events import PURE, View
from colonnade.privacy.releases import GaussianRelease, SkellamRelease
from colonnade.privacy.routes.renyi import ratio, shared_gaussian_gap

# Lemma T (docs/theory/skellam-close-to-gaussian.md): within z standard deviations the logarithms of the
# Skellam and the rounded Gaussian probabilities differ by at most (a z^4 + b z^2 + c) / (2 mu).
LEMMA_T = (1 / 12, 5 / 4, 2.0)
LEMMA_T_DISCRETE_GAUSSIAN = (0.0, 1 / 4, 1 / 2)
Z = 12.0
REACHES = (12.0, 18.0, 27.0, 37.0)
"""Deviations within which the noise is compared: farther is less close but leaves less outside.

The last is the farthest at which a float still holds what is outside.
"""
MOST_CLOSENESS = 0.01


def kappa(mu: float | Fraction, z: float = Z) -> float:
    """Lemma T: how far log-probabilities of Sk(mu) stray from the rounded Gaussian's within z deviations."""
    a, b, c = LEMMA_T
    return (a * z**4 + b * z**2 + c) * ratio(1, 2 * Fraction(mu))


def discrete_gaussian_kappa(sigma2: float | Fraction, z: float = Z) -> float:
    """The same for one discrete Gaussian of variance parameter ``sigma2``."""
    a, b, c = LEMMA_T_DISCRETE_GAUSSIAN
    return (a * z**4 + b * z**2 + c) * ratio(1, Fraction(sigma2))


@dataclass(frozen=True)
class Closeness:
    """What Theorem T adds: ``close`` to the exponent, ``outside`` to delta."""

    close: float = 0.0
    outside: float = 0.0


EXACT = (Closeness(),)


def gaussian_square(view: View) -> float:
    """Squared sensitivity of one release in standard deviations of the unknown noise."""
    return ratio(Fraction(view.l2_squared), _variance(view))


def closeness(views: Sequence[View]) -> tuple[Closeness, ...]:
    """All noisy numbers of all views together, for each reach at which the noise is near enough to a Gaussian."""
    found = []
    for z in REACHES:
        parts = [closeness_of(view, z) for view in views]
        total = Closeness(math.fsum(one.close for one in parts), math.fsum(one.outside for one in parts))
        if total.close <= MOST_CLOSENESS:
            found.append(total)
        if not total.close:
            break
    return tuple(found)


def _variance(view: View) -> Fraction:
    return 2 * view.noise if view.kind == SkellamRelease.kind else view.noise


def closeness_of(view: View, z: float) -> Closeness:
    """What Theorem T adds for all noisy numbers of one view, compared within ``z`` deviations."""
    if view.kind in (GaussianRelease.kind, PURE):
        return Closeness()
    variance = _variance(view)
    if variance < z * z:
        return Closeness(math.inf, math.inf)
    if view.kind == SkellamRelease.kind:
        gap, excess = kappa(view.noise, z), z**4 * ratio(1, 48 * view.noise)
    else:
        smallest = float(min(view.smallest, Fraction(10**6)))  # the gap only shrinks with larger shares
        gap, excess = discrete_gaussian_kappa(variance, z) + shared_gaussian_gap(smallest, view.parts), 0.0
    count = view.dimension * view.times
    return Closeness(count * gap, count * 2 * math.exp(min(0.0, -z * z / 2 + excess)))
