"""New people as a caller passes them: a federation, a table of each party, or one encoded matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.models.federation import Federation
from colonnade.models.regression.design import split_label
from colonnade.tables import Schema, Table, read_table
from colonnade.tables.wording import listed

Matrix = NDArray[np.float64]
People = Federation | Mapping[str, Any] | NDArray[np.float64]


def summed(X: People, wanted: Sequence[str], partial: Callable[[str, Any], Matrix], what: str) -> Matrix | None:
    """The sum of the parts that these parties' tables give; ``None`` where X is an encoded matrix."""
    tables = X.tables() if isinstance(X, Federation) else X
    if not isinstance(tables, Mapping):
        return None
    if missing := [party for party in wanted if party not in tables]:
        raise DataError(f"no table of {', '.join(missing)}; {what} needs one of each party")
    parts = [partial(party, tables[party]) for party in wanted]
    if len({len(part) for part in parts}) > 1:
        raise DataError(f"the tables have different numbers of rows; {what} needs the same people in each")
    total: Matrix = np.sum(parts, axis=0)
    return total


def encoded(source: Any, names: Sequence[str]) -> Matrix:
    """The matrix of these encoded columns; columns with names, as in a data frame, are chosen by name."""
    try:
        if hasattr(source, "columns"):
            source = np.column_stack([np.asarray(source[name]) for name in _named(source, names)])
        found: Matrix = np.asarray(source, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "these are no people to predict: pass a Federation, a mapping from party to table, or an encoded matrix of "
            "numbers"
        ) from None
    if found.ndim != 2 or found.shape[1] != len(names):
        raise DataError(f"an encoded matrix has rows of {len(names)} columns; this array has shape {found.shape}")
    if not np.isfinite(found).all():
        raise DataError("an encoded matrix holds finite numbers only; this one has missing or infinite entries")
    return found


def _named(source: Any, names: Sequence[str]) -> Sequence[str]:
    """The names, if a data frame or an Arrow table has a column for each of them; otherwise an error."""
    there = set(getattr(source, "column_names", source.columns))
    if missing := [name for name in names if name not in there]:
        raise DataError(
            f"the encoded matrix has no column {listed(missing)}; its columns are named as in feature_names_in_, and "
            "tables as the parties hold them are passed in a mapping from party to table"
        )
    return names


def table_of(source: Any, schema: Schema, id: str | None = None) -> Table:
    """A table with the columns of a schema, from a table or from anything that can be read as one."""
    if not isinstance(source, Table):
        return read_table(source, schema, id=id)
    if missing := [name for name in schema.names if name not in source.schema.columns]:
        raise DataError(f"{source.source} has no column {missing[0]!r}, which the model needs")
    view = source.select(schema.names)
    if view.schema != schema:
        raise DataError(f"{source.source} was read under another schema than the model was fitted with")
    return view


def labels_of(X: People, schemas: Mapping[str, Schema], label: str | None) -> Matrix:
    """The encoded label of people, where X has a table with the label column."""
    owner, column = split_label(label, tuple(schemas))
    tables = X.tables() if isinstance(X, Federation) else X
    if not isinstance(tables, Mapping) or owner not in tables:
        raise DataError(f"the true labels are not in what was given: pass y, or a table of {owner}")
    return table_of(tables[owner], schemas[owner].select([column])).column(column)


def same_people(given: Mapping[str, Any], schemas: Mapping[str, Schema], id: str | None, what: str) -> dict[str, Table]:
    """The tables of some parties with the same people in each row, in the order of the first one.

    Rows are matched where each table names its people: by the column ``id``, or because it was read with ids.
    """
    tables = {party: table_of(given[party], schema, id) for party, schema in schemas.items()}
    first = next(iter(tables.values()))
    if any(table.rows != first.rows for table in tables.values()):
        raise DataError(f"the tables have different numbers of rows; {what} needs the same people in each")
    if id is None and not all(isinstance(given[party], Table) for party in schemas):
        return tables
    wanted = list(first.ids)
    return {party: table if list(table.ids) == wanted else table.take(wanted) for party, table in tables.items()}
