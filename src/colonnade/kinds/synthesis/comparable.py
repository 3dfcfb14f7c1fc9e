"""Tables of equal columns made comparable: every cell as a code that all tables share, and as a number.

For whoever may look at the real table: the bins of numbers are its quantiles. Nothing here belongs into a study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables.cell_parsing import pa, pc
from colonnade.tables.wording import itemise

Codes = NDArray[np.int64]
Matrix = NDArray[np.float64]

BINS = 20
"""Bins of a number column at most."""
FEWEST_ROWS = 10


@dataclass(frozen=True)
class Side:
    """One table: ``codes`` (rows, columns), and ``values``, where numbers are themselves (missing: NaN)."""

    codes: Codes
    values: Matrix

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.int64]) -> Side:
        """Some of the rows."""
        return Side(self.codes[rows], self.values[rows])


@dataclass(frozen=True)
class Comparable:
    """What the columns of several tables have in common."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    sizes: tuple[int, ...]
    labels: tuple[tuple[str, ...], ...]
    """A text for each code of each column."""

    def place(self, name: str) -> int:
        """Which column has this name."""
        if name not in self.names:
            raise DataError(f"the tables have no column {name!r}; their columns are {itemise(self.names, 20)} [DA091]")
        return self.names.index(name)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The places of number columns."""
        return tuple(place for place, numeric in enumerate(self.numeric) if numeric)


def comparable(
    real: Any, *others: Any, edges: Mapping[str, Sequence[float]] | None = None
) -> tuple[Comparable, tuple[Side, ...]]:
    """The columns of some tables, which must be the same, and each table by them, the real one first.

    Tables are those of Arrow, or data frames. Columns that only others have are left out. ``edges`` gives the bins of
    some number columns; others are cut at quantiles of the real table. Missing cells have a code of their own.
    """
    tables = [_arrow(each) for each in (real, *others)]
    names = tables[0].column_names
    for table in tables[1:]:
        lacking = [name for name in names if name not in table.column_names]
        if lacking:
            raise DataError(
                f"a table that is compared lacks {itemise(lacking, 5)}; give tables of the same columns [DA092]"
            )
    if any(table.num_rows < FEWEST_ROWS for table in tables):
        raise DataError(f"a comparison needs tables of at least {FEWEST_ROWS} rows [DA093]")
    found = [_column(name, [table[name] for table in tables], (edges or {}).get(name)) for name in names]
    common = Comparable(
        tuple(names),
        tuple(numeric for numeric, _, _ in found),
        tuple(len(labels) for _, labels, _ in found),
        tuple(labels for _, labels, _ in found),
    )
    sides = [
        Side(
            np.column_stack([cells[place][0] for _, _, cells in found]),
            np.column_stack([cells[place][1] for _, _, cells in found]),
        )
        for place in range(len(tables))
    ]
    return common, tuple(sides)


def _arrow(table: Any) -> Any:
    if isinstance(table, pa.Table):
        found = table
    elif hasattr(table, "to_arrow"):
        found = table.to_arrow()
    elif hasattr(table, "iloc"):
        found = pa.Table.from_pandas(table, preserve_index=False)
    else:
        raise DataError("a table to compare is an Arrow table or a data frame [DA094]")
    if not found.num_columns or len(set(found.column_names)) < found.num_columns:
        raise DataError("a table to compare needs columns, each with a name of its own [DA095]")
    return pa.table([_dateless(column) for column in found.columns], names=found.column_names)


def _dateless(column: Any) -> Any:
    """Dates as days, so that they are compared as numbers are."""
    return column.cast(pa.date32()).cast(pa.int32()) if pa.types.is_date(column.type) else column


_Cells = list[tuple[Codes, NDArray[np.float64]]]


def _column(name: str, columns: list[Any], edges: Sequence[float] | None) -> tuple[bool, tuple[str, ...], _Cells]:
    """Whether one column is a number, the texts of its codes, and its codes and values in every table."""
    numeric = [pa.types.is_integer(column.type) or pa.types.is_floating(column.type) for column in columns]
    if all(numeric):
        return (True, *_numbers([_floats(column) for column in columns], edges))
    if any(numeric):
        raise DataError(f"column {name!r} is a number in one table and not in another; give both the same type [DA096]")
    return (False, *_categories([_texts(name, column) for column in columns]))


def _floats(column: Any) -> NDArray[np.float64]:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)


def _texts(name: str, column: Any) -> NDArray[Any]:
    try:
        return np.asarray(pc.cast(column, pa.string()).to_numpy(zero_copy_only=False), dtype=object)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"column {name!r} has cells that are neither numbers nor texts; leave it out [DA097]") from None


def _numbers(cells: list[NDArray[np.float64]], edges: Sequence[float] | None) -> tuple[tuple[str, ...], _Cells]:
    inner = _quantiles(cells[0]) if edges is None else np.asarray(edges, dtype=np.float64)[1:-1]
    bounds = [-np.inf, *inner, np.inf]
    labels = [f"{low:g} to {high:g}" for low, high in pairwise(bounds)]
    missing = any(np.isnan(values).any() for values in cells)
    found = []
    for values in cells:
        codes = np.searchsorted(inner, values, side="right")
        found.append((np.where(np.isnan(values), len(labels), codes).astype(np.int64), values))
    return (*labels, *(["missing"] if missing else [])), found


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cuts with about as many cells between them; few values, and those that many people share, have a bin each."""
    different, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(different) <= BINS:
        return np.asarray(different[1:])
    common = counts * BINS >= counts.sum()
    others = np.repeat(different[~common], counts[~common])
    cuts = np.quantile(others, np.linspace(0, 1, BINS + 1 - int(common.sum()))[1:-1], method="higher")
    shared = np.flatnonzero(common)
    edges = [cuts, different[shared], different[np.minimum(shared + 1, len(different) - 1)]]
    found = np.unique(np.concatenate(edges))
    return np.asarray(found[found > different[0]])


def _categories(cells: list[NDArray[Any]]) -> tuple[tuple[str, ...], _Cells]:
    values = sorted({cell for each in cells for cell in set(each.tolist()) if cell is not None})
    code = {value: place for place, value in enumerate(values)}
    missing = any(None in set(each.tolist()) for each in cells)
    found = []
    for each in cells:
        codes = np.array([len(values) if cell is None else code[cell] for cell in each.tolist()], dtype=np.int64)
        found.append((codes, codes.astype(np.float64)))
    return (*map(str, values), *(["missing"] if missing else [])), found
