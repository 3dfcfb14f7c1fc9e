"""Cells of Arrow columns, read as numbers, values of a category or flags, as the schema says.

A cell is missing when it is null, NaN, empty, or one of a few words such as ``NA``. A cell that fits nothing is an
error that names its place, or is noted there so that the encoder maps it; no message here shows a value. ``pa`` and
``pc`` are pyarrow and its compute functions, which are imported when one of them is first used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.lazy import LazyModule
from colonnade.tables.text_format import advise_format
from colonnade.tables.wording import list_rows

__all__ = ["pa", "pc"]

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = LazyModule("pyarrow"), LazyModule("pyarrow.compute")


MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
NUMERAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
COMMA_NUMERAL = NUMERAL.replace(r"\.", ",")
INFINITE = r"(?i)^[+-]?inf(inity)?$"
YES = ("true", "yes", "1", "1.0")
NO = ("false", "no", "0", "0.0")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CellLocation:
    """Where some cells come from: source name, column name, and the 1-based number of each row."""

    source: str
    column: str
    rows: NDArray[np.int64] | range
    invalid: Mask | None = None
    """Where cells that fit nothing are noted; ``None`` where they are an error."""
    decimal: str = "."
    """The sign before the fraction of a number that is written as text."""

    def refuse(self, bad: Mask, what: str) -> None:
        """Note the cells marked ``bad``, or raise the error for them."""
        if not bad.any():
            return
        if self.invalid is None:
            raise self.fail(bad, what)
        np.logical_or(self.invalid, bad, out=self.invalid)

    def without_value(self, missing: Mask) -> Mask:
        """The cells that are missing or were noted as fitting nothing."""
        return missing if self.invalid is None else missing | self.invalid

    def fail(self, bad: Mask, what: str) -> DataError:
        """The error for the cells marked ``bad``."""
        return DataError(
            f"{self.source}: column {self.column!r}, {list_rows(np.asarray(self.rows)[bad])}: {what} [DA191]"
        )

    def wrong_type(self, found: pa.DataType, wanted: str) -> DataError:
        """The error for a whole column of an unusable type."""
        return DataError(
            f"{self.source}: column {self.column!r} holds {found} cells, but the schema declares a {wanted}; "
            "convert the column or correct the schema [DA192]"
        )


def flatten_column(column: Any) -> Any:
    """One contiguous array without dictionary encoding; copied only where it has several chunks."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what combining gives for text of more than 2 GiB
        array = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in array.chunks])
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def parse_numbers(column: Any, place: CellLocation) -> tuple[NDArray[np.float64], Mask]:
    """Values and the mask of missing ones; these hold 0, and so do those that fit nothing."""
    array = flatten_column(column)
    kind = array.type
    if is_text(kind):
        array = _numeral_text(array, place)
    elif pa.types.is_null(kind):
        return np.zeros(len(array)), np.ones(len(array), bool)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise place.wrong_type(kind, "number")
    filled = pc.fill_null(pc.cast(array, pa.float64(), safe=False), np.nan)
    values = np.array(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.isnan(values)
    infinite = np.isinf(values)
    place.refuse(infinite, _INFINITE_HELP)
    values[missing | infinite] = 0.0
    return values, missing


def numeric_array(column: Any) -> NDArray[Any] | None:
    """The cells as an array if they are numbers in one chunk and none is null, otherwise ``None``."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            return None
        column = column.chunk(0)
    kind = column.type
    if column.null_count or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return None
    values: NDArray[Any] = column.to_numpy()
    return values


def parse_codes(column: Any, values: Sequence[str], place: CellLocation) -> tuple[NDArray[np.int64], Mask]:
    """The position of each cell in the declared values, and the mask of missing ones.

    Those hold -1, and so do the cells that fit nothing.
    """
    array = _label_text(flatten_column(column), place)
    found = pc.index_in(array, pa.array(values, pa.large_string()), skip_nulls=True)
    positions = np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    missing = find_missing(array) & (positions < 0)  # a word such as NA may be a declared value
    place.refuse(
        (positions < 0) & ~missing,
        "the value is not in the schema's list (capitals and blanks count); correct the cell or, if "
        "everybody may know that the value exists, add it to the list [DA193]",
    )
    return positions, missing


def parse_flags(column: Any, place: CellLocation) -> tuple[Mask, Mask]:
    """Which cells are true, and the mask of missing ones; these are not true, nor are those that fit nothing."""
    array = flatten_column(column)
    kind = array.type
    if pa.types.is_boolean(kind):
        return _to_mask(pc.fill_null(array, False)), _to_mask(pc.is_null(array))
    if is_text(kind):
        return _parse_flag_text(array, place)
    if pa.types.is_date(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise place.wrong_type(kind, "flag")
    values, missing = parse_numbers(array, place)
    place.refuse((values != 0) & (values != 1), _FLAG_HELP)
    return values == 1, missing


def is_text(kind: pa.DataType) -> bool:
    """Whether cells are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_whole(kind: pa.DataType) -> bool:
    """Whether cells are whole numbers, exactly: warehouses store those of any length as decimals without a fraction."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def as_whole_numbers(array: Any) -> tuple[Any, Mask]:
    """Floats as whole numbers, and a mask of those that are whole or missing; the others become missing.

    pandas turns whole numbers into floats as soon as one of them is missing.
    """
    values = np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    absent = np.isnan(values)
    fits = absent | ((np.abs(values) < 2.0**53) & (values == np.rint(values)))
    whole = fits & ~absent
    return pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole), fits


_INFINITE_HELP = "the number is infinite; correct it or leave the cell empty [DA194]"
_DATE = r"^([0-9]{4}[-./][0-9]{1,2}[-./][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4})([T ]|$)"
_APART = r"[ '\x{a0}\x{2019}\x{202f}]"  # blanks and apostrophes
_THOUSANDS = rf"^[+-]?[0-9]{{1,3}}(({_APART}[0-9]{{3}})+(\.[0-9]*)?|(,[0-9]{{3}}){{2,}}|(,[0-9]{{3}})+\.[0-9]*)$"
_THOUSANDS_COMMA = rf"^[+-]?[0-9]{{1,3}}((({_APART}|\.)[0-9]{{3}})+,[0-9]*|({_APART}[0-9]{{3}})+|(\.[0-9]{{3}}){{2,}})$"
_FLAG_HELP = "the cell is neither true nor false; write true/false, yes/no or 1/0 [DA195]"


def _numeral_text(array: Any, place: CellLocation) -> Any:
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    missing = find_missing(trimmed)
    comma = place.decimal == ","
    bad = ~_matches(trimmed, COMMA_NUMERAL if comma else NUMERAL) & ~missing
    if bad.any():
        place.refuse(bad & _matches(trimmed, INFINITE), _INFINITE_HELP)
        place.refuse(bad, _number_help(trimmed.filter(pa.array(bad)), comma))
    written = pc.replace_substring(trimmed, ",", ".") if comma else trimmed
    return pc.if_else(pa.array(missing | bad), pa.scalar(None, pa.large_string()), written)


def _number_help(bad: Any, comma: bool) -> str:
    """What is wrong with cells that are no numbers, without a word of what they hold."""
    if _matches(bad, _DATE).all():
        return 'the cell looks like a date; declare the column with type = "date" in the schema [DA196]'
    if _matches(bad, _THOUSANDS_COMMA if comma else _THOUSANDS).all():
        return "the number has signs between its thousands; remove them [DA197]"
    if not comma and _matches(bad, COMMA_NUMERAL).all():
        return (
            "the number has a comma: remove it if it stands between thousands; if it is the decimal sign, "
            f"{advise_format({'decimal': ','})} [DA198]"
        )
    if comma and _matches(bad, NUMERAL).all():
        return (
            'the number has a point, but decimal = "," says that fractions come after a comma; '
            "correct one of them [DA199]"
        )
    sign = "comma" if comma else "point"
    return f"the cell is not a number; write it with digits and a decimal {sign}, or leave it empty [DA200]"


def _label_text(array: Any, place: CellLocation) -> Any:
    """Cells as text, so that the code 3 and the text "3" are one value."""
    kind = array.type
    if pa.types.is_floating(kind):
        array, fits = as_whole_numbers(array)
        place.refuse(~fits, "the code is not a whole number; correct the cell or declare a number [DA201]")
    elif pa.types.is_null(kind):
        return array.cast(pa.large_string())
    elif not (is_text(kind) or is_whole(kind) or pa.types.is_boolean(kind)):
        raise place.wrong_type(kind, "category")
    return array.cast(pa.large_string())


def _parse_flag_text(array: Any, place: CellLocation) -> tuple[Mask, Mask]:
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    missing = find_missing(trimmed)
    lowered = pc.utf8_lower(trimmed)
    yes = _to_mask(pc.is_in(lowered, pa.array(YES, pa.large_string())))
    no = _to_mask(pc.is_in(lowered, pa.array(NO, pa.large_string())))
    place.refuse(~(yes | no | missing), _FLAG_HELP)
    return yes, missing


def find_missing(text: Any) -> Mask:
    """Which texts stand for a missing cell."""
    return _to_mask(pc.is_null(text)) | _to_mask(pc.is_in(text, pa.array(MISSING_WORDS, pa.large_string())))


def _matches(text: Any, pattern: str) -> Mask:
    return _to_mask(pc.fill_null(pc.match_substring_regex(text, pattern), False))


def _to_mask(array: Any) -> Mask:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
