"""Sensitivity of the functional mechanism's coefficients (docs/theory/functional-sensitivity.md).

The coefficients are the entries of ``z z'``, each pair of coordinates once.
:class:`Radii` describes rows by groups of coordinates, each with a bound on its L1 norm: a column and its one-hot
parts are one group. On the grid of step 1/gamma rounding stays in the box, so the integer program's
sensitivity is gamma^2 times these numbers, rounded down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from colonnade.privacy.sensitivity.exact import Exact, checked_whole, rational


@dataclass(frozen=True)
class Radii:
    """L1 radii of groups of coordinates: groups of one coordinate, and groups of several."""

    alone: tuple[Exact, ...] = ()
    several: tuple[Exact, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[tuple[int, Exact]]) -> Radii:
        """From pairs of a number of coordinates and a radius."""
        for width, radius in groups:
            checked_whole(width, "the number of coordinates of a group", 1)
            rational(radius, "the radius of a group")
        return cls(
            tuple(radius for width, radius in groups if width == 1),
            tuple(radius for width, radius in groups if width > 1),
        )

    def __add__(self, other: Radii) -> Radii:
        return Radii(self.alone + other.alone, self.several + other.several)

    @property
    def total(self) -> Exact:
        """The largest L1 norm of a row."""
        return sum(self.alone) + sum(self.several)

    @property
    def squares(self) -> Exact:
        """The largest squared L2 norm of a row."""
        return sum(radius * radius for radius in (*self.alone, *self.several))


def grouped_l1(fresh: Radii, beside: Exact = 0) -> Fraction:
    """L1 of one row's products within ``fresh`` (each pair once) and with coordinates of L1 norm ``beside``."""
    return Fraction(fresh.total**2 + fresh.squares, 2) + fresh.total * beside


def grouped_replace_l1(changing: Radii, fixed: Exact = 0) -> Fraction:
    """How far these products move when one row's ``changing`` groups do; ``fixed`` is the L1 norm of what does not."""
    singles, several = Radii(changing.alone), Radii((), changing.several)
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
