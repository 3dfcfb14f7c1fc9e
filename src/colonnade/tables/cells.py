"""The columns of a table: held in memory, or left where they lie and read again each time rows are needed.

Rows are always read from the first to the last, some at a time. If rows on disk are needed in another order, they are
first copied to a temporary file (``spill``), once for all views that share the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.arrow import pa
from colonnade.tables.sources.contract import Source
from colonnade.tables.spill import Spill

Order = NDArray[np.int64]


class InMemory:
    """Columns of an Arrow table; views share its data."""

    def __init__(self, arrow: pa.Table, order: Order | None = None) -> None:
        self._arrow = arrow
        self._order = order

    def select(self, columns: Sequence[str]) -> InMemory:
        """Some of the columns."""
        return InMemory(self._arrow.select(list(columns)), self._order)

    def ordered(self, order: Order) -> InMemory:
        """The rows at these positions of the Arrow table."""
        return InMemory(self._arrow, order)

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The cells in blocks of ``rows`` rows."""
        if self._order is None:
            return (self._arrow.slice(start, rows) for start in range(0, self._arrow.num_rows, rows))
        starts = range(0, len(self._order), rows)
        return (self._arrow.take(pa.array(self._order[start : start + rows])) for start in starts)


class OnDisk:
    """Columns of a source whose rows need not fit in memory."""

    def __init__(self, file: Source, columns: Sequence[str], copy: _Ordered | None = None) -> None:
        self._file = file
        self._columns = list(columns)
        self._copy = copy

    def select(self, columns: Sequence[str]) -> OnDisk:
        """Some of the columns."""
        return OnDisk(self._file, columns, self._copy)

    def ordered(self, order: Order) -> OnDisk:
        """The rows at these positions of the file; they are copied at the first read if positions do not ascend."""
        return OnDisk(self._file, self._columns, _Ordered(self._file, self._columns, order))

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The cells in blocks of ``rows`` rows; only a few blocks are in memory at a time."""
        source = self._file if self._copy is None else self._copy
        return regrouped(source.batches(self._columns), rows)


Cells: TypeAlias = InMemory | OnDisk
"""Columns with rows in some order."""


class _Ordered:
    """The rows of a file in another order."""

    def __init__(self, file: Source, columns: Sequence[str], order: Order) -> None:
        self._file = file
        self._columns = columns
        self._order = order
        self._ascends = bool((order[1:] >= order[:-1]).all())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows, in that order."""
        return self._picked(columns) if self._ascends else self._spill.batches(columns)

    def _picked(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in self._file.batches(columns):
            first, last = np.searchsorted(self._order, [start, start + batch.num_rows])
            if first < last:
                yield batch.take(pa.array(self._order[first:last] - start))
            start += batch.num_rows

    @cached_property
    def _spill(self) -> Spill:
        found = Spill(self._file.batches(self._columns), self._order)
        pa.default_memory_pool().release_unused()
        return found


def regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of ``rows`` each, the last of which may be shorter.

    The last table comes only after the batches have ended, so that an error which they raise at their end is not
    missed.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while count + batch.num_rows - start > rows:
            if count < rows:
                held.append(batch.slice(start, rows - count))
            start += rows - count
            yield pa.Table.from_batches(held)
            held, count = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            count += batch.num_rows - start
    if held:
        yield pa.Table.from_batches(held)
