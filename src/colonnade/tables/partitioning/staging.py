"""From a party's file to partitions: a table is read, checked and copied to a private folder once, and then split.

:func:`stage_table` checks the cells, normalises the keys and looks for keys that are repeated. When it is known how
people are spread over partitions, the copy is split. All of it is done in work units, which other processes of the
party can do; one process needs the same memory for any table. A copy has the rows that have a key, with their cells, in
the order of the file. Beside it lie fingerprints of their keys, in the order of *buckets*, so that equal keys of all
shards are found without all of them in memory.

A fingerprint is two sums of a key's bytes, modulo 2^64, each byte times a random number of its place. No key is the
beginning of another, since each part comes after its length; so two different keys differ in a byte that both have, and
have the same fingerprint with a chance of at most 2^-114 over these numbers, whatever the keys are. Any two of a
billion have it with a chance of at most 2^-54. Equal keys have the same in every process that has the same seed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.cell_parsing import MAX_SHOWN_ROWS, TextFormat, pa
from colonnade.tables.encoding import EncodingReport, InvalidValues, encode_columns
from colonnade.tables.keys import (
    KeyColumn,
    KeyPlan,
    all_repeated_error,
    name_rows,
    no_key_error,
    normalise_keys,
    refuse_repeated,
)
from colonnade.tables.partitioning.partitions import (
    ID,
    KEY,
    ROW,
    PartitionedTable,
    PartitionInfo,
    PartitionOf,
    PrivateTempDir,
    finish_table,
    read_errors,
    run_bytes,
    write_atomically,
    write_run,
)
from colonnade.tables.schema import Schema
from colonnade.tables.sources.base import TableSource, simplify_batch
from colonnade.tables.sources.factory import open_source
from colonnade.tables.table import TableRequest


class WorkUnit(Protocol):
    """A part of the work. It can be pickled; done twice, also at the same time, it leaves the same files."""

    def run(self) -> Any:
        """Do it."""

    def with_results(self, before: Sequence[Any]) -> WorkUnit:
        """The same, when the results of all units before it are known."""
        return self


PartitionRunner = Callable[[Sequence[WorkUnit]], Iterator[tuple[int, Any]]]
"""Does work units, begun in their order, and gives their places and results as they come.

When one has failed, those that were begun are ended and no other is begun.
"""


def no_workers(units: Sequence[WorkUnit]) -> Iterator[tuple[int, Any]]:
    """No workers but this process."""
    return iter(())


def run_all(units: Sequence[WorkUnit], workers: PartitionRunner = no_workers) -> list[Any]:
    """The results of all units, in their order.

    What a worker has failed at is done here, after all that comes before it: so its error is the one that is told, and
    the same as without workers. A single unit is not worth one.
    """
    found, left = dict[int, Any](), list(range(len(units)))
    while left:
        if len(left) > 1:
            places = left
            found |= {places[place]: result for place, result in workers([units[number] for number in places])}
            left = [number for number in places if number not in found]
        if left:
            first = left.pop(0)
            found[first] = units[first].with_results([found[number] for number in range(first)]).run()
    return [found[number] for number in range(len(units))]


Numbers = NDArray[np.uint64]
_SEED, _SEED_BYTES = "seed", 32
_WORD = np.dtype("<u8")


class KeyFingerprints:
    """Those of one table, by a seed that lies in its private folder."""

    def __init__(self, folder: Path) -> None:
        self._seed = (folder / _SEED).read_bytes()
        self._weights = self._drawn(64)

    @classmethod
    def create_seed(cls, folder: Path) -> None:
        """Draw the seed."""
        with write_atomically(folder, _SEED) as file:
            file.write(secrets.token_bytes(_SEED_BYTES))

    @classmethod
    def delete_seed(cls, folder: Path) -> None:
        """Forget the seed."""
        (folder / _SEED).unlink(missing_ok=True)

    def compute(self, keys: Any) -> Numbers:
        """The two numbers of each key of an Arrow array, as rows of an array (2, keys)."""
        _, ends, data = keys.buffers()
        edges = np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        text = np.frombuffer(data, np.uint8)
        lengths = np.diff(edges)
        order = np.argsort(lengths, kind="stable")
        found = np.empty((2, len(keys)), np.uint64)
        for first, last in pairwise(np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1)).tolist()):
            there = order[first:last]
            found[:, there] = self._of_one_length(text, edges[there], int(lengths[there[0]]))
        return found

    def _of_one_length(self, text: NDArray[np.uint8], starts: NDArray[np.int64], length: int) -> Numbers:
        if length > self._weights.shape[1]:
            self._weights = self._drawn(2 * length)
        sums = np.zeros((2, len(starts)), np.uint64)
        for place in range(length):
            column = text[starts + place].astype(np.uint64)
            for row in (0, 1):
                sums[row] += column * self._weights[row, place]
        return sums

    def _drawn(self, count: int) -> Numbers:
        """The numbers of the first places: longer keys do not change them."""
        stream = hashlib.shake_256(self._seed).digest(2 * count * _WORD.itemsize)
        return np.frombuffer(stream, _WORD).astype(np.uint64).reshape(count, 2).T.copy()


BUCKETS = 1 << 16
"""By the first 16 bits of fingerprints."""
_BLOCK_ROWS = 1 << 15
_BLOCK_CELLS = 1 << 22
_RUN_KEYS = 1 << 20
_KEY = np.dtype("<u8")
_SHIFT = 48
_NUMBERS = 3  # of a key: those of its fingerprint, and that of its row


@dataclass(frozen=True)
class StagedShard:
    """What is known of a piece that was copied."""

    number: int
    rows: int
    keys: int
    """How many of the rows have one."""
    report: EncodingReport
    batches: int
    size: int
    """Bytes of the copy."""
    unlabelled: int
    """How many rows with a key are left out because they have no label."""


@dataclass(frozen=True)
class StageShard(WorkUnit):
    """The work unit: copy this piece."""

    folder: Path
    reading: TableRequest
    source: TableSource
    number: int = 0
    first: int = 0
    """How many rows come before it, for errors."""

    def with_results(self, before: Sequence[Any]) -> StageShard:
        """The same, with the numbers that its rows have in the whole table."""
        return replace(self, first=sum(piece.rows for piece in before))

    def run(self) -> StagedShard:
        """Read, check and copy."""
        with ExitStack() as left:
            rows, keys = (
                left.enter_context(write_atomically(self.folder, name)) for name in _staged_names(self.number)
            )
            found = _ShardWriter(self, rows, keys)
            for batch in self.source.batches(self.reading.columns):
                found.add(batch)
            found.close()
            size = rows.tell()
        pa.default_memory_pool().release_unused()
        return StagedShard(self.number, found.rows, found.keys, found.report, found.batches, size, found.unlabelled)


class _ShardWriter:
    """What is noted, and held, while a piece is copied."""

    def __init__(self, unit: StageShard, rows: BinaryIO, keys: BinaryIO) -> None:
        self.report = EncodingReport()
        self.keys = self.batches = self.unlabelled = 0
        self._reading, self._first = unit.reading, unit.first
        self._block = block_rows(unit.reading.schema)
        self._fingerprints = KeyFingerprints(unit.folder)
        self._rows, self._keys = rows, keys
        self._writer: Any = None
        self._run = np.empty((_NUMBERS, _RUN_KEYS), _KEY)
        self._held = 0

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self.report.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Check and copy some rows."""
        for start in range(0, batch.num_rows, self._block):
            made = self._made(batch.slice(start, self._block))
            if made.num_rows:
                self._writer = self._writer or pa.ipc.new_file(pa.PythonFile(self._rows, "w"), made.schema)
                self._writer.write_batch(made)
                self.batches += 1
                self.keys += int(made.num_rows)
                self._note(self._fingerprints.compute(made[KEY]), np.asarray(made[ROW]))

    def close(self) -> None:
        """Write what is held."""
        self._write_keys()
        if self._writer is not None:
            self._writer.close()

    def _note(self, prints: Numbers, rows: NDArray[np.int64]) -> None:
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + _RUN_KEYS - self._held)
            place = slice(self._held, self._held + stop - start)
            self._run[:2, place], self._run[2, place] = prints[:, start:stop], rows[start:stop]
            self._held, start = place.stop, stop
            if self._held == _RUN_KEYS:
                self._write_keys()

    def _write_keys(self) -> None:
        run = self._run[:, : self._held]
        order = np.argsort(
            (run[0] >> np.uint64(_SHIFT)).astype(np.uint16), kind="stable"
        )  # 16 bits are sorted by counting
        for numbers in run:
            self._keys.write(numbers[order].tobytes())
        self._held = 0

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        asked, before = self._reading, self.report.rows
        numbers = np.arange(self._first + before + 1, self._first + before + batch.num_rows + 1)
        assert asked.key_plan is not None  # noqa: S101 - for the type checker; only tables with keys are spread
        keys, rows = normalise_keys(batch, asked.key_plan, asked.key_columns, numbers, asked.source_name, asked.misfits)
        if (labelled := asked.labelled(batch)) is not None:
            self.unlabelled += int((~labelled[rows]).sum())
            keys, rows = keys.filter(pa.array(labelled[rows])), rows[labelled[rows]]
        ids = name_rows({column: batch[column] for column in asked.naming_columns}, asked.source_name)
        _, found = encode_columns(batch, asked.schema, source=asked.source_name, rows=numbers, misfits=asked.misfits)
        cells = simplify_batch(batch.select(list(asked.schema.sources)))
        self.report += found
        if len(rows) < batch.num_rows:
            within = pa.array(rows)
            ids, cells = ids.take(within), cells.take(within)
        return join_columns(rows + before, keys, ids, cells)


def block_rows(schema: Schema) -> int:
    """How many rows are checked at a time."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // schema.encoded_width))


def join_columns(rows: NDArray[np.int64], keys: Any, ids: Any, cells: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they are written: each with its number, from 0, and its key and id before its cells."""
    return pa.RecordBatch.from_arrays([pa.array(rows), keys, ids, *cells.columns], [ROW, KEY, ID, *cells.schema.names])


def read_staged_keys(folder: Path, piece: StagedShard, buckets: range) -> Iterator[NDArray[np.uint64]]:
    """The keys of a piece that are in some buckets, run by run: their fingerprints and their rows in the piece."""
    low, high = np.uint64(buckets.start << _SHIFT), np.uint64((buckets.stop << _SHIFT) - 1)
    for start in range(0, piece.keys, _RUN_KEYS):
        count = min(_RUN_KEYS, piece.keys - start)
        with read_errors(folder):
            numbers = np.memmap(
                folder / _staged_names(piece.number)[1],
                _KEY,
                "r",
                offset=start * _NUMBERS * _KEY.itemsize,
                shape=(_NUMBERS, count),
            )
        # Within a bucket they have no order, but every bucket comes after those before it.
        first, last = np.searchsorted(numbers[0], low), np.searchsorted(numbers[0], high, side="right")
        if first < last:
            yield np.array(numbers[:, first:last], np.uint64)


def delete_staged(folder: Path, number: int, *, rows: bool) -> None:
    """Delete the copy of a piece, or the fingerprints that lie beside it."""
    (folder / _staged_names(number)[not rows]).unlink(missing_ok=True)


def _staged_names(number: int) -> tuple[str, str]:
    return f"rows-{number:06d}.arrow", f"keys-{number:06d}"


_ROWS = 1 << 20
"""So many keys at a time, about."""
_PAIR = np.dtype([("first", np.uint64), ("second", np.uint64)])


@dataclass(frozen=True)
class RepeatedKeys:
    """What was found in some buckets."""

    number: int
    count: int
    """How many rows have a key that other rows have too; they are left out, and a file says which they are."""
    first: tuple[int, ...]
    """The first of them, from 0."""


@dataclass(frozen=True)
class FindRepeatedKeys(WorkUnit):
    """The work unit: look for repeated keys in these buckets."""

    folder: Path
    plan: KeyPlan
    pieces: tuple[StagedShard, ...]
    buckets: range
    number: int

    def run(self) -> RepeatedKeys:
        """Look, and write down which rows are left out."""
        maybe = _repeated_values(prints[0].copy() for prints, _ in self._keys())
        often = _repeated_values(pairs for pairs, _ in self._pairs(maybe)) if len(maybe) else maybe
        if not len(often):
            return RepeatedKeys(self.number, 0, ())
        count, first = 0, np.empty(0, np.int64)
        with write_atomically(self.folder, dropped_name(self.number)) as file:
            # All rows of one key come in the order of the table, and all rows of a run after those of the runs before.
            for pairs, rows in self._pairs(maybe):
                numbers = rows[_find_in_sorted(often, pairs)[1]]
                file.write(np.sort(numbers).tobytes())
                count += len(numbers)
                first = np.sort(np.concatenate([first, numbers]))[:MAX_SHOWN_ROWS]
        return RepeatedKeys(self.number, count, tuple(first.tolist()))

    def _keys(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Fingerprints and rows, run by run."""
        for piece, start in zip(self.pieces, row_offsets(self.pieces), strict=True):
            for numbers in read_staged_keys(self.folder, piece, self.buckets):
                yield numbers[:2], numbers[2].astype(np.int64) + start

    def _pairs(self, maybe: NDArray[np.uint64]) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """The same, each fingerprint as one number, of keys whose fingerprint begins with one of these."""
        for prints, rows in self._keys():
            _, some = _find_in_sorted(maybe, prints[0])
            yield np.ascontiguousarray(prints[:, some].T).view(_PAIR).reshape(-1), rows[some]


def _repeated_values(runs: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """What is there more than once, in order.

    Meanwhile everything is held twice at most: very many rows may have the same key, such as one that stands for none.
    """
    held, size, most = list[NDArray[Any]](), 0, 2 * _ROWS
    for run in runs:
        held.append(run)
        size += len(run)
        if size > most:
            held = [_keep_two_of_each(held)]
            size = len(held[0])
            most = max(most, 2 * size)
    ordered = _keep_two_of_each(held)
    found: NDArray[Any] = ordered[1:][ordered[1:] == ordered[:-1]]
    return found


def _find_in_sorted(ordered: NDArray[Any], some: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where some are in what is in order and not empty, and which of them are there."""
    places = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    return places, ordered[places] == some


def _keep_two_of_each(held: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All of it in order, and nothing more than twice."""
    ordered = np.sort(np.concatenate(held)) if held else np.empty(0, np.uint64)
    kept = np.ones(len(ordered), bool)
    kept[2:] = ordered[2:] != ordered[:-2]
    return ordered[kept]


def plan_key_search(folder: Path, plan: KeyPlan, pieces: Sequence[StagedShard]) -> list[FindRepeatedKeys]:
    """Work units that look at all keys, at a bounded number of them each."""
    keys = sum(piece.keys for piece in pieces)
    count = min(BUCKETS, -(-keys // _ROWS))
    edges = [place * BUCKETS // count for place in range(count + 1)] if count else []
    # What a report says of cells is no matter here.
    short = tuple(replace(each, report=EncodingReport()) for each in pieces)
    return [FindRepeatedKeys(folder, plan, short, range(*edge), number) for number, edge in enumerate(pairwise(edges))]


def row_offsets(pieces: Sequence[StagedShard]) -> list[int]:
    """How many rows come before each piece."""
    return [0, *accumulate(piece.rows for piece in pieces)][: len(pieces)]


def read_dropped_rows(folder: Path, numbers: Sequence[int], first: int, last: int) -> NDArray[np.int64]:
    """Which of the rows from ``first`` to before ``last`` are left out, by what these units wrote down."""
    found = [np.empty(0, np.int64)]
    for number in numbers:
        with read_errors(folder):
            rows = np.memmap(folder / dropped_name(number), np.int64, "r")
        low, high = np.searchsorted(rows, [first, last])
        found.append(np.array(rows[low:high]))
    return np.sort(np.concatenate(found))


def dropped_name(number: int) -> str:
    """The file of rows that are left out."""
    return f"dropped-{number:06d}"


class StagedTable:
    """A table that was read, checked and copied to a private folder, to be split.

    ``keys`` is the number of rows that have a key which counts, out of ``rows``; ``missing``, ``repeated`` and
    ``unlabelled`` are those that are left out, as for :class:`~colonnade.tables.keys.TableKeys`.
    """

    def __init__(
        self,
        tempdir: PrivateTempDir,
        pieces: Sequence[StagedShard],
        repeated: Sequence[RepeatedKeys],
        schema: Schema,
        about: PartitionInfo,
        *,
        own: bool,
    ) -> None:
        """``own``: nobody else sees to the folder after an error."""
        self.report: EncodingReport = sum((piece.report for piece in pieces), EncodingReport())
        self.rows = self.report.rows
        keys = sum(piece.keys for piece in pieces)
        self.unlabelled = sum(piece.unlabelled for piece in pieces)
        self.missing = self.rows - keys - self.unlabelled
        self.repeated = sum(each.count for each in repeated)
        self.keys = keys - self.repeated
        self._tempdir, self._own = tempdir, own
        self._pieces = tuple(pieces)
        self._dropped = tuple(each.number for each in repeated if each.count)
        self._schema = schema
        self._about = about

    @property
    def folder(self) -> Path:
        """The private folder."""
        return self._tempdir.path

    def split(
        self, partition_of: PartitionOf, count: int, workers: PartitionRunner = no_workers, memory: int | None = None
    ) -> PartitionedTable:
        """Spread the rows over partitions; the copy in the order of the file is deleted then.

        Workers get ``partition_of`` pickled. ``memory`` is how many bytes each of them may have.
        """
        try:
            units = plan_runs(self.folder, self._pieces, self._dropped, partition_of, count, memory)
            run_all(units, workers)
            for piece in self._pieces:
                delete_staged(self.folder, piece.number, rows=True)
            for number in self._dropped:
                (self.folder / dropped_name(number)).unlink()
            return finish_table(self._tempdir, len(units), count, self._about, self._schema)
        except BaseException:
            if self._own:
                self.remove()
            raise

    def remove(self) -> None:
        """Delete the folder; partitions made of this are gone, too."""
        self._tempdir.remove()

    def __repr__(self) -> str:
        return f"<StagedTable {self._about.source}: {self.keys} of {self.rows} rows have a key>"


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
    thousands: str | None = None,
    label: str | None = None,
    workers: PartitionRunner = no_workers,
) -> StagedTable:
    """Read a table as :func:`~colonnade.tables.table.read_table` does, and check it, once and without holding it.

    Errors have the same words, but those about cells name the rows of one stretch of the file, and come before those
    about keys that are repeated or missing in all rows. The private folder is made inside ``folder``, and is removed
    after an error; a folder that was given is left to whoever made it, as workers may still be at work there.
    """
    asked = TableRequest.of(
        source,
        schema,
        id,
        name,
        columns=columns,
        keys=keys,
        text=TextFormat(separator, encoding, decimal, thousands),
        misfits=misfits,
        label=label,
    )
    found = open_source(source, asked.source_name, asked.schema.text)
    files.choose_columns(found.columns(), asked.source_name, asked.choose)
    own = not isinstance(folder, PrivateTempDir)
    tempdir = folder if isinstance(folder, PrivateTempDir) else PrivateTempDir(Path(folder))
    try:
        KeyFingerprints.create_seed(tempdir.path)
        pieces = _stage_shards(tempdir.path, found, asked, workers)
        if not sum(piece.rows for piece in pieces):
            raise DataError(f"{asked.source_name}: the table has no rows [DA261]")
        keyed = sum(piece.keys for piece in pieces)
        if not keyed and misfits == "refuse":
            raise no_key_error(asked.source_name, keys, asked.key_columns)
        repeated: list[RepeatedKeys] = run_all(plan_key_search(tempdir.path, keys, pieces), workers)
        first = np.array([row for each in repeated for row in each.first], np.int64)
        refuse_repeated(first + 1, keys, asked.key_columns, asked.source_name, sum(each.count for each in repeated))
        if sum(each.count for each in repeated) == keyed and misfits == "refuse":
            raise all_repeated_error(asked.source_name, keys, asked.key_columns)
        for piece in pieces:
            delete_staged(tempdir.path, piece.number, rows=False)
        KeyFingerprints.delete_seed(tempdir.path)
        about = PartitionInfo(asked.source_name, asked.schema.digest, misfits, tuple(key.name for key in keys.keys))
        return StagedTable(tempdir, pieces, repeated, asked.schema, about, own=own)
    except BaseException:
        if own:
            tempdir.remove()
        raise


def _stage_shards(
    folder: Path, source: TableSource, reading: TableRequest, workers: PartitionRunner
) -> list[StagedShard]:
    """All rows, read once; who reads a piece sees to it that its files stay the same, and we see to all of them."""
    pieces = source.shards(reading.columns)
    if len(pieces) < 2:
        return [StageShard(folder, reading, source).run()]
    source.record_state()
    found: list[StagedShard] = run_all(
        [StageShard(folder, reading, *each[::-1]) for each in enumerate(pieces)], workers
    )
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
    """The work unit: write one run."""

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
            path = str(self.folder / _staged_names(stretch.piece)[0])
            with read_errors(self.folder), pa.OSFile(path) as file, pa.ipc.open_file(file) as opened:
                for batch in map(opened.get_batch, stretch.batches):
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
    """Work units that put all rows into partitions; runs have the rows in their order, whoever makes them."""
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
