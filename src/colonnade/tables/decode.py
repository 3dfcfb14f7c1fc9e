"""From encoded numbers back to a table of the schema's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.columns import NOWHERE, Category, Column, Number
from colonnade.tables.dates import Days
from colonnade.tables.encode import Matrix
from colonnade.tables.parse import Place
from colonnade.tables.schema import Schema
from colonnade.tables.wording import listed

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
    cells = {name: _finite(part, name) for name, part in _by_column(schema, encoded).items()}
    return pa.table({name: _decoded(part, schema.columns[name], name, stream) for name, part in cells.items()})


def decode_number(encoded: Matrix, declared: Number) -> Matrix:
    """Encoded values of a number column back in its units; values beyond the encoded range lie beyond the bounds."""
    start, end = declared.ends
    share = (encoded + 1) / 2 if declared.scale == "signed" else encoded
    between = start + share * (end - start)
    return np.expm1(between) if declared.transform == "log1p" else between


def _by_column(schema: Schema, encoded: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, Matrix]:
    if not isinstance(encoded, Mapping):
        whole = np.asarray(encoded, dtype=np.float64)
        _check_width(whole, schema.encoded_width, "the encoded matrix")
        return {name: whole[:, place] for name, place in schema.places.items()}
    schema.require(encoded)
    lacking = [name for name in schema.names if name not in encoded]
    if lacking:
        raise DataError(f"there are no encoded numbers for {listed(lacking)}; give an array for each column [DA146]")
    found = {}
    for name, column in schema.columns.items():
        part = np.asarray(encoded[name], dtype=np.float64)
        found[name] = part[:, None] if part.ndim == 1 else part
        _check_width(found[name], len(column.parts), f"column {name!r}")
    if len({len(part) for part in found.values()}) > 1:
        raise DataError("the encoded columns have different numbers of rows; give each as many as the others [DA147]")
    return found


def _check_width(found: Matrix, width: int, what: str) -> None:
    if found.ndim != 2 or found.shape[1] != width:
        raise DataError(f"{what} must have rows of {width} encoded columns, but its shape is {found.shape} [DA148]")


def _finite(part: Matrix, name: str) -> Matrix:
    if not np.isfinite(part).all():
        strange = np.asarray(~np.isfinite(part).all(axis=1))
        raise _place(part, name).fail(strange, "the encoded number is not finite [DA149]")
    return part


def _decoded(part: Matrix, declared: Column, name: str, stream: Stream | None) -> Any:
    if isinstance(declared, Number):
        lowest = -1.0 if declared.scale == "signed" else 0.0
        values = decode_number(np.clip(part[:, 0], lowest, 1.0), declared)
        missing = part[:, 1] > _threshold(part, stream) if declared.missing == NOWHERE else None
        return number_cells(np.clip(values, declared.low, declared.high, out=values), declared, missing)
    if isinstance(declared, Category):
        nowhere = declared.missing == NOWHERE
        codes = largest(part, nowhere) if stream is None else _drawn(part, nowhere, name, stream)
        return category_cells(codes, declared)
    return pa.array(part[:, 0] > _threshold(part, stream))


def number_cells(values: Matrix, declared: Number, missing: NDArray[np.bool_] | None = None) -> Any:
    """An Arrow column of numbers within their bounds, rounded to int64 if they are whole; null where ``missing``.

    The numbers of a column of days become dates.
    """
    if isinstance(declared, Days):
        return pa.array(np.datetime64(declared.first, "D") + np.rint(values).astype("m8[D]"), mask=missing)
    cells = np.rint(values).astype(np.int64) if declared.whole else values
    return pa.array(cells, mask=missing)


def category_cells(codes: NDArray[np.int64], declared: Category) -> Any:
    """An Arrow column of the values at these positions; null where the position is the number of values."""
    places = codes.astype(np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(places, mask=places == len(declared.values)), pa.array(declared.values)
    )


def _threshold(part: Matrix, stream: Stream | None) -> float | Matrix:
    """What a chance must lie above to come true: one half, or a draw for each row."""
    return 0.5 if stream is None else uniform(stream, len(part))


def largest(part: Matrix, nowhere: bool) -> NDArray[np.int64]:
    """For each row the position of the largest number, and the number of values where the cell is missing."""
    codes: NDArray[np.int64] = part.argmax(axis=1)
    if nowhere:
        zero = np.flatnonzero(part[np.arange(len(part)), codes] == 0)  # few rows, so that few are looked at again
        codes[zero[~part[zero].any(axis=1)]] = part.shape[1]
    return codes


def _drawn(part: Matrix, nowhere: bool, name: str, stream: Stream) -> NDArray[np.int64]:
    """For each row a position drawn by weight, and the number of values where the cell is missing."""
    with np.errstate(over="ignore"):  # an infinite sum is refused below
        sums = np.cumsum(np.maximum(part, 0.0), axis=1)
    total = np.maximum(sums[:, -1], 1.0) if nowhere else sums[:, -1]
    unusable = ~((total > 0) & (total < np.inf))
    if unusable.any():
        raise _place(part, name).fail(unusable, "the weights of the values must have a positive and finite sum [DA150]")
    # Below the total even where the product is rounded up to it; so no value of weight zero is ever drawn.
    mark = np.minimum(uniform(stream, len(part)) * total, np.nextafter(total, 0.0))
    return np.asarray((sums <= mark[:, None]).sum(axis=1), dtype=np.int64)


def uniform(stream: Stream, count: int) -> NDArray[np.float64]:
    """Numbers from 0 on and below 1, in steps of 2**-53."""
    return (stream.uint64(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _place(part: Matrix, name: str) -> Place:
    return Place("the encoded matrix", name, np.arange(1, len(part) + 1))
