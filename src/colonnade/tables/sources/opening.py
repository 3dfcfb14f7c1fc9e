"""From what a party names to a source: a path, a pattern, an address, a query, or an object of a program."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.drivers import needed
from colonnade.tables.sources.kept import Kept, gathered
from colonnade.tables.sources.memory import ArrowStream, InHand
from colonnade.tables.sources.parts import DataSet, local_files, stored_files
from colonnade.tables.sources.pieces import Part, Piece, Stretch, divided, local_state
from colonnade.tables.sources.query import Answer, Query
from colonnade.tables.sources.stores import has_pattern, is_address, shown

ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_WHOLE = 2.0**53
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


class SingleFile(Source):
    """A file that must not change as long as a table reads from it."""

    def __init__(self, path: Path, name: str, text: TextFormat = files.AS_USUAL) -> None:
        super().__init__(name)
        self._path = path
        self._text = text

    def columns(self) -> list[str]:
        """The names of all columns."""
        return files.column_names(self._path, self.name, self._text)

    def state(self) -> Hashable:
        """Size and time of the file."""
        return local_state(self._path)

    def size(self, choose: files.Chooser) -> int:
        """About how many bytes of memory the chosen columns would take; of text, all of them."""
        return files.bytes_in_memory(self._path, self.name, choose)

    def count(self) -> int:
        """How many rows there are, by lines where that is enough."""
        return files.count_rows(self._path, self.name, self._text)

    def pieces(self, columns: Sequence[str]) -> list[Source]:
        """The row groups of a Parquet file."""
        file = Stretch(Part(self._path.resolve(), self.name, self.state()), tuple(columns))
        return [Piece(self, each, self._text) for each in divided([file])]

    def look(self) -> None:
        """Note the state of the file, wherever the program goes from here."""
        self._path = self._path.resolve()
        super().look()

    def whole(self, choose: files.Chooser) -> pa.Table:
        """The chosen columns, in memory."""
        return files.read_columns(self._path, self.name, choose, self._text)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return files.read_batches(self._path, self.name, columns, self._text)


class Sheet(Source):
    """A workbook of this machine. It is read as a whole, since it has a million rows at most, and every cell as text.

    So a cell means what it would mean in a CSV file: the number 7 is the id ``7``, and an empty cell is missing.
    """

    held = True

    def __init__(self, path: Path, name: str, text: TextFormat = files.AS_USUAL) -> None:
        super().__init__(name)
        self._path = path
        self._decimal = text.decimal or "."

    def columns(self) -> list[str]:
        """The cells of the first row."""
        return list(self._table.column_names)

    def state(self) -> Hashable:
        """Size and time of the file."""
        return local_state(self._path)

    def whole(self, choose: files.Chooser) -> pa.Table:
        """The chosen columns."""
        return self._table.select(files.chosen(self._table.column_names, self.name, choose))

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self._table.select(list(columns)).to_batches())

    @cached_property
    def _table(self) -> pa.Table:
        try:
            reading.check_regular(self._path)
        except reading.Unreadable as error:
            said = (
                "there is no such file; check the path [DA245]"
                if error.missing
                else f"the file cannot be read: {error}"
            )
            raise DataError(f"{self.name}: {said} [DA246]") from None
        header, *rows = self._cells()
        names = [_text(cell, self._decimal) for cell in header]
        columns = [[_text(cell, self._decimal) for cell in column] for column in zip(*rows, strict=True)] or [
            [] for _ in names
        ]
        return pa.Table.from_arrays([pa.array(column, pa.large_string()) for column in columns], names=names)

    def _cells(self) -> list[list[Any]]:
        calamine = needed("python_calamine", "excel", self.name)
        try:
            with calamine.load_workbook(str(self._path)) as book:
                full = [found for name in book.sheet_names if (found := book.get_sheet_by_name(name).to_python())]
        except Exception:  # whatever the library raises may quote a cell
            raise DataError(
                f"{self.name}: the spreadsheet cannot be read: it is damaged, or locked with a password; save the "
                "table as CSV [DA247]"
            ) from None
        if len(full) != 1:
            what = "several sheets with cells" if full else "no cells"
            raise DataError(f"{self.name}: the spreadsheet has {what}; save the table as a sheet of its own [DA248]")
        return list(full[0])


def _text(cell: Any, decimal: str) -> str:
    """A cell as a CSV file would have it that is written with this decimal sign."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _WHOLE:
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return repr(cell).replace(".", decimal) if isinstance(cell, int | float) else str(cell)
