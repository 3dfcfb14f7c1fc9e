"""Temporary copies of rows on disk: of what can be read only once, and to read rows in another order.

The new order is cut into stretches that fit in memory. All rows of the source are written to one file, rows of one
stretch beside each other; a stretch is collected and sorted when it is read.
"""

from __future__ import annotations

import errno
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables.cell_parsing import pa

SORT_RUN_BYTES = 1 << 25
_MAX_SORT_RUNS = 128
_PLACE = "\0place"  # no column of a schema can have this name


class SpillFile:
    """Record batches in a temporary file without a name: it is gone when the process ends for any reason."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all batches, which are of one schema."""
        self.names: list[str] = []
        self.count = 0
        try:
            self._file = tempfile.TemporaryFile(prefix="colonnade-")  # noqa: SIM115 - open as long as this
            weakref.finalize(self, self._file.close)
            self._write(batches)
            self._file.flush()
        except OSError as error:
            raise no_space_error(error) from None

    def _write(self, batches: Iterator[pa.RecordBatch]) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with ExitStack() as held:
            writer = None
            for batch in batches:
                writer = writer or held.enter_context(
                    pa.ipc.new_file(pa.PythonFile(self._file, "w"), batch.schema, options=options)
                )
                writer.write_batch(batch)
                self.names, self.count = batch.schema.names, self.count + 1

    def read(self, groups: Iterable[Sequence[int]], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of the batches with these numbers, one group of them at a time."""
        if not self.count:
            return
        # Fields come back in the order of the file, whatever order they are asked in.
        fields = sorted(self.names.index(name) for name in columns)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        try:
            with pa.ipc.open_file(pa.PythonFile(self._file, "r"), options=options) as opened:
                for group in groups:
                    yield pa.Table.from_batches([opened.get_batch(number) for number in group]).select(list(columns))
        except OSError as error:
            raise unreadable_spill_error(error) from None


class ExternalSort:
    """A copy of some rows in another order; it reads the source once and keeps at most one stretch in memory."""

    def __init__(self, source: Iterator[pa.RecordBatch], order: NDArray[np.int64], stretch: int | None = None) -> None:
        """Copy the rows at the positions ``order``; a stretch has ``stretch`` rows, or about 32 MiB by default."""
        self._rows = len(order)
        self._stretch = stretch
        self._parts: defaultdict[int, list[int]] = defaultdict(list)
        self._copy = SpillFile(self._laid_out(source, order))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the new order."""
        groups = (self._parts[stretch] for stretch in sorted(self._parts))
        for held in self._copy.read(groups, [_PLACE, *columns]):
            within = np.argsort(held[_PLACE].to_numpy(), kind="stable")
            yield from held.select(list(columns)).take(pa.array(within)).combine_chunks().to_batches()

    def _laid_out(self, source: Iterator[pa.RecordBatch], order: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """The rows with their places in the new order: one batch for each stretch to which some of them belong."""
        by_row = np.argsort(order, kind="stable")
        start = written = 0
        for batch in source:
            first, last = np.searchsorted(order, [start, start + batch.num_rows], sorter=by_row)
            here = np.sort(by_row[first:last])
            if len(here):
                rows = _without_dictionaries(batch.take(pa.array(order[here] - start))).append_column(
                    _PLACE, pa.array(here)
                )
                stretch = self._stretch = self._stretch or self._fitting(rows)
                edges = [0, *(np.flatnonzero(np.diff(here // stretch)) + 1).tolist(), len(here)]
                for low, high in pairwise(edges):
                    self._parts[int(here[low]) // stretch].append(written)
                    written += 1
                    yield rows.slice(low, high - low)
            start += batch.num_rows

    def _fitting(self, rows: pa.RecordBatch) -> int:
        each = max(1, int(rows.nbytes) // int(rows.num_rows))
        return max(1, SORT_RUN_BYTES // each, -(-self._rows // _MAX_SORT_RUNS))


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries: the file can hold one for each column, and those of batches may differ."""
    columns = [cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells for cells in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def unreadable_spill_error(error: OSError) -> DataError:
    """The error for a temporary copy that was written and cannot be read."""
    return DataError(
        f"the temporary copy of the table cannot be read back ({_folder()}): "
        f"{error.strerror or 'reading failed'}; set TMPDIR to another disk [DA258]"
    )


def no_space_error(error: OSError) -> DataError:
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
