"""One piece of a table: its rows are read, checked and copied to the table's private folder.

The copy has the rows that have a key, with typed cells, in the order of the file. Beside it lie their keys once more,
in the order of *buckets*, so that equal keys of all pieces are found without all keys in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.arrow import pa
from colonnade.tables.encode import Misfits, Report
from colonnade.tables.ids import called
from colonnade.tables.keys import KeyColumn, KeyPlan, normalised
from colonnade.tables.schema import Schema
from colonnade.tables.sources.contract import Source
from colonnade.tables.spool.partitions import ID, KEY, ROW, by_partition, readable
from colonnade.tables.spool.room import whole
from colonnade.tables.typed import Typing

BUCKETS = 1 << 10
_BLOCK_ROWS = 1 << 15
_BLOCK_CELLS = 1 << 22
_KEY_RUN_BYTES = 1 << 25


@dataclass(frozen=True)
class Reading:
    """How a party's table is read: what errors call it, and what its columns are."""

    said: str
    schema: Schema
    plan: KeyPlan
    held: Mapping[str, KeyColumn]
    calling: tuple[str, ...]
    columns: tuple[str, ...]
    misfits: Misfits


@dataclass(frozen=True)
class Copied:
    """What is known of a piece that was copied."""

    number: int
    rows: int
    keys: int
    """How many of the rows have one."""
    report: Report
    batches: int
    size: int
    """Bytes of the copy."""
    key_runs: int


@dataclass(frozen=True)
class Copy:
    """The chore: copy this piece."""

    folder: Path
    reading: Reading
    source: Source
    number: int = 0
    first: int = 0
    """How many rows come before it, for errors."""

    def after(self, before: Sequence[Copied]) -> Copy:
        """The same, with the numbers that its rows have in the whole table."""
        return replace(self, first=sum(piece.rows for piece in before))

    def done(self) -> Copied:
        """Read, check and copy."""
        with ExitStack() as left:
            rows, keys, index = (left.enter_context(whole(self.folder, name)) for name in _names(self.number))
            found = _Copying(self.reading, self.first, rows, keys, index)
            for batch in self.source.batches(self.reading.columns):
                found.add(batch)
            found.close()
            size = rows.tell()
        pa.default_memory_pool().release_unused()
        return Copied(self.number, found.rows, found.keys, found.report, found.batches, size, found.key_runs)


class _Copying:
    """What is noted, and held, while a piece is copied."""

    def __init__(self, reading: Reading, first: int, rows: BinaryIO, keys: BinaryIO, index: BinaryIO) -> None:
        self.report = Report()
        self.keys = self.batches = self.key_runs = 0
        self._reading, self._first = reading, first
        self._typing = Typing(reading.schema)
        self._block = block_rows(reading.schema)
        self._rows, self._keys = _Written(rows), _Written(keys)
        self._index = index
        self._held, self._size = list[pa.RecordBatch](), 0

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self.report.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Check and copy some rows."""
        for start in range(0, batch.num_rows, self._block):
            made = self._made(batch.slice(start, self._block))
            if made.num_rows:
                self._rows.write(made)
                self.batches += 1
                self.keys += int(made.num_rows)
                self._held.append(made.select([ROW, KEY]))
                self._size += int(self._held[-1].nbytes)
            if self._size >= _KEY_RUN_BYTES:
                self._write_keys()

    def close(self) -> None:
        """Write what is held."""
        if self._held:
            self._write_keys()
        self._rows.close()
        self._keys.close()

    def _write_keys(self) -> None:
        ordered, edges = by_partition(pa.Table.from_batches(self._held), bucket_of, BUCKETS)
        self._keys.write(ordered)
        self._index.write(edges.tobytes())
        self._held, self._size = [], 0
        self.key_runs += 1

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        asked, before = self._reading, self.report.rows
        numbers = np.arange(self._first + before + 1, self._first + before + batch.num_rows + 1)
        keys, rows = normalised(batch, asked.plan, asked.held, numbers, asked.said, asked.misfits)
        ids = called({column: batch[column] for column in asked.calling}, asked.said)
        cells, found = self._typing.checked(batch, source=asked.said, numbers=numbers, misfits=asked.misfits)
        self.report += found
        if len(rows) < batch.num_rows:
            within = pa.array(rows)
            ids, cells = ids.take(within), cells.take(within)
        return together(rows + before, keys, ids, cells)


class _Written:
    """A file of batches, whose first says what columns there are."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer = self._writer or pa.ipc.new_file(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def block_rows(schema: Schema) -> int:
    """How many rows are typed at a time."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // schema.encoded_width))


def together(rows: NDArray[np.int64], keys: Any, ids: Any, cells: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they are written: each with its number, from 0, and its key and id before its cells."""
    return pa.RecordBatch.from_arrays([pa.array(rows), keys, ids, *cells.columns], [ROW, KEY, ID, *cells.schema.names])


def bucket_of(keys: Sequence[bytes]) -> NDArray[np.int64]:
    """The bucket of each key, the same in every process; it says nothing about partitions."""
    return np.fromiter(map(zlib.crc32, keys), np.int64, len(keys)) % BUCKETS


def copied_rows(folder: Path, number: int, batches: range) -> Iterator[pa.RecordBatch]:
    """Some batches of a piece that was copied."""
    name, *_ = _names(number)
    with readable(folder), pa.OSFile(str(folder / name)) as file, pa.ipc.open_file(file) as opened:
        for batch in batches:
            yield opened.get_batch(batch)


def copied_keys(folder: Path, piece: Copied, buckets: range) -> Iterator[pa.RecordBatch]:
    """The keys of a piece that are in some buckets, and the numbers of their rows in the piece."""
    if not piece.key_runs:
        return
    _, name, index = _names(piece.number)
    with readable(folder), pa.memory_map(str(folder / name)) as file, pa.ipc.open_file(file) as opened:
        edges = np.memmap(folder / index, "<u4", "r", shape=(piece.key_runs, BUCKETS + 1))
        for run in range(piece.key_runs):
            start, stop = int(edges[run, buckets.start]), int(edges[run, buckets.stop])
            if start < stop:
                part = opened.get_batch(run).slice(start, stop - start)
                # A copy: mapped pages of all runs would count as memory of this process.
                yield pa.ipc.read_record_batch(part.serialize(), part.schema)


def forget_rows(folder: Path, number: int) -> None:
    """Delete the copy of a piece."""
    (folder / _names(number)[0]).unlink(missing_ok=True)


def forget_keys(folder: Path, number: int) -> None:
    """Delete the keys that lie beside the copy of a piece."""
    for name in _names(number)[1:]:
        (folder / name).unlink(missing_ok=True)


def _names(number: int) -> tuple[str, str, str]:
    return f"rows-{number:06d}.arrow", f"keys-{number:06d}.arrow", f"keys-{number:06d}.index"
