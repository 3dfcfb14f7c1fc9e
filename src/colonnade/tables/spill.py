"""Rows in an order of their own, laid out on disk once.

The new order is cut into stretches that fit in memory. Every row of the source goes to the file of its stretch; a
stretch is put in order when it is read. The files have no names and are gone when the process ends, however it ends.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.errors import DataError

STRETCH_BYTES = 1 << 25
_MOST_FILES = 128
_PLACE = "\0place"  # no column of a schema can be called so


class Spill:
    """A copy of some rows in another order; it reads the source once and keeps a stretch in memory at most."""

    def __init__(self, source: Iterator[pa.RecordBatch], order: NDArray[np.int64], stretch: int | None = None) -> None:
        """Take the rows at the positions ``order``, in files of ``stretch`` rows or about 32 MiB each."""
        self._rows = len(order)
        self._files: dict[int, IO[bytes]] = {}
        self._stretch = stretch
        weakref.finalize(self, _close, self._files)
        by_row = np.argsort(order, kind="stable")
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        start = 0
        try:
            for batch in source:
                first, last = np.searchsorted(order, [start, start + batch.num_rows], sorter=by_row)
                here = np.sort(by_row[first:last])
                if len(here):
                    self._write(batch.take(pa.array(order[here] - start)), here, writers)
                start += batch.num_rows
            for index, writer in writers.items():
                writer.close()
                self._files[index].flush()
        except OSError as error:
            raise DataError(
                f"the table does not fit where temporary files go ({tempfile.gettempdir()}): "
                f"{error.strerror or 'writing failed'}; make room, or set TMPDIR to a larger disk"
            ) from None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the order."""
        for stretch in sorted(self._files):
            file = self._files[stretch]
            file.seek(0)
            with pa.ipc.open_stream(pa.PythonFile(file, "r")) as opened:
                parts = [batch.select([_PLACE, *columns]) for batch in opened]
            held = pa.Table.from_batches(parts)
            within = np.argsort(held[_PLACE].to_numpy(), kind="stable")
            found = held.select(list(columns)).take(pa.array(within)).combine_chunks()
            del parts, held, within
            yield from found.to_batches()

    def _write(
        self, rows: pa.RecordBatch, places: NDArray[np.int64], writers: dict[int, pa.ipc.RecordBatchStreamWriter]
    ) -> None:
        """Append rows, whose places ascend, to the files of their stretches."""
        stretch = self._stretch = self._stretch or self._fitting(rows)
        numbered = rows.append_column(_PLACE, pa.array(places))
        edges = np.flatnonzero(np.diff(places // stretch)) + 1
        for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(places)], strict=True):
            index = int(places[start]) // stretch
            if index not in writers:
                self._files[index] = tempfile.TemporaryFile(prefix="colonnade-")  # noqa: SIM115 - open as long as this
                writers[index] = pa.ipc.new_stream(pa.PythonFile(self._files[index], "w"), numbered.schema)
            writers[index].write_batch(numbered.slice(start, stop - start))

    def _fitting(self, rows: pa.RecordBatch) -> int:
        each = max(1, int(rows.nbytes) // int(rows.num_rows))
        return max(1, STRETCH_BYTES // each, -(-self._rows // _MOST_FILES))


def _close(files: Mapping[int, IO[bytes]]) -> None:
    for file in files.values():
        file.close()
