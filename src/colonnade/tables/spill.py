"""A temporary copy of rows on disk, to read them in another order.

The new order is cut into stretches that fit in memory. All rows of the source are written to one file, rows of one
stretch beside each other; a stretch is collected and sorted when it is read. The file has no name, so it disappears
when the process ends for any reason.
"""

from __future__ import annotations

import errno
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables.arrow import pa

STRETCH_BYTES = 1 << 25
_MOST_STRETCHES = 128
_PLACE = "\0place"  # no column of a schema can have this name


class Spill:
    """A copy of some rows in another order; it reads the source once and keeps at most one stretch in memory."""

    def __init__(self, source: Iterator[pa.RecordBatch], order: NDArray[np.int64], stretch: int | None = None) -> None:
        """Copy the rows at the positions ``order``; a stretch has ``stretch`` rows, or about 32 MiB by default."""
        self._rows = len(order)
        self._stretch = stretch
        self._parts: defaultdict[int, list[int]] = defaultdict(list)
        self._columns: list[str] = []
        self._written = 0
        try:
            self._file = tempfile.TemporaryFile(prefix="colonnade-")  # noqa: SIM115 - open as long as this
            weakref.finalize(self, self._file.close)
            self._lay_out(source, order)
            self._file.flush()
        except OSError as error:
            raise no_room(error) from None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the new order."""
        for held in self._stretches([_PLACE, *columns]):
            within = np.argsort(held[_PLACE].to_numpy(), kind="stable")
            found = held.select(list(columns)).take(pa.array(within)).combine_chunks()
            del held, within
            yield from found.to_batches()

    def _stretches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns, one stretch at a time; the rows of a stretch are in the order of the source."""
        if not self._parts:
            return
        fields = [self._columns.index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        try:
            with pa.ipc.open_file(pa.PythonFile(self._file, "r"), options=options) as opened:
                for stretch in sorted(self._parts):
                    yield pa.Table.from_batches([opened.get_batch(part) for part in self._parts[stretch]])
        except OSError as error:
            raise not_read_back(error) from None

    def _lay_out(self, source: Iterator[pa.RecordBatch], order: NDArray[np.int64]) -> None:
        by_row = np.argsort(order, kind="stable")
        writer = None
        start = 0
        for batch in source:
            first, last = np.searchsorted(order, [start, start + batch.num_rows], sorter=by_row)
            here = np.sort(by_row[first:last])
            if len(here):
                rows = _decoded(batch.take(pa.array(order[here] - start))).append_column(_PLACE, pa.array(here))
                if writer is None:
                    self._columns = rows.schema.names
                    writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), rows.schema)
                self._write(rows, here, writer)
            start += batch.num_rows
        if writer is not None:
            writer.close()

    def _write(self, rows: pa.RecordBatch, places: NDArray[np.int64], writer: pa.ipc.RecordBatchFileWriter) -> None:
        """Append rows, whose places ascend: one batch for each stretch to which some of them belong."""
        stretch = self._stretch = self._stretch or self._fitting(rows)
        edges = np.flatnonzero(np.diff(places // stretch)) + 1
        for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(places)], strict=True):
            writer.write_batch(rows.slice(start, stop - start))
            self._parts[int(places[start]) // stretch].append(self._written)
            self._written += 1

    def _fitting(self, rows: pa.RecordBatch) -> int:
        each = max(1, int(rows.nbytes) // int(rows.num_rows))
        return max(1, STRETCH_BYTES // each, -(-self._rows // _MOST_STRETCHES))


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries: the file can hold one for each column, and those of batches may differ."""
    columns = [cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells for cells in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def not_read_back(error: OSError) -> DataError:
    """The error for a temporary copy that was written and cannot be read."""
    return DataError(
        f"the temporary copy of the table cannot be read back ({_folder()}): "
        f"{error.strerror or 'reading failed'}; set TMPDIR to another disk [DA258]"
    )


def no_room(error: OSError) -> DataError:
    """The error for a temporary copy that cannot be written."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return DataError(
            "the table needs a temporary file, and too many files are open already; "
            "allow more (ulimit -n), or run fewer parties in one process [DA259]"
        )
    return DataError(
        f"the table does not fit where temporary files go ({_folder()}): "
        f"{error.strerror or 'writing failed'}; make room, or set TMPDIR to a larger disk [DA260]"
    )


def _folder() -> str:
    return tempfile.tempdir or "no folder was found"
