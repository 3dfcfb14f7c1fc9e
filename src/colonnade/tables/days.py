"""Cells read as days, by rules that are the same on every machine: no locale, no time zone, no time of day."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.tables.arrow import pa, pc
from colonnade.tables.parse import Mask, Place, is_text, missing_cells, plain

ISO_DATE = "%Y-%m-%d"
FORMATS = (ISO_DATE, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d")
"""The formats that are recognised in files."""
TIMED = r"^[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}[T ]+[0-9]{1,2}:"

_STEPS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, counted from 1970-01-01
_DIRECTIVE = re.compile("%(.)", re.DOTALL)
_TIME_OF_DAY = "the cell has a time of day; keep the date alone [DA141]"


def check_format(format: object) -> None:
    """Raise unless a format has year, month and day once each, in digits, so that every machine reads it alike."""
    if not isinstance(format, str):
        raise SchemaError(f"format must be a text such as {ISO_DATE!r}, not {format!r} [SC045]")
    found = _DIRECTIVE.findall(format)
    if sorted(found) != ["Y", "d", "m"] or re.search(r"[0-9%]", _DIRECTIVE.sub("", format)):
        raise SchemaError(
            f"format = {format!r} cannot be read: it has %Y, %m and %d once each and signs between them, such as "
            '"%d.%m.%Y"; names of months, years of two digits and times of day are not read [SC046]'
        )


def format_pattern(format: str) -> str:
    """A regular expression for texts in a format, with the groups ``Y``, ``m`` and ``d``."""
    crowded = re.search("%.%", format) is not None
    digits = {"Y": "{4}", "m": "{2}" if crowded else "{1,2}", "d": "{2}" if crowded else "{1,2}"}
    parts = re.split("%(.)", format)
    written = [f"(?P<{part}>[0-9]{digits[part]})" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return "^" + "".join(written) + "$"


def days_of(column: Any, format: str, place: Place) -> tuple[NDArray[np.int64], Mask]:
    """The day of each cell, counted from 1970-01-01, and the mask of missing ones.

    Those hold 0, and so do the cells that fit nothing.
    """
    array = plain(column)
    kind = array.type
    if is_text(kind):
        return _read(pc.utf8_trim_whitespace(array.cast(pa.large_string())), format, place)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64), np.ones(len(array), bool)
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise place.wrong_type(kind, "date")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        raise DataError(
            f"{place.source}: column {place.column!r} holds times of a time zone, whose day depends on where one is; "
            "store dates [DA142]"
        )
    missing = np.asarray(array.is_null())
    steps = _STEPS_A_DAY[kind.unit] if pa.types.is_timestamp(kind) else 86_400_000 if pa.types.is_date64(kind) else 1
    whole = array.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) else array.cast(pa.int64())
    days, time = np.divmod(np.array(pc.fill_null(whole, 0), dtype=np.int64), steps)
    place.refuse((time > 0) & ~missing, _TIME_OF_DAY)
    far = (days < _FIRST_DAY) | (days > _LAST_DAY)
    place.refuse(far, "the year is not within 1 to 9999; correct the date or leave the cell empty [DA143]")
    days[missing | far | (time > 0)] = 0
    return days, missing


def fitting_formats(text: Any) -> list[str]:
    """The known formats in which every one of these texts is a date; none if there are no texts."""
    return [each for each in FORMATS if len(text) and _parsed(text, each)[1].all()]


def _read(text: Any, format: str, place: Place) -> tuple[NDArray[np.int64], Mask]:
    missing = missing_cells(text)
    days, fits = _parsed(text, format)
    bad = ~fits & ~missing
    if bad.any():  # cells that are only counted need no advice, which tries every format on them
        place.refuse(bad, "" if place.unfit is not None else _advice(text.filter(pa.array(bad)), format))
    return days, missing


def _parsed(text: Any, format: str) -> tuple[NDArray[np.int64], Mask]:
    """The day of each text, counted from 1970-01-01, and which texts are one; the others hold 0."""
    parts = pc.extract_regex(text, format_pattern(format))
    year, month, day = (
        np.array(pc.fill_null(pc.cast(pc.struct_field(parts, index), pa.int64()), 0), dtype=np.int64)
        for index in (parts.type.get_field_index(name) for name in "Ymd")
    )
    fits = (year > 0) & (month > 0) & (month <= 12) & (day > 0)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0)
    first, beyond = (at.astype("M8[M]").astype("M8[D]").astype(np.int64) for at in (months, months + 1))
    fits &= first + day <= beyond
    return np.where(fits, first + day - 1, 0), fits


def _advice(bad: Any, format: str) -> str:
    """What is wrong with these cells, without a word of what they hold."""
    if pc.all(pc.match_substring_regex(bad, TIMED)).as_py():
        return _TIME_OF_DAY
    if others := fitting_formats(bad):
        return (
            f'the date is not written as format = "{format}" says; the schema can say format = '
            f'"{others[0]}" instead [DA144]'
        )
    return f'the cell is not a date as format = "{format}" writes it; correct it or leave it empty [DA145]'
