"""Columns read from a file or a frame as they are: types are not guessed, and no message shows a cell.

Text goes one way to the parser: it is decompressed, its encoding is checked, and it is turned into UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from colonnade.disk import reading
from colonnade.errors import DataError
from colonnade.tables.cell_parsing import (
    AS_USUAL,
    SEPARATORS,
    UTF_8,
    TextFormat,
    advise_format,
    decode_sample,
    guess_encoding,
    guess_separator,
    itemise,
    pa,
    suggest_name,
)
from colonnade.tables.sources.object_stores import StoredFile

BLOCK = 1 << 23
"""Bytes that Arrow parses at a time; it wants every row to fit in a block."""
_START = 1 << 20
_WIDEST = 3  # the most bytes of UTF-8 that a byte of another encoding becomes
_RETURN = ord("\r")


class TextStream(io.RawIOBase):
    """The text of a file in UTF-8, in parts that never end between the two bytes of a line break, nor in a character.

    If a line break is split between two parts, Arrow keeps only its first byte, even inside a quoted cell. And if Arrow
    gets a row that is too short and no UTF-8, it prints a traceback of its own. So the text ends before the first part
    that is not in its encoding, which is kept as ``other``; whoever reads looks at it when the text has ended.
    """

    def __init__(self, path: Path | StoredFile, text: TextFormat) -> None:
        self._stream = path.stream() if isinstance(path, StoredFile) else pa.input_stream(str(path))
        self.start: bytes = self._stream.read(_START)
        """The first bytes of the file, as they are."""
        self.undecodable: bytes | None = None
        """The first part that is not text in the encoding; empty if the file ends within a character."""
        self._at, self._held, self._broken = 0, b"", b""
        self._decoder = None if text.utf_8 else codecs.getincrementaldecoder(text.encoding or UTF_8)()
        self._in_utf_8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder(UTF_8)()
        self._beyond_ascii: bytes | None = None
        self._reading = Lock()  # Arrow reads ahead in a thread of its own

    def readable(self) -> bool:
        """As for any stream."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; none at the end."""
        with self._reading:
            part = self._held + (self._next(None) if size < 0 else self._next(max(1, size - len(self._held))))
            end = len(part) if size < 0 else min(size, len(part))
            end -= end > 1 and part[end - 1] == _RETURN
            self._held = part[end:]
            return part[:end]

    def drain(self) -> None:
        """Check what is left, and throw it away."""
        while self.read(BLOCK):
            pass

    def close(self) -> None:
        """Close the file."""
        with self._reading:
            self._stream.close()
            super().close()

    def _next(self, size: int | None) -> bytes:
        """About so many bytes of UTF-8 that are checked; none only at the end."""
        while self.undecodable is None:
            raw = self._raw(size if self._decoder is None or size is None else max(1, size // _WIDEST))
            try:
                part = self._checked(raw) if self._decoder is None else self._turned(raw, self._decoder)
            except UnicodeError:
                self.undecodable = self._broken + raw
                break
            if part or not raw:
                return part
        return b""

    def _raw(self, size: int | None) -> bytes:
        first = self.start[self._at : None if size is None else self._at + size]
        self._at += len(first)
        # A block that is not full would have less room for a long row.
        return first + bytes(self._stream.read(None if size is None else size - len(first)))

    def _checked(self, raw: bytes) -> bytes:
        """UTF-8 without the last character, if that is not whole yet."""
        if not self._broken and raw.isascii():
            return raw
        whole = self._broken + raw
        _, end = codecs.utf_8_decode(whole, "strict", not raw)
        self._broken = whole[end:]
        return whole[:end]

    def _turned(self, raw: bytes, decoder: codecs.IncrementalDecoder) -> bytes:
        """The same from another encoding; a byte for a letter reads anything, and names would be matched in vain."""
        part = decoder.decode(raw, final=not raw).encode()
        if self._beyond_ascii is None and not raw.isascii():
            self._beyond_ascii = raw
        if self._in_utf_8 is not None:
            try:
                self._in_utf_8.decode(raw, final=not raw)
            except UnicodeError:
                self._in_utf_8 = None
            else:
                self.undecodable = self._beyond_ascii if not raw else None
        return part


_PARQUET_MAGIC = b"PAR1"
_BATCH_ROWS = 1 << 15
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_COMPRESSION = 8  # about how many times longer such a file becomes
_CELL_BYTES = 8
_SPREADSHEETS = {
    b"PK\x03\x04": "a spreadsheet (.xlsx, .ods) or a zip archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet (.xls)",
}
LACKS_ID = ": the id: column"
"""Stands in the error about a table that lacks the column of ids."""

FileLocation = Path | StoredFile
"""Where a file lies: on this machine, or in a store."""
ColumnChooser = Callable[[Sequence[str]], Sequence[str]]
"""Takes the names of all columns and returns those to read; raises if a needed one is missing."""


def require_columns(
    wanted: Sequence[str], there: Sequence[str], name: str, *, taken: Sequence[str] = (), advice: str = ""
) -> None:
    """Raise unless all wanted columns are there; the error has the advice and a similar name that is not ``taken``."""
    found, other = set(there), {*taken, *wanted}
    lacking = [column for column in wanted if column not in found]
    if not lacking:
        return
    free = [column for column in there if column not in set(taken)]
    meant = [column for column in free if column not in other]
    hint = suggest_name(lacking[0], meant) if len(lacking) == 1 else ""
    what = f"column {lacking[0]!r} is" if len(lacking) == 1 else f"columns {itemise(lacking)} are"
    shown = itemise(free if advice and free else there)
    said = f"{name}: {what} not there{advice}{hint or f'; the columns are {shown}'} [DA154]"
    raise DataError(reading.shorten(said))


def read_arrow_schema(path: FileLocation, name: str, text: TextFormat = AS_USUAL) -> pa.Schema:
    """The columns of a file with the types that they are read as."""
    with _read_errors(path, name) as parquet:
        if not parquet:
            with TextStream(path, text) as stream:
                return pa.schema([(column, pa.string()) for column in _header(stream.start, path, name, text)])
        with _parquet(path) as opened:
            return opened.schema_arrow.remove_metadata()


def estimate_memory(path: FileLocation, name: str, choose: ColumnChooser) -> int:
    """About how much memory the chosen columns of a file would take; of a text file, all of them."""
    with _read_errors(path, name) as parquet:
        if not parquet:
            stored = path.size if isinstance(path, StoredFile) else path.stat().st_size
            return stored * (_COMPRESSION if path.suffix in _COMPRESSED else 1)
        with _parquet(path) as opened:
            columns = set(choose_columns(opened.schema_arrow.names, name, choose))
            cells = int(opened.metadata.num_rows) * len(columns)
            groups = (opened.metadata.row_group(index) for index in range(opened.metadata.num_row_groups))
            parts = (group.column(index) for group in groups for index in range(opened.metadata.num_columns))
            unpacked = sum(part.total_uncompressed_size for part in parts if part.path_in_schema in columns)
            return max(_CELL_BYTES * cells, int(unpacked))


def row_group_sizes(path: FileLocation, name: str) -> list[int] | None:
    """How many bytes each row group of a Parquet file has; ``None`` of a text file."""
    with _read_errors(path, name) as parquet:
        if not parquet:
            return None
        with _parquet(path) as opened:
            metadata = opened.metadata
            return [int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups)]


def count_rows(path: FileLocation, name: str, text: TextFormat = AS_USUAL) -> int:
    """How many rows a file has; where no cell is quoted and no line is empty, by its line breaks alone."""
    with _read_errors(path, name) as parquet:
        if parquet:
            with _parquet(path) as opened:
                return int(opened.metadata.num_rows)
        # Lines may turn out not to be rows, and what comes from a store is not fetched twice for a count.
        if isinstance(path, Path) and (lines := _count_plain_lines(path, name, text)) is not None:
            return lines - 1
    first = read_arrow_schema(path, name, text).names[:1]
    return sum(int(part.num_rows) for part in read_batches(path, name, first, text))


def _count_plain_lines(path: Path, name: str, text: TextFormat) -> int | None:
    """The lines of a text file; ``None`` if they are not its rows and a header, because of quotes or empty lines."""
    lines, last = 0, b"\n"
    with TextStream(path, text) as stream:
        _header(stream.start, path, name, text)
        while part := stream.read(BLOCK):
            whole = last + part
            if b'"' in part or any(empty in whole for empty in (b"\n\n", b"\n\r", b"\r\r")):
                return None
            # A part never ends between the two bytes of a line break, but for the last one.
            lines += part.count(b"\n") + part.count(b"\r") - part.count(b"\r\n") - (last + part[:1] == b"\r\n")
            last = part[-1:]
        _refuse_bad_text(stream, [], name, text)
    return lines + (last not in (b"\n", b"\r"))


def guess_file_format(path: Path, name: str) -> TextFormat:
    """How a text file looks to be written, where that is not as usual."""
    with _read_errors(path, name) as parquet:
        if parquet:
            return AS_USUAL
        with TextStream(path, AS_USUAL) as stream:
            encoding = guess_encoding(stream.start) or UTF_8
            if encoding == UTF_8:
                stream.drain()
                encoding = (guess_encoding(stream.undecodable) if stream.undecodable else None) or UTF_8
            separator = guess_separator(decode_sample(stream.start, encoding))
    usual = AS_USUAL.separator_in(path.suffixes)
    return TextFormat(None if separator == usual else separator, None if encoding == UTF_8 else encoding)


def read_batches(
    path: FileLocation,
    name: str,
    columns: Sequence[str],
    text: TextFormat = AS_USUAL,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, a few rows at a time, so that only a part of the file is in memory.

    ``groups`` are the row groups of a Parquet file that are read, if not all.
    """
    with _read_errors(path, name) as parquet:
        if not parquet:
            yield from _csv_batches(path, name, columns, text)
            return
        # Neither mapped nor read ahead, so that the memory used does not grow with the file.
        with _parquet(path, memory_map=False, buffer_size=BLOCK, pre_buffer=False) as opened:
            some = None if groups is None else list(groups)
            yield from opened.iter_batches(_BATCH_ROWS, row_groups=some, columns=list(columns), use_threads=False)


@contextmanager
def _read_errors(path: FileLocation, name: str) -> Iterator[bool]:
    """Give whether a file is Parquet; an error while it is read becomes a :class:`DataError` that shows no cell."""
    if isinstance(path, Path):
        check_regular(path, name)
    try:
        start = _first_bytes(path)
        if not start:
            raise DataError(f"{name}: the file is empty; save it with a header and rows [DA155]")
        if start in _SPREADSHEETS:
            raise DataError(f"{name}: this is {_SPREADSHEETS[start]}, which is not read; save the table as CSV [DA156]")
        yield start == _PARQUET_MAGIC
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
        # Arrow's own message may quote a cell.
        said = "text that is not UTF-8" if "UTF8" in str(error) else "broken content"
        raise DataError(
            f"{name}: the file holds {said} and cannot be read; save it again as CSV or Parquet [DA157]"
        ) from None
    except OSError as error:
        why = "its store does not give it" if isinstance(path, StoredFile) else error.strerror or "it is damaged"
        raise DataError(f"{name}: the file cannot be read: {why} [DA158]") from None


def check_regular(path: Path, name: str) -> None:
    """Refuse what is no file that can be read."""
    if path.is_dir():
        raise DataError(f"{name}: this is a folder; name the CSV or Parquet file in it [DA159]")
    try:
        reading.check_regular(path)
    except reading.UnreadableFile as error:
        if error.missing:
            raise DataError(f"{name}: there is no such file; check the path [DA160]") from None
        raise DataError(f"{name}: the file cannot be read: {error} [DA161]") from None


def _first_bytes(path: FileLocation) -> bytes:
    if isinstance(path, StoredFile):
        return path.start(4)
    with path.open("rb") as opened:
        return opened.read(4)


def _parquet(path: FileLocation, **options: Any) -> Any:
    return pa.parquet.ParquetFile(path.file() if isinstance(path, StoredFile) else path, **options)


def _csv_batches(path: FileLocation, name: str, columns: Sequence[str], text: TextFormat) -> Iterator[pa.RecordBatch]:
    """Raises the first of these: the text is in another encoding, a row is too long or short, Arrow's own error."""
    ragged: list[int] = []
    with TextStream(path, text) as stream:
        try:
            with pa.csv.open_csv(stream, **_csv_options(path, columns, ragged, text)) as opened:
                for batch in opened:
                    if ragged:
                        break
                    yield batch
        except pa.ArrowException:
            _refuse_bad_text(stream, ragged, name, text)
            raise
        _refuse_bad_text(stream, ragged, name, text)


def _refuse_bad_text(stream: TextStream, ragged: list[int], name: str, text: TextFormat) -> None:
    stream.drain()
    if stream.undecodable is not None:
        raise DataError(f"{name}: {_other_encoding(stream.undecodable, text)} [DA162]")
    if ragged:
        raise DataError(f"{name}: row {ragged[0]} has more or fewer cells than the header; correct the row [DA163]")


def _csv_options(path: FileLocation, wanted: Sequence[str], ragged: list[int], text: TextFormat) -> dict[str, Any]:
    """How Arrow reads a CSV file; the numbers of rows with too many or too few cells are added to ``ragged``."""

    def note(row: Any) -> str:
        # Arrow counts the header as row 1; people count only the rows of data.
        ragged.append(row.number - 1)
        return "skip"

    return {
        # Arrow numbers rows only when it reads on one thread.
        "read_options": pa.csv.ReadOptions(use_threads=False, block_size=BLOCK),
        "parse_options": pa.csv.ParseOptions(
            delimiter=text.separator_in(path.suffixes), newlines_in_values=True, invalid_row_handler=note
        ),
        "convert_options": pa.csv.ConvertOptions(
            include_columns=list(wanted), column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
        ),
    }


def _other_encoding(part: bytes, text: TextFormat) -> str:
    """What to do about bytes that are not in the encoding of their file."""
    said, likely = text.encoding or UTF_8, guess_encoding(part)
    if likely is None or codecs.lookup(likely).name == codecs.lookup(said).name:
        return (
            f"the file holds text that is not {said.upper()} and cannot be read; save it again as CSV in UTF-8 [DA269]"
        )
    return (
        f"the text is not {said.upper()} but looks like {likely.upper()}; {advise_format({'encoding': likely})} [DA270]"
    )


def _header(start: bytes, path: FileLocation, name: str, text: TextFormat) -> list[str]:
    separator = text.separator_in(path.suffixes)
    if not text.utf_8 and not start.isascii() and guess_encoding(start) == UTF_8:
        raise DataError(f"{name}: {_other_encoding(start, text)} [DA164]")
    whole = decode_sample(start, text.encoding or UTF_8, len(start)).removeprefix("\ufeff")
    try:
        rows = csv.reader(io.StringIO(whole, newline=""), delimiter=separator)
        header = next((row for row in rows if row), None)
    except csv.Error:
        header = None
    if not header or any("\ufffd" in column or "\x00" in column for column in header):
        if guess_encoding(start) not in (None, UTF_8 if text.utf_8 else None):
            raise DataError(f"{name}: {_other_encoding(start, text)} [DA165]")
        raise DataError(f"{name}: no header was found; the first line must name the columns, in UTF-8 [DA166]")
    if len(header) == 1 and (likely := guess_separator(whole)) != separator and likely in header[0]:
        what = SEPARATORS[likely]
        raise DataError(f"{name}: cells seem to be separated by {what}; {advise_format({'separator': likely})} [DA167]")
    return header


def frame_columns(frame: Any) -> list[str]:
    """The columns of a pandas frame, with those of its index if they have names."""
    named = any(level is not None for level in frame.index.names)
    return [str(column) for column in (frame.iloc[:0].reset_index() if named else frame).columns]


def read_frame(frame: Any, name: str, choose: ColumnChooser) -> pa.Table:
    """The chosen columns of a pandas frame, of which those of an index with names are some."""
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns = {}
    for column in choose_columns([str(column) for column in frame.columns], name, choose):
        try:
            columns[column] = pa.Array.from_pandas(frame[column])
        except (pa.ArrowException, KeyError, TypeError, ValueError):
            raise DataError(f"{name}: column {column!r} mixes kinds of value; give it one type [DA168]") from None
    return pa.table(columns)


def choose_columns(there: Sequence[str], name: str, choose: ColumnChooser) -> list[str]:
    """The columns to read; raises if one of them occurs twice."""
    wanted = list(choose(there))
    times = Counter(there)
    twice = [column for column in wanted if times[column] > 1]
    if twice:
        raise DataError(
            f"{name}: column {reading.shorten(itemise(twice))} appears more than once; rename or delete one [DA169]"
        )
    return wanted
