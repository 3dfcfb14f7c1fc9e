"""One file of this machine: text, Parquet, or a spreadsheet."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.drivers import needed
from colonnade.tables.sources.pieces import Part, Piece, Stretch, divided, local_state

ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_WHOLE = 2.0**53


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
        files.check_regular(self._path, self.name)
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
