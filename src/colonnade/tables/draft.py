"""A first schema to review. What was read off the data is marked, and a marked schema is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.tables import files, parse, toml
from colonnade.tables.arrow import pa, pc
from colonnade.tables.columns import Field

_MOST_VALUES = 50
_HEAD = (
    "# A draft, to be reviewed before anybody sees it. Bounds and lists marked `drafted = true` were read\n"
    "# off the data and so would tell something about it. Replace each by what you would say aloud without\n"
    "# looking, and delete the mark; a schema with a mark left is refused.\n"
)
_SAY = "Read off the data: replace by what you would say aloud, then delete `drafted`."


def draft_schema(source: str | Path | Any, *, id: str | None = None) -> str:
    """TOML for a file or frame: a first version for its owner to review, never to use or send as it is.

    Columns that look like ids, free text or dates are left out, with a comment. ``id`` names a column to
    leave out without looking.
    """
    name = str(source) if isinstance(source, str | Path) else "table"
    arrow = files.read_columns(source, name, list)
    if not arrow.num_rows:
        raise DataError(f"{name}: the table has no rows to draft a schema from")
    parts = [_HEAD]
    for column in arrow.column_names:
        parts.append(_left_out(column, "the id") if column == id else _drafted(column, arrow[column]))
    return "\n".join(parts)


def _drafted(name: str, column: Any) -> str:
    array = parse.plain(column)
    place = parse.Place("draft", name, np.arange(1, len(array) + 1))
    known = _known(array)
    distinct = pc.count_distinct(known).as_py()
    if not len(known):
        return _left_out(name, "no cell is filled")
    flags = _reads(parse.truths, array, place)
    if flags:
        return _section(name, {"type": "flag"}, [], len(known) < len(array))
    if distinct == len(known) > 1 and not pa.types.is_floating(array.type) and not _has_fractions(known):
        return _left_out(name, "every cell differs, so it looks like an id")
    if _reads(parse.numbers, array, place):
        values, missing = parse.numbers(array, place)
        low, high = _outwards(float(values[~missing].min()), float(values[~missing].max()))
        fields: dict[str, Field] = {"type": "number", "low": low, "high": high, toml.DRAFTED: True}
        return _section(name, fields, [_SAY], bool(missing.any()))
    if not (parse.is_text(known.type) and distinct <= _MOST_VALUES):
        return _left_out(name, "it looks like free text, a date or a long list")
    listed: list[str] = sorted(pc.unique(known).to_pylist())
    fields = {"type": "category", "values": listed, toml.DRAFTED: True}
    return _section(name, fields, [_SAY], len(known) < len(array))


def _section(name: str, fields: dict[str, Field], comments: list[str], has_missing: bool) -> str:
    if has_missing:
        comments = [*comments, "Some cells are missing: say what they become, with `missing = ...`."]
    return toml.section(f"columns.{toml.key(name)}", fields, comments)


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
    return parse.is_text(known.type) and bool(pc.any(pc.match_substring_regex(known, r"^[+-]?[0-9]*\.[0-9]+$")).as_py())


def _reads(reader: Any, array: Any, place: parse.Place) -> bool:
    try:
        reader(array, place)
    except DataError:
        return False
    return True


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Bounds rounded outwards to two digits, so that at least no single extreme value is copied."""
    span = max(abs(low), abs(high), 1e-300)
    step = 10.0 ** (math.floor(math.log10(span)) - 1)
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    top = top if top > bottom else bottom + step
    return float(f"{bottom:.12g}"), float(f"{top:.12g}")
