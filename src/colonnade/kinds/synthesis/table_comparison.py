"""A synthetic table beside the real one: codes that both share, and how far marginals and associations are apart.

For whoever may look at the real table: the bins of numbers are its quantiles. Nothing here belongs into a study.
A distance of marginals is the total variation: the share of people who would have to change their values. Two samples
of the same people differ too, so the distance of people held out from the real table is the measure of small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables.cell_parsing import itemise, pa, pc

Codes = NDArray[np.int64]
Matrix = NDArray[np.float64]

MAX_QUANTILE_BINS = 20
"""Bins of a number column at most."""
MIN_ROWS = 10


@dataclass(frozen=True)
class ComparedTable:
    """One table: ``codes`` (rows, columns), and ``values``, where numbers are themselves (missing: NaN)."""

    codes: Codes
    values: Matrix

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.int64]) -> ComparedTable:
        """Some of the rows."""
        return ComparedTable(self.codes[rows], self.values[rows])


@dataclass(frozen=True)
class CommonColumns:
    """What the columns of several tables have in common."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    sizes: tuple[int, ...]
    labels: tuple[tuple[str, ...], ...]
    """A text for each code of each column."""

    def index_of(self, name: str) -> int:
        """Which column has this name."""
        if name not in self.names:
            raise DataError(f"the tables have no column {name!r}; their columns are {itemise(self.names, 20)} [DA091]")
        return self.names.index(name)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The places of number columns."""
        return tuple(place for place, numeric in enumerate(self.numeric) if numeric)


def make_comparable(
    real: Any, *others: Any, edges: Mapping[str, Sequence[float]] | None = None
) -> tuple[CommonColumns, tuple[ComparedTable, ...]]:
    """The columns of some tables, which must be the same, and each table by them, the real one first.

    Tables are those of Arrow, or data frames. Columns that only others have are left out. ``edges`` gives the bins of
    some number columns; others are cut at quantiles of the real table. Missing cells have a code of their own.
    """
    tables = [_to_arrow(each) for each in (real, *others)]
    names = tables[0].column_names
    for table in tables[1:]:
        lacking = [name for name in names if name not in table.column_names]
        if lacking:
            raise DataError(
                f"a table that is compared lacks {itemise(lacking, 5)}; give tables of the same columns [DA092]"
            )
    if any(table.num_rows < MIN_ROWS for table in tables):
        raise DataError(f"a comparison needs tables of at least {MIN_ROWS} rows [DA093]")
    found = [_code_column(name, [table[name] for table in tables], (edges or {}).get(name)) for name in names]
    common = CommonColumns(
        tuple(names),
        tuple(numeric for numeric, _, _ in found),
        tuple(len(labels) for _, labels, _ in found),
        tuple(labels for _, labels, _ in found),
    )
    sides = [
        ComparedTable(
            np.column_stack([cells[place][0] for _, _, cells in found]),
            np.column_stack([cells[place][1] for _, _, cells in found]),
        )
        for place in range(len(tables))
    ]
    return common, tuple(sides)


def _to_arrow(table: Any) -> Any:
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
    return pa.table([_dates_as_days(column) for column in found.columns], names=found.column_names)


def _dates_as_days(column: Any) -> Any:
    """Dates as days, so that they are compared as numbers are."""
    return column.cast(pa.date32()).cast(pa.int32()) if pa.types.is_date(column.type) else column


_CodedCells = list[tuple[Codes, NDArray[np.float64]]]


def _code_column(
    name: str, columns: list[Any], edges: Sequence[float] | None
) -> tuple[bool, tuple[str, ...], _CodedCells]:
    """Whether one column is a number, the texts of its codes, and its codes and values in every table."""
    numeric = [pa.types.is_integer(column.type) or pa.types.is_floating(column.type) for column in columns]
    if all(numeric):
        return (True, *_code_numbers([_floats(column) for column in columns], edges))
    if any(numeric):
        raise DataError(f"column {name!r} is a number in one table and not in another; give both the same type [DA096]")
    return (False, *_code_categories([_texts(name, column) for column in columns]))


def _floats(column: Any) -> NDArray[np.float64]:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)


def _texts(name: str, column: Any) -> NDArray[Any]:
    try:
        return np.asarray(pc.cast(column, pa.string()).to_numpy(zero_copy_only=False), dtype=object)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"column {name!r} has cells that are neither numbers nor texts; leave it out [DA097]") from None


def _code_numbers(
    cells: list[NDArray[np.float64]], edges: Sequence[float] | None
) -> tuple[tuple[str, ...], _CodedCells]:
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
    if len(different) <= MAX_QUANTILE_BINS:
        return np.asarray(different[1:])
    common = counts * MAX_QUANTILE_BINS >= counts.sum()
    others = np.repeat(different[~common], counts[~common])
    cuts = np.quantile(others, np.linspace(0, 1, MAX_QUANTILE_BINS + 1 - int(common.sum()))[1:-1], method="higher")
    shared = np.flatnonzero(common)
    edges = [cuts, different[shared], different[np.minimum(shared + 1, len(different) - 1)]]
    found = np.unique(np.concatenate(edges))
    return np.asarray(found[found > different[0]])


def _code_categories(cells: list[NDArray[Any]]) -> tuple[tuple[str, ...], _CodedCells]:
    values = sorted({cell for each in cells for cell in set(each.tolist()) if cell is not None})
    code = {value: place for place, value in enumerate(values)}
    missing = any(None in set(each.tolist()) for each in cells)
    found = []
    for each in cells:
        codes = np.array([len(values) if cell is None else code[cell] for cell in each.tolist()], dtype=np.int64)
        found.append((codes, codes.astype(np.float64)))
    return (*map(str, values), *(["missing"] if missing else [])), found


MAX_SETS = 3000
"""Sets of columns that are compared at most; of more, a fixed sample."""
MAX_CELLS = 1 << 22


@dataclass(frozen=True)
class MarginalDistance:
    """Total variation over sets of ``order`` columns: its mean, and the set where it is largest."""

    order: int
    with_label: bool
    sets: int
    mean: float
    worst: float
    worst_set: tuple[str, ...]
    held_out: float | None = None
    """The mean distance of people held out, where there are any."""


@dataclass(frozen=True)
class AssociationMatrices:
    """Matrices of how strongly columns go together: correlation of two numbers, else Cramer's V."""

    names: tuple[str, ...]
    real: Matrix
    synthetic: Matrix

    @property
    def difference(self) -> Matrix:
        """Synthetic minus real."""
        return self.synthetic - self.real

    @property
    def mean_difference(self) -> float:
        """The mean absolute difference over pairs."""
        return float(np.abs(self.difference[_pair_indices(len(self.names))]).mean()) if len(self.names) > 1 else 0.0

    @property
    def worst_difference(self) -> float:
        """The largest absolute difference over pairs."""
        return float(np.abs(self.difference[_pair_indices(len(self.names))]).max()) if len(self.names) > 1 else 0.0


def column_sets(columns: int, order: int, label: int | None = None) -> list[tuple[int, ...]]:
    """All sets of that many columns, or all that hold the label; of too many, a sample that is always the same."""
    extra = () if label is None else (label,)
    others = [column for column in range(columns) if column != label]
    size = order - len(extra)
    count = math.comb(len(others), size)
    if count <= MAX_SETS:
        return [tuple(sorted((*chosen, *extra))) for chosen in combinations(others, size)]
    draw = np.random.default_rng(0)  # which sets are looked at, not a source of privacy
    found: set[tuple[int, ...]] = set()
    while len(found) < MAX_SETS:
        chosen = draw.choice(others, size, replace=False).tolist()
        found.add(tuple(sorted((*chosen, *extra))))
    return sorted(found)


def cell_shares(codes: Codes, columns: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float64]:
    """The share of people in each cell of a marginal."""
    cells = math.prod(sizes[column] for column in columns)
    if cells > MAX_CELLS:
        raise DataError("a marginal that is compared has too many cells; leave out columns of many values [DA098]")
    place = np.zeros(len(codes), dtype=np.int64)
    for column in columns:
        place = place * sizes[column] + codes[:, column]
    return np.bincount(place, minlength=cells) / len(codes)


def total_variation(real: Codes, synthetic: Codes, columns: Sequence[int], sizes: Sequence[int]) -> float:
    """Half the sum of absolute differences of the shares of people."""
    return 0.5 * float(np.abs(cell_shares(real, columns, sizes) - cell_shares(synthetic, columns, sizes)).sum())


def measure_distance(
    common: CommonColumns,
    real: ComparedTable,
    synthetic: ComparedTable,
    order: int,
    *,
    label: int | None = None,
    held_out: ComparedTable | None = None,
) -> MarginalDistance:
    """Distances of all marginals of that many columns, or of those with the label."""
    chosen = [
        columns
        for columns in column_sets(len(common.names), order, label)
        if math.prod(common.sizes[column] for column in columns) <= MAX_CELLS
    ]
    if not chosen:
        raise DataError(f"no marginal of {order} columns can be compared; give fewer values or more columns [DA099]")
    found = [total_variation(real.codes, synthetic.codes, columns, common.sizes) for columns in chosen]
    worst = int(np.argmax(found))
    aside = None
    if held_out is not None:
        aside = float(np.mean([total_variation(real.codes, held_out.codes, each, common.sizes) for each in chosen]))
    return MarginalDistance(
        order,
        label is not None,
        len(chosen),
        float(np.mean(found)),
        found[worst],
        tuple(common.names[column] for column in chosen[worst]),
        aside,
    )


def measure_associations(common: CommonColumns, real: ComparedTable, synthetic: ComparedTable) -> AssociationMatrices:
    """How strongly every two columns go together, in both tables."""
    return AssociationMatrices(common.names, _association_matrix(common, real), _association_matrix(common, synthetic))


def _association_matrix(common: CommonColumns, side: ComparedTable) -> Matrix:
    found = np.eye(len(common.names))
    for first, second in combinations(range(len(common.names)), 2):
        if common.numeric[first] and common.numeric[second]:
            strength = _correlation(side.values[:, first], side.values[:, second])
        else:
            strength = cramers_v(side.codes[:, [first, second]], (common.sizes[first], common.sizes[second]))
        found[first, second] = found[second, first] = strength
    return found


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 2:
        return 0.0
    x, y = first[both] - first[both].mean(), second[both] - second[both].mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else 0.0


def cramers_v(codes: Codes, sizes: tuple[int, int]) -> float:
    """Cramer's V of two columns of codes, with the bias of independent columns removed (Bergsma 2013)."""
    counts = cell_shares(codes, (0, 1), sizes).reshape(sizes) * len(codes)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    (rows, columns), people = counts.shape, len(codes)
    if min(rows, columns) < 2 or people < 3:
        return 0.0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / people
    phi = float(((counts - expected) ** 2 / expected).sum()) / people
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (people - 1))
    least = min(rows - (rows - 1) ** 2 / (people - 1), columns - (columns - 1) ** 2 / (people - 1)) - 1
    return min(1.0, math.sqrt(phi / least)) if least > 0 else 0.0


def _pair_indices(columns: int) -> Any:
    return np.triu_indices(columns, 1)
