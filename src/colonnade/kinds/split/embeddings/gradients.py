"""Sums of people's gradients in whole numbers, of which each person's part is never longer than a radius.

Gradients are cut toward zero to whole steps of ``clip / radius``, which makes none of them longer. A gradient that is
too long in spite of that counts as zero: so the bound holds by a comparison of integers, and not by what floats
promise. Whole numbers below 2^53 are added without an error in float64, in whatever order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places

Integers = NDArray[np.int64]
_INSIDE = 1 - 2.0**-40  # room for the error of a norm in floats, so that hardly any row is refused by its integers
_SURE = 1 - 2.0**-29  # a sum of up to 2^22 squares in float64 errs by less than this part of it
_MOST_NUMBERS = 1 << 22
_EXACT = 1 << 53
_TOGETHER = 1 << 16
_AT_ONCE = 1 << 12
_LARGEST_RADIUS = 1 << 30


def whole_sum(learner: Learner, places: Places, slopes: Matrix, clip: float, radius: int) -> Integers:
    """The sum over these people of their gradients, each of norm at most ``clip``, in steps of ``clip / radius``."""
    if len(places) * radius >= _EXACT or learner.parameters > _MOST_NUMBERS:
        raise CapacityError(
            f"sums of gradients are exact up to {_MOST_NUMBERS:,} parameters and {_EXACT // radius:,} people a batch: "
            "use a smaller encoder or more batches [CA017]"
        )
    total = np.zeros(learner.parameters)
    factors = getattr(learner, "factors", None)  # only where gradients are products
    if factors is not None and factors(places[:0], slopes[:0]) is not None:
        for part in (slice(start, start + _AT_ONCE) for start in range(0, len(places), _AT_ONCE)):
            first, second = factors(places[part], slopes[part])
            total += whole_sum_of_products(first, second, clip, radius)
        return total.astype(np.int64)
    for each in learner.pull_back_each(places, slopes):
        for block in _blocks(each):
            with np.errstate(over="ignore"):  # a gradient that no float can hold counts as none
                scaled = each[block] * (radius / clip)
            total += whole_rows(scaled, radius).sum(axis=0)
    return total.astype(np.int64)


def whole_rows(rows: Matrix, radius: int) -> Matrix:
    """Rows in whole numbers, held as float64, whose squared norm is at most the square of ``radius``."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = np.isfinite(norms)
        factors = np.where(known, radius * _INSIDE / np.maximum(np.where(known, norms, radius), radius * _INSIDE), 0.0)
        whole = rows * factors[:, None]
    if not known.all():
        whole[~known] = 0.0
    np.trunc(whole, out=whole)
    return _enforced(whole, radius)


def whole_sum_of_products(first: Matrix, second: Matrix, clip: float, radius: int) -> Integers:
    """The same where the gradient of a person is all products of one vector's numbers with another's, (a times b,).

    That is so where an encoder ends in a linear map and nothing before it learns: the map is given the first vector,
    and the slope is the second. Both are made whole, with norms at most ``split_radius(radius)``. Then the products
    are whole and have a norm of at most ``radius``, and their sum over people is one product of matrices.
    """
    ours, theirs = split_radius(radius)
    total = np.zeros((first.shape[1], second.shape[1]))
    for block in _blocks(first):
        a, b = _finite(first[block], second[block])
        a_norms, b_norms = _norms(a), _norms(b)
        with np.errstate(over="ignore"):
            length = np.minimum(a_norms * b_norms / clip, 1.0)  # of the gradient, in clips
        left = np.trunc(a * (ours * _INSIDE / a_norms))
        right = np.trunc(b * (length * (theirs * _INSIDE) / b_norms))
        total += _enforced(left, ours).T @ _enforced(right, theirs)
    return total.astype(np.int64).ravel()


def split_radius(radius: int) -> tuple[int, int]:
    """The largest norms of the two vectors, in whole steps, whose product is at most ``radius``."""
    ours = 1 << (radius.bit_length() - 1) // 2
    return ours, radius // ours


def _enforced(whole: Matrix, radius: int) -> Matrix:
    """Rows of whole numbers; one whose squared norm is above that of the radius, in integers, becomes zero."""
    if radius > _LARGEST_RADIUS:
        raise ValueError("squares of such a radius do not fit integers [VA129]")
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", whole, whole)
    whole[~(squares <= 2.0 * radius * radius)] = 0.0  # what is left fits 62 bits
    doubtful = np.flatnonzero(squares > radius * radius * _SURE)
    exact = whole[doubtful].astype(np.int64)
    whole[doubtful[np.einsum("ij,ij->i", exact, exact) > radius * radius]] = 0.0
    return whole


def _norms(rows: Matrix) -> Matrix:
    """Norms of rows, (rows, 1); 1 for a row that is so short that its square is none."""
    with np.errstate(over="ignore", under="ignore"):
        found = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.where(found > 0, found, 1.0)


def _finite(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Both, with zeros where a number of either is not finite."""
    known = np.isfinite(first).all(axis=1, keepdims=True) & np.isfinite(second).all(axis=1, keepdims=True)
    return (first, second) if known.all() else (np.where(known, first, 0.0), np.where(known, second, 0.0))


def _blocks(rows: Matrix) -> list[slice]:
    """Blocks of rows that stay in the processor's cache."""
    size = max(1, _TOGETHER // max(1, rows.shape[1]))
    return [slice(start, start + size) for start in range(0, len(rows), size)]
