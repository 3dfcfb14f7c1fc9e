"""Makes a party's table from a file or a frame; the cells of a large file stay on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import DataError, SchemaError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.cells import Cells, InMemory, OnDisk
from colonnade.tables.encode import Misfits
from colonnade.tables.formats import TextFormat
from colonnade.tables.ids import called, checked_ids
from colonnade.tables.keys import KeyColumn, KeyPlan, collect_keys, key_columns
from colonnade.tables.parse import Place
from colonnade.tables.schema import Schema
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.opening import name_of, opened, settled
from colonnade.tables.table import Table

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
    misfits: Misfits = "refuse",
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
    public rules of :mod:`~colonnade.tables.encode` and counted in the table's report.

    ``separator``, ``encoding`` and ``decimal`` say how a CSV file is written, if not as the schema says, or else with
    commas, in UTF-8 and with decimal points.
    """
    asked = Asked.of(source, schema, id, name, keys, columns, TextFormat(separator, encoding, decimal))
    said, declared = asked.said, asked.schema
    named, cells = _read(source, said, asked.wanted, on_disk)
    if keys is not None:
        found = collect_keys(named, keys, asked.held, said, misfits)
        ids = called({column: named[column] for column in asked.calling}, said)
        return Table(cells, ids, declared, source=said, keys=found, misfits=misfits)
    numbers = range(1, named.num_rows + 1)
    if id is None:
        ids = pa.array(np.asarray(numbers)).cast(pa.large_string())
    else:
        ids = checked_ids(named[id], Place(said, id, numbers))
    return Table(cells, ids, declared, source=said, misfits=misfits, named=id is not None)


@dataclass(frozen=True)
class Wanted:
    """What to read from a source: the columns that identify a row, those of the schema, and a check of both."""

    naming: Sequence[str]
    cells: Sequence[str]
    check: Callable[[Sequence[str]], None]
    text: TextFormat

    def choose(self, there: Sequence[str]) -> Sequence[str]:
        """All columns to read, of those that are there."""
        self.check(there)
        return list(dict.fromkeys([*self.naming, *self.cells]))


@dataclass(frozen=True)
class Asked:
    """What a party's table is to be read as: how errors call it, its schema, its key's columns, and what names rows."""

    said: str
    schema: Schema
    held: Mapping[str, KeyColumn]
    calling: Sequence[str]
    wanted: Wanted

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
    ) -> Asked:
        """From what :func:`read_table` takes; nothing is read yet."""
        declared = (schema if isinstance(schema, Schema) else Schema.load(schema)).written(text)
        said = name or name_of(source)
        naming = [] if id is None else [id]
        _refuse_shared(declared, naming, said, "id")
        held = {} if keys is None else dict(key_columns(keys.keys, {}, id, said) if columns is None else columns)
        parts = [] if keys is None else list(dict.fromkeys(held[key.name].column for key in keys.keys))
        _refuse_shared(declared, parts, said, "key")

        def check(there: Sequence[str]) -> None:
            files.need(naming, there, f"{said}: the id", taken=[*parts, *declared.sources])
            files.need(parts, there, f"{said}: the key", taken=[*naming, *declared.sources], advice=_OWN_COLUMNS)
            files.need(declared.sources, there, said)

        # Without an id column any other one tells how many rows there are.
        wanted = Wanted([*naming, *parts] or declared.sources[:1], declared.sources, check, declared.text)
        return cls(said, declared, held, naming or parts, wanted)


def _read(given: Any, said: str, wanted: Wanted, on_disk: bool | None) -> tuple[pa.Table, Cells]:
    """The columns that identify a row, in memory, and the cells of the schema's columns."""
    cells: Cells
    most = {None: _LARGE, True: 0, False: None}[on_disk]
    source = settled(opened(given, said, wanted.text), said, wanted.choose, most=most)
    if on_disk is not False and not source.held and _stays(source, said, wanted, on_disk):
        source.look()
        named, cells = source.read(list(dict.fromkeys(wanted.naming))), OnDisk(source, wanted.cells)
    else:
        named = source.whole(lambda there: files.chosen(there, said, wanted.choose))
        cells = InMemory(named.select(list(wanted.cells)).combine_chunks())
    if not named.num_rows:
        raise DataError(f"{said}: the table has no rows [DA202]")
    return named, cells


def _stays(source: Source, said: str, wanted: Wanted, on_disk: bool | None) -> bool:
    """Whether rows are left where they lie; then the columns are checked, and else when they are read."""
    if not on_disk and source.size(wanted.choose) <= _LARGE:
        return False
    files.chosen(source.columns(), said, wanted.choose)
    return True


def _refuse_shared(declared: Schema, columns: Sequence[str], said: str, what: str) -> None:
    for column in columns:
        if column in declared.columns or column in declared.sources:
            raise SchemaError(
                f"{said}: the {what} column {column!r} must not be in the schema; delete its section [SC064]"
            )
