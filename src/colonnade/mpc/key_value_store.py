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
from colonnade.mpc.xor_tables import XorTables
from colonnade.randomness import Stream

Words = NDArray[np.uint64]
"""An array (count, 2): 128 bits for each key or value."""
Places = NDArray[np.int64]
Layer = tuple[Places, Places]

WORDS = 2
_SHARED = 64
_SLACK, _SPARE = 1.3, 60  # cells for each key, and additional ones: peeling needs more than 1.222 for each key
_LARGEST_CORE = 1 << 12
_COUNTED = 32  # numbers of keys are below 2^28, so a count of two or more is never taken for one
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


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
    state = keys[:, 0] ^ np.uint64(seed & _WORD)
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = ((state ^ (state >> np.uint64(27))) + keys[:, 1]) * _MIX[1]
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _shared_cell_bits(keys: Words, seed: int) -> NDArray[np.uint64]:
    """Which of the shared cells each key has: one bit for each cell."""
    return _mix(keys, seed + _STEP * 3)


def _xor_cells(cells: Words, places: Places) -> Words:
    found: Words = cells[places[:, 0]] ^ cells[places[:, 1]] ^ cells[places[:, 2]]
    return found


def _peel(places: Places, size: int) -> tuple[list[Layer], Places]:
    """Layers of keys in the order of their removal, each with the cell where it was alone; and the keys that remain.

    No key has the cell of another key of the same layer, so the cells of a layer can be set together.
    """
    flat, owners = places.ravel(), np.repeat(np.arange(len(places)), 3)
    # For each cell how many keys are in it, and below that the sum of their numbers: of one key, its number.
    held = np.bincount(flat, minlength=size) << _COUNTED
    held += np.bincount(flat, weights=owners, minlength=size).astype(np.int64)
    layers: list[Layer] = []
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
    for half, own, (low, high) in zip(
        _shared_cell_bits(keys, seed).tolist(), places.tolist(), wanted.tolist(), strict=True
    ):
        row, value = half | sum(1 << columns[cell] for cell in own), low | high << 64
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
    _xor_into_cells(cells, {column: value for column, (_, value) in pivots.items()}, list(columns))


def _xor_into_cells(cells: Words, by: dict[int, int], own: Sequence[int]) -> None:
    """XOR 128-bit numbers into cells: the first columns are the shared cells, the others are the cells in ``own``."""
    for column, value in by.items():
        place = len(cells) - _SHARED + column if column < _SHARED else own[column - _SHARED]
        cells[place] ^= np.array([value & _WORD, value >> 64], dtype=np.uint64)
