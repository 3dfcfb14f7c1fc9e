"""Ids as exact text, none missing and none twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.errors import DataError
from colonnade.tables.parse import Place, is_text, plain


def checked_ids(column: Any, place: Place) -> pa.LargeStringArray:
    """The ids as text; raises by row number where one is missing, padded with blanks or repeated."""
    ids = _as_text(plain(column), place)
    missing = np.asarray(pc.fill_null(pc.equal(ids, ""), True), dtype=bool)
    if missing.any():
        raise place.fail(missing, "the id is missing; every row needs one, so fill it or delete the row")
    padded = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(ids), ids), dtype=bool)
    if padded.any():
        raise place.fail(padded, "the id has blanks around it; remove them, because ids are compared exactly")
    _refuse_repeats(ids, place)
    return ids


def _as_text(array: Any, place: Place) -> Any:
    kind = array.type
    if is_text(kind) or pa.types.is_integer(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        # pandas turns whole numbers into floats as soon as one of them is missing.
        values = np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)
        absent = np.isnan(values)
        whole = absent | ((np.abs(values) < 2.0**53) & (values == np.rint(values)))
        if not whole.all():
            raise place.fail(~whole, "the id is not a whole number; store ids as text or as whole numbers")
        return pa.array(np.where(absent, 0, values).astype(np.int64), mask=absent).cast(pa.large_string())
    if pa.types.is_null(kind):
        return array.cast(pa.large_string())
    raise DataError(f"{place.source}: the id column {place.column!r} holds {kind} cells; store text or whole numbers")


def _refuse_repeats(ids: Any, place: Place) -> None:
    order = np.asarray(pc.sort_indices(ids), dtype=np.int64)
    ordered = ids.take(pa.array(order))
    same = np.asarray(pc.equal(ordered[1:], ordered[:-1]), dtype=bool)
    if same.any():
        repeated = np.zeros(len(ids), dtype=bool)
        repeated[order[1:][same]] = True
        repeated[order[:-1][same]] = True
        raise place.fail(repeated, "an id occurs more than once; keep one row for each person")
