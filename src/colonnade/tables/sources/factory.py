"""From what a party names to a source: a path, a pattern, an address, a query, or an object of a program.

Rows that can be read only once are copied: in memory while they are few, then in a temporary file without a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.cell_parsing import AS_USUAL, TextFormat, pa
from colonnade.tables.files import ColumnChooser
from colonnade.tables.sources.base import ArrowStreamSource, InMemorySource, SpillFile, TableSource
from colonnade.tables.sources.databases import Query, QuerySource
from colonnade.tables.sources.file_sets import (
    SPREADSHEET_ENDINGS,
    FileSet,
    SpreadsheetSource,
    open_local_files,
    open_stored_files,
)
from colonnade.tables.sources.object_stores import is_address, redact_address


class TempCopySource(TableSource):
    """Rows of a source that cannot be read again; only a few batches are in memory at a time."""

    def __init__(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all batches, of which there is one at least; the source has ended when this returns."""
        super().__init__(name)
        self._bytes = 0
        self._copy = SpillFile(map(self._counted, batches))

    def columns(self) -> list[str]:
        """The columns that were copied."""
        return list(self._copy.names)

    def size(self, choose: ColumnChooser) -> int:
        """About how many bytes of memory the copy would take."""
        return self._bytes

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._bytes += int(batch.nbytes)
        return batch

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for table in self._copy.read(([number] for number in range(self._copy.count)), columns):
            yield from table.to_batches()


def copy_rows(source: TableSource, columns: Sequence[str], most: int | None) -> pa.Table | TempCopySource:
    """All rows of a source, read once: a table while they take at most so many bytes, otherwise a copy on disk."""
    held: list[pa.RecordBatch] = []
    batches, size = source.batches(columns), 0
    for batch in batches:
        held.append(batch)
        size += int(batch.nbytes)
        if most is not None and size > most:
            return TempCopySource(source.name, _chain_batches(held, batches))
    if not held:
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    return pa.Table.from_batches(held)


def _chain_batches(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What was read, which is let go batch by batch, and then the rest."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest


_TAKEN = (
    "give the path of a CSV, Parquet or spreadsheet file, an address such as s3://BUCKET/FOLDER/, a Query, an Arrow "
    "table, a pandas or polars frame, or another object that speaks Arrow"
)


def open_source(given: Any, name: str | None = None, text: TextFormat = AS_USUAL) -> TableSource:
    """The source that something names; nothing is read yet. ``text`` is how CSV files are written."""
    if isinstance(given, TableSource):
        return given
    if isinstance(given, Query):
        return QuerySource(given, name, text)
    if isinstance(given, str | Path):
        return _open_path(given, name, text)
    said = name or "table"
    if isinstance(given, pa.Table | pa.RecordBatch) or (hasattr(given, "reset_index") and hasattr(given, "columns")):
        return InMemorySource(given, said)
    if hasattr(given, "__arrow_c_stream__") or (hasattr(given, "scanner") and hasattr(given, "schema")):
        return ArrowStreamSource(given, said)
    raise DataError(f"{said}: {_TAKEN}, not {type(given).__name__} [DA227]")


def source_name(given: Any) -> str:
    """How errors call what a party names, if nobody says otherwise."""
    if isinstance(given, str) and is_address(given):
        return redact_address(given)
    if isinstance(given, str | Path):
        return str(given)
    return given.name if isinstance(given, Query | TableSource) else "table"


def read_columns(given: Any, name: str, choose: files.ColumnChooser, text: TextFormat = AS_USUAL) -> pa.Table:
    """The chosen columns of anything that :func:`open_source` takes, in memory."""
    source = open_source(given, name, text)
    return source.read_chosen(lambda there: files.choose_columns(there, name, choose))


def make_rereadable(source: TableSource, name: str, choose: files.ColumnChooser, *, most: int | None) -> TableSource:
    """A source that can be read again: itself, or a copy of the chosen columns, in memory up to so many bytes."""
    if source.rereadable:
        return source
    found = copy_rows(source, files.choose_columns(source.columns(), name, choose), most)
    return found if isinstance(found, TempCopySource) else InMemorySource(found, name)


def read_first_rows(source: TableSource, most: int) -> pa.Table:
    """All columns of the rows for a draft: all rows that can be read again, of others at most about so many."""
    if source.rereadable:
        return source.read_chosen(lambda there: files.choose_columns(there, source.name, list))
    held: list[pa.RecordBatch] = []
    columns, rows = files.choose_columns(source.columns(), source.name, list), 0
    for batch in source.batches(columns):
        held.append(batch)
        rows += int(batch.num_rows)
        if rows >= most:
            break
    return pa.Table.from_batches(held) if held else pa.table({name: pa.array([], pa.string()) for name in columns})


def guess_format(given: Any, name: str) -> TextFormat:
    """How text files look to be written, by the first of them; those of a store are taken to be as usual."""
    if not isinstance(given, str | Path) or (isinstance(given, str) and is_address(given)):
        return AS_USUAL
    source = open_source(given, name)
    return files.guess_file_format(source.first_file(), name) if isinstance(source, FileSet) else AS_USUAL


def _open_path(given: str | Path, name: str | None, text: TextFormat) -> TableSource:
    if isinstance(given, str) and is_address(given):
        return open_stored_files(given, name, text)
    if not str(given):
        raise DataError("the table has no path; name a file, a folder or an address [DA228]")
    path = Path(given)
    said = name or str(given)
    if path.suffix.lower() in SPREADSHEET_ENDINGS:
        return SpreadsheetSource(path, said, text)
    return open_local_files(path, said, text)
