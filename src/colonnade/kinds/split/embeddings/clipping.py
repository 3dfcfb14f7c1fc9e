"""Vectors within a ball of whole numbers: what is told or summed is never longer, whatever the encoder gave."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.embeddings.learner import Matrix

Integers = NDArray[np.int64]
_INSIDE = 1 - 2.0**-40  # room for the error of a norm in floats, so that hardly any row is refused by its integers


def within(rows: Matrix, radius: float) -> Matrix:
    """Rows of at most this norm: longer ones are scaled down, and what is not a number becomes zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    kept = np.where(finite, rows, 0.0)
    largest = np.abs(kept).max(axis=1, keepdims=True, initial=0.0)
    unit = kept / np.where(largest > 0, largest, 1.0)
    norms = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1.0)  # in units of the largest number
    return np.asarray(np.where(largest > radius / norms, unit * (radius / norms), kept))


def whole_within(rows: Matrix, radius: int) -> Integers:
    """Rows in whole numbers whose squared norm, in whole numbers, is at most the square of ``radius``.

    They are cut toward zero, which makes no row longer. A row that is too long in spite of that becomes zero: so the
    bound holds by a comparison of integers, and not by what floats promise.
    """
    whole = np.trunc(within(rows, radius * _INSIDE)).astype(np.int64)
    short = (whole * whole).sum(axis=1, keepdims=True) <= radius * radius
    return np.where(short, whole, 0)
