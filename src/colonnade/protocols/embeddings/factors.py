"""Sums of gradients that are products of two short vectors each, in whole numbers, without listing a single gradient.

Where an encoder ends in a linear map, and nothing before it learns, the gradient of a row is a_i b_j for all i and j: a
is what the map is given, b is the slope. Its norm is |a| |b|, and a sum over rows is one product of matrices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.protocols.embeddings.learner import Matrix

Integers = NDArray[np.int64]
_INSIDE = 1 - 2.0**-40  # room for the error of a norm in floats
_EXACT = 1 << 53  # float64 holds all integers below it, and so do sums of products that stay below it


def whole_sum_of_products(first: Matrix, second: Matrix, clip: float, radius: int) -> Integers:
    """The sum over rows of all products of ``first`` with ``second``, in steps of ``clip / radius``, (a times b,).

    The products of one row are whole numbers, and the square of their norm is at most the square of ``radius``, which
    is compared in integers: both vectors of a row are whole, and their norms are at most ``split_radius(radius)``.
    """
    ours, theirs = split_radius(radius)
    if len(first) * ours * theirs >= _EXACT:
        raise CapacityError("too many rows for exact sums of gradients: use more batches")
    finite = np.isfinite(np.hstack([first, second])).all(axis=1, keepdims=True)
    a, b = np.where(finite, first, 0.0), np.where(finite, second, 0.0)
    a_norms, b_norms = _norms(a), _norms(b)
    units = a / a_norms * (ours * _INSIDE)
    with np.errstate(over="ignore"):
        length = np.minimum(a_norms * b_norms / clip, 1.0)  # of the gradient, in clips
    left, right = _whole(units, ours), _whole(b / b_norms * length * (theirs * _INSIDE), theirs)
    return (left.T @ right).astype(np.int64).ravel()


def split_radius(radius: int) -> tuple[int, int]:
    """The largest norms of the two vectors, in whole steps, whose product is at most ``radius``."""
    ours = 1 << (radius.bit_length() - 1) // 2
    return ours, radius // ours


def _whole(rows: Matrix, radius: int) -> Matrix:
    """Rows cut toward zero to whole numbers; one that is longer than the radius in spite of that becomes zero."""
    whole = np.trunc(rows)
    whole[np.abs(whole).max(axis=1, initial=0.0) > radius] = 0.0  # so that squares fit integers
    exact = whole.astype(np.int64)
    whole[np.einsum("ij,ij->i", exact, exact) > radius * radius] = 0.0
    return whole


def _norms(rows: Matrix) -> Matrix:
    """Norms of rows, also of tiny numbers; 1 for a row of zeros."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    largest[largest == 0] = 1.0
    scaled = np.linalg.norm(rows / largest, axis=1, keepdims=True)
    scaled[scaled == 0] = 1.0
    with np.errstate(over="ignore"):
        return np.asarray(largest * scaled)
