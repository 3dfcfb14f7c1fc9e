"""From a party's file, or a table that was read, to partitions.

A large file is read once. :func:`gather` checks and types its cells, normalises its keys, and copies both to a private
folder, in the order of the file; of each key 64 bits stay in memory, by which repeated keys are found. When it is known
how people are spread over partitions, the copy is split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.encode import Misfits, Report
from colonnade.tables.formats import TextFormat
from colonnade.tables.ids import called
from colonnade.tables.keys import (
    KeyColumn,
    KeyPlan,
    all_repeated,
    left_out,
    no_key,
    normalised,
    refuse_repeated,
)
from colonnade.tables.reading import Asked
from colonnade.tables.schema import Schema
from colonnade.tables.sources.grown import Grown
from colonnade.tables.sources.opening import opened
from colonnade.tables.spool.partitions import ID, KEY, ROW, About, PartitionOf, Spool, readable, write
from colonnade.tables.spool.room import Room, room_for
from colonnade.tables.table import Table
from colonnade.tables.typed import Typing

_COPY = "rows.arrow"
_BLOCK_ROWS = 1 << 15
_BLOCK_CELLS = 1 << 22
_SLICES = 16


class Gathered:
    """A table that was read, checked and copied to a private folder, to be split.

    ``keys`` is the number of rows that have a key which counts, out of ``rows``; ``missing`` and ``repeated`` are those
    that are left out, as for :class:`~colonnade.tables.keys.Keys`.
    """

    def __init__(self, room: Room, copy: _Copy, schema: Schema, about: About, dropped: NDArray[np.int64]) -> None:
        self.report: Report = copy.report
        self.rows = copy.report.rows
        self.missing = self.rows - copy.keys
        self.repeated = len(dropped)
        self.keys = copy.keys - self.repeated
        self._room = room
        self._schema = schema
        self._about = about
        self._dropped = dropped

    def split(self, partition_of: PartitionOf, count: int) -> Spool:
        """Spread the rows over partitions; the copy in the order of the file is deleted then."""
        try:
            copy = self._room.path / _COPY
            size = copy.stat().st_size
            found = write(self._room, self._kept(), partition_of, count, self._about, self._schema, size)
            copy.unlink()
        except BaseException:
            self.remove()
            raise
        return found

    def remove(self) -> None:
        """Delete the folder; a spool made of this is gone, too."""
        self._room.remove()

    def _kept(self) -> Iterator[pa.RecordBatch]:
        for batch in copied(self._room.path):
            numbers = np.asarray(batch.column(0))
            first, last = np.searchsorted(self._dropped, [numbers[0], numbers[-1] + 1])
            if first == last:
                yield batch
            else:
                yield batch.filter(pa.array(~np.isin(numbers, self._dropped[first:last])))

    def __repr__(self) -> str:
        return f"<Gathered {self._about.source}: {self.keys} of {self.rows} rows have a key>"


def gather(
    source: str | Path | Any,
    schema: Schema | str | Path,
    keys: KeyPlan,
    folder: str | Path,
    *,
    id: str | None = "person_id",
    name: str | None = None,
    columns: Mapping[str, KeyColumn] | None = None,
    misfits: Misfits = "refuse",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> Gathered:
    """Read a table as :func:`~colonnade.tables.reading.read_table` does, and check it, once and without holding it.

    Errors have the same words, but those about cells name the rows of one stretch of the file, and come before those
    about keys that are repeated or missing in all rows. The private folder is made inside ``folder``.
    """
    asked = Asked.of(source, schema, id, name, keys, columns, TextFormat(separator, encoding, decimal))
    found = opened(source, asked.said, asked.wanted.text)
    batches = found.batches(files.chosen(found.columns(), asked.said, asked.wanted.choose))
    room = Room(Path(folder))
    try:
        copy = _Copy(asked, keys, misfits)
        copy.write(room, batches)
        if not copy.report.rows:
            raise DataError(f"{asked.said}: the table has no rows")
        if not copy.keys and misfits == "refuse":
            raise no_key(asked.said, keys, asked.held)
        repeated, dropped = _repeated(copy.hashes(), room.path, keys)
        refuse_repeated(repeated + 1, keys, asked.held, asked.said)
        if len(dropped) == copy.keys and misfits == "refuse":
            raise all_repeated(asked.said, keys, asked.held)
        about = About(asked.said, asked.schema.digest, misfits, tuple(key.name for key in keys.keys))
        return Gathered(room, copy, asked.schema, about, dropped)
    except BaseException:
        room.remove()
        raise


def split(table: Table, partition_of: PartitionOf, count: int, folder: str | Path) -> Spool:
    """Spread the rows of a table that have a key over partitions, in a private folder inside ``folder``."""
    if table.keys is None:
        raise ValueError("a table without keys has no partitions")
    about = About(table.source, table.schema.digest, table.misfits, table.keys.names)
    room = Room(Path(folder))
    try:
        return write(room, _of_table(table), partition_of, count, about, table.schema)
    except BaseException:
        room.remove()
        raise


def copied(folder: Path, fields: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a copy, or some columns of them, in the order of the file."""
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with readable(folder), pa.OSFile(str(folder / _COPY)) as file, pa.ipc.open_file(file, options=options) as opened:
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


class _Copy:
    """What is noted while a table is copied."""

    def __init__(self, asked: Asked, plan: KeyPlan, misfits: Misfits) -> None:
        self.report = Report()
        self.keys = 0
        self._asked = asked
        self._plan = plan
        self._misfits = misfits
        self._typing = Typing(asked.schema)
        self._hashes = Grown(np.int64)

    def hashes(self) -> NDArray[np.int64]:
        """One number for each key; equal keys have the same."""
        found = self._hashes.whole()
        del self._hashes
        return found

    def write(self, room: Room, batches: Iterator[pa.RecordBatch]) -> None:
        """Copy the rows that have a key, and check all."""
        rows = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // self._asked.schema.encoded_width))
        with room_for(room.path), room.create(_COPY) as file:
            writer = None
            for batch in batches:
                for start in range(0, batch.num_rows, rows):
                    made = self._made(batch.slice(start, rows))
                    writer = writer or pa.ipc.new_file(pa.PythonFile(file, "w"), made.schema)
                    if made.num_rows:
                        writer.write_batch(made)
            if writer is not None:
                writer.close()

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        said, first = self._asked.said, self.report.rows
        numbers = np.arange(first + 1, first + batch.num_rows + 1)
        keys, rows = normalised(batch, self._plan, self._asked.held, numbers, said, self._misfits)
        ids = called({column: batch[column] for column in self._asked.calling}, said)
        cells, found = self._typing.checked(batch, source=said, numbers=numbers, misfits=self._misfits)
        self.report += found
        self._hashes.add(np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys)))
        self.keys += len(rows)
        if len(rows) < batch.num_rows:
            within = pa.array(rows)
            ids, cells = ids.take(within), cells.take(within)
        return _together(numbers[rows] - 1, keys, ids, cells)


def _of_table(table: Table) -> Iterator[pa.RecordBatch]:
    typing = Typing(table.schema)
    rows = max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // table.schema.encoded_width))
    for numbers, keys, ids, cells in table.keyed(rows):
        typed, _ = typing.typed(cells, source=table.source, numbers=numbers, misfits=table.misfits)
        yield _together(numbers - 1, pa.array(keys, pa.large_binary()), ids, typed)


def _together(rows: NDArray[np.int64], keys: Any, ids: Any, cells: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows), keys, ids, *cells.columns], [ROW, KEY, ID, *cells.schema.names])


def _repeated(hashes: NDArray[np.int64], folder: Path, plan: KeyPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows whose keys are repeated, and those of them that are left out; counted from 0, ascending."""
    twice = _twice(hashes)
    if not len(twice):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows, keys, start = list[NDArray[np.int64]](), list[Any](), 0
    for batch in copied(folder, [0, 1]):
        here = hashes[start : start + batch.num_rows]
        there = np.flatnonzero(twice[np.searchsorted(twice[:-1], here)] == here)
        start += batch.num_rows
        if len(there):
            rows.append(np.asarray(batch.column(0))[there])
            keys.append(batch.column(1).take(pa.array(there)))
    numbers = np.concatenate(rows)
    repeated, dropped = left_out(pa.concat_arrays(keys), plan)
    return numbers[repeated], numbers[dropped]


def _twice(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers that occur more than once, in ascending order; about a sixteenth of them is sorted at a time."""
    found = [np.empty(0, np.int64)]
    ends = hashes.view(np.uint8)[:: hashes.itemsize] % _SLICES
    for part in range(_SLICES):
        some = np.sort(hashes[ends == part])
        found.append(np.unique(some[1:][some[1:] == some[:-1]]))
    return np.sort(np.concatenate(found))
