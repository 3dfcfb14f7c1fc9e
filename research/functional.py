"""Tight bounds of the functional mechanism over a box, to compare with what the papers print; no protocol uses them.

Numbers lie in [-1, 1]; the coefficients are the entries of ``z z'``, each ordered pair (``full``) or each pair once
(``upper``), and for logistic regression also ``weight (1 - 2y) x``. ``docs/theory/functional-sensitivity.md`` has the
proofs. On the grid of step 1/gamma rounding stays in the box, so the integer program's sensitivity is gamma^2 times
these numbers, rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import Real, Sensitivity, checked_whole, rational

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
        raise PrivacyError(f"unknown choice of pairs {pairs!r}; choose full or upper [PR143]")
    curve = Fraction(2 * (held + 1), max(held, 1))
    return _peak(Fraction(constant), 2 * (coordinates + 1) + Fraction(linear), curve, held)


def linear_party_l1(coordinates: int, held: int, pairs: Pairs = "upper") -> Fraction:
    """L1 when one person's ``held`` of all ``coordinates`` (features and label) change."""
    checked_whole(coordinates, "the number of coordinates", 1)
    if checked_whole(held, "the number of changing coordinates") > coordinates:
        raise PrivacyError("more coordinates change than there are; count features, and the label as one [PR144]")
    return _moved(coordinates, held, pairs, 0)


def linear_l1(features: int, pairs: Pairs = "upper", *, replace: bool = True, label_square: bool = True) -> Fraction:
    """L1 of linear regression's coefficients for a whole row; ``label_square`` says whether y^2 is among them."""
    coordinates = checked_whole(features, "the number of features", 1) + 1
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
    if checked_whole(held, "the number of changing features") > checked_whole(features, "the number of features", 1):
        raise PrivacyError("more features change than there are; the label is not counted among them [PR145]")
    linear = 2 * rational(weight, "the weight of the linear coefficients")
    kept = _moved(features, held, pairs, linear)
    # With the label flipped, the linear part moves by 2 weight |u|_1 in place of 2 weight |v|_1.
    return max(kept, _moved(features, held, pairs, -linear, linear * features)) if label else kept


def logistic_l1(features: int, weight: Real = 1, pairs: Pairs = "upper", *, replace: bool = True) -> Fraction:
    """L1 of ``x x'`` and ``weight (1 - 2y) x`` for a whole row; the paper's coefficients are weight 4, full, over 8."""
    if replace:
        return logistic_party_l1(features, features, weight, pairs, label=True)
    d = checked_whole(features, "the number of features", 1)
    return (d * d if pairs == "full" else Fraction(d * (d + 1), 2)) + rational(weight, "the weight") * d


def integer_l1(l1: Fraction, gamma: int) -> int:
    """The L1 sensitivity of the integer program at scale gamma; its changes are integers, so it is rounded down."""
    return math.floor(checked_whole(gamma, "the scale gamma", 1) ** 2 * l1)


def linear_coefficients_sensitivity(features: int, gamma: int, pairs: Pairs = "upper") -> Sensitivity:
    """All four integers for linear regression's coefficients, y^2 included: L1 for Laplace, L2 for Gaussian noise."""
    coordinates = checked_whole(features, "the number of features", 1) + 1
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
        raise PrivacyError("the scale of Laplace noise must be positive in every block [PR146]")
    parts = zip(sensitivities, scales, strict=True)
    return sum((rational(delta, "a sensitivity") / Fraction(scale) for delta, scale in parts), Fraction(0))
