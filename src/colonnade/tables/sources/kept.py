"""A copy of rows that are read only once: in memory while it is small, then in a temporary file without a name."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from colonnade.tables.arrow import pa
from colonnade.tables.files import Chooser
from colonnade.tables.sources.contract import Source
from colonnade.tables.spill import no_room, not_read_back


class Kept(Source):
    """Rows of a source that cannot be read again; only a few batches are in memory at a time."""

    def __init__(self, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write all batches, each of this schema; the source has ended when this returns."""
        super().__init__(name)
        self._schema = schema
        self._bytes = 0
        try:
            self._file: Any = tempfile.TemporaryFile(prefix="colonnade-")  # noqa: SIM115 - open as long as this
            weakref.finalize(self, self._file.close)
            self._write(batches)
            self._file.flush()
        except OSError as error:
            raise no_room(error) from None

    def columns(self) -> list[str]:
        """The columns that were copied."""
        return list(self._schema.names)

    def size(self, choose: Chooser) -> int:
        """About how many bytes of memory the copy would take."""
        return self._bytes

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_file(pa.PythonFile(self._file, "w"), self._schema, options=options) as writer:
            for batch in batches:
                self._bytes += int(batch.nbytes)
                writer.write_batch(batch)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        places = [self._schema.names.index(name) for name in columns]
        # Fields come back in the order of the file, whatever order they are asked in.
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places), use_threads=False)
        try:
            with pa.ipc.open_file(pa.PythonFile(self._file, "r"), options=options) as opened:
                for number in range(opened.num_record_batches):
                    yield opened.get_batch(number).select(list(columns))
        except OSError as error:
            raise not_read_back(error) from None


def gathered(source: Source, columns: Sequence[str], most: int | None) -> pa.Table | Kept:
    """All rows of a source, read once: a table while they take at most so many bytes, otherwise a copy on disk."""
    held: list[pa.RecordBatch] = []
    batches, size = source.batches(columns), 0
    for batch in batches:
        held.append(batch)
        size += int(batch.nbytes)
        if most is not None and size > most:
            schema = batch.schema
            return Kept(source.name, _before(held, batches), schema)
    if not held:
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    return pa.Table.from_batches(held)


def _before(held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What was read, which is let go batch by batch, and then the rest."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest
