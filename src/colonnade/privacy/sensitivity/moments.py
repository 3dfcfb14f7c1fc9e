"""Sensitivity of sums of outer products (docs/theory/moments-sensitivity.md)."""

from __future__ import annotations

import math

from colonnade.privacy.sensitivity.exact import Sensitivity, checked_whole


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
