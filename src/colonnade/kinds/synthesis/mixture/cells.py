"""What a mixture's components look at in encoded rows: statistics of every column, and which cells have a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.families import INSIDE, Bernoulli, Beta, Categorical, Family, Gaussian
from colonnade.tables.columns import Column

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """Rows as the components read them; made once, taken from for every batch.

    ``statistics`` are those of the exponential families, zero where a cell is missing. ``lower`` and ``upper`` are the
    ends of the cells that Gaussian columns fall into. ``present`` has a column for each column of the table, 1 where a
    cell has a value and else 0, and is ``None`` where the schema leaves no cell without one. So what is computed, and
    how long it takes, depends on no cell. ``base`` is the part of a row's log density that no parameter changes.
    """

    statistics: Matrix
    lower: Matrix
    upper: Matrix
    base: NDArray[np.float64]
    present: Matrix | None

    def __len__(self) -> int:
        return len(self.statistics)

    def take(self, rows: NDArray[Any] | slice) -> Cells:
        """Some of the rows."""
        present = None if self.present is None else self.present[rows]
        return Cells(self.statistics[rows], self.lower[rows], self.upper[rows], self.base[rows], present)


def statistics_width(family: Family) -> int:
    """How many statistics a column has in an exponential family; none if it is described by another."""
    return 0 if isinstance(family, Gaussian) else family.width


def share(part: Matrix, column: Column) -> NDArray[np.float64]:
    """A number's place between its bounds, from 0 to 1."""
    quantity = column.quantity
    return np.clip(part[:, 0] if quantity is None else quantity.to_share(part[:, 0]), 0.0, 1.0)


def read_cells(parts: list[tuple[Matrix, Column, Family]]) -> Cells:
    """Statistics of all columns, given each one's encoded numbers."""
    count = len(parts[0][0])
    statistics = np.zeros((count, sum(statistics_width(family) for _, _, family in parts)))
    lower, upper, base, present, start = [], [], np.zeros(count), [], 0
    for part, column, family in parts:
        known = column.has_value(part)
        present.append(known)
        if isinstance(family, Gaussian):
            low, high = _gaussian_cell(share(part, column), family.cells)
            lower.append(low)
            upper.append(high)
            continue
        found = statistics[:, start : start + family.width]
        start += family.width
        _fill(found, part, column, family)
        found *= known[:, None]
        if isinstance(family, Beta):
            base -= found.sum(axis=1)
    whole = not any(column.may_lack_value for _, column, _ in parts)
    return Cells(
        statistics,
        np.column_stack(lower) if lower else np.empty((count, 0)),
        np.column_stack(upper) if upper else np.empty((count, 0)),
        base,
        None if whole else np.column_stack(present).astype(np.float64),
    )


def _fill(found: Matrix, part: Matrix, column: Column, family: Family) -> None:
    if isinstance(family, Bernoulli):
        found[:, 0] = part[:, 0] > 0.5
    elif isinstance(family, Beta):
        inside = INSIDE + (1 - 2 * INSIDE) * share(part, column)
        np.log(inside, out=found[:, 0])
        np.log1p(-inside, out=found[:, 1])
    elif isinstance(family, Categorical):
        if column.quantity:
            codes = np.minimum((share(part, column) * family.size).astype(np.int64), family.size - 1)
        else:
            codes = part.argmax(axis=1)  # the largest: rows that were scaled down keep their values
        found[np.arange(len(part)), codes] = 1.0


def _gaussian_cell(found: NDArray[np.float64], cells: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    code = np.minimum(np.floor(found * cells), cells - 1)
    return np.where(code == 0, -np.inf, code / cells), np.where(code == cells - 1, np.inf, (code + 1) / cells)
