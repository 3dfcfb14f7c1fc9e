"""Sensitivity of mixture updates weighted by responsibilities (docs/theory/mixture-sensitivity.md).

A row contributes ``r_k`` and ``r_k J_k`` for every component k, with ``r`` the responsibilities and ``J_k`` a
derivative (DPVI) or a statistic (EM) that each party clips in the clear. Both are integers: ``r`` has ``bits``
fractional bits and ``J`` has ``vector_bits``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from colonnade.privacy.sensitivity import Real, Sensitivity, checked_whole, rational


def responsibilities_square(bits: int, slack: Real) -> int:
    """The bound on the sum of squared integer responsibilities of a row that the committee enforces."""
    return math.floor((1 + rational(slack, "the slack")) ** 2 * (1 << 2 * checked_whole(bits, "the fractional bits")))


def vector_square(vector_bits: int, clip: Real) -> int:
    """The bound on a party's squared integer vector, which it enforces by clipping and rounding toward zero."""
    return math.floor(rational(clip, "a clip") ** 2 * (1 << 2 * checked_whole(vector_bits, "the fractional bits")))


def mixture_sensitivity(
    clips: Sequence[Real],
    dimension: int,
    bits: int,
    vector_bits: int,
    slack: Real = Fraction(1, 1024),
    weight: Real = 1,
) -> Sensitivity:
    """Sensitivity of the sums of ``weight r_k`` and ``r_k J_k`` over all components, ``dimension`` numbers in all."""
    row = vector_square(vector_bits, weight) + sum(vector_square(vector_bits, clip) for clip in clips)
    return Sensitivity.from_l2(responsibilities_square(bits, slack) * row, dimension)
