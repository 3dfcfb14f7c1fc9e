"""An oblivious key-value store: right answers for the keys that were put in, random ones for all others.

A key's value is the XOR of three cells of a table and of a random half of 64 further cells. Keys are put in by
peeling, as in an XOR filter: whoever is alone in some cell is taken out, until nobody is, and cells are then set in
the opposite order. The few that are never alone are solved for together, which is what the 64 cells are there for.
Cells that nobody needs are random. So for random values the whole table is random, whatever the keys are: it does not
tell which keys it holds (docs/theory/alignment.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.randomness import Stream

Words = NDArray[np.uint64]
"""(count, 2): 128 bits each."""
Places = NDArray[np.int64]
Layer = tuple[Places, Places]

WORDS = 2
_SHARED = 64
_SLACK, _SPARE = 1.3, 60  # cells for each key, and in all: peeling works from 1.222 on
_LARGEST_CORE = 1 << 12
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Store:
    """The table: three equal parts and the shared cells; the seed says which cells a key has."""

    seed: int
    cells: Words

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or self.cells.shape[1] != WORDS or (len(self.cells) - _SHARED) % 3:
            raise ProtocolError("a key-value store has three equal parts of 128-bit cells, and 64 cells more")
        if len(self.cells) <= _SHARED:
            raise ProtocolError("a key-value store has no cells")

    def __getitem__(self, keys: Words) -> Words:
        """The values of keys: those put in, or something random."""
        return _answers(self.cells, keys, self.seed)


def cells_for(count: int) -> int:
    """How many cells a store of so many keys has."""
    return 3 * -(-int(_SLACK * count + _SPARE) // 3) + _SHARED


def stored(keys: Words, values: Words, stream: Stream) -> Store:
    """A store of random values under different, random keys."""
    seed = int(stream.uint64(1)[0])
    cells = stream.uint64((cells_for(len(keys)), WORDS))
    places = _three(keys, seed, len(cells))
    layers, core = _peel(places, len(cells))
    if len(core):
        _solve(cells, keys[core], places[core], values[core], seed)
    shared = _shared(cells, keys, seed)
    for layer, own in reversed(layers):
        cells[own] = 0
        cells[own] = values[layer] ^ shared[layer] ^ _xor(cells, places[layer])
    return Store(seed, cells)


def _answers(cells: Words, keys: Words, seed: int) -> Words:
    found: Words = _xor(cells, _three(keys, seed, len(cells))) ^ _shared(cells, keys, seed)
    return found


def _three(keys: Words, seed: int, size: int) -> Places:
    """Three cells of each key, one in each part: (count, 3)."""
    part = (size - _SHARED) // 3
    found = np.empty((len(keys), 3), dtype=np.int64)
    for index in range(3):
        high = _mixed(keys, seed + _STEP * index) >> np.uint64(32)
        found[:, index] = (high * np.uint64(part)) >> np.uint64(32)
        found[:, index] += index * part
    return found


def _mixed(keys: Words, seed: int) -> NDArray[np.uint64]:
    """64 bits of each key that depend on all of it and on the seed; keys are random themselves."""
    state = keys[:, 0] ^ np.uint64(seed & _WORD)
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = ((state ^ (state >> np.uint64(27))) + keys[:, 1]) * _MIX[1]
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _halves(keys: Words, seed: int) -> NDArray[np.uint64]:
    """Which of the shared cells a key has, a bit each."""
    return _mixed(keys, seed + _STEP * 3)


def _shared(cells: Words, keys: Words, seed: int) -> Words:
    """The XOR of each key's shared cells, eight of them at a time by a table."""
    chosen, found = _halves(keys, seed), np.zeros((len(keys), WORDS), dtype=np.uint64)
    for start in range(0, _SHARED, 8):
        table = np.zeros((1, WORDS), dtype=np.uint64)
        for cell in cells[len(cells) - _SHARED + start :][:8]:
            table = np.concatenate([table, table ^ cell])
        found ^= table[((chosen >> np.uint64(start)) & np.uint64(255)).astype(np.intp)]
    return found


def _xor(cells: Words, places: Places) -> Words:
    found: Words = cells[places[:, 0]] ^ cells[places[:, 1]] ^ cells[places[:, 2]]
    return found


def _peel(places: Places, size: int) -> tuple[list[Layer], Places]:
    """Keys in the order in which they were alone in a cell, with that cell, layer by layer; and those that never were.

    Keys of one layer do not meet in each other's cells, so they can be set together.
    """
    flat, owners = places.ravel(), np.repeat(np.arange(len(places)), 3)
    count = np.bincount(flat, minlength=size)
    # The sum of the keys in a cell is the key itself once it is alone there.
    total = np.bincount(flat, weights=owners, minlength=size).astype(np.int64)
    layers: list[Layer] = []
    left = np.ones(len(places), dtype=bool)
    alone = np.flatnonzero(count == 1)
    while len(alone):
        keys, first = np.unique(total[alone], return_index=True)
        layers.append((keys, alone[first]))
        left[keys] = False
        gone = places[keys].ravel()
        np.subtract.at(count, gone, 1)
        np.subtract.at(total, gone, np.repeat(keys, 3))
        touched = np.unique(gone)
        alone = touched[count[touched] == 1]
    return layers, np.flatnonzero(left)


def _solve(cells: Words, keys: Words, places: Places, values: Words, seed: int) -> None:
    """Change cells so that these keys get their values: elimination over bits, a Python integer a row."""
    if len(keys) > _LARGEST_CORE:
        raise ValueError("keys of a store must be different and random")
    wanted = values ^ _answers(cells, keys, seed)
    columns = {cell: _SHARED + index for index, cell in enumerate(np.unique(places).tolist())}
    pivots: dict[int, tuple[int, int]] = {}
    for half, own, (low, high) in zip(_halves(keys, seed).tolist(), places.tolist(), wanted.tolist(), strict=True):
        row, value = half | sum(1 << columns[cell] for cell in own), low | high << 64
        for pivot, (other, its) in pivots.items():
            if row >> pivot & 1:
                row, value = row ^ other, value ^ its
        if not row:
            raise ValueError("keys of a store must be different and random")
        pivot = row.bit_length() - 1
        for known, (other, its) in pivots.items():
            if other >> pivot & 1:
                pivots[known] = other ^ row, its ^ value
        pivots[pivot] = row, value
    _change(cells, {column: value for column, (_, value) in pivots.items()}, list(columns))


def _change(cells: Words, by: dict[int, int], own: Sequence[int]) -> None:
    """XOR numbers of 128 bits to cells: the shared ones come first among the columns, then the keys' own."""
    for column, value in by.items():
        place = len(cells) - _SHARED + column if column < _SHARED else own[column - _SHARED]
        cells[place] ^= np.array([value & _WORD, value >> 64], dtype=np.uint64)
