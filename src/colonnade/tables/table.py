"""One party's table: made from a file or a frame, checked against its schema, and encoded block by block.

Its columns are held in memory, or left where they lie and read again each time rows are needed. Rows are always read
from the first to the last, some at a time. If rows on disk are needed in another order, they are first copied to a
temporary file, once for all views that share the order.

Besides, encoded columns minus their public middles, and the bounds on a row that follow from this. The noise on second
moments grows with the squared norm of a row. A flag minus one half has a quarter of the square, and the release itself
contains the means of the centred columns; so centring first loses nothing. Middles come from the schema, never from the
data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt, nextafter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.lazy import LazyModule
from colonnade.tables import files
from colonnade.tables.bins import Matrix
from colonnade.tables.cell_parsing import CellLocation, TextFormat, pa, pc
from colonnade.tables.columns import REFUSE, Column, Norm as Norm
from colonnade.tables.encoding import EncodingReport, InvalidValues, encode_columns, locate_cells, scale_rows_down
from colonnade.tables.keys import (
    Ids,
    KeyColumn,
    KeyPlan,
    TableKeys,
    check_ids,
    collect_keys,
    key_columns,
    name_rows,
    sort_positions,
)
from colonnade.tables.schema import Schema
from colonnade.tables.slots import DerivedRows, RowSlots
from colonnade.tables.sources.base import ExternalSort, TableSource

if TYPE_CHECKING:
    from colonnade.tables.sources import factory
else:
    factory = LazyModule("colonnade.tables.sources.factory")  # databases and stores take long to load

Order = NDArray[np.int64]


class InMemoryCells:
    """Columns of an Arrow table; views share its data."""

    def __init__(self, arrow: pa.Table, order: Order | None = None) -> None:
        self._arrow = arrow
        self._order = order

    def select(self, columns: Sequence[str]) -> InMemoryCells:
        """Some of the columns."""
        return InMemoryCells(self._arrow.select(list(columns)), self._order)

    def reorder(self, order: Order) -> InMemoryCells:
        """The rows at these positions of the Arrow table."""
        return InMemoryCells(self._arrow, order)

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The cells in blocks of ``rows`` rows."""
        if self._order is None:
            return (self._arrow.slice(start, rows) for start in range(0, self._arrow.num_rows, rows))
        starts = range(0, len(self._order), rows)
        return (self._arrow.take(pa.array(self._order[start : start + rows])) for start in starts)


class OnDiskCells:
    """Columns of a source whose rows need not fit in memory."""

    def __init__(self, file: TableSource, columns: Sequence[str], copy: _ReorderedRows | None = None) -> None:
        self._file = file
        self._columns = list(columns)
        self._copy = copy

    def select(self, columns: Sequence[str]) -> OnDiskCells:
        """Some of the columns."""
        return OnDiskCells(self._file, columns, self._copy)

    def reorder(self, order: Order) -> OnDiskCells:
        """The rows at these positions of the file; they are copied at the first read if positions do not ascend."""
        return OnDiskCells(self._file, self._columns, _ReorderedRows(self._file, self._columns, order))

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The cells in blocks of ``rows`` rows; only a few blocks are in memory at a time."""
        source = self._file if self._copy is None else self._copy
        return regroup_batches(source.batches(self._columns), rows)


CellStore: TypeAlias = InMemoryCells | OnDiskCells
"""Columns with rows in some order."""


class _ReorderedRows:
    """The rows of a file in another order."""

    def __init__(self, file: TableSource, columns: Sequence[str], order: Order) -> None:
        self._file = file
        self._columns = columns
        self._order = order
        self._ascends = bool((order[1:] >= order[:-1]).all())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows, in that order."""
        return self._picked(columns) if self._ascends else self._spill.batches(columns)

    def _picked(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in self._file.batches(columns):
            first, last = np.searchsorted(self._order, [start, start + batch.num_rows])
            if first < last:
                yield batch.take(pa.array(self._order[first:last] - start))
            start += batch.num_rows

    @cached_property
    def _spill(self) -> ExternalSort:
        found = ExternalSort(self._file.batches(self._columns), self._order)
        pa.default_memory_pool().release_unused()
        return found


def regroup_batches(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of ``rows`` each, the last of which may be shorter.

    The last table comes only after the batches have ended, so that an error which they raise at their end is not
    missed.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while count + batch.num_rows - start > rows:
            if count < rows:
                held.append(batch.slice(start, rows - count))
            start += rows - count
            yield pa.Table.from_batches(held)
            held, count = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            count += batch.num_rows - start
    if held:
        yield pa.Table.from_batches(held)


_BLOCK_CELLS = 1 << 22


class Table:
    """One party's rows: their ids, and their cells under a schema. Views (another order, fewer columns) share the data.

    Cells are encoded when a block is asked for, so only one encoded block is in memory; the cells of a large file stay
    on disk (:func:`~colonnade.tables.table.read_table`).

    An alignment recognises the rows by ``keys``, which only a table in the order of its file has. ``places`` are the
    slots of the rows after an alignment that tells nobody who matched. ``misfits`` says what becomes of cells that the
    schema has no place for: they are an error, or are mapped by public rules and counted in the report. ``named`` says
    whether the ids are those of people; without a column of ids they are the numbers of the rows. ``origins`` are the
    places of the rows in the party's file, counted from 0, if this table holds only some of them.
    """

    def __init__(
        self,
        cells: CellStore,
        ids: pa.LargeStringArray,
        schema: Schema,
        *,
        source: str = "table",
        order: NDArray[np.int64] | None = None,
        keys: TableKeys | None = None,
        common: pa.LargeStringArray | None = None,
        places: RowSlots | None = None,
        misfits: InvalidValues = "refuse",
        named: bool = True,
        origins: NDArray[np.int64] | None = None,
    ) -> None:
        self.schema = schema
        self.named = named
        self.misfits = misfits
        self.source = source
        self.keys = keys
        self.places = places
        self._cells = cells
        self._ids = ids
        self._order = order
        self._common = common
        self._origins = origins
        self._report: EncodingReport | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._ids) if self._order is None else len(self._order)

    def __len__(self) -> int:
        return self.rows

    @property
    def ids(self) -> Ids:
        """The rows' ids, in the order of the rows; after an alignment, opaque ids that are the same at all parties."""
        return self.own_ids if self._common is None else Ids(self._common)

    @property
    def own_ids(self) -> Ids:
        """The party's own names for the rows, in the order of the rows."""
        return Ids(self._ids, self._order)

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """The number of each row in the party's own file or frame, counted from 1, in the order of the rows."""
        return self._numbers(0, self.rows)

    @property
    def report(self) -> EncodingReport:
        """What encoding all rows did; the first use runs :meth:`check`."""
        return self._report if self._report is not None else self.check()

    def check(self) -> EncodingReport:
        """Encode every row once without keeping it, and return the report; raises for a misfit that is not mapped."""
        total = EncodingReport()
        for _, part in self._encoded(None):
            total += part
        self._report = total
        return total

    def blocks(self, rows: int | None = None) -> Iterator[Matrix]:
        """Encoded row blocks, in order; by default of about 32 MB each."""
        return (matrix for matrix, _ in self._encoded(rows))

    def matrix(self) -> Matrix:
        """All rows at once."""
        whole = np.empty((self.rows, self.schema.encoded_width))
        start = 0
        for block in self.blocks():
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    def column(self, name: str) -> Matrix:
        """One column encoded alone, such as a label, as an array (rows, width); the row clip is not applied."""
        self.schema.require([name])
        declared = self.schema.columns[name]
        out = np.zeros((self.rows, len(declared.parts)))
        read = declared.source(name)
        for start, cells in _enumerate_blocks(self._cells.select([read]), max(1, _BLOCK_CELLS // len(declared.parts))):
            stop = start + cells.num_rows
            place = locate_cells(self.source, read, self._numbers(start, stop), self.misfits, self.schema.text)
            declared.encode(cells[read], place, out[start:stop])
        return out

    def select(self, columns: Iterable[str]) -> Table:
        """A view of some of the columns."""
        return self._view(self.schema.select(columns))

    def without(self, columns: Iterable[str]) -> Table:
        """A view of all columns except these."""
        return self._view(self.schema.without(columns))

    def unclipped(self) -> Table:
        """A view whose encoded rows are not scaled down to a clip."""
        return self._view(self.schema.with_clip(None))

    def sorted_by_id(self) -> Table:
        """A view with the rows in the order of their ids, compared byte by byte as UTF-8.

        After an alignment the rows keep the order that all parties share.
        """
        if self._common is not None or self.places is not None:
            return self
        if self.own_ids.is_sorted():
            return self
        return self.take_rows(sort_positions(self._own_ids()))

    def take_rows(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> Table:
        """A view of the rows at these positions, in this order; the positions of rows that have places must ascend."""
        wanted = self._positions(positions)
        common = None if self._common is None else self._common.take(pa.array(wanted))
        places = None if self.places is None else self.places.take(wanted)
        return self._reordered(wanted, common=common, places=places)

    def take(self, ids: Sequence[str]) -> Table:
        """A view of the rows with these ids, in this order."""
        found = pc.index_in(pa.array(ids, pa.large_string()), self._own_ids() if self._common is None else self._common)
        if found.null_count:
            raise DataError(f"{self.source}: {found.null_count} of the ids asked for are not in the table [DA268]")
        return self.take_rows(np.asarray(found, dtype=np.int64))

    def align(self, positions: Sequence[int] | NDArray[np.integer[Any]], ids: Sequence[str] | pa.Array) -> Table:
        """A view of the rows at these positions in the order that an alignment gave them, under its opaque ids."""
        common = ids if isinstance(ids, pa.LargeStringArray) else pa.array(ids, pa.large_string())
        if len(common) != len(positions):
            raise ValueError(f"{len(positions)} rows need as many ids, not {len(common)} [VA250]")
        return self._reordered(self._positions(positions), common=common)

    def place_in_slots(
        self,
        positions: Sequence[int] | NDArray[np.integer[Any]],
        slots: Sequence[int] | NDArray[np.integer[Any]],
        size: int,
        token: bytes,
    ) -> Table:
        """A view of the rows at these positions, each with its slot; the slots ascend and lie below ``size``."""
        places = RowSlots(np.asarray(slots, dtype=np.int64), size, token)
        if len(places) != len(positions):
            raise ValueError(f"{len(positions)} rows need as many slots, not {len(places)} [VA251]")
        return self._reordered(self._positions(positions), places=places)

    def __repr__(self) -> str:
        return f"<Table {self.source}: {self.rows} rows, {len(self.schema.columns)} columns>"

    def _encoded(self, rows: int | None) -> Iterator[tuple[Matrix, EncodingReport]]:
        if rows is not None and rows < 1:
            raise ValueError("a block has at least one row [VA252]")
        step = rows or max(1, _BLOCK_CELLS // self.schema.encoded_width)
        for start, cells in _enumerate_blocks(self._cells, step):
            numbers = self._numbers(start, start + cells.num_rows)
            yield encode_columns(cells, self.schema, source=self.source, rows=numbers, misfits=self.misfits)

    def _numbers(self, start: int, stop: int) -> NDArray[np.int64]:
        """The numbers of some rows in the party's file, counted from 1."""
        if self._origins is not None:
            return (self._origins[start:stop] if self._order is None else self._origins[self._order[start:stop]]) + 1
        return (np.arange(start, stop) if self._order is None else self._order[start:stop]) + 1

    def _own_ids(self) -> Any:
        return self._ids if self._order is None else self._ids.take(pa.array(self._order))

    def _positions(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and not (-self.rows <= wanted.min() and wanted.max() < self.rows):
            raise IndexError(f"row positions must lie below {self.rows} [VA253]")
        return np.where(wanted < 0, wanted + self.rows, wanted) if wanted.size and wanted.min() < 0 else wanted

    def _view(self, schema: Schema) -> Table:
        view = copy(self)
        view.schema, view._cells, view._report = schema, self._cells.select(schema.sources), None
        return view

    def _reordered(
        self, wanted: NDArray[np.int64], *, common: pa.LargeStringArray | None = None, places: RowSlots | None = None
    ) -> Table:
        order = wanted if self._order is None else self._order[wanted]
        return Table(
            self._cells.reorder(order),
            self._ids,
            self.schema,
            source=self.source,
            order=order,
            common=common,
            places=places,
            misfits=self.misfits,
            named=self.named or common is not None,
            origins=self._origins,
        )


def _enumerate_blocks(cells: CellStore, rows: int) -> Iterator[tuple[int, pa.Table]]:
    """Blocks of cells, each with the number of rows before it."""
    start = 0
    for block in cells.blocks(rows):
        yield start, block
        start += block.num_rows


_LARGE = 1 << 28
_OWN_COLUMNS = "; name this party's own columns under [keys] of its file, or with keys= of its Party"


def read_table(
    source: str | Path | Any,
    schema: Schema | str | Path,
    *,
    id: str | None = "person_id",
    name: str | None = None,
    keys: KeyPlan | None = None,
    columns: Mapping[str, KeyColumn] | None = None,
    on_disk: bool | None = None,
    misfits: InvalidValues = "refuse",
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    label: str | None = None,
) -> Table:
    """A party's table: from CSV or Parquet files, a store, a query, an Arrow table or a frame.

    ``docs/how-to/sources.md`` has all of them.

    Columns that the schema does not name are never read. Ids are compared exactly, as text: whole numbers
    become their decimal digits, texts stay as they are, and blanks around an id are refused rather than
    stripped, because two organisations might strip differently. Without an id column (``id=None``) the ids are the row
    numbers. ``name`` names the source in errors.

    With ``keys``, an alignment recognises people by these instead: ``columns`` says in which columns the parts of the
    key are (by default what :func:`~colonnade.tables.keys.key_columns` gives). The id column then only names the
    party's rows, and its cells may be missing or repeated; with ``id=None``, the cells of the key name the rows.

    A file whose columns would take more than 256 MiB of memory is not loaded: its cells stay on disk and are read
    again, some rows at a time, whenever they are needed. ``on_disk=True`` does this for any file, ``on_disk=False`` for
    none. What comes from a store, a database or a stream is read once, and if it is as large, copied to a temporary
    file.

    With ``keys`` and ``misfits="map"``, rows without a ``label`` are left out of the keys, so that nobody is told of
    them, unless the schema says what a missing one becomes.

    A cell that the schema has no place for is an error when it is read; with ``misfits="map"`` it is encoded by the
    public rules of :mod:`~colonnade.tables.encoding` and counted in the table's report.

    ``separator``, ``encoding``, ``decimal`` and ``thousands`` say how a CSV file is written, if not as the schema says,
    or else with commas, in UTF-8, with decimal points and no sign between thousands.
    """
    text = TextFormat(separator, encoding, decimal, thousands)
    asked = TableRequest.of(source, schema, id, name, keys, columns, text, misfits, label)
    named, cells = _read_request(source, asked, on_disk)
    said, declared = asked.source_name, asked.schema
    if keys is not None:
        found = collect_keys(named, keys, asked.key_columns, said, misfits, asked.labelled(named))
        ids = name_rows({column: named[column] for column in asked.naming_columns}, said)
        return Table(cells, ids, declared, source=said, keys=found, misfits=misfits)
    numbers = range(1, named.num_rows + 1)
    if id is None:
        ids = pa.array(np.asarray(numbers)).cast(pa.large_string())
    else:
        ids = check_ids(named[id], CellLocation(said, id, numbers))
    return Table(cells, ids, declared, source=said, misfits=misfits, named=id is not None)


@dataclass(frozen=True)
class TableRequest:
    """What a party's table is to be read as: how errors call it, its schema, its ids, its key's columns."""

    source_name: str
    schema: Schema
    id: str | None
    key_plan: KeyPlan | None
    key_columns: Mapping[str, KeyColumn]
    misfits: InvalidValues
    label: str | None = None
    """The column without which a row has no key, where the schema does not say what a missing cell becomes."""

    @classmethod
    def of(
        cls,
        source: Any,
        schema: Schema | str | Path,
        id: str | None,
        name: str | None,
        keys: KeyPlan | None,
        columns: Mapping[str, KeyColumn] | None,
        text: TextFormat,
        misfits: InvalidValues,
        label: str | None = None,
    ) -> TableRequest:
        """From what :func:`read_table` takes; nothing is read yet."""
        declared = (schema if isinstance(schema, Schema) else Schema.load(schema)).with_text_format(text)
        said = name or factory.source_name(source)
        _refuse_shared(declared, [] if id is None else [id], said, "id")
        held = {} if keys is None else dict(key_columns(keys.keys, {}, id, said) if columns is None else columns)
        asked = label is not None and misfits == "map" and declared.columns[label].missing == REFUSE
        found = cls(said, declared, id, keys, held, misfits, label if asked else None)
        _refuse_shared(declared, found.key_parts, said, "key")
        return found

    @property
    def key_parts(self) -> list[str]:
        """The columns of the key."""
        return (
            []
            if self.key_plan is None
            else list(dict.fromkeys(self.key_columns[key.name].column for key in self.key_plan.keys))
        )

    @property
    def naming_columns(self) -> list[str]:
        """The columns that name a row: that of the ids, or else those of the key."""
        return self.key_parts if self.id is None else [self.id]

    @property
    def identifying_columns(self) -> list[str]:
        """The columns that identify a row; without any, another one tells how many rows there are."""
        label = [] if self.label is None else [self.schema.columns[self.label].source(self.label)]
        return list(dict.fromkeys([*self.naming_columns, *self.key_parts, *label])) or list(self.schema.sources[:1])

    def labelled(self, cells: pa.Table | pa.RecordBatch) -> NDArray[np.bool_] | None:
        """Which rows have a label, if the study asks for one."""
        if self.label is None:
            return None
        declared = self.schema.columns[self.label]
        source = declared.source(self.label)
        place = locate_cells(self.source_name, source, np.arange(cells.num_rows), "map", self.schema.text)
        _, missing = declared.read(cells[source], place)
        return ~place.without_value(missing)

    @property
    def columns(self) -> list[str]:
        """All columns to read."""
        return list(dict.fromkeys([*self.identifying_columns, *self.schema.sources]))

    def choose(self, there: Sequence[str]) -> Sequence[str]:
        """The same, if they are among those that are there."""
        ids = [] if self.id is None else [self.id]
        files.require_columns(ids, there, f"{self.source_name}: the id", taken=[*self.key_parts, *self.schema.sources])
        key = f"{self.source_name}: the key"
        files.require_columns(self.key_parts, there, key, taken=[*ids, *self.schema.sources], advice=_OWN_COLUMNS)
        files.require_columns(self.schema.sources, there, self.source_name)
        return self.columns


def _read_request(given: Any, asked: TableRequest, on_disk: bool | None) -> tuple[pa.Table, CellStore]:
    """The columns that identify a row, in memory, and the cells of the schema's columns."""
    cells: CellStore
    said, most = asked.source_name, {None: _LARGE, True: 0, False: None}[on_disk]
    source = factory.make_rereadable(factory.open_source(given, said, asked.schema.text), said, asked.choose, most=most)
    if on_disk is not False and not source.in_memory and (on_disk or source.size(asked.choose) > _LARGE):
        files.choose_columns(source.columns(), said, asked.choose)
        source.record_state()
        named, cells = source.read(asked.identifying_columns), OnDiskCells(source, asked.schema.sources)
    else:
        named = source.read_chosen(lambda there: files.choose_columns(there, said, asked.choose))
        cells = InMemoryCells(named.select(list(asked.schema.sources)).combine_chunks())
    if not named.num_rows:
        raise DataError(f"{said}: the table has no rows [DA202]")
    return named, cells


def _refuse_shared(declared: Schema, columns: Sequence[str], said: str, what: str) -> None:
    for column in columns:
        if column in declared.columns or column in declared.sources:
            raise SchemaError(
                f"{said}: the {what} column {column!r} must not be in the schema; delete its section [SC064]"
            )


_BLOCK_ROWS = 8192


@dataclass(frozen=True)
class ColumnCentring:
    """One party's columns minus their middles: first the features, then the label if the party holds it.

    With ``norm="l2"`` the middle of each value of a category of K values is 1/K, which makes its L2 norm small. With
    ``norm="l1"`` a category stays as it is, because one-hot values have the smaller L1 norm; so does a number that may
    be missing. The row clip of the schema
    bounds the centred features together; a label is never scaled.
    """

    schema: Schema
    label: str | None = None
    norm: Norm = "l2"

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "l1"):
            raise SchemaError(f'a norm is "l2" or "l1", not {self.norm!r} [SC012]')
        if self.label is not None:
            self.schema.require([self.label])

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns, without those of the label."""
        return tuple(name + part for name, column in self._features for part in column.parts)

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """The names of the encoded columns of the label."""
        return tuple(name + part for name, column in self._labels for part in column.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all encoded columns: features first, then the label."""
        return self.feature_names + self.label_names

    @cached_property
    def middle(self) -> NDArray[np.float64]:
        """What is subtracted from each encoded column."""
        columns = (*self._features, *self._labels)
        return np.array([column.middle(self.norm) for _, column in columns for _ in column.parts])

    @property
    def clip(self) -> float:
        """A bound on the L2 norm of a row, label included; rounded up."""
        label = sum((_max_power_sum(column, self.norm, 2) for _, column in self._labels), Fraction(0))
        return _sqrt_rounded_up(Fraction(self.feature_clip) ** 2 + label) if label else self.feature_clip

    @cached_property
    def feature_clip(self) -> float:
        """A bound on the L2 norm of the features of a row; rounded up."""
        largest = _sqrt_rounded_up(
            sum((_max_power_sum(column, self.norm, 2) for _, column in self._features), Fraction(0))
        )
        return largest if self._given is None else min(self._given, largest)

    @cached_property
    def groups(self) -> tuple[tuple[int, Fraction], ...]:
        """For each column, how many encoded columns it has and a bound on the L1 norm of their values."""
        columns = (*self._features, *self._labels)
        return tuple((len(column.parts), _max_power_sum(column, self.norm, 1)) for _, column in columns)

    def centre_rows(self, table: Table) -> CentredRows:
        """Centred features and label of a table's rows, in the table's order."""
        return CentredRows(self, self._checked(table), with_label=True)

    def centre_features(self, table: Table) -> CentredRows:
        """Centred features alone, in the table's order."""
        return CentredRows(self, self._checked(table), with_label=False)

    def labels(self, table: Table) -> NDArray[np.float64]:
        """The encoded label, not centred: one row for each person, in the table's order."""
        if self.label is None:
            raise SchemaError("this party holds no label; name one of its columns [SC013]")
        return self.schema.columns[self.label].as_label(self._checked(table).column(self.label))

    def centre(self, features: Matrix) -> Matrix:
        """Encoded, unclipped features minus their middles, scaled down to the schema's clip if it states one."""
        centred = features - self.middle[: len(self.feature_names)]
        if self._given is not None and self._given <= self.feature_clip:
            scale_rows_down(centred, self.feature_clip)
        return centred

    def _checked(self, table: Table) -> Table:
        if table.schema != self.schema:
            raise DataError(f"{table.source} was read under another schema than the one that is centred [DA135]")
        return table

    @property
    def _given(self) -> float | None:
        """The clip that the schema states, if it can shorten a row at all."""
        return self.schema.clip if self.schema.clip < self.schema.max_norm else None

    @property
    def _features(self) -> tuple[tuple[str, Column], ...]:
        return tuple((name, column) for name, column in self.schema.columns.items() if name != self.label)

    @property
    def _labels(self) -> tuple[tuple[str, Column], ...]:
        return () if self.label is None else ((self.label, self.schema.columns[self.label]),)


@dataclass(frozen=True)
class CentredRows(DerivedRows):
    """The centred rows of a table, as a protocol reads them: encoded block by block."""

    centred: ColumnCentring
    rows: Table
    with_label: bool

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, rows: int = _BLOCK_ROWS) -> Iterator[NDArray[np.float64]]:
        """Centred rows, some at a time."""
        kept = self.rows.unclipped()
        features, label = len(self.centred.feature_names), self.centred.label
        order = self._order
        for block in kept.blocks(rows):
            parts = [self.centred.centre(block[:, order[:features]])]
            if self.with_label and label is not None:
                labels = self.centred.schema.columns[label].as_label(block[:, order[features:]])
                parts.append(labels - self.centred.middle[features:])
            yield np.ascontiguousarray(np.hstack(parts))

    def matrix(self) -> NDArray[np.float64]:
        """All rows at once."""
        return np.vstack(list(self.blocks()))

    @property
    def _order(self) -> NDArray[np.int64]:
        """Where the features and then the label stand among the encoded columns of the table."""
        places = {name: index for index, name in enumerate(self.rows.schema.encoded_names)}
        return np.array([places[name] for name in self.centred.names], dtype=np.int64)


def _max_power_sum(column: Column, norm: Norm, power: int) -> Fraction:
    """The largest sum of this power of the sizes of a column's entries: of squares, or the L1 norm."""
    return max(sum((count * size**power for count, size in row), Fraction(0)) for row in column.longest(norm))


def _sqrt_rounded_up(square: Fraction) -> float:
    """A float that is at least the square root of a fraction, and very close to it."""
    scaled = -(-square.numerator * (1 << 128) // square.denominator)
    root = Fraction(isqrt(scaled) + (isqrt(scaled) ** 2 < scaled), 1 << 64)
    nearest = float(root)
    return nearest if Fraction(nearest) >= root else nextafter(nearest, float("inf"))
