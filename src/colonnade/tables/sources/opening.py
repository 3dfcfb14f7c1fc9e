"""From what a party names to a source: a path, a pattern, an address, a query, or an object of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.kept import Kept, gathered
from colonnade.tables.sources.memory import ArrowStream, InHand
from colonnade.tables.sources.parts import DataSet, local_files, stored_files
from colonnade.tables.sources.query import Answer, Query
from colonnade.tables.sources.single import ENDINGS, Sheet, SingleFile
from colonnade.tables.sources.stores import has_pattern, is_address, shown

_TAKEN = (
    "give the path of a CSV, Parquet or spreadsheet file, an address such as s3://BUCKET/FOLDER/, a Query, an Arrow "
    "table, a pandas or polars frame, or another object that speaks Arrow"
)


def opened(given: Any, name: str | None = None, text: TextFormat = files.AS_USUAL) -> Source:
    """The source that something names; nothing is read yet. ``text`` is how CSV files are written."""
    if isinstance(given, Source):
        return given
    if isinstance(given, Query):
        return Answer(given, name, text)
    if isinstance(given, str | Path):
        return _lying(given, name, text)
    said = name or "table"
    if isinstance(given, pa.Table | pa.RecordBatch) or (hasattr(given, "reset_index") and hasattr(given, "columns")):
        return InHand(given, said)
    if hasattr(given, "__arrow_c_stream__") or (hasattr(given, "scanner") and hasattr(given, "schema")):
        return ArrowStream(given, said)
    raise DataError(f"{said}: {_TAKEN}, not {type(given).__name__} [DA227]")


def name_of(given: Any) -> str:
    """How errors call what a party names, if nobody says otherwise."""
    if isinstance(given, str) and is_address(given):
        return shown(given)
    if isinstance(given, str | Path):
        return str(given)
    return given.name if isinstance(given, Query | Source) else "table"


def read_columns(given: Any, name: str, choose: files.Chooser, text: TextFormat = files.AS_USUAL) -> pa.Table:
    """The chosen columns of anything that :func:`opened` takes, in memory."""
    source = opened(given, name, text)
    return source.whole(lambda there: files.chosen(there, name, choose))


def settled(source: Source, name: str, choose: files.Chooser, *, most: int | None) -> Source:
    """A source that can be read again: itself, or a copy of the chosen columns, in memory up to so many bytes."""
    if source.again:
        return source
    found = gathered(source, files.chosen(source.columns(), name, choose), most)
    return found if isinstance(found, Kept) else InHand(found, name)


def first_rows(source: Source, most: int) -> pa.Table:
    """All columns of the rows for a draft: all rows that can be read again, of others at most about so many."""
    if source.again:
        return source.whole(lambda there: files.chosen(there, source.name, list))
    held: list[pa.RecordBatch] = []
    columns, rows = files.chosen(source.columns(), source.name, list), 0
    for batch in source.batches(columns):
        held.append(batch)
        rows += int(batch.num_rows)
        if rows >= most:
            break
    return pa.Table.from_batches(held) if held else pa.table({name: pa.array([], pa.string()) for name in columns})


def likely_format(given: Any, name: str) -> TextFormat:
    """How text files look to be written, by the first of them; those of a store are taken to be as usual."""
    if not isinstance(given, str | Path) or (isinstance(given, str) and is_address(given)):
        return files.AS_USUAL
    source = opened(given, name)
    if isinstance(source, Sheet):
        return files.AS_USUAL
    return files.likely_format(source.first_file() if isinstance(source, DataSet) else given, name)


def _lying(given: str | Path, name: str | None, text: TextFormat) -> Source:
    if isinstance(given, str) and is_address(given):
        return stored_files(given, name, text)
    if not str(given):
        raise DataError("the table has no path; name a file, a folder or an address [DA228]")
    path = Path(given)
    said = name or str(given)
    if path.suffix.lower() in ENDINGS:
        return Sheet(path, said, text)
    if path.is_dir() or (has_pattern(str(path)) and not path.exists()):
        return local_files(path, said, text)
    return SingleFile(path, said, text)
