"""Sensitivity of mixture updates weighted by responsibilities (docs/theory/mixture-sensitivity.md).

A row contributes ``r_k`` and ``r_k J_k`` for every component k, with ``r`` the responsibilities and ``J_k`` a
derivative (DPVI) or a statistic (EM) that each party clips in the clear. Both are integers: ``r`` has ``bits``
fractional bits and ``J`` has ``vector_bits``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.sensitivity import Real, checked_whole, rational


def responsibilities_square(bits: int, slack: Real) -> int:
    """The bound on the sum of squared integer responsibilities of a row that the committee enforces."""
    return math.floor((1 + rational(slack, "the slack")) ** 2 * (1 << 2 * checked_whole(bits, "the fractional bits")))


def vector_square(vector_bits: int, clip: Real) -> int:
    """The bound on a party's squared integer vector, which it enforces by clipping and rounding toward zero."""
    return math.floor(rational(clip, "a clip") ** 2 * (1 << 2 * checked_whole(vector_bits, "the fractional bits")))


@dataclass(frozen=True)
class MixtureBounds:
    """Bounds on what a row adds: weighted counts, of which each counts ``weight`` times, and every owner's vectors.

    Responsibilities add up to at most 1 + ``slack`` in magnitude, and none is below -``below`` units of the last place.
    """

    clips: tuple[Real, ...]
    bits: int
    vector_bits: int
    slack: Real = Fraction(1, 1024)
    below: Real = 0
    weight: Real = 1

    def added(self) -> int:
        """The squared length of what one row adds."""
        return self._most * (self._count + sum(self._squares))

    def replaced(self, holder: int | None = None) -> int:
        """How far a replaced row moves the sums, squared; the vectors of the ``holder``, if there is one, stay."""
        staying = self._count + (0 if holder is None else self._squares[holder])
        moving = self._count + sum(self._squares) - staying
        opposed = math.floor(8 * rational(self.below, "the slack of a sign") * staying * math.isqrt(self._most))
        return min(self._most * max(4 * moving, 2 * (moving + staying)) + opposed, 4 * self.added())

    @property
    def _most(self) -> int:
        return responsibilities_square(self.bits, self.slack)

    @property
    def _count(self) -> int:
        return vector_square(self.vector_bits, self.weight)

    @property
    def _squares(self) -> list[int]:
        return [vector_square(self.vector_bits, clip) for clip in self.clips]
