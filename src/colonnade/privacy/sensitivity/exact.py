"""Exact arithmetic that only rounds up, and the four integers that describe every release.

Square roots are taken of integers with ``isqrt`` and rounded up, so no bound is below the real number it stands for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from colonnade.errors import PrivacyError

Exact = int | Fraction
Real = int | float | Fraction
_ROOT_BITS = 64


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a released integer vector, when a row is added or removed and when it is replaced."""

    l1: int
    l2_squared: int
    replace_l1: int
    replace_l2_squared: int

    @classmethod
    def from_l2(cls, l2_squared: Exact, dimension: int) -> Sensitivity:
        """For sums of integer vectors about which only the length is known; replacing a row doubles it.

        A squared length of integers is an integer, so it is rounded *down*. L1 is at most the square, because an
        integer is at most its square, and at most ``sqrt(dimension)`` times the length.
        """
        square = math.floor(l2_squared)
        l1 = min(square, math.isqrt(checked_whole(dimension, "the number of coordinates", 1) * square))
        return cls(l1, square, 2 * l1, 4 * square)


def root_up(value: Fraction | int) -> Fraction:
    """A fraction at least ``sqrt(value)`` and within 2^-63 of it."""
    # With s = 2^64, let c = ceil(value s^2) and r the least integer with r^2 >= c: then r/s >= sqrt(value).
    scaled = math.ceil(Fraction(value) * (1 << (2 * _ROOT_BITS)))
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 1 << _ROOT_BITS)


def float_up(value: Fraction | int) -> float:
    """The least float that is not below ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def checked_whole(value: int, what: str, least: int = 0) -> int:
    """The value, if it is a whole number that is not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PrivacyError(f"{what} must be a whole number, {least} or more, not {value!r} [PR089]")
    return value


def rational(value: Real, what: str) -> Fraction:
    """The value as the exact fraction it is, if it is finite and not negative."""
    if isinstance(value, bool) or not (math.isfinite(value) and value >= 0):
        raise PrivacyError(f"{what} must be a finite number, not negative: {value!r} [PR090]")
    return Fraction(value)
