"""From typed columns to a bounded matrix, by public rules only, and back to a table.

An *invalid value* is a cell that the schema has no place for: a value that its category does not list, a text where a
number or a flag is due, an infinite number, a missing cell where the schema says ``missing = "refuse"``. Reading for a
party's own eyes raises an error that names it. In a study a refusal would tell the others that such a cell exists, so
there it can be mapped instead: to what the schema says under ``missing``, or else to the middle of a number's encoded
range, to none of a category's values (to the only one, where it lists one), and to false.

A number with ``missing = "none"`` has two encoded columns: the number, which is 0 where the cell is missing, and 1
there or else 0. So it adds no more to the square of a row's norm than a number that is never missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import DataError
from colonnade.tables.bins import Matrix, Quantity, real_array
from colonnade.tables.cell_parsing import AS_USUAL, CellLocation, TextFormat, itemise, numeric_array, pa
from colonnade.tables.schema import Schema

if TYPE_CHECKING:
    from colonnade.randomness import Stream


def decode(schema: Schema, encoded: ArrayLike | Mapping[str, ArrayLike], *, stream: Stream | None = None) -> pa.Table:
    """An Arrow table of the schema's columns, from an encoded matrix or from one array for each column.

    A matrix has the columns of ``schema.encoded_names``; the array of a column has the same numbers for that column
    alone. Numbers become float64 within their public bounds, whole ones int64, and days of a date dates. A flag becomes
    true where its number is above 0.5. A category becomes the value with the largest number, the first of these where
    several are equal; it is null where all numbers are zero and the schema says ``missing = "none"``. A number with
    that rule is null where its second encoded number is above 0.5.

    With a ``stream``, flags and categories are drawn instead. The number of a flag is then the chance of true. The
    numbers of a category are the weights of its values, and negative ones count as zero. Where the schema says
    ``missing = "none"`` and the weights add up to less than 1, the rest is the chance of null; of a number it is the
    second encoded number.

    Three things cannot be undone: the clipping of a cell to its bounds, the stand-in for a missing cell, and the
    scaling down of a row that was longer than ``schema.clip``. ``schema.with_clip(None)`` encodes without the last.
    """
    cells = {name: _check_finite(part, name) for name, part in _split_by_column(schema, encoded).items()}
    return pa.table(
        {name: schema.columns[name].decode(part, _locate_rows(part, name), stream) for name, part in cells.items()}
    )


def _split_by_column(schema: Schema, encoded: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, Matrix]:
    if not isinstance(encoded, Mapping):
        whole = real_array(encoded)
        _check_width(whole, schema.encoded_width, "the encoded matrix")
        return {name: whole[:, place] for name, place in schema.encoded_slices.items()}
    schema.require(encoded)
    lacking = [name for name in schema.names if name not in encoded]
    if lacking:
        raise DataError(f"there are no encoded numbers for {itemise(lacking)}; give an array for each column [DA146]")
    found = {}
    for name, column in schema.columns.items():
        part = real_array(encoded[name])
        found[name] = part[:, None] if part.ndim == 1 else part
        _check_width(found[name], len(column.parts), f"column {name!r}")
    if len({len(part) for part in found.values()}) > 1:
        raise DataError("the encoded columns have different numbers of rows; give each as many as the others [DA147]")
    return found


def _check_width(found: Matrix, width: int, what: str) -> None:
    if found.ndim != 2 or found.shape[1] != width:
        raise DataError(f"{what} must have rows of {width} encoded columns, but its shape is {found.shape} [DA148]")


def _check_finite(part: Matrix, name: str) -> Matrix:
    if not np.isfinite(part).all():
        strange = np.asarray(~np.isfinite(part).all(axis=1))
        raise _locate_rows(part, name).fail(strange, "the encoded number is not finite [DA149]")
    return part


def _locate_rows(part: Matrix, name: str) -> CellLocation:
    return CellLocation("the encoded matrix", name, np.arange(1, len(part) + 1))


InvalidValues = Literal["map", "refuse"]
_GRID = 2.0**20
_TOGETHER = 1 << 16  # cells of number columns that are encoded at a time: they stay in the cache


@dataclass(frozen=True)
class EncodingReport:
    """What encoding changed in the rows; only for the party itself, because it is computed from its data."""

    rows: int = 0
    clipped: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    shortened: int = 0
    misfits: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: EncodingReport) -> EncodingReport:
        clipped, missing, misfits = (
            dict(Counter(getattr(self, name)) + Counter(getattr(other, name)))
            for name in ("clipped", "missing", "misfits")
        )
        return EncodingReport(self.rows + other.rows, clipped, missing, self.shortened + other.shortened, misfits)

    @property
    def total_clipped(self) -> int:
        """Cells outside their bounds, over all columns."""
        return sum(self.clipped.values())

    def lines(self) -> list[str]:
        """The report as a list of sentences."""
        said = [_count_text(self.rows, "row")]
        said += [
            f"{name}: {_count_text(count, 'cell')} outside the bounds, clipped" for name, count in self.clipped.items()
        ]
        said += [f"{name}: {_count_text(count, 'cell')} missing, replaced" for name, count in self.missing.items()]
        said += self.misfit_lines()
        if self.shortened:
            said.append(f"{_count_text(self.shortened, 'row')} longer than the row clip, scaled down")
        return said

    def misfit_lines(self) -> list[str]:
        """A sentence for each column with cells that the schema has no place for."""
        return [
            f"{name}: {_count_text(count, 'cell')} not in the schema, mapped" for name, count in self.misfits.items()
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def encode_columns(
    columns: Mapping[str, Any],
    schema: Schema,
    *,
    source: str = "table",
    rows: NDArray[np.int64] | None = None,
    misfits: InvalidValues = "refuse",
) -> tuple[Matrix, EncodingReport]:
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
    for name, place in schema.encoded_slices.items():
        if name in together:
            lost, cut, odd = 0, together[name], 0
        else:
            declared = schema.columns[name]
            where = locate_cells(source, declared.source(name), numbered, misfits, schema.text)
            lost, cut, odd = declared.encode(columns[where.column], where, matrix[:, place])
        for counts, count in ((missing, lost), (clipped, cut), (unfit, odd)):
            if count:
                counts[name] = count
    matrix = np.ascontiguousarray(matrix)
    return matrix, EncodingReport(len(numbered), clipped, missing, clip_rows(matrix, schema), unfit)


def locate_cells(
    source: str, column: str, rows: NDArray[np.int64], misfits: InvalidValues, text: TextFormat = AS_USUAL
) -> CellLocation:
    """Where the cells of a column come from; misfits are noted there if they are to be mapped."""
    unfit = np.zeros(len(rows), dtype=bool) if misfits == "map" else None
    return CellLocation(source, column, rows, unfit, text)


def clip_rows(matrix: Matrix, schema: Schema) -> int:
    """Scale down, in place, the rows longer than the clip; return how many there were.

    If the clip is not below ``max_norm``, no row can be longer, not even through rounding: squares of numbers in [-1,
    1] and their sums round monotonically. Otherwise rows are scaled to slightly below the clip, so that their norm
    stays below it however it is computed and rounded. Only rows on a coarse grid (flags and one-hot values, for
    example), whose norm a float holds exactly, may have the clip itself as their norm.
    """
    return 0 if schema.clip >= schema.max_norm else scale_rows_down(matrix, schema.clip)


def scale_rows_down(matrix: Matrix, clip: float) -> int:
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
        if declared.reads_numbers
        and declared.quantity
        and (cells := numeric_array(columns[declared.source(name)])) is not None
    ]
    for start in range(0, len(ready), at_once):
        names, declared, cells = zip(*ready[start : start + at_once], strict=True)
        values = np.stack(cells, dtype=np.float64, casting="unsafe")
        if np.isfinite(values).all():
            outside = _encode_numbers(values, declared)
            by_column[[schema.encoded_slices[name].start for name in names]] = values
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


def _count_text(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
