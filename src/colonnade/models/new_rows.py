"""New people as a caller passes them: tables as the parties hold them, or one matrix that is encoded already.

Tables are raw: they are encoded by the model's schemas, and their rows are matched by ids. A matrix of encoded columns
is taken for one only where the caller says so, because the two cannot be told apart by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, without_code
from colonnade.tables import Schema, Table
from colonnade.tables.bins import real_array
from colonnade.tables.cell_parsing import itemise, pa
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.files import LACKS_ID

Matrix = NDArray[np.float64]
People = Any
"""A federation, a mapping from party to table, one table with all parties' columns, or an encoded matrix."""


class ReadingOptions(TypedDict, total=False):
    """How people are given to a model: by what their rows are matched, or that they are an encoded matrix."""

    id: str | Mapping[str, str] | None
    same_order: bool
    common: bool
    encoded: bool


class MatchedPeople(dict[str, Table]):
    """Tables of several parties in which the same row is the same person."""

    left_out: Mapping[str, int] = MappingProxyType({})
    """How many rows of a party are of people whom not all tables hold, where those were asked for whom all hold."""

    @property
    def ids(self) -> list[str] | None:
        """Who the rows are, as the first party calls them; ``None`` where nobody said."""
        first = next(iter(self.values()))
        return list(first.own_ids) if first.named else None


def gather_people(
    X: People,
    wanted: Mapping[str, Schema],
    schemas: Mapping[str, Schema],
    what: str,
    *,
    id: str | Mapping[str, str] | None = None,
    same_order: bool = False,
    common: bool = False,
    encoded: bool = False,
    misfits: InvalidValues = "refuse",
) -> MatchedPeople:
    """The tables of the wanted columns, with the same people in each row; ``what`` needs them, in words."""
    from colonnade.models.federation import Federation

    if encoded:
        raise DataError(f"encoded=True is for one matrix of encoded columns, and {what} takes tables here [DA060]")
    if not isinstance(X, Mapping | Federation):
        return _from_one(X, wanted, schemas, id, misfits)
    tables = X.tables() if isinstance(X, Federation) else X
    if missing := [party for party in wanted if party not in tables]:
        raise DataError(f"no table of {', '.join(missing)}; {what} needs one of each party [DA061]")
    if isinstance(X, Federation | MatchedPeople):
        return MatchedPeople({party: table_of(tables[party], schema) for party, schema in wanted.items()})
    return match_people(tables, wanted, id, what, same_order=same_order, common=common, misfits=misfits)


def match_people(
    given: Mapping[str, Any],
    schemas: Mapping[str, Schema],
    id: str | Mapping[str, str] | None,
    what: str,
    *,
    same_order: bool = False,
    common: bool = False,
    misfits: InvalidValues = "refuse",
) -> MatchedPeople:
    """The tables of some parties with the same people in each row, in the order of the first one that was given.

    Rows are matched where each table names its people: by the column ``id``, or because it was read with ids. Tables
    that do not are refused, unless the caller says that they are in the same order. So are tables of other people,
    unless ``common`` asks for those whom all tables hold.
    """
    column = id if isinstance(id, Mapping) else dict.fromkeys(schemas, id)
    there = [party for party in given if party in schemas]
    tables = MatchedPeople(
        {party: table_of(given[party], schemas[party], column.get(party), party, misfits) for party in there}
    )
    first, *others = tables
    if not others:
        return tables
    if same_order and id is None:
        if len({table.rows for table in tables.values()}) > 1:
            raise DataError(f"the tables have different numbers of rows; {what} needs the same people in each [DA062]")
        return tables
    if nameless := [party for party, table in tables.items() if not table.named]:
        raise DataError(
            f"nothing says who the rows of {itemise(nameless)} are: name the column of ids with id=, or say "
            "same_order=True if the same row is the same person in every table [DA063]"
        )
    if common:
        return _whom_all_hold(tables)
    for party in others:
        tables[party] = _matched(tables, first, party)
    return tables


def _whom_all_hold(tables: MatchedPeople) -> MatchedPeople:
    """The rows of the people whom every table holds."""
    first, *others = tables.values()
    everywhere = set(first.ids).intersection(*(table.ids for table in others))
    wanted = [each for each in first.ids if each in everywhere]
    if not wanted:
        raise DataError(f"{itemise(tables)} have nobody in common: no id is in each of their tables [DA064]")
    found = MatchedPeople({party: table.take(wanted) for party, table in tables.items()})
    found.left_out = {party: table.rows - len(wanted) for party, table in tables.items()}
    return found


def _matched(tables: Mapping[str, Table], first: str, party: str) -> Table:
    """A party's table in the order of the first one; an error unless both hold the same people."""
    one, other = tables[first], tables[party]
    wanted = list(one.ids)
    if other.ids == wanted:
        return other
    common = len(set(wanted) & set(other.ids))
    if common < one.rows or common < other.rows:
        raise DataError(
            f"{first} and {party} do not hold the same people: of {one.rows:,} and {other.rows:,} rows {common:,} have "
            "the same ids, so give tables of the same people, or say common=True to take those whom all hold [DA065]"
        )
    return other.take(wanted)


def _from_one(
    X: Any,
    wanted: Mapping[str, Schema],
    schemas: Mapping[str, Schema],
    id: str | Mapping[str, str] | None,
    misfits: InvalidValues,
) -> MatchedPeople:
    """The parties' tables out of one table that has all their columns."""
    from colonnade.tables import read_table
    from colonnade.tables.sources.factory import read_columns

    if not hasattr(X, "columns") and not isinstance(X, pa.RecordBatch):
        raise DataError(
            f"nothing says what the columns of this {type(X).__name__} are: pass tables as the parties hold them (a "
            "Federation, a mapping from party to table, or one data frame), or say encoded=True if it is an encoded "
            "matrix with the columns of feature_names_in_ [DA066]"
        )
    if isinstance(id, Mapping):
        raise DataError("one table has one column of ids, so name it by id= as a text [DA067]")
    naming = [] if id is None else [id]
    sources: dict[str, dict[str, str]] = {}

    def choose(there: Sequence[str]) -> Sequence[str]:
        sources.update(_sources(set(there), wanted, schemas))
        return [*naming, *dict.fromkeys(source for columns in sources.values() for source in columns.values())]

    read = read_columns(X, "the table", choose)
    found = MatchedPeople()
    for party, columns in sources.items():
        cells = pa.table({name: read[source] for name, source in [*((n, n) for n in naming), *columns.items()]})
        found[party] = read_table(cells, wanted[party], id=id, name=f"the columns of {party}", misfits=misfits)
    return found


def _sources(there: set[str], wanted: Mapping[str, Schema], schemas: Mapping[str, Schema]) -> dict[str, dict[str, str]]:
    """Under which name one table has each wanted column: ``party.column``, or the column if only one party has it."""
    taken: dict[str, str] = {}
    lacking: list[str] = []
    found: dict[str, dict[str, str]] = {party: {} for party in wanted}
    for party, schema in wanted.items():
        for name in schema.sources:
            full = f"{party}.{name}"
            source = full if full in there else name
            if source not in there:
                lacking.append(full)
                continue
            holders = [full] if source == full else [f"{p}.{name}" for p, s in schemas.items() if name in s.sources]
            if len(holders) > 1 or source in taken:
                several = holders if len(holders) > 1 else [taken[source], full]
                raise DataError(
                    f"the column {source!r} could be {' or '.join(several)}: pass a table of each party [DA068]"
                )
            taken[source], found[party][name] = full, source
    if lacking:
        encoded = {f"{party}.{name}" for party, schema in wanted.items() for name in schema.encoded_names}
        hint = "; if these are encoded columns, say encoded=True" if encoded <= there else ""
        raise DataError(
            f"the table has no column {itemise(lacking)}; in one table of all parties a column is named party.column, "
            f"or as its party names it if no other party has one of that name{hint} [DA069]"
        )
    return found


def encoded_matrix(source: Any, names: Sequence[str]) -> Matrix:
    """The matrix of these encoded columns; columns with names, as in a data frame, are chosen by name."""
    from colonnade.models.federation import Federation

    if isinstance(source, Federation | Mapping):
        raise DataError(
            "encoded=True is for one matrix of encoded columns; tables are encoded by the model itself [DA070]"
        )
    try:
        if hasattr(source, "columns"):
            there = set(getattr(source, "column_names", source.columns))
            if missing := [name for name in names if name not in there]:
                raise DataError(
                    f"the encoded matrix has no column {itemise(missing)}; its columns are named as in "
                    "feature_names_in_, and tables as the parties hold them are passed without encoded=True [DA074]"
                )
            source = np.column_stack([np.asarray(source[name]) for name in names])
        found: Matrix = real_array(source)
    except (TypeError, ValueError):
        raise DataError("with encoded=True people are one matrix of numbers, and this is none [DA071]") from None
    if found.ndim != 2 or found.shape[1] != len(names):
        raise DataError(
            f"an encoded matrix has rows of {len(names)} columns; this array has shape {found.shape} [DA072]"
        )
    if not np.isfinite(found).all():
        raise DataError("an encoded matrix holds finite numbers only; this one has missing or infinite entries [DA073]")
    return found


def table_of(
    source: Any, schema: Schema, id: str | None = None, party: str | None = None, misfits: InvalidValues = "refuse"
) -> Table:
    """A table with the columns of a schema, from a table or from anything that can be read as one."""
    if not isinstance(source, Table):
        from colonnade.tables import read_table

        try:
            name = None if isinstance(source, str | Path) else party
            return read_table(source, schema, id=id, name=name, misfits=misfits)
        except DataError as error:
            if party is None or LACKS_ID not in (said := str(error)):
                raise
            mark = "" if without_code(said).endswith("?") else ";"
            raise DataError(f"{said}{mark} name the one that holds ids with id={{{party!r}: COLUMN}} [DA075]") from None
    if missing := [name for name in schema.names if name not in source.schema.columns]:
        raise DataError(f"{source.source} has no column {missing[0]!r}, which the model needs [DA076]")
    view = source.select(schema.names)
    if view.schema != schema:
        raise DataError(f"{source.source} was read under another schema than the model was fitted with [DA077]")
    return view


def labels_of(X: People, schemas: Mapping[str, Schema], label: str | None) -> Matrix:
    """The encoded label of people, where X has a table with the label column."""
    from colonnade.models.design import split_label
    from colonnade.models.federation import Federation

    owner, column = split_label(label, tuple(schemas))
    if isinstance(X, Mapping | Federation) and owner not in (X.parties if isinstance(X, Federation) else X):
        raise DataError(f"the true labels are not in what was given: pass y, or a table of {owner} [DA078]")
    wanted = {owner: schemas[owner].select([column])}
    return gather_people(X, wanted, schemas, "a comparison")[owner].column(column)
