"""A first schema for review. Bounds and values taken from the data are marked, and a marked schema is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.tables import files, parse, toml
from colonnade.tables.arrow import pa, pc
from colonnade.tables.columns import Field
from colonnade.tables.days import ISO_DATE, days_of, fitting_formats
from colonnade.tables.quantities import MAX_WHOLE
from colonnade.tables.sources.opening import first_rows, likely_format, name_of, opened

_MOST_VALUES = 50
_MOST_ROWS = 1 << 20
_HEAD = (
    "# A draft: review it before anybody else sees it. Bounds and lists marked `drafted = true` were taken from\n"
    "# the data and tell something about it. Replace each by what you know without looking at the data and may\n"
    "# tell everybody, and delete the mark; a schema that still has a mark is refused.\n"
)
_UNSAID = "Some cells are missing: say what they become, with `missing = ...`."
_SAY = "Taken from the data: replace by what everybody may know, then delete `drafted`."


def draft_schema(source: str | Path | Any, *, id: str | None = None, fill: Callable[[str], bool] | None = None) -> str:
    """A first schema, as TOML, for a file or frame; its owner must review it before it is used or sent.

    Columns that look like ids or free text are left out, with a comment. ``id`` names a column that is always left out.
    How a text file is written (separator, encoding, decimal sign) is found, and stated where it is not as usual.
    Of a store, a database or a stream the first million rows are read, of files and frames all.
    ``fill`` chooses columns whose missing cells become something, so that a trial can start.
    """
    name = name_of(source)
    text = likely_format(source, name)
    arrow = first_rows(opened(source, name, text), _MOST_ROWS)
    if not arrow.num_rows:
        raise DataError(f"{name}: the table has no rows to draft a schema from [DA151]")
    if id is not None:
        files.need([id], arrow.column_names, f"{name}: the id")
    if any(_has_decimal_commas(arrow[column]) for column in arrow.column_names):
        text = replace(text, decimal=",")
    parts = [_HEAD, *([toml.section("table", text.stated)] if text.stated else [])]
    for column in arrow.column_names:
        left = column == id
        drafted = _left_out(column, "the id") if left else _drafted(column, arrow[column], text.decimal or ".")
        parts.append(_filled(drafted) if fill and fill(column) and _UNSAID in drafted else drafted)
    return "\n".join(parts)


def _drafted(name: str, column: Any, decimal: str) -> str:
    array = parse.plain(column)
    place = parse.Place("draft", name, np.arange(1, len(array) + 1), decimal=decimal)
    known = _known(array)
    distinct = pc.count_distinct(known).as_py()
    if not len(known):
        return _left_out(name, "no cell is filled")
    flags = _reads(parse.truths, array, place)
    if flags:
        return _section(name, {"type": "flag"}, [], len(known) < len(array))
    if days := _dates(name, array, known, place):
        return days
    if distinct == len(known) > 1 and not pa.types.is_floating(array.type) and not _has_fractions(known):
        return _left_out(name, "every cell differs, so it looks like an id")
    if _reads(parse.numbers, array, place):
        values, missing = parse.numbers(array, place)
        whole = bool((values == np.rint(values)).all()) and np.abs(values).max() <= MAX_WHOLE
        low, high = _outwards(float(values[~missing].min()), float(values[~missing].max()), whole)
        fields: dict[str, Field] = {"type": "number", "low": low, "high": high}
        fields |= {"whole": True} if whole else {}
        return _section(name, {**fields, toml.DRAFTED: True}, [_SAY], bool(missing.any()))
    if not (parse.is_text(known.type) and distinct <= _MOST_VALUES):
        return _left_out(name, "it looks like free text or a long list")
    listed: list[str] = sorted(pc.unique(known).to_pylist())
    fields = {"type": "category", "values": listed, toml.DRAFTED: True}
    return _section(name, fields, [_SAY], len(known) < len(array))


def _dates(name: str, array: Any, known: Any, place: parse.Place) -> str | None:
    """A section for a column of dates, from the first to the last day of their years; ``None`` for other columns."""
    formats = fitting_formats(pc.utf8_trim_whitespace(known)) if parse.is_text(array.type) else [ISO_DATE]
    if not formats or not (parse.is_text(array.type) or pa.types.is_temporal(array.type)):
        return None
    if not _reads(lambda cells, at: days_of(cells, formats[0], at), array, place):
        return _left_out(name, "it has times of day or a time zone; store dates")
    days, missing = days_of(array, formats[0], place)
    years = days[~missing].astype("M8[D]").astype("M8[Y]")
    fields: dict[str, Field] = {"type": "date", "from": f"{years.min()}-01-01", "until": f"{years.max()}-12-31"}
    fields |= {"format": formats[0]} if formats[0] != ISO_DATE else {}
    parts = 'Encoded as the days since `from`; with `as = ["days", "month", "weekday"]` also as these.'
    comments = [_SAY, parts]
    if formats[1:]:
        comments += [f"The dates can also be read as {' or '.join(formats[1:])}: correct `format` if that is meant."]
    return _section(name, {**fields, toml.DRAFTED: True}, comments, bool(missing.any()))


def _has_decimal_commas(column: Any) -> bool:
    """Whether the cells are numbers with decimal commas, and not all of them numbers with points."""
    array = parse.plain(column)
    place = parse.Place("draft", "", range(1, len(array) + 1))
    if not parse.is_text(array.type) or _reads(parse.numbers, array, place):
        return False
    return _reads(parse.numbers, array, replace(place, decimal=","))


def _section(name: str, fields: dict[str, Field], comments: list[str], has_missing: bool) -> str:
    if has_missing:
        comments = [*comments, _UNSAID]
    return toml.section(f"columns.{toml.key(name)}", fields, comments)


def _filled(section: str) -> str:
    """The section of a column in which cells are missing, with what they become: a place of their own, or false."""
    become = "false" if 'type = "flag"' in section else '"none"'
    return section.replace(_UNSAID, "Some cells are missing: this is what they become.") + f"missing = {become}\n"


def _left_out(name: str, why: str) -> str:
    return f"# Left out: {toml.key(name)} ({why}).\n"


def _known(array: Any) -> Any:
    if parse.is_text(array.type):
        words = pa.array(parse.MISSING_WORDS, array.type)
        return array.filter(pc.invert(pc.or_(pc.is_null(array), pc.is_in(array, words))))
    if pa.types.is_floating(array.type):
        return array.filter(pc.fill_null(pc.invert(pc.is_nan(array)), False))
    return array.drop_null()


def _has_fractions(known: Any) -> bool:
    return parse.is_text(known.type) and bool(
        pc.any(pc.match_substring_regex(known, r"^[+-]?[0-9]*[.,][0-9]+$")).as_py()
    )


def _reads(reader: Any, array: Any, place: parse.Place) -> bool:
    try:
        reader(array, place)
    except DataError:
        return False
    return True


def _outwards(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Bounds rounded outwards to two digits, so that no extreme value of the data is copied exactly."""
    span = max(abs(low), abs(high), 1e-300)
    step = max(10.0 ** (math.floor(math.log10(span)) - 1), 1.0 if whole else 0.0)
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    top = top if top > bottom else bottom + step
    return float(f"{bottom:.12g}"), float(f"{top:.12g}")
