"""Partitions of a table on disk: how they are written, how one of them is opened, and the private folder they lie in.

Rows that follow each other in the table make a *run*: they are put in the order of their partitions, and written to a
file of their own as one batch; an index says where in it each partition starts. So any number of partitions takes one
open file, and a partition is read where it lies in each run, without the others.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading, writing
from colonnade.errors import DataError
from colonnade.tables import cell_parsing
from colonnade.tables.cell_parsing import pa
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.files import ColumnChooser
from colonnade.tables.keys import TableKeys
from colonnade.tables.schema import Schema
from colonnade.tables.sources.base import TableSource
from colonnade.tables.table import CellStore, InMemoryCells, OnDiskCells, Table

_PLACE = "colonnade-spool"
_TRIES, _PAUSE_SECONDS = 50, 0.1


class PrivateTempDir:
    """A folder that only this user can open, with a random name.

    It is locked as long as this process lives, so that whoever makes the next one in the same folder can tell it from
    what a killed process left, and deletes that. It is deleted by the process that made it, not by its children.
    """

    def __init__(self, folder: Path) -> None:
        place = folder.absolute() / _PLACE
        with disk_errors(folder):
            _make_folder(place.parent)
            _refuse_world_writable(place.parent)
            writing.remove_leftovers(place)
            held = ExitStack()
            self.path = writing.private_folder(place, held)
        self.remove = weakref.finalize(self, _remove_folder, self.path, held, os.getpid())


def remove_stale_dirs(folder: Path) -> None:
    """Delete what killed processes left in a folder."""
    writing.remove_leftovers(folder.absolute() / _PLACE)


@contextmanager
def write_atomically(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A private file that gets its name when it is whole.

    So who is killed while writing it leaves nothing of this name, and if two write the same, one of both is there.
    """
    private = folder / f".{name}.{secrets.token_hex(8)}"
    with disk_errors(folder):
        try:
            with _create_file(private) as file:
                yield file
            os.replace(private, folder / name)
        except BaseException:
            private.unlink(missing_ok=True)
            raise


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that names the folder."""
    try:
        yield
    except OSError as error:
        why = error.strerror or "writing failed"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise DataError(
                f"the partitions of the table cannot be written: {why}; allow more (ulimit -n) [DA265]"
            ) from None
        raise DataError(
            f"the partitions of the table cannot be written to {folder}: {why}; make room there, or name a folder on a "
            "larger disk [DA266]"
        ) from None


def _create_file(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _make_folder(folder: Path) -> None:
    """Make a folder and those it lies in, where they are not there yet; only this user can open them."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(0o700, exist_ok=True)


def _refuse_world_writable(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise DataError(
            f"every user of this machine can rename what lies in {folder}, so partitions of a table could be exchanged "
            "there: name another folder, or let only its owner write to it (chmod o-w) [DA267]"
        )


def _remove_folder(path: Path, held: ExitStack, maker: int) -> None:
    if os.getpid() == maker:
        for _ in range(_TRIES):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(_PAUSE_SECONDS)  # a worker on another machine is not gone at once, and writes meanwhile
        held.close()


ROW, KEY, ID = "\0row", "\0key", "\0id"  # no column of a schema can have such a name
MAX_PARTITIONS = 1 << 16
"""The most partitions."""
PartitionOf = Callable[[Sequence[bytes]], NDArray[np.int64]]

_FORMAT = "colonnade partitions 2"
_ABOUT, _INDEX = "partitions.json", "index"
_RUN_BYTES = 1 << 26
_SHORTEST_RUN = 1 << 24
_USUAL_RUN = 1 << 28  # at most: whoever makes one has it in memory twice
_LONGEST_RUN = 1 << 30
_BESIDES = 1 << 28  # bytes of memory that a process has besides
_RUNS = 256  # a partition is read from all of them, so that there should not be many more in a larger table
_LARGE = 1 << 28  # as for a file that is left on disk
_Place = np.dtype("<u4")


@dataclass(frozen=True)
class PartitionInfo:
    """What a partition's table has in common with the whole one."""

    source: str
    schema: str
    misfits: InvalidValues
    keys: tuple[str, ...]
    count: int = 1
    runs: int = 0


class PartitionSource(TableSource):
    """The rows of one partition, run by run; only the pages on which they lie are read."""

    def __init__(
        self,
        name: str,
        folder: Path,
        index: NDArray[np.uint32],
        number: int,
        tempdir: PrivateTempDir | None = None,
    ) -> None:
        super().__init__(name)
        self._tempdir = tempdir  # the folder stays as long as there are rows in it that may be read
        self._folder = folder
        self._edges = np.array(index[:, number : number + 2], np.int64).reshape(-1, 2)
        self._rows_of_runs = np.array(index[:, -1], np.int64)

    def columns(self) -> list[str]:
        """The columns that were written."""
        if not len(self._edges):
            return []
        with self._mapped(0) as rows:
            return list(rows.schema.names)

    def size(self, choose: ColumnChooser) -> int:
        """About how many bytes of memory the rows take; no run is opened for that."""
        total = 0
        for run, (start, stop) in enumerate(self._edges.tolist()):
            with read_errors(self._folder):
                total += (
                    (self._folder / _run_name(run)).stat().st_size * (stop - start) // max(1, self._rows_of_runs[run])
                )
        return int(total)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for run, (start, stop) in enumerate(self._edges.tolist()):
            if start < stop:
                # Pages that are mapped, and many around them, count as memory of this process: those of one run.
                with self._mapped(run) as rows:
                    found = rows.slice(start, stop - start).select(list(columns))
                    found = pa.ipc.read_record_batch(found.serialize(), found.schema)
                yield found

    @contextmanager
    def _mapped(self, run: int) -> Iterator[pa.RecordBatch]:
        with read_errors(self._folder), pa.memory_map(str(self._folder / _run_name(run)), "r") as opened:
            yield pa.ipc.open_file(opened).get_batch(0)


class PartitionedTable:
    """A table in partitions: the folder is all that another process needs, and the schema."""

    def __init__(
        self, folder: Path, schema: Schema, about: PartitionInfo, tempdir: PrivateTempDir | None = None
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.count = about.count
        self._about = about
        self._tempdir = tempdir

    @classmethod
    def open(cls, folder: str | Path, schema: Schema) -> PartitionedTable:
        """What was written to a folder; who opens it does not delete it."""
        path = Path(folder)
        try:
            said = reading.read_json(path / _ABOUT)
            if said.pop("format", None) != _FORMAT:
                raise reading.MalformedFile("it is of another version [VA245]")
            about = PartitionInfo(**(said | {"keys": tuple(said["keys"])}))
        except (reading.UnreadableFile, AttributeError, KeyError, TypeError) as error:
            why = str(error) if isinstance(error, reading.UnreadableFile) else "it does not say what it should"
            raise DataError(f"{path} holds no partitions of a table: {why} [DA262]") from None
        if about.schema != schema.digest:
            raise DataError(f"{path} holds partitions of a table under another schema [DA263]")
        return cls(path, schema, about)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many keys each partition has; as private as the table."""
        found = np.zeros(self.count, np.int64)
        for edges in self._index():
            found += np.diff(edges.astype(np.int64))
        return found

    def partition(self, number: int) -> Table:
        """The rows of one partition that have a key, in the order of the file and under their numbers in it."""
        if not 0 <= number < self.count:
            raise IndexError(f"there are {self.count} partitions, and none of number {number} [VA246]")
        rows = PartitionSource(self._about.source, self.folder, self._index(), number, self._tempdir)
        columns, large = list(self.schema.sources), rows.size(list) > _LARGE
        # Opening runs takes most of the time, so all is read at once.
        naming = rows.read([ROW, KEY, ID] if large else [ROW, KEY, ID, *columns])
        cells: CellStore = OnDiskCells(rows, columns) if large else InMemoryCells(naming.select(columns))
        values, ids = naming[KEY].to_pylist(), cell_parsing.flatten_column(naming[ID])
        origins = np.array(naming[ROW] if values else [], dtype=np.int64)
        keys = TableKeys(self._about.keys, values, np.arange(len(values)), 0, 0)
        return Table(
            cells,
            ids,
            self.schema,
            source=self._about.source,
            keys=keys,
            misfits=self._about.misfits,
            origins=origins,
        )

    def remove(self) -> None:
        """Delete the folder, if this process made it."""
        if self._tempdir is not None:
            self._tempdir.remove()

    def _index(self) -> NDArray[np.uint32]:
        shape = (self._about.runs, self.count + 1)
        if not self._about.runs:
            return np.zeros(shape, _Place)
        with read_errors(self.folder):
            return np.memmap(self.folder / _INDEX, _Place, "r", shape=shape)

    def __repr__(self) -> str:
        return f"<PartitionedTable of {self._about.source}: {self.count} partitions>"


def write_run(folder: Path, number: int, held: list[pa.RecordBatch], partition_of: PartitionOf, count: int) -> None:
    """Write one run, and beside it where each partition starts; the rows are let go."""
    ordered, edges = sort_by_partition(pa.Table.from_batches(held), partition_of, count)
    held.clear()
    with (
        write_atomically(folder, _run_name(number)) as file,
        pa.ipc.new_file(pa.PythonFile(file, "w"), ordered.schema) as writer,
    ):
        writer.write_batch(ordered)
    with write_atomically(folder, _edges_name(number)) as file:
        file.write(edges.tobytes())


def finish_table(
    tempdir: PrivateTempDir, runs: int, count: int, about: PartitionInfo, schema: Schema
) -> PartitionedTable:
    """The table, of which all runs are written."""
    check_count(count)
    with write_atomically(tempdir.path, _INDEX) as index:
        for number in range(runs):
            edges = tempdir.path / _edges_name(number)
            index.write(edges.read_bytes())
            edges.unlink()
    said = replace(about, count=count, runs=runs)
    with write_atomically(tempdir.path, _ABOUT) as file:
        file.write(json.dumps({"format": _FORMAT} | asdict(said)).encode())
    pa.default_memory_pool().release_unused()
    return PartitionedTable(tempdir.path, schema, said, tempdir)


def check_count(count: int) -> None:
    """Refuse a number of partitions that there cannot be."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise ValueError(f"a table has from 1 to {MAX_PARTITIONS} partitions, not {count} [VA247]")


@contextmanager
def read_errors(folder: Path) -> Iterator[None]:
    """Turn an error of files that were written into a sentence."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "they are damaged"
        raise DataError(f"the partitions of the table cannot be read back from {folder}: {why} [DA264]") from None


def run_bytes(size: int, memory: int | None = None) -> int:
    """How many bytes one run of a table of so many has, about; ``memory`` is what a process that makes it may have."""
    longest = _USUAL_RUN if memory is None else min(_LONGEST_RUN, max(_SHORTEST_RUN, (memory - _BESIDES) // 3))
    return min(longest, max(_RUN_BYTES, size // _RUNS))


def sort_by_partition(
    rows: pa.Table, partition_of: PartitionOf, count: int
) -> tuple[pa.RecordBatch, NDArray[np.uint32]]:
    """The rows in the order of their partitions, and where each partition starts and the last one ends."""
    check_count(count)
    found = [np.asarray(partition_of(keys.to_pylist())) for keys in rows[KEY].chunks]
    wide = np.concatenate(found)
    if len(wide) != rows.num_rows or (len(wide) and (wide.min() < 0 or wide.max() >= count)):
        raise ValueError(f"every key has one of {count} partitions [VA248]")
    narrow = wide.astype(np.uint16)  # numbers of 16 bits are sorted by counting
    order = np.argsort(narrow, kind="stable")
    edges = np.zeros(count + 1, _Place)
    np.cumsum(np.bincount(wide, minlength=count), out=edges[1:])
    places = pa.array(order)
    # Column by column, so that only one of them is there three times.
    columns = [pa.concat_arrays(column.chunks).take(places) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names), edges


def _run_name(number: int) -> str:
    return f"run-{number:06d}.arrow"


def _edges_name(number: int) -> str:
    return f"run-{number:06d}.index"
