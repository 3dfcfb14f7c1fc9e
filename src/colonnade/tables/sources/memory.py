"""Rows that a program holds or hands over: Arrow tables, pandas frames, and whatever speaks Arrow's C interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

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

_EXTENSION, _UUID = b"ARROW:extension:name", b"arrow.uuid"
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]


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
    """Anything with Arrow's PyCapsule interface: a polars frame, a DuckDB relation; or a data set of Arrow."""

    again = False  # a relation is a query, whose rows may come in another order the next time

    def __init__(self, giver: Any, name: str) -> None:
        super().__init__(name)
        if isinstance(giver, pa.RecordBatchReader):
            raise DataError(f"{name}: {_ONE_SHOT} [DA224]")
        self._giver = giver

    def columns(self) -> list[str]:
        """The names of all columns; those of an object that lists them are not asked of its stream."""
        with reading_arrow(self.name):
            if hasattr(self._giver, "scanner"):
                return list(self._giver.schema.names)
            listed = getattr(self._giver, "columns", None)
            if isinstance(listed, list) and all(isinstance(column, str) for column in listed):
                return list(listed)
            with pa.RecordBatchReader.from_stream(self._giver) as opened:
                return list(opened.schema.names)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading_arrow(self.name), self._narrowed(columns) as opened:
            for batch in opened:
                yield plain_batch(batch.select(list(columns)))

    def _narrowed(self, columns: Sequence[str]) -> Any:
        """A stream that has these columns, and where the object can choose, only these."""
        giver = self._giver
        if hasattr(giver, "scanner"):
            return giver.scanner(columns=list(columns), batch_readahead=2, fragment_readahead=1).to_reader()
        if hasattr(giver, "project") and hasattr(giver, "columns"):  # a relation computes only what is asked
            giver = giver.project(", ".join(map(quoted, columns)))
        return pa.RecordBatchReader.from_stream(giver)


@contextmanager
def reading_arrow(name: str) -> Iterator[None]:
    """Turn an error while rows are handed over into a :class:`DataError` that shows no cell."""
    try:
        yield
    except DataError:
        raise
    except Exception:  # whatever a library raises may quote a cell
        raise DataError(f"{name}: the rows could not be read from what holds them; test it by itself [DA225]") from None


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same cells in types that every column is read from: no views, no dictionaries, no extension types."""
    arrays = [
        _plain(array, (field.metadata or {}).get(_EXTENSION))
        for array, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def plain_type(kind: Any) -> Any:
    """The type that :func:`plain_batch` gives cells of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.large_string() if kind.extension_name == _UUID.decode() else plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _plain(array: Any, named: bytes | None = None) -> Any:
    """The cells of one array; ``named`` is the extension type that its field has, where Arrow does not know it."""
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage, array.type.extension_name.encode())
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary).take(array.indices)
    if named == _UUID and array.type == pa.binary(16):
        return _uuids(array)
    if pa.types.is_string_view(array.type):
        return without_views(array)
    return array


def _uuids(array: Any) -> Any:
    """Ids of sixteen bytes, as they are written: 32 small hexadecimal digits in five groups."""
    rows = len(array)
    cells = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 : (array.offset + rows) * 16]
    digits = _HEX[cells].reshape(rows, 32)
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, _DIGITS] = digits
    known = np.asarray(array.is_valid(), dtype=np.bool_)
    ends = np.arange(rows + 1, dtype=np.int64) * 36
    held = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text), held)


def quoted(column: str) -> str:
    """A name as SQL has it between quotes, whatever is in it."""
    if "\0" in column:
        raise DataError(f"no column of a query is called {short(column, 40)!r} [DA226]")
    return '"' + column.replace('"', '""') + '"'
