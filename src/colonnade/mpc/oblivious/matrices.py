"""Matrices of bits, 64 in a word, by rows or by columns."""

from __future__ import annotations

import numpy as np

from colonnade.mpc.oblivious.code import Bits

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
