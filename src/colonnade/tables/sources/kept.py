"""A copy of rows that are read only once: in memory while it is small, then in a temporary file without a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colonnade.tables.arrow import pa
from colonnade.tables.files import Chooser
from colonnade.tables.sources.contract import Source
from colonnade.tables.spill import TempBatches


class Kept(Source):
    """Rows of a source that cannot be read again; only a few batches are in memory at a time."""

    def __init__(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all batches, of which there is one at least; the source has ended when this returns."""
        super().__init__(name)
        self._bytes = 0
        self._copy = TempBatches(map(self._counted, batches))

    def columns(self) -> list[str]:
        """The columns that were copied."""
        return list(self._copy.names)

    def size(self, choose: Chooser) -> int:
        """About how many bytes of memory the copy would take."""
        return self._bytes

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._bytes += int(batch.nbytes)
        return batch

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for table in self._copy.read(([number] for number in range(self._copy.count)), columns):
            yield from table.to_batches()


def gathered(source: Source, columns: Sequence[str], most: int | None) -> pa.Table | Kept:
    """All rows of a source, read once: a table while they take at most so many bytes, otherwise a copy on disk."""
    held: list[pa.RecordBatch] = []
    batches, size = source.batches(columns), 0
    for batch in batches:
        held.append(batch)
        size += int(batch.nbytes)
        if most is not None and size > most:
            return Kept(source.name, _before(held, batches))
    if not held:
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    return pa.Table.from_batches(held)


def _before(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What was read, which is let go batch by batch, and then the rest."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest
