"""Sensitivity of the functional mechanism's coefficients over a box (docs/theory/functional-sensitivity.md).

Numbers lie in [-1, 1]; the coefficients are the entries of ``z z'``, each ordered pair (``full``) or each pair once
(``upper``, what we release), and for logistic regression also ``weight (1 - 2y) x``. On the grid of step 1/gamma
rounding stays in the box, so the integer program's sensitivity is gamma^2 times these numbers, rounded down.

:class:`Radii` describes rows by groups of coordinates, each with a bound on its L1 norm: a column and its one-hot
parts are one group. The grouped bounds are for the upper triangle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import Exact, Real, Sensitivity, rational, whole

Pairs = Literal["full", "upper"]


def _peak(constant: Fraction, slope: Fraction, curve: Fraction, reach: int) -> Fraction:
    """The maximum of ``constant + slope s - curve s^2`` over ``0 <= s <= reach``."""
    s = min(max(slope / (2 * curve), Fraction(0)), Fraction(reach))
    return constant + slope * s - curve * s * s


def _moved(coordinates: int, held: int, pairs: Pairs, linear: Real, constant: Real = 0) -> Fraction:
    """Max over ``s = |v|_1`` of what ``z z'`` moves plus ``constant + linear s``; ``v`` is zero beyond ``held``."""
    if pairs == "full":
        return _peak(Fraction(constant), 4 * coordinates + Fraction(linear), Fraction(4), held)
    if pairs != "upper":
        raise PrivacyError(f"unknown choice of pairs {pairs!r}; choose full or upper")
    curve = Fraction(2 * (held + 1), max(held, 1))
    return _peak(Fraction(constant), 2 * (coordinates + 1) + Fraction(linear), curve, held)


def linear_party_l1(coordinates: int, held: int, pairs: Pairs = "upper") -> Fraction:
    """L1 when one person's ``held`` of all ``coordinates`` (features and label) change."""
    whole(coordinates, "the number of coordinates", 1)
    if whole(held, "the number of changing coordinates") > coordinates:
        raise PrivacyError("more coordinates change than there are; count features, and the label as one")
    return _moved(coordinates, held, pairs, 0)


def linear_l1(features: int, pairs: Pairs = "upper", *, replace: bool = True, label_square: bool = True) -> Fraction:
    """L1 of linear regression's coefficients for a whole row; ``label_square`` says whether y^2 is among them."""
    coordinates = whole(features, "the number of features", 1) + 1
    if replace:
        # Without y^2 the worst pair of rows has the same label, which then acts as a weight 1 on the features.
        alone = pairs == "upper" and not label_square
        return logistic_party_l1(features, features) if alone else linear_party_l1(coordinates, coordinates, pairs)
    entries = coordinates**2 if pairs == "full" else coordinates * (coordinates + 1) // 2
    return Fraction(entries - (not label_square))


def logistic_party_l1(
    features: int, held: int, weight: Real = 1, pairs: Pairs = "upper", *, label: bool = False
) -> Fraction:
    """L1 when one person's ``held`` of all ``features`` change, and with ``label`` possibly the label in {0, 1} too."""
    if whole(held, "the number of changing features") > whole(features, "the number of features", 1):
        raise PrivacyError("more features change than there are; the label is not counted among them")
    linear = 2 * rational(weight, "the weight of the linear coefficients")
    kept = _moved(features, held, pairs, linear)
    # With the label flipped, the linear part moves by 2 weight |u|_1 in place of 2 weight |v|_1.
    return max(kept, _moved(features, held, pairs, -linear, linear * features)) if label else kept


def logistic_l1(features: int, weight: Real = 1, pairs: Pairs = "upper", *, replace: bool = True) -> Fraction:
    """L1 of ``x x'`` and ``weight (1 - 2y) x`` for a whole row; the paper's coefficients are weight 4, full, over 8."""
    if replace:
        return logistic_party_l1(features, features, weight, pairs, label=True)
    d = whole(features, "the number of features", 1)
    return (d * d if pairs == "full" else Fraction(d * (d + 1), 2)) + rational(weight, "the weight") * d


def integer_l1(l1: Fraction, gamma: int) -> int:
    """The L1 sensitivity of the integer program at scale gamma; its changes are integers, so it is rounded down."""
    return math.floor(whole(gamma, "the scale gamma", 1) ** 2 * l1)


def linear_coefficients_sensitivity(features: int, gamma: int, pairs: Pairs = "upper") -> Sensitivity:
    """All four integers for linear regression's coefficients, y^2 included: L1 for Laplace, L2 for Gaussian noise."""
    coordinates = whole(features, "the number of features", 1) + 1
    square = _entries_square(coordinates, pairs) * gamma**4
    added, replaced = (integer_l1(linear_l1(features, pairs, replace=replace), gamma) for replace in (False, True))
    return Sensitivity(added, math.floor(square), replaced, math.floor(2 * square))


def logistic_coefficients_sensitivity(
    features: int, gamma: int, weight: int = 1, pairs: Pairs = "upper"
) -> Sensitivity:
    """All four integers for logistic regression's coefficients ``x x'`` and ``weight (1 - 2y) gamma x``."""
    added, replaced = (
        integer_l1(logistic_l1(features, weight, pairs, replace=replace), gamma) for replace in (False, True)
    )
    square = _entries_square(features, pairs) + weight**2 * features
    curve = Fraction(1) if pairs == "full" else Fraction(features + 1, 2 * features)
    against = _peak(Fraction(0), Fraction(weight**2), curve, features)
    return Sensitivity(
        added, math.floor(gamma**4 * square), replaced, math.floor(gamma**4 * min(2 * (square + against), 4 * square))
    )


def _entries_square(coordinates: int, pairs: Pairs) -> Fraction:
    return Fraction(coordinates**2 if pairs == "full" else coordinates * (coordinates + 1) // 2)


def blocks_epsilon(sensitivities: Sequence[Real], scales: Sequence[Real]) -> Fraction:
    """Epsilon of blocks of coefficients, each with Laplace noise of its own scale: the sum of sensitivity / scale."""
    if any(scale <= 0 for scale in scales):
        raise PrivacyError("the scale of Laplace noise must be positive in every block")
    parts = zip(sensitivities, scales, strict=True)
    return sum((rational(delta, "a sensitivity") / Fraction(scale) for delta, scale in parts), Fraction(0))


# --- groups of coordinates


@dataclass(frozen=True)
class Radii:
    """L1 radii of groups of coordinates: groups of one coordinate, and groups of several."""

    alone: tuple[Exact, ...] = ()
    several: tuple[Exact, ...] = ()

    @classmethod
    def of(cls, groups: Sequence[tuple[int, Exact]]) -> Radii:
        """From pairs of a number of coordinates and a radius."""
        for width, radius in groups:
            whole(width, "the number of coordinates of a group", 1)
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
