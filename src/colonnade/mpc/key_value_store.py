"""An oblivious key-value store: for keys in the store it gives their values, for all other keys random values.

The value of a key is the XOR of three cells of a table and of a random half of 64 more cells. The store is built by
peeling, like an XOR filter: a key that is the only one in some cell is removed, again and again, until there is no such
key. Then the cells are set in the opposite order. The few keys that could not be removed form a system of linear
equations, which is solved with the help of the 64 cells. Cells that no key needs are random. So if the values are
random, the whole table is random for all sets of keys: it does not show which keys it holds
(docs/theory/alignment.md).

Before it stand the matrices of bits, 64 in a word, that it rests on: sums (XOR) of rows chosen by bits, and their
transposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.randomness import Stream

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


_CHOICES_AT_ONCE = 1 << 11  # choices that are looked up together, so that what is summed stays near the processor


class XorTables:
    """The sums of all subsets of every eight rows, made once; ``rows`` are a multiple of eight."""

    def __init__(self, rows: BitRows) -> None:
        self._tables = [_subset_sums(rows[start : start + 8]) for start in range(0, len(rows), 8)]

    def __call__(self, chosen: BitRows) -> BitRows:
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


def _subset_sums(rows: BitRows) -> BitRows:
    """The sums of all subsets of some rows; bit i of a sum's number says whether row i is in it."""
    sums = np.zeros((1, rows.shape[1]), dtype=np.uint64)
    for row in rows:
        sums = np.concatenate([sums, sums ^ row])
    return sums


Words = NDArray[np.uint64]
"""An array (count, 2): 128 bits for each key or value."""
Places = NDArray[np.int64]

WORDS = 2
_SHARED = 64
_SLACK, _SPARE = 1.3, 60  # cells for each key, and additional ones: peeling needs more than 1.222 for each key
_LARGEST_CORE = 1 << 12
_COUNTED = 32  # numbers of keys are below 2^28, so a count of two or more is never taken for one
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
_LOW_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class KeyValueStore:
    """The table: three equal parts and 64 shared cells; the seed determines which cells a key has."""

    seed: int
    cells: Words

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or self.cells.shape[1] != WORDS or (len(self.cells) - _SHARED) % 3:
            raise ProtocolError("a key-value store has three equal parts of 128-bit cells, and 64 cells more [MS002]")
        if len(self.cells) <= _SHARED:
            raise ProtocolError("a key-value store has no cells [MS003]")

    def __getitem__(self, keys: Words) -> Words:
        """The values of these keys, random for keys that are not in the store."""
        return KeyValueLookup(self.cells, self.seed)(keys)


def cell_count(count: int) -> int:
    """How many cells a store of ``count`` keys has."""
    return 3 * -(-int(_SLACK * count + _SPARE) // 3) + _SHARED


def build_store(keys: Words, values: Words, stream: Stream) -> KeyValueStore:
    """A store with these keys, which must be random and different, and their values, which must be random."""
    seed = int(stream.uint64(1)[0])
    cells = stream.uint64((cell_count(len(keys)), WORDS))
    places = _cell_places(keys, seed, len(cells))
    layers, core = _peel(places, len(cells))
    if len(core):
        _solve(cells, keys[core], places[core], values[core], seed)
    wanted = values ^ XorTables(cells[-_SHARED:])(_shared_cell_bits(keys, seed))
    for layer, own in reversed(layers):
        cells[own] = 0
        cells[own] = wanted[layer] ^ _xor_cells(cells, places[layer])
    return KeyValueStore(seed, cells)


class KeyValueLookup:
    """What cells of any width give for keys, laid out as in a store of this seed."""

    def __init__(self, cells: Words, seed: int) -> None:
        self._cells, self._seed, self._shared = cells, seed, XorTables(cells[-_SHARED:])

    def __call__(self, keys: Words) -> Words:
        """The answers for these keys."""
        found = self._shared(_shared_cell_bits(keys, self._seed))
        found ^= _xor_cells(self._cells, _cell_places(keys, self._seed, len(self._cells)))
        return found


def _cell_places(keys: Words, seed: int, size: int) -> Places:
    """The places of three cells for each key, one in each part: an array (count, 3)."""
    part = (size - _SHARED) // 3
    found = np.empty((len(keys), 3), dtype=np.int64)
    for index in range(3):
        high = _mix(keys, seed + _STEP * index) >> np.uint64(32)
        found[:, index] = (high * np.uint64(part)) >> np.uint64(32)
        found[:, index] += index * part
    return found


def _mix(keys: Words, seed: int) -> NDArray[np.uint64]:
    """64 bits for each key, which depend on the whole key and on the seed; the keys themselves are random."""
    state = keys[:, 0] ^ np.uint64(seed & _LOW_WORD)
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = ((state ^ (state >> np.uint64(27))) + keys[:, 1]) * _MIX[1]
    return state ^ (state >> np.uint64(31))


def _shared_cell_bits(keys: Words, seed: int) -> NDArray[np.uint64]:
    """Which of the shared cells each key has: one bit for each cell."""
    return _mix(keys, seed + _STEP * 3)


def _xor_cells(cells: Words, places: Places) -> Words:
    return cells[places[:, 0]] ^ cells[places[:, 1]] ^ cells[places[:, 2]]


def _peel(places: Places, size: int) -> tuple[list[tuple[Places, Places]], Places]:
    """Layers of keys in the order of their removal, each with the cell where it was alone; and the keys that remain.

    No key has the cell of another key of the same layer, so the cells of a layer can be set together.
    """
    flat, owners = places.ravel(), np.repeat(np.arange(len(places)), 3)
    # For each cell how many keys are in it, and below that the sum of their numbers: of one key, its number.
    held = np.bincount(flat, minlength=size) << _COUNTED
    held += np.bincount(flat, weights=owners, minlength=size).astype(np.int64)
    layers: list[tuple[Places, Places]] = []
    left = np.ones(len(places), dtype=bool)
    turn = np.empty(len(places), dtype=np.int64)
    alone = np.flatnonzero(held >> _COUNTED == 1)
    while len(alone):
        keys = held[alone] - (1 << _COUNTED)
        # A key may be alone in two cells, and a cell may be named twice: one of them remains.
        turn[keys] = np.arange(len(keys))
        once = turn[keys] == np.arange(len(keys))
        keys, alone = keys[once], alone[once]
        layers.append((keys, alone))
        left[keys] = False
        gone = places[keys].ravel()
        np.subtract.at(held, gone, np.repeat(keys + (1 << _COUNTED), 3))
        alone = gone[held[gone] >> _COUNTED == 1]
    return layers, np.flatnonzero(left)


def _solve(cells: Words, keys: Words, places: Places, values: Words, seed: int) -> None:
    """Change cells so that these keys get their values: elimination on bits, with a Python integer for each row."""
    if len(keys) > _LARGEST_CORE:
        raise ValueError("keys of a store must be different and random [VA101]")
    wanted = values ^ KeyValueLookup(cells, seed)(keys)
    columns = {cell: _SHARED + index for index, cell in enumerate(np.unique(places).tolist())}
    pivots: dict[int, tuple[int, int]] = {}
    for half, where, (low, high) in zip(
        _shared_cell_bits(keys, seed).tolist(), places.tolist(), wanted.tolist(), strict=True
    ):
        row, value = half | sum(1 << columns[cell] for cell in where), low | high << 64
        for pivot, (other, its) in pivots.items():
            if row >> pivot & 1:
                row, value = row ^ other, value ^ its
        if not row:
            raise ValueError("keys of a store must be different and random [VA102]")
        pivot = row.bit_length() - 1
        for known, (other, its) in pivots.items():
            if other >> pivot & 1:
                pivots[known] = other ^ row, its ^ value
        pivots[pivot] = row, value
    own = list(columns)
    for column, (_, value) in pivots.items():  # the first columns are the shared cells
        place = len(cells) - _SHARED + column if column < _SHARED else own[column - _SHARED]
        cells[place] ^= np.array([value & _LOW_WORD, value >> 64], dtype=np.uint64)
