"""Sensitivity of products of second moments with public directions (docs/theory/subspace-iteration.md)."""

from __future__ import annotations

from colonnade.privacy.sensitivity import Sensitivity, changed_columns_sensitivity, checked_whole, integer_l1


def products_sensitivity(norm_squared: int, reach: int, entries: int, weight: int = 0) -> Sensitivity:
    """Sensitivity of the sum of ``z z' Q`` over rows with ``|z|^2 <= norm_squared``, all columns of Q together.

    ``reach`` bounds the spectral norm of all directions side by side, however many rounds ask for them. Beside the
    products, the sum of ``weight |z|^2`` is released; there are ``entries`` numbers in all.
    """
    for value in (norm_squared, reach, entries, weight):
        checked_whole(value, "a squared norm, the reach, a weight or a number of entries")
    fourth = norm_squared**2
    added = fourth * (reach**2 + weight**2)
    # Two rows of full length differ most in direction and not in length, or one is there and the other is nothing.
    replaced = fourth * max(2 * reach**2, reach**2 + weight**2)
    return Sensitivity(integer_l1(added, entries), added, integer_l1(replaced, entries), replaced)


def changed_products_sensitivity(
    changing: int, fixed: int, reach: int, entries: int, weight: int = 0
) -> tuple[int, int]:
    """L1 and squared L2 of the same when only some columns of one row change, with squared norm at most ``changing``.

    ``fixed`` bounds the squared norm of what stays the same, constants included.
    """
    for value in (reach, entries, weight):
        checked_whole(value, "the reach, a weight or a number of entries")
    _, moments = changed_columns_sensitivity(changing, fixed, 1)
    square = moments * reach**2 + (weight * changing) ** 2
    return integer_l1(square, entries), square
