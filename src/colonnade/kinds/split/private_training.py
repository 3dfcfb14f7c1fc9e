"""Sums of clipped gradients and embeddings in whole numbers, by which encoders learn and speak under noise.

Each update is a sum over a batch of people's gradients, each clipped and cut to whole numbers, so that each person's
part is never longer than a radius, plus discrete Gaussian noise (DP-SGD); docs/theory/private-updates.md says what all
updates together are worth. What is done with such a sum is free, so a step may have momentum or be that of Adam, and
the trained encoder may be used for ever.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.kinds.split.embedding_task import GRADIENT_BITS
from colonnade.kinds.split.encoder_base import Matrix, Places, RowEncoder, Vector, row_blocks

Integers = NDArray[np.int64]

_INSIDE = 1 - 2.0**-40  # room for the error of a norm in floats, so that hardly any row is refused by its integers
_SURE = 1 - 2.0**-29  # a sum of up to 2^22 squares in float64 errs by less than this part of it
_MOST_NUMBERS = 1 << 22
_EXACT = 1 << 53
_TOGETHER = 1 << 16  # numbers of rows that stay in the processor's cache
_AT_ONCE = 1 << 12
_LARGEST_RADIUS = 1 << 30


def sum_clipped_gradients(learner: RowEncoder, places: Places, slopes: Matrix, clip: float, radius: int) -> Integers:
    """The sum over these people of their gradients, each of norm at most ``clip``, in steps of ``clip / radius``."""
    if len(places) * radius >= _EXACT or learner.parameters > _MOST_NUMBERS:
        raise CapacityError(
            f"sums of gradients are exact up to {_MOST_NUMBERS:,} parameters and {_EXACT // radius:,} people a batch: "
            "use a smaller encoder or more batches [CA017]"
        )
    total = np.zeros(learner.parameters)
    if learner.factors(places[:0], slopes[:0]) is not None:
        for part in (slice(start, start + _AT_ONCE) for start in range(0, len(places), _AT_ONCE)):
            first, second = learner.factors(places[part], slopes[part])  # type: ignore[misc]  # asked above
            total += sum_clipped_products(first, second, clip, radius)
        return total.astype(np.int64)
    for each in learner.pull_back_each(places, slopes):
        for block in row_blocks(len(each), each.shape[1], _TOGETHER):
            with np.errstate(over="ignore"):  # a gradient that no float can hold counts as none
                scaled = each[block] * (radius / clip)
            total += cut_rows(scaled, radius).sum(axis=0)
    return total.astype(np.int64)


def cut_rows(rows: Matrix, radius: int) -> Matrix:
    """Rows in whole numbers, held as float64, whose squared norm is at most the square of ``radius``."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = np.isfinite(norms)
        factors = np.where(
            known,
            radius * _INSIDE / np.maximum(np.where(known, norms, radius), radius * _INSIDE),
            0.0,
        )
        whole = rows * factors[:, None]
    if not known.all():
        whole[~known] = 0.0
    np.trunc(whole, out=whole)
    return _enforce_radius(whole, radius)


def sum_clipped_products(first: Matrix, second: Matrix, clip: float, radius: int) -> Integers:
    """The same where the gradient of a person is all products of one vector's numbers with another's, (a times b,).

    That is so where an encoder ends in a linear map and nothing before it learns: the map is given the first vector,
    and the slope is the second. Both are made whole, with norms at most ``split_radius(radius)``. Then the products
    are whole and have a norm of at most ``radius``, and their sum over people is one product of matrices.
    """
    ours, theirs = split_radius(radius)
    total = np.zeros((first.shape[1], second.shape[1]))
    for block in row_blocks(len(first), first.shape[1], _TOGETHER):
        a, b = _finite(first[block], second[block])
        a_norms, b_norms = _norms(a), _norms(b)
        with np.errstate(over="ignore"):
            length = np.minimum(a_norms * b_norms / clip, 1.0)  # of the gradient, in clips
        left = np.trunc(a * (ours * _INSIDE / a_norms))
        right = np.trunc(b * (length * (theirs * _INSIDE) / b_norms))
        total += _enforce_radius(left, ours).T @ _enforce_radius(right, theirs)
    return total.astype(np.int64).ravel()


def split_radius(radius: int) -> tuple[int, int]:
    """The largest norms of the two vectors, in whole steps, whose product is at most ``radius``."""
    ours = 1 << (radius.bit_length() - 1) // 2
    return ours, radius // ours


def _enforce_radius(whole: Matrix, radius: int) -> Matrix:
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


NoiseDraw = Callable[[int], Integers]
"""A function that draws so many numbers of noise."""
_UPDATE_RADIUS = 1 << GRADIENT_BITS


def sum_with_noise(learner: RowEncoder, places: Places, slopes: Matrix, clip: float, draw: NoiseDraw) -> Vector:
    """The noised sum over people of their gradients, each of norm at most ``clip``."""
    total = sum_clipped_gradients(learner, places, slopes, clip, _UPDATE_RADIUS)
    return np.asarray((total + draw(len(total))) * (clip / _UPDATE_RADIUS))


def clip_rows_within(rows: Matrix, radius: float) -> Matrix:
    """Rows of at most this norm: longer ones are scaled down, and what is not a number becomes zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    kept = np.where(finite, rows, 0.0)
    largest = np.abs(kept).max(axis=1, keepdims=True, initial=0.0)
    unit = kept / np.where(largest > 0, largest, 1.0)
    norms = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1.0)  # in units of the largest number
    return np.asarray(np.where(largest > radius / norms, unit * (radius / norms), kept))


def clip_to_integers(rows: Matrix, radius: int) -> Integers:
    """Rows in whole numbers whose squared norm, in whole numbers, is at most the square of ``radius``.

    They are cut toward zero, which makes no row longer. A row that is too long in spite of that becomes zero: so the
    bound holds by a comparison of integers, and not by what floats promise.
    """
    whole = np.trunc(clip_rows_within(rows, radius * _INSIDE)).astype(np.int64)
    short = (whole * whole).sum(axis=1, keepdims=True) <= radius * radius
    return np.where(short, whole, 0)
