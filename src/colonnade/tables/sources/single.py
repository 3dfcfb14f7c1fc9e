"""One CSV or Parquet file of this machine."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.pieces import Part, Piece, Stretch, divided, local_state


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
