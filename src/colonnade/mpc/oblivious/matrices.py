"""Matrices of bits, 64 in a word, by rows or by columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
"""Bits in words of 64, the lowest first."""

_WORD = 64
_AT_ONCE = 1 << 8  # words of a column that are turned at a time, so that they stay near the processor


def columns_of(rows: Bits) -> Bits:
    """The columns of a matrix that is given by its rows, whose number is a multiple of 64."""
    count, wide = rows.shape[0] // _WORD, rows.shape[1]
    found = np.empty((wide * _WORD, count), dtype=np.uint64)
    for start in range(0, count, _AT_ONCE):
        part = rows[start * _WORD : (start + _AT_ONCE) * _WORD].reshape(-1, _WORD, wide)
        found[:, start : start + _AT_ONCE] = _turned(part.transpose(2, 1, 0)).reshape(wide * _WORD, -1)
    return found


def rows_of(columns: Bits, wide: int) -> Bits:
    """The rows of a matrix that is given by its columns, in ``wide`` words each; columns that are missing are zero."""
    count = columns.shape[1]
    found = np.empty((count * _WORD, wide), dtype=np.uint64)
    for start in range(0, count, _AT_ONCE):
        part = columns[:, start : start + _AT_ONCE]
        block = np.zeros((wide * _WORD, part.shape[1]), dtype=np.uint64)
        block[: len(part)] = part
        turned = _turned(block.reshape(wide, _WORD, -1))
        found[start * _WORD : (start + _AT_ONCE) * _WORD] = turned.transpose(2, 1, 0).reshape(-1, wide)
    return found


class Pieces:
    """A matrix that comes by columns, some words of all of them at a time, and is turned into rows where it lies.

    It is by far the largest thing that an evaluation holds, so that it is never there twice.
    """

    def __init__(self, words: int, wide: int) -> None:
        self._held = np.empty(words * _WORD * wide, dtype=np.uint64)
        self._wide = wide
        self._pieces: list[Bits] = []
        self._filled = 0

    def more(self, columns: int, words: int) -> Bits:
        """Room for the next words of so many columns, to be written to; columns that are missing are zero."""
        size = words * _WORD * self._wide
        piece = self._held[self._filled : self._filled + size].reshape(_WORD * self._wide, words)
        piece[columns:] = 0
        self._pieces.append(piece)
        self._filled += size
        return piece[:columns]

    def columns(self, count: int) -> Iterator[Bits]:
        """The first columns, one after the other."""
        return (np.concatenate([piece[column] for piece in self._pieces]) for column in range(count))

    def rows(self) -> Bits:
        """The rows; there are no columns any more."""
        for piece in self._pieces:
            piece.reshape(-1, self._wide)[:] = rows_of(piece, self._wide)
        self._pieces.clear()
        return self._held[: self._filled].reshape(-1, self._wide)


def _turned(blocks: Bits) -> Bits:
    """Squares of 64 by 64 bits, turned over: an array (squares, 64, squares), by halves, quarters, and so on."""
    found = blocks.copy(order="C")
    squares, _, count = found.shape
    step = _WORD // 2
    while step:
        shift, mask = np.uint64(step), np.uint64(((1 << 64) - 1) // ((1 << step) + 1))
        halves = found.reshape(squares, _WORD // (2 * step), 2, step, count)
        low, high = halves[:, :, 0], halves[:, :, 1]
        moved = low >> shift
        moved ^= high
        moved &= mask
        high ^= moved
        moved <<= shift
        low ^= moved
        step //= 2
    return found
