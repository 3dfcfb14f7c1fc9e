"""Columns from a file or a frame, unchanged: no type guessing, and no message that holds a cell."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from colonnade.errors import DataError
from colonnade.tables.wording import listed, suggestion

_PARQUET_MAGIC = b"PAR1"
_HEADER_LIMIT = 1 << 20
_CSV_BLOCK = 1 << 23  # Arrow wants every row to fit in a block

Chooser = Callable[[Sequence[str]], Sequence[str]]
"""Given the columns there are, those to read; raises where one it needs is not there."""


def read_columns(source: Any, name: str, choose: Chooser) -> pa.Table:
    """The chosen columns of a CSV or Parquet file, an Arrow table or a pandas frame.

    Every cell of a CSV file stays text, so that an id such as 007 stays what it is.
    """
    if isinstance(source, str | Path):
        return _from_path(Path(source), name, choose)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source.select(_chosen(source.column_names, name, choose))
    if hasattr(source, "columns") and hasattr(source, "reset_index"):
        return _from_frame(source, name, choose)
    kind = type(source).__name__
    raise DataError(f"{name}: give a CSV or Parquet path, a pyarrow.Table or a pandas frame, not {kind}")


def need(
    wanted: Sequence[str], there: Sequence[str], name: str, *, taken: Sequence[str] = (), advice: str = ""
) -> None:
    """Raise unless all wanted columns are there, with advice and a guess at what was meant: none of those taken."""
    lacking = [column for column in wanted if column not in set(there)]
    if not lacking:
        return
    free = [column for column in there if column not in set(taken)]
    meant = [column for column in free if column not in set(wanted)]
    hint = suggestion(lacking[0], meant) if len(lacking) == 1 else ""
    what = f"column {lacking[0]!r} is" if len(lacking) == 1 else f"columns {listed(lacking)} are"
    raise DataError(f"{name}: {what} not there{advice}{hint or f'; the columns are {listed(free or there)}'}")


def _from_path(path: Path, name: str, choose: Chooser) -> pa.Table:
    if not path.exists():
        raise DataError(f"{name}: there is no such file; check the path")
    if path.is_dir():
        raise DataError(f"{name}: this is a folder; name the CSV or Parquet file in it")
    try:
        with path.open("rb") as opened:
            start = opened.read(4)
        if not start:
            raise DataError(f"{name}: the file is empty")
        read = _from_parquet if start == _PARQUET_MAGIC else _from_csv
        return read(path, name, choose)
    except pa.ArrowInvalid as error:
        # Arrow's own message may quote a cell.
        said = "text that is not UTF-8" if "UTF8" in str(error) else "broken content"
        raise DataError(f"{name}: the file holds {said} and cannot be read; save it again as CSV or Parquet") from None
    except OSError as error:
        raise DataError(f"{name}: the file cannot be read: {error.strerror or 'it is damaged'}") from None


def _from_parquet(path: Path, name: str, choose: Chooser) -> pa.Table:
    with pa.parquet.ParquetFile(path, memory_map=True) as opened:
        return opened.read(columns=_chosen(opened.schema_arrow.names, name, choose))


def _from_csv(path: Path, name: str, choose: Chooser) -> pa.Table:
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    header = _header(path, name, delimiter)
    if len(header) == 1 and ";" in header[0]:
        raise DataError(f"{name}: cells seem to be separated by semicolons; save the file with commas")
    wanted = _chosen(header, name, choose)
    _refuse_other_encodings(path)
    ragged: list[int] = []

    def note(row: Any) -> str:
        # The header is row 1 to Arrow; people count the rows of data.
        ragged.append(row.number - 1)
        return "skip"

    found = pa.csv.read_csv(
        path,
        # Arrow numbers rows only when it reads on one thread.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note),
        convert_options=pa.csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
        ),
    )
    if ragged:
        raise DataError(f"{name}: row {ragged[0]} has more or fewer cells than the header; correct the row")
    return found


def _refuse_other_encodings(path: Path) -> None:
    """Arrow would complain too, but only after a traceback of its own where a row is also too short."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(str(path)) as stream:
        try:
            while part := stream.read(_CSV_BLOCK):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise pa.ArrowInvalid("UTF8") from None


def _header(path: Path, name: str, delimiter: str) -> list[str]:
    with pa.input_stream(str(path)) as stream:
        start = stream.read(_HEADER_LIMIT)
    try:
        rows = csv.reader(io.StringIO(start.decode("utf-8-sig", errors="replace")), delimiter=delimiter)
        header = next((row for row in rows if row), None)
    except csv.Error:
        header = None
    if not header or any("\ufffd" in column or "\x00" in column for column in header):
        raise DataError(f"{name}: no header was found; the first line must name the columns, in UTF-8")
    return header


def _from_frame(frame: Any, name: str, choose: Chooser) -> pa.Table:
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns = {}
    for column in _chosen([str(column) for column in frame.columns], name, choose):
        try:
            columns[column] = pa.Array.from_pandas(frame[column])
        except (pa.ArrowException, KeyError, TypeError, ValueError):
            raise DataError(f"{name}: column {column!r} mixes kinds of value; give it one type") from None
    return pa.table(columns)


def _chosen(there: Sequence[str], name: str, choose: Chooser) -> list[str]:
    wanted = list(choose(there))
    times = Counter(there)
    twice = [column for column in wanted if times[column] > 1]
    if twice:
        raise DataError(f"{name}: column {listed(twice)} appears more than once; rename or delete one")
    return wanted
