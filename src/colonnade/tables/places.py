"""Rows placed in numbered slots; the set of all slots, the universe, is larger than the table.

If nobody may learn who matched, all parties use the same slots: each puts its rows into their slots and zeros into all
others. A column of 1 and 0 says which slots have a row; it is sent only as secret shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.encode import Matrix


@dataclass(frozen=True, eq=False)
class Places:
    """The slots of a table's rows, in ascending order, out of ``size`` slots; the token names the universe."""

    slots: NDArray[np.int64]
    size: int
    token: bytes

    def __post_init__(self) -> None:
        slots = self.slots
        if slots.ndim != 1 or (slots[1:] <= slots[:-1]).any():
            raise ValueError("the slots of rows must ascend [VA238]")
        if len(slots) and not (slots[0] >= 0 and slots[-1] < self.size):
            raise ValueError(f"slots must lie below the size of the universe, {self.size} [VA239]")

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, positions: NDArray[np.int64]) -> Places:
        """The places of some of the rows, in ascending order too."""
        return Places(self.slots[positions], self.size, self.token)


class Blocks(Protocol):
    """Encoded rows that come in blocks."""

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        """The rows, some at a time."""


class Spread:
    """Encoded rows of so many numbers put into their slots; at most one block of rows and one of slots are in memory.

    There may be no row at all: then every slot holds zeros.
    """

    def __init__(self, rows: Blocks, places: Places, width: int) -> None:
        self.rows = rows
        self.places = places
        self.width = width

    def __len__(self) -> int:
        return self.places.size

    def blocks(self, rows: int, /) -> Iterator[tuple[Matrix, NDArray[np.float64]]]:
        """Blocks of slots: the row of each slot, or zeros, and a vector that is 1 for each slot with a row, else 0."""
        if rows < 1:
            raise ValueError("a block has at least one slot [VA240]")
        slots, feed = self.places.slots, _Feed(self.rows.blocks(rows))
        for start in range(0, self.places.size, rows):
            stop = min(start + rows, self.places.size)
            first, last = np.searchsorted(slots, [start, stop])
            block, present = np.zeros((stop - start, self.width)), np.zeros(stop - start)
            present[slots[first:last] - start] = 1.0
            feed.pour(block, slots[first:last] - start)
            yield block, present
        if feed.left():
            raise ValueError("there are more rows than places [VA241]")


class _Feed:
    """Gives rows out of blocks, any number at a time; it holds one block."""

    def __init__(self, blocks: Iterator[Matrix]) -> None:
        self._blocks = blocks
        self._held = next(blocks, None)
        self._used = 0

    def pour(self, into: Matrix, where: NDArray[np.int64]) -> None:
        """Copy the next rows to these positions."""
        done = 0
        while done < len(where):
            if not self.left():
                raise ValueError("there are fewer rows than places [VA242]")
            assert self._held is not None  # noqa: S101 - for the type checker; something is left
            count = min(len(where) - done, len(self._held) - self._used)
            into[where[done : done + count]] = self._held[self._used : self._used + count]
            self._used += count
            done += count

    def left(self) -> bool:
        """Whether there is another row."""
        while self._held is not None and self._used == len(self._held):
            self._held = None  # before the next one is made, so that two are never in memory
            self._held, self._used = next(self._blocks, None), 0
        return self._held is not None
