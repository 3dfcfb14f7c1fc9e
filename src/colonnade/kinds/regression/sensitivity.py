"""Sensitivity of sums of gradients computed on integers (docs/theory/gradient-sensitivity.md).

Every program is ``x`` times an integer score of ``u = <w, x>``, with ``w`` public. It is bounded as it stands: no
comparison with the real-valued gradient, hence no rounding error to account for.

    program      score                                              weights       divide by
    linear       u - gamma y,  |y| <= label                         gamma w       gamma^3
    logistic     2 gamma^2 (1 - 2y) + u,  y in {0, 1}               gamma w       4 gamma^3
    cubic        24 gamma^6 (1 - 2y) + 12 gamma^4 u - u^3           gamma w       48 gamma^7
    published    gamma^2/2 - gamma^2 y + u                          gamma w / 4   gamma^3
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import (
    Exact,
    Rounding,
    Sensitivity,
    checked_whole,
    party_norm_squared,
    rational,
    root_up,
)

Program = Literal["linear", "logistic", "cubic", "published"]
_SCALES: dict[str, tuple[int, int]] = {"linear": (1, 3), "logistic": (4, 3), "cubic": (48, 7), "published": (1, 3)}


def gradient_scale(program: Program, gamma: int) -> int:
    """The number by which the released integers are divided to give a gradient."""
    if program not in _SCALES:
        raise PrivacyError(f"unknown gradient program {program!r}; choose from {', '.join(_SCALES)} [PR091]")
    factor, power = _SCALES[program]
    return int(factor * checked_whole(gamma, "the scale gamma", 1) ** power)


def worst_weights_squared(
    program: Program, gamma: int, columns: int, clip: float = 1.0, rounding: Rounding = "stochastic"
) -> int:
    """Largest squared norm of rounded weights of norm at most ``clip``, for noise that is fixed in advance."""
    return party_norm_squared(gamma, clip / 4 if program == "published" else clip, columns, rounding)


def inner_product_bound(norm_squared: Exact, weights_squared: Exact) -> Exact:
    """Largest ``|<w, x>|`` of integer vectors; a product of integers is an integer, so integers round down."""
    square = norm_squared * weights_squared
    return math.isqrt(square) if isinstance(square, int) else root_up(square)


def cubic_maximum(reach: Exact) -> Fraction:
    """The exact maximum of ``|1/2 - y + v/4 - v^3/48|`` over ``|v| <= reach`` and y in {0, 1}."""
    v = Fraction(reach)
    if v <= 2:
        return Fraction(1, 2) + v / 4 - v**3 / 48
    # The hump of v/4 - v^3/48 is 1/3, at v = 2; it is passed again, upside down, at v = 4.
    return Fraction(1, 2) + max(Fraction(1, 3), v**3 / 48 - v / 4)


def label_part(program: Program, gamma: int, label: int = 0) -> int:
    """Largest absolute value of the part of a score in which the label stands."""
    scale = gradient_scale(program, gamma)
    if program == "linear":
        return gamma * checked_whole(label, "the bound of the label")
    # Half of gamma^2 may have been rounded either way, so it is rounded up.
    return -(-scale // (2 * gamma))


def score_bound(program: Program, gamma: int, inner: Exact, label: int = 0) -> Exact:
    """Largest absolute value of the program's score when ``|<w, x>| <= inner``."""
    if program != "cubic":
        return inner + label_part(program, gamma, label)
    return gradient_scale(program, gamma) // gamma * cubic_maximum(Fraction(inner) / gamma**2)


def replacement_score_bound(program: Program, gamma: int, inner: Exact, label: int = 0) -> Exact:
    """The number that, times the norm of a row, bounds the change of its gradient when the row is replaced.

    The part without the label is ``x x' w`` times a number that is not negative, and two such matrices differ by no
    more than the larger of them; so only the label's part is doubled.
    """
    if program != "cubic":
        return inner + 2 * label_part(program, gamma, label)
    twice = 2 * score_bound(program, gamma, inner)
    if inner * inner > 12 * gamma**4:
        return twice
    return min(twice, 2 * label_part(program, gamma) + 12 * gamma**4 * inner)


def gradient_sensitivity(
    program: Program, gamma: int, norm_squared: Exact, weights_squared: Exact, columns: int, label: int = 0
) -> Sensitivity:
    """Sensitivity of a sum of gradients over rows with ``|x|^2 <= norm_squared``, at weights of that squared norm."""
    for value in (norm_squared, weights_squared):
        rational(value, "a squared norm")
    score = score_bound(program, gamma, inner_product_bound(norm_squared, weights_squared), label)
    added = Sensitivity.from_l2(norm_squared * score * score, columns)
    # Here the length of a vector is bounded, not an inner product, so the root is not rounded down.
    moved = replacement_score_bound(program, gamma, root_up(norm_squared * weights_squared), label)
    square = min(math.floor(norm_squared * moved * moved), added.replace_l2_squared)
    l1 = min(added.replace_l1, square, math.isqrt(columns * square))
    return Sensitivity(added.l1, added.l2_squared, l1, square)
