"""An oblivious key-value store: for keys in the store it gives their values, for all other keys random values.

The value of a key is the XOR of three cells of a table and of a random half of 64 more cells. The store is built by
peeling, like an XOR filter: a key that is the only one in some cell is removed, again and again, until there is no such
key. Then the cells are set in the opposite order. The few keys that could not be removed form a system of linear
equations, which is solved with the help of the 64 cells. Cells that no key needs are random. So if the values are
random, the whole table is random for all sets of keys: it does not show which keys it holds
(docs/theory/alignment.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.randomness import Stream

Words = NDArray[np.uint64]
"""An array (count, 2): 128 bits for each key or value."""
Places = NDArray[np.int64]
Layer = tuple[Places, Places]

WORDS = 2
_SHARED = 64
_SLACK, _SPARE = 1.3, 60  # cells for each key, and additional ones: peeling needs more than 1.222 for each key
_LARGEST_CORE = 1 << 12
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Store:
    """The table: three equal parts and 64 shared cells; the seed determines which cells a key has."""

    seed: int
    cells: Words

    def __post_init__(self) -> None:
        if self.cells.ndim != 2 or self.cells.shape[1] != WORDS or (len(self.cells) - _SHARED) % 3:
            raise ProtocolError("a key-value store has three equal parts of 128-bit cells, and 64 cells more")
        if len(self.cells) <= _SHARED:
            raise ProtocolError("a key-value store has no cells")

    def __getitem__(self, keys: Words) -> Words:
        """The values of these keys, random for keys that are not in the store."""
        return answers(self.cells, keys, self.seed)


def cells_for(count: int) -> int:
    """How many cells a store of ``count`` keys has."""
    return 3 * -(-int(_SLACK * count + _SPARE) // 3) + _SHARED


def stored(keys: Words, values: Words, stream: Stream) -> Store:
    """A store with these keys, which must be random and different, and their values, which must be random."""
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


def answers(cells: Words, keys: Words, seed: int) -> Words:
    """What cells of any width give for these keys, laid out as in a store of this seed."""
    found: Words = _xor(cells, _three(keys, seed, len(cells))) ^ _shared(cells, keys, seed)
    return found


def _three(keys: Words, seed: int, size: int) -> Places:
    """The places of three cells for each key, one in each part: an array (count, 3)."""
    part = (size - _SHARED) // 3
    found = np.empty((len(keys), 3), dtype=np.int64)
    for index in range(3):
        high = _mixed(keys, seed + _STEP * index) >> np.uint64(32)
        found[:, index] = (high * np.uint64(part)) >> np.uint64(32)
        found[:, index] += index * part
    return found


def _mixed(keys: Words, seed: int) -> NDArray[np.uint64]:
    """64 bits for each key, which depend on the whole key and on the seed; the keys themselves are random."""
    state = keys[:, 0] ^ np.uint64(seed & _WORD)
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = ((state ^ (state >> np.uint64(27))) + keys[:, 1]) * _MIX[1]
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _halves(keys: Words, seed: int) -> NDArray[np.uint64]:
    """Which of the shared cells each key has: one bit for each cell."""
    return _mixed(keys, seed + _STEP * 3)


def _shared(cells: Words, keys: Words, seed: int) -> Words:
    """For each key the XOR of its shared cells, looked up for eight cells at a time."""
    chosen, found = _halves(keys, seed), np.zeros((len(keys), cells.shape[1]), dtype=np.uint64)
    for start in range(0, _SHARED, 8):
        table = np.zeros((1, cells.shape[1]), dtype=np.uint64)
        for cell in cells[len(cells) - _SHARED + start :][:8]:
            table = np.concatenate([table, table ^ cell])
        found ^= table[((chosen >> np.uint64(start)) & np.uint64(255)).astype(np.intp)]
    return found


def _xor(cells: Words, places: Places) -> Words:
    found: Words = cells[places[:, 0]] ^ cells[places[:, 1]] ^ cells[places[:, 2]]
    return found


def _peel(places: Places, size: int) -> tuple[list[Layer], Places]:
    """Layers of keys in the order of their removal, each with the cell where it was alone; and the keys that remain.

    No key has the cell of another key of the same layer, so the cells of a layer can be set together.
    """
    flat, owners = places.ravel(), np.repeat(np.arange(len(places)), 3)
    count = np.bincount(flat, minlength=size)
    # The sum of the numbers of the keys in a cell: if one key is left, this is its number.
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
    """Change cells so that these keys get their values: elimination on bits, with a Python integer for each row."""
    if len(keys) > _LARGEST_CORE:
        raise ValueError("keys of a store must be different and random")
    wanted = values ^ answers(cells, keys, seed)
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
    """XOR 128-bit numbers into cells: the first columns are the shared cells, the others are the cells in ``own``."""
    for column, value in by.items():
        place = len(cells) - _SHARED + column if column < _SHARED else own[column - _SHARED]
        cells[place] ^= np.array([value & _WORD, value >> 64], dtype=np.uint64)
