"""Rows placed in numbered slots; the set of all slots, the universe, is larger than the table.

If nobody may learn who matched, all parties use the same slots: each puts its rows into their slots and zeros into all
others. A column of 1 and 0 says which slots have a row; it is sent only as secret shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.bins import Matrix


@dataclass(frozen=True, eq=False)
class RowSlots:
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

    def take(self, positions: NDArray[np.int64]) -> RowSlots:
        """The places of some of the rows, in ascending order too."""
        return RowSlots(self.slots[positions], self.size, self.token)


class DerivedRows:
    """Rows that are made of others, block by block: they have the same ids and slots."""

    rows: Any

    @property
    def ids(self) -> Sequence[str]:
        """The rows' ids, in the order of the rows."""
        found: Sequence[str] = self.rows.ids
        return found

    @property
    def places(self) -> RowSlots | None:
        """The slots of the rows, if the alignment tells nobody who matched."""
        found: RowSlots | None = self.rows.places
        return found


class SlottedRows:
    """Encoded rows of so many numbers put into their slots; at most one block of rows and one of slots are in memory.

    There may be no row at all: then every slot holds zeros.
    """

    def __init__(self, rows: Any, places: RowSlots, width: int) -> None:
        """``rows`` come in blocks, as those of a table or those that are made of it."""
        self.rows = rows
        self.places = places
        self.width = width

    def __len__(self) -> int:
        return self.places.size

    def blocks(self, rows: int, /) -> Iterator[tuple[Matrix, NDArray[np.float64]]]:
        """Blocks of slots: the row of each slot, or zeros, and a vector that is 1 for each slot with a row, else 0."""
        if rows < 1:
            raise ValueError("a block has at least one slot [VA240]")
        slots = self.places.slots
        source = (block for block in self.rows.blocks(rows) if len(block))
        held = nothing = np.empty((0, self.width))
        for start in range(0, self.places.size, rows):
            stop = min(start + rows, self.places.size)
            first, last = np.searchsorted(slots, [start, stop])
            block, present = np.zeros((stop - start, self.width)), np.zeros(stop - start)
            present[slots[first:last] - start] = 1.0
            done = first
            while done < last:
                if not len(held):
                    held = part = nothing  # before the next one is made, so that two are never in memory
                    held = next(source, nothing)
                    if not len(held):
                        raise ValueError("there are fewer rows than places [VA242]")
                part = held[: last - done]
                held = held[len(part) :]
                block[slots[done : done + len(part)] - start] = part
                done += len(part)
            yield block, present
        if len(held) or len(next(source, nothing)):
            raise ValueError("there are more rows than places [VA241]")
