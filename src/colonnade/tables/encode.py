"""From typed columns to a bounded matrix, by public rules only.

A *misfit* is a cell that the schema has no place for: a value that its category does not list, a text where a number or
a flag is due, an infinite number, a missing cell where the schema says ``missing = "refuse"``. Reading for a party's
own eyes raises an error that names it. In a study a refusal would tell the others that such a cell exists, so there it
can be mapped instead: to what the schema says under ``missing``, or else to the middle of a number's encoded range, to
none of a category's values (to the only one, where it lists one), and to false.

A number with ``missing = "none"`` has two encoded columns: the number, which is 0 where the cell is missing, and 1
there or else 0. So it adds no more to the square of a row's norm than a number that is never missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.parse import Place
from colonnade.tables.quantities import Matrix as Matrix, Quantity
from colonnade.tables.schema import Schema

Misfits = Literal["map", "refuse"]
_GRID = 2.0**20
_TOGETHER = 1 << 16  # cells of number columns that are encoded at a time: they stay in the cache


@dataclass(frozen=True)
class Report:
    """What encoding changed in the rows; only for the party itself, because it is computed from its data."""

    rows: int = 0
    clipped: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    shortened: int = 0
    misfits: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Report) -> Report:
        clipped, missing = _summed(self.clipped, other.clipped), _summed(self.missing, other.missing)
        shortened, misfits = self.shortened + other.shortened, _summed(self.misfits, other.misfits)
        return Report(self.rows + other.rows, clipped, missing, shortened, misfits)

    @property
    def total_clipped(self) -> int:
        """Cells outside their bounds, over all columns."""
        return sum(self.clipped.values())

    def lines(self) -> list[str]:
        """The report as a list of sentences."""
        said = [_counted(self.rows, "row")]
        said += [
            f"{name}: {_counted(count, 'cell')} outside the bounds, clipped" for name, count in self.clipped.items()
        ]
        said += [f"{name}: {_counted(count, 'cell')} missing, replaced" for name, count in self.missing.items()]
        said += self.misfit_lines()
        if self.shortened:
            said.append(f"{_counted(self.shortened, 'row')} longer than the row clip, scaled down")
        return said

    def misfit_lines(self) -> list[str]:
        """A sentence for each column with cells that the schema has no place for."""
        return [f"{name}: {_counted(count, 'cell')} not in the schema, mapped" for name, count in self.misfits.items()]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def encode_columns(
    columns: Mapping[str, Any],
    schema: Schema,
    *,
    source: str = "table",
    rows: NDArray[np.int64] | None = None,
    misfits: Misfits = "refuse",
) -> tuple[Matrix, Report]:
    """Encode Arrow columns to a float64 matrix whose rows have norm at most ``schema.clip``.

    ``rows`` are the 1-based row numbers that errors name. Values out of bounds are clipped and counted;
    a misfit raises :class:`DataError`, which names its place and not its value, or is mapped and counted.
    """
    first = columns[schema.sources[0]]
    numbered = np.arange(1, len(first) + 1) if rows is None else rows
    # Filled column by column, which is several times faster when a column's cells lie side by side.
    by_column = np.zeros((schema.encoded_width, len(numbered)))
    matrix = by_column.T
    together = _encode_together(columns, schema, by_column)
    clipped: dict[str, int] = {}
    missing: dict[str, int] = {}
    unfit: dict[str, int] = {}
    for name, place in schema.places.items():
        if name in together:
            lost, cut, odd = 0, together[name], 0
        else:
            declared = schema.columns[name]
            where = place_of(source, declared.source(name), numbered, misfits, schema.text.decimal)
            lost, cut, odd = declared.encode(columns[where.column], where, matrix[:, place])
        for counts, count in ((missing, lost), (clipped, cut), (unfit, odd)):
            if count:
                counts[name] = count
    matrix = np.ascontiguousarray(matrix)
    return matrix, Report(len(numbered), clipped, missing, shorten(matrix, schema), unfit)


def place_of(source: str, column: str, rows: NDArray[np.int64], misfits: Misfits, decimal: str | None = None) -> Place:
    """Where the cells of a column come from; misfits are noted there if they are to be mapped."""
    unfit = np.zeros(len(rows), dtype=bool) if misfits == "map" else None
    return Place(source, column, rows, unfit, decimal or ".")


def shorten(matrix: Matrix, schema: Schema) -> int:
    """Scale down, in place, the rows longer than the clip; return how many there were.

    If the clip is not below ``max_norm``, no row can be longer, not even through rounding: squares of numbers in [-1,
    1] and their sums round monotonically. Otherwise rows are scaled to slightly below the clip, so that their norm
    stays below it however it is computed and rounded. Only rows on a coarse grid (flags and one-hot values, for
    example), whose norm a float holds exactly, may have the clip itself as their norm.
    """
    return 0 if schema.clip >= schema.max_norm else scale_down(matrix, schema.clip)


def scale_down(matrix: Matrix, clip: float) -> int:
    """Scale down, in place, the rows longer than ``clip``; return how many there were."""
    if not matrix.size:
        return 0
    slack = (2 * matrix.shape[1] + 16) * float(np.finfo(np.float64).eps)
    norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    near = np.flatnonzero(norms > clip * (1 - slack))
    on_grid = (np.rint(matrix[near] * _GRID) == matrix[near] * _GRID).all(axis=1)
    long = near[~on_grid | (norms[near] > clip)]
    matrix[long] *= (clip / (norms[long] * (1 + slack)))[:, None]
    return len(long)


def _encode_together(columns: Mapping[str, Any], schema: Schema, by_column: Matrix) -> dict[str, int]:
    """Encode the number columns without a missing or infinite cell, many at a time; return their clipped counts.

    With thousands of columns and few rows, encoding one column at a time would take much longer.
    """
    done: dict[str, int] = {}
    at_once = _TOGETHER // max(1, by_column.shape[1])
    if at_once < 2:
        return done
    ready = [
        (name, declared.quantity, cells)
        for name, declared in schema.columns.items()
        if declared.quantity and (cells := declared.numeric_values(columns[declared.source(name)])) is not None
    ]
    for start in range(0, len(ready), at_once):
        names, declared, cells = zip(*ready[start : start + at_once], strict=True)
        values = np.stack(cells, dtype=np.float64, casting="unsafe")
        if np.isfinite(values).all():
            outside = _encode_numbers(values, declared)
            by_column[[schema.places[name].start for name in names]] = values
            done |= dict(zip(names, outside.tolist(), strict=True))
    return done


def _encode_numbers(values: Matrix, declared: Sequence[Quantity]) -> NDArray[np.int64]:
    """Encode columns, given as the rows of ``values``, in place; return each one's number of cells out of bounds."""
    low, high = (np.array([getattr(column, end) for column in declared])[:, None] for end in ("low", "high"))
    outside: NDArray[np.int64] = ((values < low) | (values > high)).sum(axis=1)
    np.clip(values, low, high, out=values)
    whole = [column.whole for column in declared]
    if any(whole):
        values[whole] = np.rint(values[whole])
    bent = [column.transform == "log1p" for column in declared]
    if any(bent):
        values[bent] = np.log1p(values[bent])
    start, end = np.array([column.ends for column in declared]).T[:, :, None]
    np.clip((values - start) / (end - start), 0.0, 1.0, out=values)
    signed = [column.signed for column in declared]
    values[signed] = 2 * values[signed] - 1
    return outside


def _summed(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in (*left, *(n for n in right if n not in left))}


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
