"""One party's table: checked against its schema, and encoded block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.tables import files
from colonnade.tables.encode import Matrix, Report, encode_column, encode_columns
from colonnade.tables.ids import checked_ids
from colonnade.tables.parse import Place
from colonnade.tables.schema import Schema

_BLOCK_CELLS = 1 << 22


class Table:
    """Rows with ids under a schema. Views (another order, fewer columns) share the Arrow data.

    Cells are encoded when a block is asked for, so memory beyond the Arrow table is bounded by the block.
    """

    def __init__(
        self,
        arrow: pa.Table,
        ids: pa.LargeStringArray,
        schema: Schema,
        *,
        source: str = "table",
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.schema = schema
        self.source = source
        self._arrow = arrow
        self._ids = ids
        self._order = order
        self._report: Report | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._ids) if self._order is None else len(self._order)

    def __len__(self) -> int:
        return self.rows

    @property
    def ids(self) -> list[str]:
        """The rows' ids, in the order of the rows."""
        found: list[str] = self._own_ids().to_pylist()
        return found

    @property
    def report(self) -> Report:
        """What encoding all rows did; the first use runs :meth:`check`."""
        return self._report if self._report is not None else self.check()

    def check(self) -> Report:
        """Encode every row once, keep nothing, and report; raises where a cell does not fit the schema."""
        total = Report()
        for _, part in self._encoded(None):
            total += part
        self._report = total
        return total

    def blocks(self, rows: int | None = None) -> Iterator[Matrix]:
        """Encoded row blocks, in order; by default of about 32 MB each."""
        return (matrix for matrix, _ in self._encoded(rows))

    def matrix(self) -> Matrix:
        """All rows at once."""
        whole = np.empty((self.rows, self.schema.encoded_width))
        start = 0
        for block in self.blocks():
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    def column(self, name: str) -> Matrix:
        """One column encoded on its own, (rows, width) and untouched by the row clip: a label, say."""
        self.schema.require([name])
        declared = self.schema.columns[name]
        out = np.zeros((self.rows, len(declared.parts)))
        index = self._index(0, self.rows)
        encode_column(self._cells(index)[name], declared, Place(self.source, name, index + 1), out)
        return out

    def select(self, columns: Iterable[str]) -> Table:
        """A view of some of the columns."""
        return self._view(self.schema.select(columns), self._order)

    def without(self, columns: Iterable[str]) -> Table:
        """A view of all columns but these."""
        return self._view(self.schema.without(columns), self._order)

    def unclipped(self) -> Table:
        """A view whose encoded rows are not scaled down to a clip."""
        return self._view(self.schema.with_clip(None), self._order)

    def sorted_by_id(self) -> Table:
        """A view with the rows in the order of their ids, compared byte by byte as UTF-8."""
        within = np.asarray(pc.sort_indices(self._own_ids()), dtype=np.int64)
        return self.take_rows(within)

    def take_rows(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> Table:
        """A view of the rows at these positions, in this order."""
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and not (-self.rows <= wanted.min() and wanted.max() < self.rows):
            raise IndexError(f"row positions must lie below {self.rows}")
        return self._view(self.schema, self._index(0, self.rows)[wanted])

    def take(self, ids: Sequence[str]) -> Table:
        """A view of the rows with these ids, in this order."""
        found = pc.index_in(pa.array(ids, pa.large_string()), self._own_ids())
        if found.null_count:
            raise DataError(f"{self.source}: {found.null_count} of the ids asked for are not in the table")
        return self.take_rows(np.asarray(found, dtype=np.int64))

    def __repr__(self) -> str:
        return f"<Table {self.source}: {self.rows} rows, {len(self.schema.columns)} columns>"

    def _encoded(self, rows: int | None) -> Iterator[tuple[Matrix, Report]]:
        if rows is not None and rows < 1:
            raise ValueError("a block has at least one row")
        step = rows or max(1, _BLOCK_CELLS // self.schema.encoded_width)
        for start in range(0, self.rows, step):
            index = self._index(start, min(start + step, self.rows))
            yield encode_columns(self._cells(index), self.schema, source=self.source, rows=index + 1)

    def _index(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.arange(start, stop) if self._order is None else self._order[start:stop]

    def _cells(self, index: NDArray[np.int64]) -> pa.Table:
        if self._order is None and len(index):
            return self._arrow.slice(int(index[0]), len(index))
        return self._arrow.take(pa.array(index))

    def _own_ids(self) -> Any:
        return self._ids if self._order is None else self._ids.take(pa.array(self._order))

    def _view(self, schema: Schema, order: NDArray[np.int64] | None) -> Table:
        arrow = self._arrow.select(list(schema.names))
        return Table(arrow, self._ids, schema, source=self.source, order=order)


def read_table(
    source: str | Path | Any,
    schema: Schema | str | Path,
    *,
    id: str | None = "person_id",
    name: str | None = None,
) -> Table:
    """A party's table from a CSV or Parquet path, a ``pyarrow.Table`` or a pandas frame.

    Columns that the schema does not name are never read. Ids are compared exactly, as text: whole numbers
    become their decimal digits, texts stay as they are, and blanks around an id are refused rather than
    stripped, because two organisations might strip differently. Without an id column (``id=None``) the rows are
    called by their numbers. ``name`` stands for the source in errors.
    """
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    called = name or (str(source) if isinstance(source, str | Path) else "table")
    if id in declared.columns:
        raise SchemaError(f"{called}: the id column {id!r} must not be in the schema; delete its section")

    def choose(there: Sequence[str]) -> Sequence[str]:
        if id is not None:
            files.need([id], there, f"{called}: the id")
        files.need(declared.names, there, called)
        return declared.names if id is None else [id, *declared.names]

    arrow = files.read_columns(source, called, choose)
    if not arrow.num_rows:
        raise DataError(f"{called}: the table has no rows")
    numbers = np.arange(1, arrow.num_rows + 1)
    if id is None:
        return Table(arrow.combine_chunks(), pa.array(numbers).cast(pa.large_string()), declared, source=called)
    ids = checked_ids(arrow[id], Place(called, id, numbers))
    return Table(arrow.drop_columns([id]).combine_chunks(), ids, declared, source=called)
