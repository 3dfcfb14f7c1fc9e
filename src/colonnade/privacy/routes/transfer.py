"""Gaussian accounting for integer noise: how far our noise is from the Gaussian it is accounted as.

Theorem T (``docs/theory/gaussian-transfer.md``) turns a figure for the Gaussian into one for the noise we
draw. It speaks of the noise alone, so it holds for sampled batches too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.additive import law_of, ratio
from colonnade.privacy.releases import PURE, View

REACHES = (12.0, 18.0, 27.0, 37.0)
"""Deviations within which the noise is compared: farther is less close but leaves less outside.

The last is the farthest at which a float still holds what is outside.
"""
MOST_CLOSENESS = 0.01


@dataclass(frozen=True)
class Closeness:
    """What Theorem T adds: ``close`` to the exponent, ``outside`` to delta."""

    close: float = 0.0
    outside: float = 0.0


EXACT = (Closeness(),)


def gaussian_square(view: View) -> float:
    """Squared sensitivity of one release in standard deviations of the unknown noise."""
    return ratio(Fraction(view.l2_squared), law_of(view.kind).unit * view.noise)


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


def closeness_of(view: View, z: float) -> Closeness:
    """What Theorem T adds for all noisy numbers of one view, compared within ``z`` deviations."""
    if view.kind == PURE or (found := law_of(view.kind).gaussian_gap(view, z)) is None:
        return Closeness()
    if law_of(view.kind).unit * view.noise < z * z:
        return Closeness(math.inf, math.inf)
    (gap, excess), count = found, view.dimension * view.times
    return Closeness(count * gap, count * 2 * math.exp(min(0.0, -z * z / 2 + excess)))
