"""One piece of a table: its rows are read, checked and copied to the table's private folder.

The copy has the rows that have a key, with typed cells, in the order of the file. Beside it lie fingerprints of their
keys, in the order of *buckets*, so that equal keys of all pieces are found without all of them in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.arrow import pa
from colonnade.tables.encode import Report
from colonnade.tables.ids import called
from colonnade.tables.keys import normalised
from colonnade.tables.reading import TableRequest
from colonnade.tables.schema import Schema
from colonnade.tables.sources.contract import Source
from colonnade.tables.spool.chores import Chore
from colonnade.tables.spool.fingerprints import Fingerprints, Numbers
from colonnade.tables.spool.partitions import ID, KEY, ROW, readable
from colonnade.tables.spool.room import whole
from colonnade.tables.typed import Typing

BUCKETS = 1 << 16
"""By the first 16 bits of fingerprints."""
_BLOCK_ROWS = 1 << 15
_BLOCK_CELLS = 1 << 22
_RUN_KEYS = 1 << 20
_KEY = np.dtype("<u8")
_SHIFT = 48
_NUMBERS = 3  # of a key: those of its fingerprint, and that of its row


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


@dataclass(frozen=True)
class Copy(Chore):
    """The chore: copy this piece."""

    folder: Path
    reading: TableRequest
    source: Source
    number: int = 0
    first: int = 0
    """How many rows come before it, for errors."""

    def after(self, before: Sequence[Any]) -> Copy:
        """The same, with the numbers that its rows have in the whole table."""
        return replace(self, first=sum(piece.rows for piece in before))

    def done(self) -> Copied:
        """Read, check and copy."""
        with ExitStack() as left:
            rows, keys = (left.enter_context(whole(self.folder, name)) for name in _names(self.number))
            found = _Copying(self, rows, keys)
            for batch in self.source.batches(self.reading.columns):
                found.add(batch)
            found.close()
            size = rows.tell()
        pa.default_memory_pool().release_unused()
        return Copied(self.number, found.rows, found.keys, found.report, found.batches, size)


class _Copying:
    """What is noted, and held, while a piece is copied."""

    def __init__(self, chore: Copy, rows: BinaryIO, keys: BinaryIO) -> None:
        self.report = Report()
        self.keys = self.batches = 0
        self._reading, self._first = chore.reading, chore.first
        self._typing = Typing(chore.reading.schema)
        self._block = block_rows(chore.reading.schema)
        self._fingerprints = Fingerprints(chore.folder)
        self._rows, self._keys = rows, keys
        self._writer: Any = None
        self._run = np.empty((_NUMBERS, _RUN_KEYS), _KEY)
        self._held = 0

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self.report.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Check and copy some rows."""
        for start in range(0, batch.num_rows, self._block):
            made = self._made(batch.slice(start, self._block))
            if made.num_rows:
                self._writer = self._writer or pa.ipc.new_file(pa.PythonFile(self._rows, "w"), made.schema)
                self._writer.write_batch(made)
                self.batches += 1
                self.keys += int(made.num_rows)
                self._note(self._fingerprints.of(made[KEY]), np.asarray(made[ROW]))

    def close(self) -> None:
        """Write what is held."""
        self._write_keys()
        if self._writer is not None:
            self._writer.close()

    def _note(self, prints: Numbers, rows: NDArray[np.int64]) -> None:
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + _RUN_KEYS - self._held)
            place = slice(self._held, self._held + stop - start)
            self._run[:2, place], self._run[2, place] = prints[:, start:stop], rows[start:stop]
            self._held, start = place.stop, stop
            if self._held == _RUN_KEYS:
                self._write_keys()

    def _write_keys(self) -> None:
        run = self._run[:, : self._held]
        order = np.argsort(
            (run[0] >> np.uint64(_SHIFT)).astype(np.uint16), kind="stable"
        )  # 16 bits are sorted by counting
        for numbers in run:
            self._keys.write(numbers[order].tobytes())
        self._held = 0

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        asked, before = self._reading, self.report.rows
        numbers = np.arange(self._first + before + 1, self._first + before + batch.num_rows + 1)
        assert asked.plan is not None  # noqa: S101 - for the type checker; only tables with keys are spread
        keys, rows = normalised(batch, asked.plan, asked.held, numbers, asked.said, asked.misfits)
        ids = called({column: batch[column] for column in asked.calling}, asked.said)
        cells, found = self._typing.checked(batch, source=asked.said, numbers=numbers, misfits=asked.misfits)
        self.report += found
        if len(rows) < batch.num_rows:
            within = pa.array(rows)
            ids, cells = ids.take(within), cells.take(within)
        return together(rows + before, keys, ids, cells)


def block_rows(schema: Schema) -> int:
    """How many rows are typed at a time."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // schema.encoded_width))


def together(rows: NDArray[np.int64], keys: Any, ids: Any, cells: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they are written: each with its number, from 0, and its key and id before its cells."""
    return pa.RecordBatch.from_arrays([pa.array(rows), keys, ids, *cells.columns], [ROW, KEY, ID, *cells.schema.names])


def copied_rows(folder: Path, number: int, batches: range) -> Iterator[pa.RecordBatch]:
    """Some batches of a piece that was copied."""
    name, _ = _names(number)
    with readable(folder), pa.OSFile(str(folder / name)) as file, pa.ipc.open_file(file) as opened:
        for batch in batches:
            yield opened.get_batch(batch)


def copied_keys(folder: Path, piece: Copied, buckets: range) -> Iterator[NDArray[np.uint64]]:
    """The keys of a piece that are in some buckets, run by run: their fingerprints and their rows in the piece."""
    low, high = np.uint64(buckets.start << _SHIFT), np.uint64((buckets.stop << _SHIFT) - 1)
    for start in range(0, piece.keys, _RUN_KEYS):
        count = min(_RUN_KEYS, piece.keys - start)
        with readable(folder):
            numbers = np.memmap(
                folder / _names(piece.number)[1],
                _KEY,
                "r",
                offset=start * _NUMBERS * _KEY.itemsize,
                shape=(_NUMBERS, count),
            )
        # Within a bucket they have no order, but every bucket comes after those before it.
        first, last = np.searchsorted(numbers[0], low), np.searchsorted(numbers[0], high, side="right")
        if first < last:
            yield np.array(numbers[:, first:last], np.uint64)


def forget(folder: Path, number: int, *, rows: bool) -> None:
    """Delete the copy of a piece, or the fingerprints that lie beside it."""
    (folder / _names(number)[not rows]).unlink(missing_ok=True)


def _names(number: int) -> tuple[str, str]:
    return f"rows-{number:06d}.arrow", f"keys-{number:06d}"
