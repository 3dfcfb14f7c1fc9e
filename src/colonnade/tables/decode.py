"""From encoded numbers back to a table of the schema's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.parse import Place
from colonnade.tables.quantities import Matrix
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
    return pa.table(
        {name: schema.columns[name].decode(part, _place(part, name), stream) for name, part in cells.items()}
    )


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


def _place(part: Matrix, name: str) -> Place:
    return Place("the encoded matrix", name, np.arange(1, len(part) + 1))
