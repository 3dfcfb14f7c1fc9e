"""Ids as exact text, none missing and none twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.errors import DataError
from colonnade.tables.parse import Mask, Place, is_text, plain


def checked_ids(column: Any, place: Place) -> pa.LargeStringArray:
    """The ids as text; raises by row number where one is missing, padded with blanks or repeated."""
    ids = as_text(plain(column), place, "id")
    missing = np.asarray(pc.fill_null(pc.equal(ids, ""), True), dtype=bool)
    if missing.any():
        raise place.fail(missing, "the id is missing; every row needs one, so fill it or delete the row")
    padded = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(ids), ids), dtype=bool)
    if padded.any():
        raise place.fail(padded, "the id has blanks around it; remove them, because ids are compared exactly")
    _refuse_repeats(ids, place)
    return ids


def as_text(array: Any, place: Place, what: str) -> Any:
    """Cells as text: texts stay as they are and whole numbers become their digits; ``what`` they are is for errors."""
    kind = array.type
    if is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        values, fits = _whole(array)
        if not fits.all():
            raise place.fail(~fits, f"the {what} is not a whole number; store {what}s as text or as whole numbers")
        return values.cast(pa.large_string())
    raise DataError(
        f"{place.source}: the {what} column {place.column!r} holds {kind} cells; store text or whole numbers"
    )


def called(columns: Mapping[str, Any], source: str) -> pa.LargeStringArray:
    """What a party calls its rows: the cells as they are, joined where there are several; they may repeat."""
    cells = [_legible(plain(cells), column, source) for column, cells in columns.items()]
    between = pa.scalar(" | ", pa.large_string())
    return pc.binary_join_element_wise(*cells, between, null_handling="replace", null_replacement="")


def _legible(array: Any, column: str, source: str) -> Any:
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise DataError(f"{source}: the id column {column!r} holds {kind} cells; store text or whole numbers")
    if pa.types.is_floating(kind):
        values, fits = _whole(array)
        array = values if fits.all() else array
    return array.cast(pa.large_string())


def _whole(array: Any) -> tuple[Any, Mask]:
    """Floats as whole numbers, and where that is what they are.

    pandas turns whole numbers into floats as soon as one of them is missing.
    """
    values = np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    absent = np.isnan(values)
    fits = absent | ((np.abs(values) < 2.0**53) & (values == np.rint(values)))
    return pa.array(np.where(fits & ~absent, values, 0).astype(np.int64), mask=absent), fits


def _refuse_repeats(ids: Any, place: Place) -> None:
    order = np.asarray(pc.sort_indices(ids), dtype=np.int64)
    ordered = ids.take(pa.array(order))
    same = np.asarray(pc.equal(ordered[1:], ordered[:-1]), dtype=bool)
    if same.any():
        repeated = np.zeros(len(ids), dtype=bool)
        repeated[order[1:][same]] = True
        repeated[order[:-1][same]] = True
        raise place.fail(repeated, "an id occurs more than once; keep one row for each person")
