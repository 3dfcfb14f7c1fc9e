"""From a party's file to partitions.

A large table is read once. :func:`stage_table` checks and types its cells, normalises its keys, copies both to a
private folder, and looks for keys that are repeated. When it is known how people are spread over partitions, the copy
is split. All of it is done in work units, which other processes of the party can do; one process needs the same memory
for any table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.cell_parsing import pa
from colonnade.tables.encoding import EncodingReport, InvalidValues
from colonnade.tables.keys import KeyColumn, KeyPlan, all_repeated_error, no_key_error, refuse_repeated
from colonnade.tables.partitioning.partitions import (
    PartitionedTable,
    PartitionInfo,
    PartitionOf,
    finish_table,
    run_bytes,
    write_run,
)
from colonnade.tables.partitioning.private_tempdir import PrivateTempDir
from colonnade.tables.partitioning.staging import (
    KeyFingerprints,
    PartitionRunner,
    RepeatedKeys,
    StagedShard,
    StageShard,
    WorkUnit,
    delete_staged,
    dropped_name,
    no_workers,
    plan_key_search,
    read_dropped_rows,
    read_staged_rows,
    row_offsets,
    run_all,
)
from colonnade.tables.reading import TableRequest
from colonnade.tables.schema import Schema
from colonnade.tables.sources.base import TableSource
from colonnade.tables.sources.factory import open_source
from colonnade.tables.text_format import TextFormat


class StagedTable:
    """A table that was read, checked and copied to a private folder, to be split.

    ``keys`` is the number of rows that have a key which counts, out of ``rows``; ``missing`` and ``repeated`` are those
    that are left out, as for :class:`~colonnade.tables.keys.TableKeys`.
    """

    def __init__(
        self,
        room: PrivateTempDir,
        pieces: Sequence[StagedShard],
        repeated: Sequence[RepeatedKeys],
        schema: Schema,
        about: PartitionInfo,
        *,
        own: bool,
    ) -> None:
        """``own``: nobody else sees to the room after an error."""
        self.report: EncodingReport = sum((piece.report for piece in pieces), EncodingReport())
        self.rows = self.report.rows
        keys = sum(piece.keys for piece in pieces)
        self.missing = self.rows - keys
        self.repeated = sum(each.dropped for each in repeated)
        self.keys = keys - self.repeated
        self._room, self._own = room, own
        self._pieces = tuple(pieces)
        self._dropped = tuple(each.number for each in repeated if each.dropped)
        self._schema = schema
        self._about = about

    @property
    def folder(self) -> Path:
        """The private folder."""
        return self._room.path

    def split(
        self, partition_of: PartitionOf, count: int, hands: PartitionRunner = no_workers, memory: int | None = None
    ) -> PartitionedTable:
        """Spread the rows over partitions; the copy in the order of the file is deleted then.

        Hands get ``partition_of`` pickled. ``memory`` is how many bytes each of them may have.
        """
        try:
            chores = plan_runs(self.folder, self._pieces, self._dropped, partition_of, count, memory)
            run_all(chores, hands)
            for piece in self._pieces:
                delete_staged(self.folder, piece.number, rows=True)
            for number in self._dropped:
                (self.folder / dropped_name(number)).unlink()
            return finish_table(self._room, len(chores), count, self._about, self._schema)
        except BaseException:
            if self._own:
                self.remove()
            raise

    def remove(self) -> None:
        """Delete the folder; a spool made of this is gone, too."""
        self._room.remove()

    def __repr__(self) -> str:
        return f"<Gathered {self._about.source}: {self.keys} of {self.rows} rows have a key>"


def stage_table(
    source: str | Path | Any,
    schema: Schema | str | Path,
    keys: KeyPlan,
    folder: str | Path | PrivateTempDir,
    *,
    id: str | None = "person_id",
    name: str | None = None,
    columns: Mapping[str, KeyColumn] | None = None,
    misfits: InvalidValues = "refuse",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    hands: PartitionRunner = no_workers,
) -> StagedTable:
    """Read a table as :func:`~colonnade.tables.reading.read_table` does, and check it, once and without holding it.

    Errors have the same words, but those about cells name the rows of one stretch of the file, and come before those
    about keys that are repeated or missing in all rows. The private folder is made inside ``folder``, and is removed
    after an error; a room is left to whoever made it, as hands may still be at work there.
    """
    asked = TableRequest.of(
        source,
        schema,
        id,
        name,
        columns=columns,
        keys=keys,
        text=TextFormat(separator, encoding, decimal),
        misfits=misfits,
    )
    found = open_source(source, asked.source_name, asked.schema.text)
    files.choose_columns(found.columns(), asked.source_name, asked.choose)
    own = not isinstance(folder, PrivateTempDir)
    room = folder if isinstance(folder, PrivateTempDir) else PrivateTempDir(Path(folder))
    try:
        KeyFingerprints.create_seed(room.path)
        pieces = _stage_shards(room.path, found, asked, hands)
        if not sum(piece.rows for piece in pieces):
            raise DataError(f"{asked.source_name}: the table has no rows [DA261]")
        keyed = sum(piece.keys for piece in pieces)
        if not keyed and misfits == "refuse":
            raise no_key_error(asked.source_name, keys, asked.key_columns)
        repeated: list[RepeatedKeys] = run_all(plan_key_search(room.path, keys, pieces), hands)
        first = np.array([row for each in repeated for row in each.first], np.int64)
        refuse_repeated(first + 1, keys, asked.key_columns, asked.source_name, sum(each.count for each in repeated))
        if sum(each.dropped for each in repeated) == keyed and misfits == "refuse":
            raise all_repeated_error(asked.source_name, keys, asked.key_columns)
        for piece in pieces:
            delete_staged(room.path, piece.number, rows=False)
        KeyFingerprints.delete_seed(room.path)
        about = PartitionInfo(asked.source_name, asked.schema.digest, misfits, tuple(key.name for key in keys.keys))
        return StagedTable(room, pieces, repeated, asked.schema, about, own=own)
    except BaseException:
        if own:
            room.remove()
        raise


def _stage_shards(
    folder: Path, source: TableSource, reading: TableRequest, hands: PartitionRunner
) -> list[StagedShard]:
    """All rows, read once; who reads a piece sees to it that its files stay the same, and we see to all of them."""
    pieces = source.shards(reading.columns)
    if len(pieces) < 2:
        return [StageShard(folder, reading, source).run()]
    source.record_state()
    found: list[StagedShard] = run_all([StageShard(folder, reading, *each[::-1]) for each in enumerate(pieces)], hands)
    source.refuse_changes()
    return found


@dataclass(frozen=True)
class BatchRange:
    """Some batches of a piece."""

    piece: int
    first: int
    """How many rows of the table come before the piece."""
    batches: range


@dataclass(frozen=True)
class WriteRun(WorkUnit):
    """The chore: write one run."""

    folder: Path
    number: int
    stretches: tuple[BatchRange, ...]
    dropped: tuple[int, ...]
    partition_of: PartitionOf
    count: int

    def run(self) -> None:
        """Read rows from their copy, leave out those whose keys are repeated, and write the run."""
        write_run(self.folder, self.number, list(self._rows()), self.partition_of, self.count)
        pa.default_memory_pool().release_unused()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for stretch in self.stretches:
            for batch in read_staged_rows(self.folder, stretch.piece, stretch.batches):
                numbers = np.asarray(batch.column(0)) + stretch.first
                found = batch.set_column(0, batch.schema.field(0), pa.array(numbers))
                gone = read_dropped_rows(self.folder, self.dropped, int(numbers[0]), int(numbers[-1]) + 1)
                yield found.filter(pa.array(~np.isin(numbers, gone))) if len(gone) else found


def plan_runs(
    folder: Path,
    pieces: Sequence[StagedShard],
    dropped: tuple[int, ...],
    partition_of: PartitionOf,
    count: int,
    memory: int | None = None,
) -> list[WriteRun]:
    """Chores that put all rows into partitions; runs have the rows in their order, whoever makes them."""
    least = run_bytes(sum(piece.size for piece in pieces), memory)
    runs, held, size = list[tuple[BatchRange, ...]](), list[BatchRange](), 0.0
    for piece, first in zip(pieces, row_offsets(pieces), strict=True):
        start = 0
        for batch in range(piece.batches):
            size += piece.size / piece.batches
            if size >= least or batch + 1 == piece.batches:
                held.append(BatchRange(piece.number, first, range(start, batch + 1)))
                start = batch + 1
            if size >= least:
                runs.append(tuple(held))
                held, size = [], 0.0
    if held:
        runs.append(tuple(held))
    return [WriteRun(folder, number, run, dropped, partition_of, count) for number, run in enumerate(runs)]
