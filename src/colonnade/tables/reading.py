"""Makes a party's table from a file or a frame; the cells of a large file stay on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import DataError, SchemaError
from colonnade.tables import files
from colonnade.tables.cell_parsing import CellLocation, pa
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.ids import check_ids, name_rows
from colonnade.tables.keys import KeyColumn, KeyPlan, collect_keys, key_columns
from colonnade.tables.schema import Schema
from colonnade.tables.sources.factory import make_rereadable, open_source, source_name
from colonnade.tables.table import CellStore, InMemoryCells, OnDiskCells, Table
from colonnade.tables.text_format import TextFormat

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

    A cell that the schema has no place for is an error when it is read; with ``misfits="map"`` it is encoded by the
    public rules of :mod:`~colonnade.tables.encoding` and counted in the table's report.

    ``separator``, ``encoding`` and ``decimal`` say how a CSV file is written, if not as the schema says, or else with
    commas, in UTF-8 and with decimal points.
    """
    asked = TableRequest.of(source, schema, id, name, keys, columns, TextFormat(separator, encoding, decimal), misfits)
    named, cells = _read_request(source, asked, on_disk)
    said, declared = asked.source_name, asked.schema
    if keys is not None:
        found = collect_keys(named, keys, asked.key_columns, said, misfits)
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
    ) -> TableRequest:
        """From what :func:`read_table` takes; nothing is read yet."""
        declared = (schema if isinstance(schema, Schema) else Schema.load(schema)).with_text_format(text)
        said = name or source_name(source)
        _refuse_shared(declared, [] if id is None else [id], said, "id")
        held = {} if keys is None else dict(key_columns(keys.keys, {}, id, said) if columns is None else columns)
        found = cls(said, declared, id, keys, held, misfits)
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
        return list(dict.fromkeys([*self.naming_columns, *self.key_parts])) or list(self.schema.sources[:1])

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
    source = make_rereadable(open_source(given, said, asked.schema.text), said, asked.choose, most=most)
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
