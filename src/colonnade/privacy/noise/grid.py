"""Noise for reals: put them on a grid, then add integer noise that was drawn exactly.

Floating-point noise added to a floating-point number leaks the number's low bits. On a grid every sum is exact.
``docs/theory/grid-noise.md`` shows the leak and proves the sensitivity bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.sensitivity.exact import checked_whole, rational, root_up
from colonnade.randomness import Stream

Real = Fraction | float | int

FLOAT_SLACK = Fraction(1, 1 << 20)
"""The part of a sensitivity that is added to it, for the error of the released function in float64."""

_MOST_BITS = 60
_LARGEST_VALUE = 1 << 62  # with the noise below it the sum stays inside 64 bits
_LARGEST_VARIANCE = 1 << 114


@dataclass(frozen=True)
class Grid:
    """The multiples of ``2^-bits``, on which reals are released."""

    bits: int = 30

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 0 <= self.bits <= _MOST_BITS:
            raise PrivacyError(f"a grid has a whole number of bits from 0 to {_MOST_BITS} [PR042]")

    @property
    def step(self) -> Fraction:
        """The distance of neighbouring points."""
        return Fraction(1, 1 << self.bits)

    def quantise(self, values: ArrayLike) -> NDArray[np.int64]:
        """The nearest grid points, as integers; half-way goes to the even one."""
        reals = np.asarray(values, dtype=np.float64)
        if not np.isfinite(reals).all():
            raise DataError(
                "a value to be released is not a finite number; clip values before they reach the grid [DA106]"
            )
        with np.errstate(over="ignore"):
            scaled = np.rint(np.ldexp(reals, self.bits))
        if (np.abs(scaled) >= _LARGEST_VALUE).any():
            raise CapacityError(
                f"a value is too large for a grid of {self.bits} bits; clip it or take fewer bits [CA009]"
            )
        return scaled.astype(np.int64)

    def real(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grid points as floats; beyond 2^53 the nearest float, which costs no privacy."""
        return np.ldexp(integers.astype(np.float64), -self.bits)

    def sensitivity_squared(self, l2: Real, count: int) -> int:
        """Squared L2 sensitivity in steps of ``count`` released numbers that move by at most ``l2``."""
        reach = self._steps(l2, count)
        # (reach + sqrt(count))^2 = inner + sqrt(cross)
        inner, cross = reach * reach + count, 4 * reach * reach * count
        bound = math.ceil(inner + root_up(cross))
        lower = bound - 1 - inner  # the root was rounded up, perhaps across an integer
        return bound - 1 if lower >= 0 and lower * lower >= cross else bound

    def sensitivity_l1(self, l1: Real, count: int) -> int:
        """L1 sensitivity in steps of ``count`` released numbers that move by at most ``l1`` in sum."""
        return math.ceil(self._steps(l1, count) + count)

    def variance(self, deviation: Real) -> Fraction:
        """The variance, in steps squared, of noise whose standard deviation is ``deviation``."""
        return (rational(deviation, "a standard deviation") / self.step) ** 2

    def release(self, values: ArrayLike, deviation: Real, stream: Stream) -> NDArray[np.int64]:
        """Grid points of the values plus exact discrete Gaussian noise, in steps."""
        points, variance = self.quantise(values), self.variance(deviation)
        if variance > _LARGEST_VARIANCE:
            raise CapacityError(f"the noise is too large for a grid of {self.bits} bits; take fewer bits [CA010]")
        return points + discrete_gaussian(variance, points.shape, stream)

    def _steps(self, distance: Real, count: int) -> Fraction:
        checked_whole(count, "how many numbers are released")
        return rational(distance, "a sensitivity") * (1 + FLOAT_SLACK) / self.step
