"""How far one person can move what is released: exact bounds that are only rounded up, and those of second moments.

Four integers describe every release; the theorems of kinds stand in their folders.

Square roots are taken of integers with ``isqrt`` and rounded up, so no bound is below the real number it stands for.

Second moments are those of clipped, rounded rows, of their outer products, and of groups of columns:
``docs/theory/moments-sensitivity.md`` proves the bounds in L2, which are only rounded up; clips arrive as floats, which
are exact fractions. ``docs/theory/functional-sensitivity.md`` has those in L1, for the functional mechanism: the
coefficients are the entries of ``z z'``, each pair of coordinates once. :class:`CoordinateRadii` describes rows by
groups of coordinates, each with a bound on its L1 norm: a column and its one-hot parts are one group. On the grid of
step 1/gamma rounding stays in the box, so the integer program's sensitivity is gamma^2 times these numbers, rounded
down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

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

        A squared length of integers is an integer, so it is rounded *down*.
        """
        square = math.floor(l2_squared)
        l1 = integer_l1(square, dimension)
        return cls(l1, square, 2 * l1, 4 * square)


def integer_l1(square: int, dimension: int) -> int:
    """The largest L1 norm of so many integers with this squared length.

    It is at most the square, because an integer is at most its square, and at most ``sqrt(dimension)`` times the
    length.
    """
    return min(square, math.isqrt(checked_whole(dimension, "the number of coordinates", 1) * square))


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


def moments_sensitivity(norm_squared: int, columns: int) -> Sensitivity:
    """Sensitivity of the sum of ``x x'`` over rows with ``|x|^2 <= norm_squared`` and ``columns`` entries.

    Replacing a row costs a factor sqrt(2) in L2, not 2, because the inner product of ``x x'`` and ``y y'`` is
    a square and so never negative.
    """
    for value in (norm_squared, columns):
        checked_whole(value, "a squared norm or a number of columns")
    l1, l2_squared = columns * norm_squared, norm_squared**2
    return Sensitivity(l1, l2_squared, 2 * l1, 2 * l2_squared)


def changed_columns_sensitivity(changing: int, fixed: int, columns: int) -> tuple[int, int]:
    """L1 and squared L2 of ``x x'`` when some columns of one row change, with squared norm at most ``changing``.

    ``fixed`` bounds the squared norm of what stays the same, constants included; there are ``columns`` in all.
    """
    for value in (changing, fixed, columns):
        checked_whole(value, "a squared norm or a number of columns")
    square = 2 * (changing + fixed) ** 2 if changing >= fixed else 8 * changing * fixed
    if not changing:
        return 0, 0
    # Integers: L1 is at most the squared length, and at most the length times the root of the number of entries.
    return min(square, math.isqrt(columns**2 * square)), square


Rounding = Literal["stochastic", "nearest", "toward_zero", "exact"]
# How far rounding may push one coordinate away from zero.
_PUSH: dict[str, Fraction] = {
    "stochastic": Fraction(1),
    "nearest": Fraction(1, 2),
    "toward_zero": Fraction(0),
    "exact": Fraction(0),
}
_MODES = {"toward-zero": "toward_zero"}


def _check(gamma: int, clip: float, width: int, rounding: str) -> Fraction:
    checked_whole(gamma, "the scale gamma", 1)
    checked_whole(width, "a number of columns")
    if rounding not in _PUSH:
        raise PrivacyError(f"unknown rounding {rounding!r}; choose from {', '.join(_PUSH)} [PR100]")
    return gamma * rational(clip, "a clip")


def _party_square(gamma: int, clip: float, width: int, rounding: Rounding) -> Fraction:
    # |x_hat| <= |gamma x| + push sqrt(n): the rounding error has n coordinates of size at most push.
    reach = _check(gamma, clip, width, rounding)
    push = _PUSH[rounding]
    return reach * reach + push * push * width + 2 * root_up(reach * reach * push * push * width)


@lru_cache(maxsize=1024, typed=True)  # a search for the noise asks for the same norms again and again
def party_norm_squared(gamma: int, clip: float, width: int, rounding: Rounding = "stochastic") -> int:
    """Largest squared norm of one party's rounded sub-row; a party checks its integers against this number.

    A rounded row is a row of integers, so its squared norm is an integer and the bound may be rounded down.
    """
    return math.floor(_party_square(gamma, clip, width, rounding))


def rounded_norm_squared(
    gamma: int,
    clips: Sequence[float],
    widths: Sequence[int],
    rounding: Rounding = "stochastic",
    constants: Sequence[int] = (),
) -> int:
    """Largest squared norm of a whole rounded row; a constant column of value k adds exactly k^2."""
    parts = zip(clips, widths, strict=True)
    own = sum(party_norm_squared(gamma, clip, width, rounding) for clip, width in parts)
    return own + sum(int(value) ** 2 for value in constants)


def conditional_norm_squared(gamma: int, clip: float, width: int, beta: float = math.exp(-0.5)) -> int:
    """What a party enforces when it redraws its stochastic rounding until the norm is small (KLS21).

    ``beta`` bounds the chance that one draw is rejected; the bound itself is enforced and costs no delta.
    """
    return math.floor(_conditional_square(gamma, clip, width, beta))


def enforced_norm_squared(gamma: int, clip: float, width: int, sources: int, mode: str) -> int:
    """The bound on a party's squared norm that it enforces under a way of rounding, at most gamma^2 for each column.

    A number stays in its box whichever way it is rounded, and of a one-hot category at most one part is not zero.
    """
    if mode == "conditional":
        ball = conditional_norm_squared(gamma, clip, width)
    else:
        ball = party_norm_squared(gamma, clip, width, _MODES.get(mode, mode))
    return min(ball, gamma * gamma * sources)


def _conditional_square(gamma: int, clip: float, width: int, beta: float) -> Fraction:
    if not 0 < beta < 1:
        raise PrivacyError(f"the rejection chance must lie strictly between 0 and 1, not {beta} [PR101]")
    reach = _check(gamma, clip, width, "stochastic")
    # The factor is a float, but any value is sound here: the party enforces the very number this returns.
    factor = Fraction(math.sqrt(2 * -math.log(beta)))
    centre = reach * reach + Fraction(width, 4)
    return min(
        centre + factor * (reach + root_up(width) / 2),
        _party_square(gamma, clip, width, "stochastic"),
    )


@dataclass(frozen=True)
class CoordinateRadii:
    """L1 radii of groups of coordinates: groups of one coordinate, and groups of several."""

    alone: tuple[Exact, ...] = ()
    several: tuple[Exact, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[tuple[int, Exact]]) -> CoordinateRadii:
        """From pairs of a number of coordinates and a radius."""
        for width, radius in groups:
            checked_whole(width, "the number of coordinates of a group", 1)
            rational(radius, "the radius of a group")
        return cls(
            tuple(radius for width, radius in groups if width == 1),
            tuple(radius for width, radius in groups if width > 1),
        )

    def __add__(self, other: CoordinateRadii) -> CoordinateRadii:
        return CoordinateRadii(self.alone + other.alone, self.several + other.several)

    @property
    def total(self) -> Exact:
        """The largest L1 norm of a row."""
        return sum(self.alone) + sum(self.several)

    @property
    def squares(self) -> Exact:
        """The largest squared L2 norm of a row."""
        return sum(radius * radius for radius in (*self.alone, *self.several))


def grouped_l1(fresh: CoordinateRadii, beside: Exact = 0) -> Fraction:
    """L1 of one row's products within ``fresh`` (each pair once) and with coordinates of L1 norm ``beside``."""
    return Fraction(fresh.total**2 + fresh.squares, 2) + fresh.total * beside


def grouped_replace_l1(changing: CoordinateRadii, fixed: Exact = 0) -> Fraction:
    """How far these products move when one row's ``changing`` groups do; ``fixed`` is the L1 norm of what does not."""
    singles, several = CoordinateRadii(changing.alone), CoordinateRadii((), changing.several)
    # A group of several coordinates can move all of its mass elsewhere: nothing is better than twice its own products.
    apart = 2 * grouped_l1(several, fixed + singles.total)
    level = _water_level(singles.alone, Fraction(fixed))
    cut = sum(radius * radius - min(level, radius) ** 2 for radius in singles.alone)
    return apart + ((singles.total + Fraction(fixed)) ** 2 - level * level + cut) / 2


def _water_level(radii: Sequence[Exact], volume: Fraction) -> Fraction:
    """The level t with ``t + sum min(t, radius) = volume``."""
    filled, left = Fraction(0), sorted(radii)
    for index, radius in enumerate(left):
        level = (volume - filled) / (1 + len(left) - index)
        if level <= radius:
            return level
        filled += radius
    return volume - filled
