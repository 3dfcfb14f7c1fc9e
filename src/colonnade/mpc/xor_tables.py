"""Matrices of bits, 64 in a word: sums (XOR) of rows chosen by bits, and their transposition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BitRows = NDArray[np.uint64]
"""Bits in words of 64, the lowest first."""

_WORD = 64
_WORDS_AT_ONCE = 1 << 8  # words of a column that are turned at a time, so that they stay near the processor


def to_columns(rows: BitRows) -> BitRows:
    """The columns of a matrix that is given by its rows, whose number is a multiple of 64."""
    count, wide = rows.shape[0] // _WORD, rows.shape[1]
    found = np.empty((wide * _WORD, count), dtype=np.uint64)
    for start in range(0, count, _WORDS_AT_ONCE):
        part = rows[start * _WORD : (start + _WORDS_AT_ONCE) * _WORD].reshape(-1, _WORD, wide)
        found[:, start : start + _WORDS_AT_ONCE] = _transpose_blocks(part.transpose(2, 1, 0)).reshape(wide * _WORD, -1)
    return found


def to_rows(columns: BitRows, wide: int) -> BitRows:
    """The rows of a matrix that is given by its columns, in ``wide`` words each; columns that are missing are zero."""
    count = columns.shape[1]
    found = np.empty((count * _WORD, wide), dtype=np.uint64)
    for start in range(0, count, _WORDS_AT_ONCE):
        part = columns[:, start : start + _WORDS_AT_ONCE]
        block = np.zeros((wide * _WORD, part.shape[1]), dtype=np.uint64)
        block[: len(part)] = part
        turned = _transpose_blocks(block.reshape(wide, _WORD, -1))
        found[start * _WORD : (start + _WORDS_AT_ONCE) * _WORD] = turned.transpose(2, 1, 0).reshape(-1, wide)
    return found


class ColumnBuffer:
    """A matrix that comes by columns, some words of all of them at a time, and is turned into rows where it lies.

    It is by far the largest thing that an evaluation holds, so that it is never there twice.
    """

    def __init__(self, words: int, wide: int) -> None:
        self._held = np.empty(words * _WORD * wide, dtype=np.uint64)
        self._wide = wide
        self._pieces: list[BitRows] = []
        self._filled = 0

    def allocate(self, columns: int, words: int) -> BitRows:
        """Room for the next words of so many columns, to be written to; columns that are missing are zero."""
        size = words * _WORD * self._wide
        piece = self._held[self._filled : self._filled + size].reshape(_WORD * self._wide, words)
        piece[columns:] = 0
        self._pieces.append(piece)
        self._filled += size
        return piece[:columns]

    def columns(self, count: int) -> Iterator[BitRows]:
        """The first columns, one after the other."""
        return (np.concatenate([piece[column] for piece in self._pieces]) for column in range(count))

    def rows(self) -> BitRows:
        """The rows; there are no columns any more."""
        for piece in self._pieces:
            piece.reshape(-1, self._wide)[:] = to_rows(piece, self._wide)
        self._pieces.clear()
        return self._held[: self._filled].reshape(-1, self._wide)


def _transpose_blocks(blocks: BitRows) -> BitRows:
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


Numbers = NDArray[np.uint64]

_CHOICES_AT_ONCE = 1 << 11  # choices that are looked up together, so that what is summed stays near the processor


class XorTables:
    """The sums of all subsets of every eight rows, made once; ``rows`` are a multiple of eight."""

    def __init__(self, rows: Numbers) -> None:
        self._tables = [_subset_sums(rows[start : start + 8]) for start in range(0, len(rows), 8)]

    def __call__(self, chosen: Numbers) -> Numbers:
        """For each choice the sum of the rows whose bit it has, the lowest bit of its first word first."""
        plain = np.ascontiguousarray(chosen if chosen.ndim > 1 else chosen[:, None], dtype="<u8")
        octets = plain.view(np.uint8)
        first, *rest = self._tables
        found = np.empty((len(plain), first.shape[1]), dtype=np.uint64)
        looked = np.empty((_CHOICES_AT_ONCE, first.shape[1]), dtype=np.uint64)
        for start in range(0, len(plain), _CHOICES_AT_ONCE):
            places = octets[start : start + _CHOICES_AT_ONCE].T.astype(np.intp)
            total, part = found[start : start + _CHOICES_AT_ONCE], looked[: places.shape[1]]
            np.take(first, places[0], axis=0, out=total, mode="clip")  # an octet is always a place
            for table, place in zip(rest, places[1:], strict=True):
                np.take(table, place, axis=0, out=part, mode="clip")
                total ^= part
        return found


def _subset_sums(rows: Numbers) -> Numbers:
    """The sums of all subsets of some rows; bit i of a sum's number says whether row i is in it."""
    sums = np.zeros((1, rows.shape[1]), dtype=np.uint64)
    for row in rows:
        sums = np.concatenate([sums, sums ^ row])
    return sums
