"""What every source of rows answers, rows that a program holds or hands over, and temporary copies of rows on disk.

A program holds Arrow tables and pandas frames, and hands over whatever speaks Arrow's C interface. Columns are put
together in memory as their batches come, so that no second copy of them is ever there. What can be read only once is
copied; to read rows in another order, that order is cut into stretches that fit in memory. All rows of the source are
then written to one file, rows of one stretch beside each other, and a stretch is sorted when it is read.
"""

from __future__ import annotations

import errno
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk.reading import shorten
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.cell_parsing import is_text, pa, pc
from colonnade.tables.files import ColumnChooser

_LEAST = 1 << 20  # numbers or bytes by which an array grows at a time


class GrowingArray:
    """An array that becomes longer at its end."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._held: NDArray[Any] = np.empty(0, kind)
        self._used = 0

    def add(self, more: NDArray[Any]) -> None:
        """Put more at its end."""
        end = self._used + len(more)
        if end > len(self._held):
            # A large array is moved by the system, page by page, and not copied. What is beyond its end is filled.
            self._held.resize(max(end, len(self._held) + max(_LEAST, len(self._held) >> 4)), refcheck=False)
        self._held[self._used : end] = more
        self._used = end

    def to_array(self) -> NDArray[Any]:
        """All that was put there."""
        self._held.resize(self._used, refcheck=False)
        return self._held


class _TextBuilder:
    """A column of text; it gets the type that ids have, so that it is not copied again."""

    def __init__(self) -> None:
        self._ends, self._letters = GrowingArray(np.int64), GrowingArray(np.uint8)
        self._ends.add(np.zeros(1, np.int64))
        self._known: GrowingArray | None = None
        self._rows = self._size = 0

    def add(self, cells: Any) -> None:
        if not len(cells):
            return
        if pa.types.is_string_view(cells.type):
            cells = expand_views(cells)
        if cells.null_count and self._known is None:
            self._known = GrowingArray(np.bool_)
            self._known.add(np.ones(self._rows, np.bool_))
        if self._known is not None:
            self._known.add(np.asarray(cells.is_valid(), dtype=np.bool_))
        _, places, letters = cells.buffers()
        wide = np.int64 if pa.types.is_large_string(cells.type) else np.int32
        ends = np.frombuffer(places, wide)[cells.offset : cells.offset + len(cells) + 1].astype(np.int64)
        if letters is not None:
            self._letters.add(np.frombuffer(letters, np.uint8)[ends[0] : ends[-1]])
        self._ends.add(ends[1:] + (self._size - ends[0]))
        self._size += int(ends[-1] - ends[0])
        self._rows += len(cells)

    def whole(self) -> Any:
        known = None if self._known is None else np.packbits(self._known.to_array(), bitorder="little")
        buffers = [known, self._ends.to_array(), self._letters.to_array()]
        held = [None if part is None else pa.py_buffer(part) for part in buffers]
        return pa.LargeStringArray.from_buffers(self._rows, held[1], held[2], held[0])


class _ChunkBuilder:
    """A column of anything else."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def add(self, cells: Any) -> None:
        self._parts.append(cells)

    def whole(self) -> Any:
        found = pa.chunked_array(self._parts)
        self._parts.clear()
        return found.combine_chunks()


def concat_batches(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    """These columns of all batches, in whatever order those have them; text is of one type, as is what has no rows."""
    held: list[_TextBuilder | _ChunkBuilder] = []
    for batch in batches:
        held = held or [_TextBuilder() if is_text(batch.column(name).type) else _ChunkBuilder() for name in columns]
        for name, column in zip(columns, held, strict=True):
            column.add(batch.column(name))
    if not held:
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    found = [column.whole() for column in held]
    pa.default_memory_pool().release_unused()  # otherwise the process keeps the memory of the batches
    return pa.Table.from_arrays(found, names=list(columns))


def expand_views(views: Any) -> Any:
    """Text in views, as one piece."""
    try:
        return pc.cast(views, pa.large_string())
    except pa.ArrowNotImplementedError:  # the oldest pyarrow that we take has views, but no way to cast them
        return pa.array(views.to_pylist(), pa.large_string())


class TableSource(ABC):
    """Rows of one party, read some at a time from the first to the last.

    ``name`` is how errors and pages call the source; it never holds a credential. ``again`` says whether the rows can
    be read a second time, in the same order: what cannot is copied when it is read.
    """

    rereadable = True
    in_memory = False
    """Whether the rows are in memory already, so that nothing is won by leaving them where they are."""
    changed = "the file has changed since it was first read"
    """What to say of a source whose state is another one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._first: Hashable = None

    @abstractmethod
    def columns(self) -> list[str]:
        """The names of all columns."""

    @abstractmethod
    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows; no other column is read. The batches of one call have the same types."""

    def state(self) -> Hashable:
        """A value that changes when the rows do; ``None`` where nothing tells."""
        return None

    def size(self, choose: ColumnChooser) -> int:
        """About how many bytes of memory the chosen columns would take; it asks for a choice only if that matters."""
        return 0

    def shards(self, columns: Sequence[str]) -> list[TableSource]:
        """These columns in pieces, which other processes can read and which together are all rows in their order.

        Each can be pickled, and holds no credential. Empty where rows come in one stream. How rows are divided follows
        from the source alone, not from who reads it.
        """
        return []

    def record_state(self) -> None:
        """Note the state that must not change from now on."""
        self._first = self.state()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows; raises, at the end at the latest, if the source has changed since the first read.

        Or since :meth:`record_state` noted its state.
        """
        if self._first is None:
            self.record_state()
        else:
            self.refuse_changes()
        try:
            yield from self._rows(columns)
        except DataError:  # what changes while it is read may look broken
            self.refuse_changes()
            raise
        self.refuse_changes()

    def read_chosen(self, choose: ColumnChooser) -> pa.Table:
        """The chosen columns, in memory."""
        return self.read(list(choose(self.columns())))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Some columns, in memory; text gets the type that ids have, so that it is not copied again."""
        return concat_batches(self.batches(columns), columns)

    def count(self) -> int:
        """How many rows there are."""
        return sum(int(batch.num_rows) for batch in self.batches(self.columns()[:1]))

    def refuse_changes(self) -> None:
        """Raise if the source has changed since :meth:`record_state`."""
        if self.state() != self._first:
            raise DataError(f"{self.name}: {self.changed}; read it again [DA203]")


_ONE_SHOT = (
    "a reader gives its rows once, and a table may be read again: pass reader.read_all(), or write the rows to a "
    "Parquet file and pass its path"
)

_EXTENSION, _UUID = b"ARROW:extension:name", b"arrow.uuid"
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]


class InMemorySource(TableSource):
    """An Arrow table or a pandas frame."""

    in_memory = True

    def __init__(self, table: Any, name: str) -> None:
        super().__init__(name)
        self._table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table

    def columns(self) -> list[str]:
        """The names of all columns."""
        if hasattr(self._table, "reset_index"):
            return files.frame_columns(self._table)  # no cell is looked at: other columns may hold anything
        return list(self._table.schema.names)

    def read_chosen(self, choose: files.ColumnChooser) -> pa.Table:
        """The chosen columns."""
        if hasattr(self._table, "reset_index"):
            return files.read_frame(self._table, self.name, choose)
        return self._table.select(files.choose_columns(self._table.column_names, self.name, choose))

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.read_chosen(lambda _: columns).to_batches())


class ArrowStreamSource(TableSource):
    """Anything with Arrow's PyCapsule interface: a polars frame, a DuckDB relation; or a data set of Arrow."""

    rereadable = False  # a relation is a query, whose rows may come in another order the next time

    def __init__(self, giver: Any, name: str) -> None:
        super().__init__(name)
        if isinstance(giver, pa.RecordBatchReader):
            raise DataError(f"{name}: {_ONE_SHOT} [DA224]")
        self._giver = giver

    def columns(self) -> list[str]:
        """The names of all columns; those of an object that lists them are not asked of its stream."""
        with arrow_errors(self.name):
            if hasattr(self._giver, "scanner"):
                return list(self._giver.schema.names)
            listed = getattr(self._giver, "columns", None)
            if isinstance(listed, list) and all(isinstance(column, str) for column in listed):
                return list(listed)
            with pa.RecordBatchReader.from_stream(self._giver) as opened:
                return list(opened.schema.names)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with arrow_errors(self.name), self._narrowed(columns) as opened:
            for batch in opened:
                yield simplify_batch(batch.select(list(columns)))

    def _narrowed(self, columns: Sequence[str]) -> Any:
        """A stream that has these columns, and where the object can choose, only these."""
        giver = self._giver
        if hasattr(giver, "scanner"):
            return giver.scanner(columns=list(columns), batch_readahead=2, fragment_readahead=1).to_reader()
        if hasattr(giver, "project") and hasattr(giver, "columns"):  # a relation computes only what is asked
            giver = giver.project(", ".join(map(quote_identifier, columns)))
        return pa.RecordBatchReader.from_stream(giver)


@contextmanager
def arrow_errors(name: str) -> Iterator[None]:
    """Turn an error while rows are handed over into a :class:`DataError` that shows no cell."""
    try:
        yield
    except DataError:
        raise
    except Exception:  # whatever a library raises may quote a cell
        raise DataError(f"{name}: the rows could not be read from what holds them; test it by itself [DA225]") from None


def simplify_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same cells in types that every column is read from: no views, no dictionaries, no extension types."""
    arrays = [
        _simplify_array(array, (field.metadata or {}).get(_EXTENSION))
        for array, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def simplify_type(kind: Any) -> Any:
    """The type that :func:`simplify_batch` gives cells of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.large_string() if kind.extension_name == _UUID.decode() else simplify_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return simplify_type(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _simplify_array(array: Any, named: bytes | None = None) -> Any:
    """The cells of one array; ``named`` is the extension type that its field has, where Arrow does not know it."""
    if isinstance(array, pa.ExtensionArray):
        return _simplify_array(array.storage, array.type.extension_name.encode())
    if pa.types.is_dictionary(array.type):
        return _simplify_array(array.dictionary).take(array.indices)
    if named == _UUID and array.type == pa.binary(16):
        return _uuid_texts(array)
    if pa.types.is_string_view(array.type):
        return expand_views(array)
    return array


def _uuid_texts(array: Any) -> Any:
    """Ids of sixteen bytes, as they are written: 32 small hexadecimal digits in five groups."""
    rows = len(array)
    cells = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 : (array.offset + rows) * 16]
    digits = _HEX[cells].reshape(rows, 32)
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, _DIGITS] = digits
    known = np.asarray(array.is_valid(), dtype=np.bool_)
    ends = np.arange(rows + 1, dtype=np.int64) * 36
    held = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text), held)


def quote_identifier(column: str) -> str:
    """A name as SQL has it between quotes, whatever is in it."""
    if "\0" in column:
        raise DataError(f"no column of a query is called {shorten(column, 40)!r} [DA226]")
    return '"' + column.replace('"', '""') + '"'


SORT_RUN_BYTES = 1 << 25
_MAX_SORT_RUNS = 128
_NOWHERE = "no folder was found"
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
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise DataError(
                    "the table needs a temporary file, and too many files are open already; "
                    "allow more (ulimit -n), or run fewer parties in one process [DA259]"
                ) from None
            raise DataError(
                f"the table does not fit where temporary files go ({tempfile.tempdir or _NOWHERE}): "
                f"{error.strerror or 'writing failed'}; make room, or set TMPDIR to a larger disk [DA260]"
            ) from None

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
            raise DataError(
                f"the temporary copy of the table cannot be read back ({tempfile.tempdir or _NOWHERE}): "
                f"{error.strerror or 'reading failed'}; set TMPDIR to another disk [DA258]"
            ) from None


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
                # The file can hold one dictionary for each column, and those of batches may differ.
                rows = simplify_batch(batch.take(pa.array(order[here] - start)))
                rows = rows.append_column(_PLACE, pa.array(here))
                fitting = SORT_RUN_BYTES // max(1, int(rows.nbytes) // int(rows.num_rows))
                stretch = self._stretch = self._stretch or max(1, fitting, -(-self._rows // _MAX_SORT_RUNS))
                edges = [0, *(np.flatnonzero(np.diff(here // stretch)) + 1).tolist(), len(here)]
                for low, high in pairwise(edges):
                    self._parts[int(here[low]) // stretch].append(written)
                    written += 1
                    yield rows.slice(low, high - low)
            start += batch.num_rows
