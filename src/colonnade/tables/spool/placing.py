"""Rows of a table that was copied are put into partitions, some of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.tables.arrow import pa
from colonnade.tables.spool.chores import Chore
from colonnade.tables.spool.copying import Copied, copied_rows
from colonnade.tables.spool.partitions import PartitionOf, run_bytes, write_run
from colonnade.tables.spool.repeated import dropped_rows, starts


@dataclass(frozen=True)
class Stretch:
    """Some batches of a piece."""

    piece: int
    first: int
    """How many rows of the table come before the piece."""
    batches: range


@dataclass(frozen=True)
class Place(Chore):
    """The chore: write one run."""

    folder: Path
    number: int
    stretches: tuple[Stretch, ...]
    dropped: tuple[int, ...]
    partition_of: PartitionOf
    count: int

    def done(self) -> None:
        """Read rows from their copy, leave out those whose keys are repeated, and write the run."""
        write_run(self.folder, self.number, list(self._rows()), self.partition_of, self.count)
        pa.default_memory_pool().release_unused()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for stretch in self.stretches:
            for batch in copied_rows(self.folder, stretch.piece, stretch.batches):
                numbers = np.asarray(batch.column(0)) + stretch.first
                found = batch.set_column(0, batch.schema.field(0), pa.array(numbers))
                gone = dropped_rows(self.folder, self.dropped, int(numbers[0]), int(numbers[-1]) + 1)
                yield found.filter(pa.array(~np.isin(numbers, gone))) if len(gone) else found


def placing(
    folder: Path,
    pieces: Sequence[Copied],
    dropped: tuple[int, ...],
    partition_of: PartitionOf,
    count: int,
    memory: int | None = None,
) -> list[Place]:
    """Chores that put all rows into partitions; runs have the rows in their order, whoever makes them."""
    least = run_bytes(sum(piece.size for piece in pieces), memory)
    runs, held, size = list[tuple[Stretch, ...]](), list[Stretch](), 0.0
    for piece, first in zip(pieces, starts(pieces), strict=True):
        start = 0
        for batch in range(piece.batches):
            size += piece.size / piece.batches
            if size >= least or batch + 1 == piece.batches:
                held.append(Stretch(piece.number, first, range(start, batch + 1)))
                start = batch + 1
            if size >= least:
                runs.append(tuple(held))
                held, size = [], 0.0
    if held:
        runs.append(tuple(held))
    return [Place(folder, number, run, dropped, partition_of, count) for number, run in enumerate(runs)]
