"""Rows that a program holds or hands over: Arrow tables, pandas frames, and whatever speaks Arrow's C interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from colonnade.disk.reading import short
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.grown import without_views

_ONE_SHOT = (
    "a reader gives its rows once, and a table may be read again: pass reader.read_all(), or write the rows to a "
    "Parquet file and pass its path"
)


class InHand(Source):
    """An Arrow table or a pandas frame."""

    held = True

    def __init__(self, table: Any, name: str) -> None:
        super().__init__(name)
        self._table = table

    def columns(self) -> list[str]:
        """The names of all columns."""
        if hasattr(self._table, "reset_index"):
            return files.frame_columns(self._table)  # no cell is looked at: other columns may hold anything
        return list(self._table.schema.names)

    def whole(self, choose: files.Chooser) -> pa.Table:
        """The chosen columns."""
        return files.read_columns(self._table, self.name, choose)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.whole(lambda _: columns).to_batches())


class ArrowStream(Source):
    """Anything with Arrow's PyCapsule interface: a polars frame, a DuckDB relation and others."""

    again = False  # a relation is a query, whose rows may come in another order the next time

    def __init__(self, giver: Any, name: str) -> None:
        super().__init__(name)
        if isinstance(giver, pa.RecordBatchReader):
            raise DataError(f"{name}: {_ONE_SHOT}")
        self._giver = giver

    def columns(self) -> list[str]:
        """The names of all columns; those of an object that lists them are not asked of its stream."""
        listed = getattr(self._giver, "columns", None)
        if isinstance(listed, list) and all(isinstance(column, str) for column in listed):
            return list(listed)
        with reading_arrow(self.name), pa.RecordBatchReader.from_stream(self._giver) as opened:
            return list(opened.schema.names)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading_arrow(self.name):
            narrowed = self._giver
            if hasattr(narrowed, "project") and hasattr(narrowed, "columns"):  # a relation computes only what is asked
                narrowed = narrowed.project(", ".join(map(quoted, columns)))
            with pa.RecordBatchReader.from_stream(narrowed) as opened:
                for batch in opened:
                    yield plain_batch(batch.select(list(columns)))


@contextmanager
def reading_arrow(name: str) -> Iterator[None]:
    """Turn an error while rows are handed over into a :class:`DataError` that shows no cell."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
        raise DataError(f"{name}: the rows could not be read from what holds them; test it by itself") from None


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same cells in types that every column is read from: no views, no dictionaries, no extension types."""
    arrays = [_plain(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _plain(array: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary).take(array.indices)
    if pa.types.is_string_view(array.type):
        return without_views(array)
    return array


def quoted(column: str) -> str:
    """A name as SQL has it between quotes, whatever is in it."""
    if "\0" in column:
        raise DataError(f"no column of a query is called {short(column, 40)!r}")
    return '"' + column.replace('"', '""') + '"'
