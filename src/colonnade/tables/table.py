"""One party's table: checked against its schema, and encoded block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.tables import files
from colonnade.tables.encode import Matrix, Report, encode_column, encode_columns
from colonnade.tables.ids import called, checked_ids
from colonnade.tables.keys import KeyColumn, KeyPlan, Keys, collect_keys, key_columns
from colonnade.tables.parse import Place
from colonnade.tables.places import Places
from colonnade.tables.schema import Schema

_BLOCK_CELLS = 1 << 22
_OWN_COLUMNS = "; name this party's own columns under [keys] of its file, or with keys= of its Party"


class Table:
    """Rows with ids under a schema. Views (another order, fewer columns) share the Arrow data.

    Cells are encoded when a block is asked for, so memory beyond the Arrow table is bounded by the block.

    ``keys`` are what the rows are recognised by in an alignment, as long as they stand in the order of the file.
    ``places`` are the slots of the rows after an alignment that tells nobody who matched.
    """

    def __init__(
        self,
        arrow: pa.Table,
        ids: pa.LargeStringArray,
        schema: Schema,
        *,
        source: str = "table",
        order: NDArray[np.int64] | None = None,
        keys: Keys | None = None,
        common: pa.LargeStringArray | None = None,
        places: Places | None = None,
    ) -> None:
        self.schema = schema
        self.source = source
        self.keys = keys
        self.places = places
        self._arrow = arrow
        self._ids = ids
        self._order = order
        self._common = common
        self._report: Report | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._ids) if self._order is None else len(self._order)

    def __len__(self) -> int:
        return self.rows

    @property
    def ids(self) -> list[str]:
        """The rows' ids, in the order of the rows; after an alignment, opaque ones that all parties have in common."""
        found: list[str] = self._shared_ids().to_pylist()
        return found

    @property
    def own_ids(self) -> list[str]:
        """What the party itself calls the rows, in the order of the rows."""
        found: list[str] = self._own_ids().to_pylist()
        return found

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """The number of each row in the party's own file or frame, counted from 1, in the order of the rows."""
        return self._index(0, self.rows) + 1

    @property
    def report(self) -> Report:
        """What encoding all rows did; the first use runs :meth:`check`."""
        return self._report if self._report is not None else self.check()

    def check(self) -> Report:
        """Encode every row once, keep nothing, and report; raises where a cell does not fit the schema."""
        total = Report()
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
        """One column encoded on its own, (rows, width) and untouched by the row clip: a label, say."""
        self.schema.require([name])
        declared = self.schema.columns[name]
        out = np.zeros((self.rows, len(declared.parts)))
        index = self._index(0, self.rows)
        encode_column(self._cells(index)[name], declared, Place(self.source, name, index + 1), out)
        return out

    def select(self, columns: Iterable[str]) -> Table:
        """A view of some of the columns."""
        return self._view(self.schema.select(columns))

    def without(self, columns: Iterable[str]) -> Table:
        """A view of all columns but these."""
        return self._view(self.schema.without(columns))

    def unclipped(self) -> Table:
        """A view whose encoded rows are not scaled down to a clip."""
        return self._view(self.schema.with_clip(None))

    def sorted_by_id(self) -> Table:
        """A view with the rows in the order of their ids, compared byte by byte as UTF-8.

        After an alignment the rows have an order that all parties share, and keep it.
        """
        if self._common is not None or self.places is not None:
            return self
        within = np.asarray(pc.sort_indices(self._own_ids()), dtype=np.int64)
        return self.take_rows(within)

    def take_rows(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> Table:
        """A view of the rows at these positions, in this order; rows that have places keep their order."""
        wanted = self._positions(positions)
        common = None if self._common is None else self._common.take(pa.array(wanted))
        places = None if self.places is None else self.places.take(wanted)
        return self._reordered(wanted, common=common, places=places)

    def take(self, ids: Sequence[str]) -> Table:
        """A view of the rows with these ids, in this order."""
        found = pc.index_in(pa.array(ids, pa.large_string()), self._shared_ids())
        if found.null_count:
            raise DataError(f"{self.source}: {found.null_count} of the ids asked for are not in the table")
        return self.take_rows(np.asarray(found, dtype=np.int64))

    def aligned(self, positions: Sequence[int] | NDArray[np.integer[Any]], ids: Sequence[str]) -> Table:
        """A view of the rows at these positions in the order that an alignment gave them, under its opaque ids."""
        common = pa.array(ids, pa.large_string())
        if len(common) != len(positions):
            raise ValueError(f"{len(positions)} rows need as many ids, not {len(common)}")
        return self._reordered(self._positions(positions), common=common)

    def placed(
        self,
        positions: Sequence[int] | NDArray[np.integer[Any]],
        slots: Sequence[int] | NDArray[np.integer[Any]],
        size: int,
        token: bytes,
    ) -> Table:
        """A view of the rows at these positions, each with its slot; the slots ascend and lie below ``size``."""
        places = Places(np.asarray(slots, dtype=np.int64), size, token)
        if len(places) != len(positions):
            raise ValueError(f"{len(positions)} rows need as many slots, not {len(places)}")
        return self._reordered(self._positions(positions), places=places)

    def __repr__(self) -> str:
        return f"<Table {self.source}: {self.rows} rows, {len(self.schema.columns)} columns>"

    def _encoded(self, rows: int | None) -> Iterator[tuple[Matrix, Report]]:
        if rows is not None and rows < 1:
            raise ValueError("a block has at least one row")
        step = rows or max(1, _BLOCK_CELLS // self.schema.encoded_width)
        for start in range(0, self.rows, step):
            index = self._index(start, min(start + step, self.rows))
            yield encode_columns(self._cells(index), self.schema, source=self.source, rows=index + 1)

    def _index(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.arange(start, stop) if self._order is None else self._order[start:stop]

    def _cells(self, index: NDArray[np.int64]) -> pa.Table:
        if self._order is None and len(index):
            return self._arrow.slice(int(index[0]), len(index))
        return self._arrow.take(pa.array(index))

    def _own_ids(self) -> Any:
        return self._ids if self._order is None else self._ids.take(pa.array(self._order))

    def _shared_ids(self) -> Any:
        return self._own_ids() if self._common is None else self._common

    def _positions(self, positions: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and not (-self.rows <= wanted.min() and wanted.max() < self.rows):
            raise IndexError(f"row positions must lie below {self.rows}")
        return np.where(wanted < 0, wanted + self.rows, wanted)

    def _view(self, schema: Schema) -> Table:
        return Table(
            self._arrow.select(list(schema.names)),
            self._ids,
            schema,
            source=self.source,
            order=self._order,
            keys=self.keys,
            common=self._common,
            places=self.places,
        )

    def _reordered(
        self, wanted: NDArray[np.int64], *, common: pa.LargeStringArray | None = None, places: Places | None = None
    ) -> Table:
        order = self._index(0, self.rows)[wanted]
        return Table(self._arrow, self._ids, self.schema, source=self.source, order=order, common=common, places=places)


def read_table(
    source: str | Path | Any,
    schema: Schema | str | Path,
    *,
    id: str | None = "person_id",
    name: str | None = None,
    keys: KeyPlan | None = None,
    columns: Mapping[str, KeyColumn] | None = None,
) -> Table:
    """A party's table from a CSV or Parquet path, a ``pyarrow.Table`` or a pandas frame.

    Columns that the schema does not name are never read. Ids are compared exactly, as text: whole numbers
    become their decimal digits, texts stay as they are, and blanks around an id are refused rather than
    stripped, because two organisations might strip differently. Without an id column (``id=None``) the rows are
    called by their numbers. ``name`` stands for the source in errors.

    With ``keys`` the people are recognised by these instead, in an alignment: ``columns`` says where the parts of the
    key are (by default as :func:`~colonnade.tables.keys.key_columns` has it). The id column is then only what the
    party calls its rows, and its cells may be missing or repeated; without one (``id=None``), the cells of the key take
    its place.
    """
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    said = name or (str(source) if isinstance(source, str | Path) else "table")
    _refuse_shared(declared, [] if id is None else [id], said, "id")
    if keys is None:
        return _with_ids(source, declared, id, said)
    held = dict(columns) if columns is not None else key_columns(keys.keys, {}, id, said)
    parts = list(dict.fromkeys(held[key.name].column for key in keys.keys))
    _refuse_shared(declared, parts, said, "key")

    naming = [] if id is None else [id]

    def choose(there: Sequence[str]) -> Sequence[str]:
        files.need(naming, there, f"{said}: the id", taken=[*parts, *declared.names])
        files.need(parts, there, f"{said}: the key", taken=[*naming, *declared.names], advice=_OWN_COLUMNS)
        files.need(declared.names, there, said)
        return list(dict.fromkeys([*naming, *parts, *declared.names]))

    arrow = _read(source, said, choose)
    found = collect_keys(arrow, keys, held, said)
    kept = arrow.select(list(declared.names)).combine_chunks()
    ids = called({column: arrow[column] for column in naming or parts}, said)
    return Table(kept, ids, declared, source=said, keys=found)


def _with_ids(source: Any, declared: Schema, id: str | None, said: str) -> Table:
    def choose(there: Sequence[str]) -> Sequence[str]:
        if id is not None:
            files.need([id], there, f"{said}: the id", taken=declared.names)
        files.need(declared.names, there, said)
        return declared.names if id is None else [id, *declared.names]

    arrow = _read(source, said, choose)
    numbers = np.arange(1, arrow.num_rows + 1)
    if id is None:
        return Table(arrow.combine_chunks(), pa.array(numbers).cast(pa.large_string()), declared, source=said)
    ids = checked_ids(arrow[id], Place(said, id, numbers))
    return Table(arrow.drop_columns([id]).combine_chunks(), ids, declared, source=said)


def _read(source: Any, said: str, choose: files.Chooser) -> pa.Table:
    arrow = files.read_columns(source, said, choose)
    if not arrow.num_rows:
        raise DataError(f"{said}: the table has no rows")
    return arrow


def _refuse_shared(declared: Schema, columns: Sequence[str], said: str, what: str) -> None:
    for column in columns:
        if column in declared.columns:
            raise SchemaError(f"{said}: the {what} column {column!r} must not be in the schema; delete its section")
