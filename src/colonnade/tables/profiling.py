"""A party's file for its own eyes: a draft of its schema, and its profile under a schema.

Everything here is computed from its data. Bounds and values of a draft that are taken from the data are marked, and a
marked schema is refused. A profile counts cells that are missing, clipped or unknown, and says how the cells of each
column lie; they are encoded as a study would encode them, some rows at a time, so a file of any size needs little
memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import cell_parsing, files, schema
from colonnade.tables.bins import MAX_WHOLE
from colonnade.tables.cell_parsing import TextFormat, pa, pc
from colonnade.tables.columns import Column, Field
from colonnade.tables.dates import ISO_DATE, TIMED, guess_date_formats, parse_days
from colonnade.tables.encoding import locate_cells
from colonnade.tables.schema import Schema
from colonnade.tables.sources.factory import guess_format, open_source, read_first_rows, source_name

_MOST_VALUES = 50
_MOST_ROWS = 1 << 20
_HEAD = (
    "# A draft: review it before anybody else sees it. Bounds and lists marked `drafted = true` were taken from\n"
    "# the data and tell something about it. Replace each by what you know without looking at the data and may\n"
    "# tell everybody, and delete the mark; a schema that still has a mark is refused.\n"
)
_SIGNS = r"(^[+-]?|[0-9])[., '\x{a0}\x{202f}\x{2019}][0-9]"
_UNSAID = "Some cells are missing: say what they become, with `missing = ...`."
_SAY = "Taken from the data: replace by what everybody may know, then delete `drafted`."


def draft_schema(
    source: str | Path | Any,
    *,
    id: str | None = None,
    fill: Callable[[str], bool] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
) -> str:
    """A first schema, as TOML, for a file or frame; its owner must review it before it is used or sent.

    Columns that look like ids or free text are left out, with a comment. ``id`` names a column that is always left out.
    How a text file is written (separator, encoding, signs in numbers) is found, and stated where it is not as usual;
    where its numbers can be read in two ways, it is an error, and ``decimal`` or ``thousands`` says which is meant.
    Of a store, a database or a stream the first million rows are read, of files and frames all.
    ``fill`` chooses columns whose missing cells become something, so that a trial can start.
    """
    name = source_name(source)
    text = guess_format(source, name)
    arrow = read_first_rows(open_source(source, name, text), _MOST_ROWS)
    if not arrow.num_rows:
        raise DataError(f"{name}: the table has no rows to draft a schema from [DA151]")
    if id is not None:
        files.require_columns([id], arrow.column_names, f"{name}: the id")
    said = TextFormat(decimal=decimal, thousands=thousands)
    text = _find_signs({column: arrow[column] for column in arrow.column_names if column != id}, name, said).merge_over(
        text
    )
    parts = [_HEAD, *([schema.dump_section("table", text.stated)] if text.stated else [])]
    for column in arrow.column_names:
        left = column == id
        drafted = _comment_out(column, "the id") if left else _draft_column(column, arrow[column], text)
        parts.append(_fill_missing(drafted) if fill and fill(column) and _UNSAID in drafted else drafted)
    return "\n".join(parts)


def _draft_column(name: str, column: Any, text: TextFormat) -> str:
    array = cell_parsing.flatten_column(column)
    place = cell_parsing.CellLocation("draft", name, np.arange(1, len(array) + 1), text=text)
    known = _known_cells(array)
    distinct = pc.count_distinct(known).as_py()
    if not len(known):
        return _comment_out(name, "no cell is filled")
    flags = _can_read(cell_parsing.parse_flags, array, place)
    if flags:
        return _draft_section(name, {"type": "flag"}, [], len(known) < len(array))
    if days := _draft_dates(name, array, known, place):
        return days
    if distinct == len(known) > 1 and not pa.types.is_floating(array.type) and not _has_fractions(known):
        return _comment_out(name, "every cell differs, so it looks like an id")
    if _can_read(cell_parsing.parse_numbers, array, place):
        values, missing = cell_parsing.parse_numbers(array, place)
        whole = bool((values == np.rint(values)).all()) and np.abs(values).max() <= MAX_WHOLE
        low, high = _round_outwards(float(values[~missing].min()), float(values[~missing].max()), whole)
        fields: dict[str, Field] = {"type": "number", "low": low, "high": high}
        fields |= {"whole": True} if whole else {}
        return _draft_section(name, {**fields, schema.DRAFT_MARK: True}, [_SAY], bool(missing.any()))
    if not (cell_parsing.is_text(known.type) and distinct <= _MOST_VALUES):
        return _comment_out(name, "it looks like free text or a long list")
    listed: list[str] = sorted(pc.unique(known).to_pylist())
    fields = {"type": "category", "values": listed, schema.DRAFT_MARK: True}
    return _draft_section(name, fields, [_SAY], len(known) < len(array))


def _draft_dates(name: str, array: Any, known: Any, place: cell_parsing.CellLocation) -> str | None:
    """A section for a column of dates, from the first to the last day of their years; ``None`` for other columns."""
    text = cell_parsing.is_text(array.type)
    formats = guess_date_formats(pc.utf8_trim_whitespace(known), times=True) if text else [ISO_DATE]
    zoned = _comment_out(name, "it has times of a time zone, or times alone; store dates")
    if not formats:
        return zoned if pc.all(pc.match_substring_regex(known, TIMED)).as_py() else None
    if not (text or pa.types.is_temporal(array.type)):
        return None
    if not _can_read(lambda cells, at: parse_days(cells, formats[0], at, times=True), array, place):
        return zoned
    days, missing = parse_days(array, formats[0], place, times=True)
    years = days[~missing].astype("M8[D]").astype("M8[Y]")
    fields: dict[str, Field] = {"type": "date", "from": f"{years.min()}-01-01", "until": f"{years.max()}-12-31"}
    fields |= {"format": formats[0]} if formats[0] != ISO_DATE else {}
    parts = 'Encoded as the days since `from`; with `as = ["days", "month", "weekday"]` also as these.'
    timed = not _can_read(lambda cells, at: parse_days(cells, formats[0], at), array, place)
    comments = [_SAY, parts, *(["The cells have times of day as well, which are not read."] if timed else [])]
    if formats[1:]:
        comments += [f"The dates can also be read as {' or '.join(formats[1:])}: correct `format` if that is meant."]
    return _draft_section(name, {**fields, schema.DRAFT_MARK: True}, comments, bool(missing.any()))


def _find_signs(columns: Mapping[str, Any], name: str, said: TextFormat) -> TextFormat:
    """The signs in the numbers of a text file: what is said, and else those by which most columns are numbers.

    Raises where two ways to read them fit as many columns and give other numbers: nothing is guessed.
    """
    votes: Counter[TextFormat] = Counter()
    known: dict[str, Any] = {}
    for column, cells in columns.items():
        array = cell_parsing.flatten_column(cells)
        if cell_parsing.is_text(array.type):
            texts = pc.unique(pc.utf8_trim_whitespace(_known_cells(array)))
            if len(texts) and pc.any(pc.match_substring_regex(texts, _SIGNS)).as_py():
                known[column] = texts
                votes.update(cell_parsing.fitting_formats(texts, said))
    best = [each for each in cell_parsing.NUMBER_FORMATS if votes and votes[each] == max(votes.values())]
    for column, texts in known.items():
        readings: dict[bytes, TextFormat] = {}
        for each in best:
            place = cell_parsing.CellLocation(name, column, range(1, len(texts) + 1), text=each)
            if _can_read(cell_parsing.parse_numbers, texts, place):
                readings.setdefault(cell_parsing.parse_numbers(texts, place)[0].tobytes(), each)
        if len(readings) > 1:
            one, other = (cell_parsing.format_as_toml(each.stated or {"decimal": "."}) for each in readings.values())
            raise DataError(
                f"{name}: column {column!r}: the sign in its numbers may stand before fractions or between thousands, "
                f"and nothing is guessed: say {one}, or {other} (with `colonnade schema draft` or `init trial` as "
                "--decimal or --thousands) [DA740]"
            )
    return best[0] if best else said


def _draft_section(name: str, fields: dict[str, Field], comments: list[str], has_missing: bool) -> str:
    if has_missing:
        comments = [*comments, _UNSAID]
    return schema.dump_section(f"columns.{schema.quote_key(name)}", fields, comments)


def _fill_missing(section: str) -> str:
    """The section of a column in which cells are missing, with what they become: a place of their own, or false."""
    become = "false" if 'type = "flag"' in section else '"none"'
    return section.replace(_UNSAID, "Some cells are missing: this is what they become.") + f"missing = {become}\n"


def _comment_out(name: str, why: str) -> str:
    return f"# Left out: {schema.quote_key(name)} ({why}).\n"


def _known_cells(array: Any) -> Any:
    if cell_parsing.is_text(array.type):
        words = pa.array(cell_parsing.MISSING_WORDS, array.type)
        return array.filter(pc.invert(pc.or_(pc.is_null(array), pc.is_in(array, words))))
    if pa.types.is_floating(array.type):
        return array.filter(pc.fill_null(pc.invert(pc.is_nan(array)), False))
    return array.drop_null()


def _has_fractions(known: Any) -> bool:
    return cell_parsing.is_text(known.type) and bool(
        pc.any(pc.match_substring_regex(known, r"^[+-]?[0-9]*([., '\x{a0}\x{202f}\x{2019}][0-9]+)+$")).as_py()
    )


def _can_read(reader: Any, array: Any, place: cell_parsing.CellLocation) -> bool:
    try:
        reader(array, place)
    except DataError:
        return False
    return True


def _round_outwards(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Bounds rounded outwards to two digits, so that no extreme value of the data is copied exactly."""
    span = max(abs(low), abs(high), 1e-300)
    step = max(10.0 ** (math.floor(math.log10(span)) - 1), 1.0 if whole else 0.0)
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    top = top if top > bottom else bottom + step
    return float(f"{bottom:.12g}"), float(f"{top:.12g}")


MAX_BARS = 24
"""Bars of a histogram at most."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column of the schema: how many cells are not as it says, and a histogram of what a study would read."""

    name: str
    source: str
    summary: str
    missing: int
    clipped: int
    unknown: int
    labels: tuple[str, ...]
    """Of each bar; empty where the bars lie on a scale between ``ends``."""
    ends: tuple[str, str] | None
    bars: tuple[int, ...]


@dataclass(frozen=True)
class TableProfile:
    """A whole file."""

    rows: int
    columns: tuple[ColumnProfile, ...]
    unread_columns: tuple[str, ...]
    """Columns of the file that the schema does not name; they are never read."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TableProfile:
        """What :meth:`to_dict` wrote."""
        columns = tuple(
            ColumnProfile(
                **{
                    **each,
                    "labels": tuple(each["labels"]),
                    "bars": tuple(each["bars"]),
                    "ends": None if each["ends"] is None else (each["ends"][0], each["ends"][1]),
                }
            )
            for each in value["columns"]
        )
        return cls(value["rows"], columns, tuple(value["unread_columns"]))


def profile_table(given: Any, schema: Schema, also_used: Sequence[str] = ()) -> TableProfile:
    """Read a table once, wherever it lies; an error if it lacks a column. ``also_used`` are those of ids and keys."""
    said, text = source_name(given), schema.text
    source = open_source(given, said, text)
    there = source.columns()
    files.require_columns(schema.sources, there, said)
    files.choose_columns(there, said, lambda _: schema.sources)
    seen = [_ColumnCounts(name, column) for name, column in schema.columns.items()]
    rows = 0
    for batch in source.batches(schema.sources):
        numbers = np.arange(rows + 1, rows + 1 + batch.num_rows)
        for each in seen:
            place = locate_cells(said, each.source, numbers, "map", text)
            each.add(batch.column(each.source), place)
        rows += batch.num_rows
    used = {*schema.sources, *also_used}
    return TableProfile(rows, tuple(each.found() for each in seen), tuple(name for name in there if name not in used))


class _ColumnCounts:
    """What was counted of one column so far."""

    def __init__(self, name: str, column: Column) -> None:
        self.name, self.column, self.source = name, column, column.source(name)
        self.missing = self.clipped = self.unknown = 0
        self.counts: NDArray[np.int64] = np.zeros(column.bar_count(MAX_BARS), dtype=np.int64)

    def add(self, cells: Any, place: Any) -> None:
        out = np.zeros((len(cells), len(self.column.parts)))
        lost, cut, odd = self.column.encode(cells, place, out)
        self.missing, self.clipped, self.unknown = self.missing + lost, self.clipped + cut, self.unknown + odd
        self.counts += self.column.tally(out, len(self.counts))

    def found(self) -> ColumnProfile:
        labels, ends, bars = self.column.label_bars(self.counts, MAX_BARS)
        counts = (self.missing, self.clipped, self.unknown)
        says = self.column.summary()
        return ColumnProfile(self.name, self.source, says, *counts, labels, ends, tuple(int(bar) for bar in bars))
