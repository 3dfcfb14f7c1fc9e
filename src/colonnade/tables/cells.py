"""The columns of a table: held in memory, or left in their file and read again each time rows are needed.

Rows are always read from the first to the last, some at a time. If rows on disk are needed in another order, they are
first copied to a temporary file (``spill``), once for all views that share the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.parse import is_text
from colonnade.tables.spill import Spill

Order = NDArray[np.int64]


class Cells(Protocol):
    """Columns with rows in some order."""

    def select(self, columns: Sequence[str]) -> Cells:
        """Some of the columns."""

    def ordered(self, order: Order) -> Cells:
        """The rows at these positions of the file or frame, in this order."""

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The cells in blocks of ``rows`` rows; the last block may have fewer."""


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
    """Columns of a CSV or Parquet file that need not fit in memory."""

    def __init__(self, file: DataFile, columns: Sequence[str], copy: _Ordered | None = None) -> None:
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


class DataFile:
    """A CSV or Parquet file, which must not change as long as a table reads from it."""

    def __init__(self, path: Path, name: str, text: TextFormat = files.AS_USUAL) -> None:
        self._path = path.resolve()
        self._name = name
        self._text = text
        self._seen = self._state()

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns, read into memory; text gets the type that ids have, so that it is not copied again."""
        parts = [_long_text(batch) for batch in self.batches(columns)]
        if not parts:
            return pa.table({name: pa.array([], pa.large_string()) for name in columns})
        whole = pa.Table.from_batches(parts).combine_chunks()
        del parts
        pa.default_memory_pool().release_unused()  # otherwise the process keeps the memory of the parts
        return whole

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, from the first to the last; raises at the end if the file has changed."""
        self._refuse_changes()
        yield from files.read_batches(self._path, self._name, columns, self._text)
        self._refuse_changes()

    def _refuse_changes(self) -> None:
        if self._state() != self._seen:
            raise DataError(f"{self._name}: the file has changed since it was first read; read it again")

    def _state(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns


class _Ordered:
    """The rows of a file in another order."""

    def __init__(self, file: DataFile, columns: Sequence[str], order: Order) -> None:
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


def _long_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.cast(pa.large_string()) if is_text(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
