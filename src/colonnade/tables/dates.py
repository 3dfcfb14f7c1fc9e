"""Columns of days: what a schema says of them, how cells are read, and the encoded columns that follow.

A date becomes one or several ordinary columns: the days since a public first day, which are a whole number between two
bounds; the month, of 12 values; the weekday, of 7. So bounds, norms, codes and noise are those of numbers and
categories, and nothing else needs to know of dates. Cells are read by rules that are the same on every machine: no
locale and no time zone. The time of day of a cell is not read.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.tables.bins import Matrix
from colonnade.tables.cell_parsing import CellLocation, Mask, find_missing, flatten_column, is_text, pa, pc
from colonnade.tables.columns import NOWHERE, REFUSE, Category, Column, Field, Number

ISO_DATE = "%Y-%m-%d"
DATE_FORMATS = (ISO_DATE, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d")
"""The formats that are recognised in files."""
TIMED = r"^[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}[T ]+[0-9]{1,2}:"

_TIME = r"(?:[T ]+[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?)?$"
_STEPS_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, counted from 1970-01-01
_DIRECTIVE = re.compile("%(.)", re.DOTALL)
_TIME_OF_ZONE = "the cell has a time of a time zone, whose day depends on where one is; keep the date alone [DA741]"
_TIME_OF_DAY = "the cell has a time of day; keep the date alone [DA141]"


def check_date_format(format: object) -> None:
    """Raise unless a format has year, month and day once each, in digits, so that every machine reads it alike."""
    if not isinstance(format, str):
        raise SchemaError(f"format must be a text such as {ISO_DATE!r}, not {format!r} [SC045]")
    found = _DIRECTIVE.findall(format)
    if sorted(found) != ["Y", "d", "m"] or re.search(r"[0-9%]", _DIRECTIVE.sub("", format)):
        raise SchemaError(
            f"format = {format!r} cannot be read: it has %Y, %m and %d once each and signs between them, such as "
            '"%d.%m.%Y"; names of months, years of two digits and times of day are not read [SC046]'
        )


def date_pattern(format: str) -> str:
    """A regular expression for texts in a format, with the groups ``Y``, ``m`` and ``d``."""
    crowded = re.search("%.%", format) is not None
    digits = {"Y": "{4}", "m": "{2}" if crowded else "{1,2}", "d": "{2}" if crowded else "{1,2}"}
    parts = re.split("%(.)", format)
    written = [f"(?P<{part}>[0-9]{digits[part]})" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return "^" + "".join(written) + "$"


def parse_days(column: Any, format: str, place: CellLocation, *, times: bool = False) -> tuple[NDArray[np.int64], Mask]:
    """The day of each cell, counted from 1970-01-01, and the mask of missing ones.

    Those hold 0, and so do the cells that fit nothing. With ``times`` a cell may have a time of day, which is not read.
    """
    array = flatten_column(column)
    kind = array.type
    if is_text(kind):
        return _parse_text_days(pc.utf8_trim_whitespace(array.cast(pa.large_string())), format, place, times)
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
    timed = (time > 0) & ~missing & (not times)
    place.refuse(timed, _TIME_OF_DAY)
    far = (days < _FIRST_DAY) | (days > _LAST_DAY)
    place.refuse(far, "the year is not within 1 to 9999; correct the date or leave the cell empty [DA143]")
    days[missing | far | timed] = 0
    return days, missing


def guess_date_formats(text: Any, *, times: bool = False) -> list[str]:
    """The known formats in which every one of these texts is a date; none if there are no texts."""
    return [each for each in DATE_FORMATS if len(text) and _match_format(text, each, times)[1].all()]


def _parse_text_days(text: Any, format: str, place: CellLocation, times: bool) -> tuple[NDArray[np.int64], Mask]:
    missing = find_missing(text)
    days, fits = _match_format(text, format, times)
    bad = ~fits & ~missing
    if bad.any():  # cells that are only counted need no advice, which tries every format on them
        place.refuse(bad, "" if place.invalid is not None else _advise(text.filter(pa.array(bad)), format, times))
    return days, missing


def _match_format(text: Any, format: str, times: bool) -> tuple[NDArray[np.int64], Mask]:
    """The day of each text, counted from 1970-01-01, and which texts are one; the others hold 0."""
    pattern = date_pattern(format)
    parts = pc.extract_regex(text, pattern.removesuffix("$") + _TIME if times else pattern)
    year, month, day = (
        np.array(pc.fill_null(pc.cast(pc.struct_field(parts, index), pa.int64()), 0), dtype=np.int64)
        for index in (parts.type.get_field_index(name) for name in "Ymd")
    )
    fits = (year > 0) & (month > 0) & (month <= 12) & (day > 0)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0)
    first, beyond = (at.astype("M8[M]").astype("M8[D]").astype(np.int64) for at in (months, months + 1))
    fits &= first + day <= beyond
    return np.where(fits, first + day - 1, 0), fits


def _advise(bad: Any, format: str, times: bool) -> str:
    """What is wrong with these cells, without a word of what they hold."""
    timed = pc.all(pc.match_substring_regex(bad, TIMED)).as_py()
    if timed and not times:
        return _TIME_OF_DAY
    if others := guess_date_formats(bad, times=times):
        return (
            f'the date is not written as format = "{format}" says; the schema can say format = '
            f'"{others[0]}" instead [DA144]'
        )
    if timed:
        return _TIME_OF_ZONE
    return f'the cell is not a date as format = "{format}" writes it; correct it or leave it empty [DA145]'


DatePart = Literal["days", "month", "weekday"]
Day: TypeAlias = datetime.date

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMES = {"month": MONTHS, "weekday": WEEKDAYS}
_PARTS = ("days", "month", "weekday")
_DAYS_BEFORE_1970 = 719_468  # since the first of March of the year 0
_BEFORE_THURSDAY = 3  # 1970-01-01 was one
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class _DateCells:
    """What columns of dates have in common: text of one format, and the column of a file."""

    __slots__ = ()

    format: str
    column: str

    def _of_file(self) -> dict[str, Field]:
        found: dict[str, Field] = {} if self.format == ISO_DATE else {"format": self.format}
        return found | ({"column": self.column} if self.column else {})


@dataclass(frozen=True, slots=True)
class Days(_DateCells, Number):
    """The days of a date since a public first day; see :func:`date`."""

    first: str = "1970-01-01"
    format: str = ISO_DATE
    column: str = ""

    kind = "date"
    example = '"none"'
    part = "days"
    reads_numbers = False  # no number is a day

    def value_of(self, given: object) -> float:
        """A day as the number that the column holds."""
        if isinstance(given, int | float):
            return Number.value_of(self, given)
        return float((as_day("an edge of a bin", given) - Day.fromisoformat(self.first)).days)

    def text_of(self, value: float, digits: int = 6) -> str:
        """The day of a number within the bounds, as yyyy-mm-dd."""
        return (Day.fromisoformat(self.first) + datetime.timedelta(days=round(value))).isoformat()

    def short_text_of(self, value: float) -> str:
        """The month of a day."""
        return self.text_of(value)[:7]

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind} | self._ends | {"as": "days"}
        if self.missing != REFUSE:
            found["missing"] = self._stand_in_text()
        return found | self._of_file()

    def decoded_column(self) -> Days:
        """The same days, written as they are in tables of ours."""
        return replace(self, format=ISO_DATE, column="")

    def read(self, cells: Any, place: CellLocation) -> tuple[Matrix, Mask]:
        """The days since the first one, and the mask of missing cells."""
        days, missing = parse_days(cells, self.format, place, times=True)
        return (days - np.datetime64(self.first, "D").astype(np.int64)).astype(np.float64), missing

    def cells(self, values: Any, missing: Mask | None = None) -> Any:
        """An Arrow array of days."""
        return pa.array(np.datetime64(self.first, "D") + np.rint(values).astype("m8[D]"), mask=missing)

    def constant(self, name: str, text: str) -> Any:
        """The day that a text means, within the bounds."""
        day = as_day(f"what {name!r} is compared with", text)
        if not 0 <= self.value_of(day) <= self.high:
            raise SchemaError(
                f"{day} lies outside the days of {name!r}, {self.first} to {self.text_of(self.high)} [SC059]"
            )
        return day

    def describe_values(self) -> str:
        """The first and the last day."""
        return f"days from {self.first} to {self.text_of(self.high)}"

    def describe(self) -> dict[str, Any]:
        """The first and the last day."""
        return {"type": "date", **self._ends}

    def _notes_of_unit(self) -> list[str]:
        return ["A date as days is a number: the days since its day from, which range to its day until."]

    @property
    def _ends(self) -> dict[str, Field]:
        return {"from": self.first, "until": self.text_of(self.high)}

    def _onnx_value(self, graph: Any, value: str) -> Any:
        return graph.of("Sub", value, float(np.datetime64(self.first, "D").astype(np.int64)))


@dataclass(frozen=True, slots=True)
class Calendar(_DateCells, Category):
    """The month or the weekday of a date; see :func:`date`."""

    part: DatePart = "month"
    format: str = ISO_DATE
    column: str = ""

    kind = "date"

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "as": self.part}
        if self.missing != REFUSE:
            found["missing"] = self.missing
        return found | self._of_file()

    def decoded_column(self) -> Category:
        """The names of months or weekdays, as they are in tables of ours."""
        return Category(self.values, self.missing)

    def read(self, cells: Any, place: CellLocation) -> tuple[NDArray[np.int64], Mask]:
        """The month or the weekday of each cell, counted from 0, and the mask of missing ones."""
        days, missing = parse_days(cells, self.format, place, times=True)
        if self.part == "weekday":
            return (days + _BEFORE_THURSDAY) % 7, missing
        return days.view("M8[D]").astype("M8[M]").astype(np.int64) % 12, missing

    @property
    def notes(self) -> tuple[str, ...]:
        """How dates become names."""
        return ("The month or the weekday of a date is a category of their English names.",)

    def to_onnx(self, graph: Any, name: str) -> Any:
        """The encoding of days since 1970-01-01."""
        days = graph.input(name, text=False)
        gone = graph.add("Or", graph.add("IsNaN", days), graph.add("IsInf", days))
        known = graph.add("Where", gone, graph.constant(0.0), days)
        if self.part == "weekday":
            found = _remainder(graph, graph.of("Add", known, _BEFORE_THURSDAY), 7)
        else:
            found = _month(graph, known)
        placed = graph.add("Where", gone, graph.constant(float(self.stand_in)), found)
        return graph.one_hot(graph.whole(placed), len(self.values))


@dataclass(frozen=True, slots=True)
class Date:
    """What a schema says of a column of dates; see :func:`date`."""

    first: Day | str | None = None
    last: Day | str | None = None
    parts: str | Sequence[str] = "days"
    format: str = ISO_DATE
    missing: str | Day = REFUSE
    column: str = ""

    def __post_init__(self) -> None:
        listed = [self.parts] if isinstance(self.parts, str) else list(self.parts)
        if not listed or len(set(listed)) < len(listed) or not set(listed) <= set(_PARTS):
            raise SchemaError(
                'as must be "days", "month", "weekday" or a list of some of them, each once, not '
                f"{self.parts!r} [SC038]"
            )
        if not isinstance(self.column, str):
            raise SchemaError(f"column must be a text, the name of a column in the file, not {self.column!r} [SC039]")
        check_date_format(self.format)
        if (self.first is None) != (self.last is None) or ("days" in listed and self.first is None):
            raise SchemaError('from and until, the first and the last day, must both be given for as = "days" [SC040]')
        if self.first is not None and self.last is not None:
            first, last = as_day("from", self.first), as_day("until", self.last)
            if first >= last:
                raise SchemaError(f"from ({first}) must be before until ({last}); correct the two days [SC041]")
            object.__setattr__(self, "first", first)
            object.__setattr__(self, "last", last)
        self.columns("date")  # what is missing must fit each part

    def columns(self, name: str) -> dict[str, Column]:
        """The columns that it becomes: one of the same name, or with a list of parts ``NAME.days`` and so on."""
        if isinstance(self.parts, str):
            return {name: self._column(self.parts, "" if self.column == name else self.column)}
        return {f"{name}.{part}": self._column(part, self.column or name) for part in self.parts}

    def _column(self, part: str, column: str) -> Column:
        stand_in = self._stand_in()
        if part == "days":
            first, last = as_day("from", self.first), as_day("until", self.last)
            if isinstance(stand_in, str) and stand_in not in (REFUSE, NOWHERE, "middle"):
                raise SchemaError(
                    f'missing must be "refuse", "none", "middle", "from", "until" or a day, not {stand_in!r} [SC042]'
                )
            if isinstance(stand_in, Day) and not first <= stand_in <= last:
                raise SchemaError(f"missing ({stand_in}) must lie between from and until [SC043]")
            missing = stand_in if isinstance(stand_in, str) else float((stand_in - first).days)
            span, unit = float((last - first).days), f"days since {first}"
            return Days(
                0.0, span, unit, whole=True, missing=missing, first=first.isoformat(), format=self.format, column=column
            )
        names = _NAMES[part]
        if stand_in == "middle" and isinstance(self.first, Day) and isinstance(self.last, Day):
            stand_in = self.first + (self.last - self.first) // 2
        if isinstance(stand_in, Day):
            stand_in = names[stand_in.month - 1 if part == "month" else stand_in.weekday()]
        return Calendar(names, stand_in, "month" if part == "month" else "weekday", self.format, column)

    def _stand_in(self) -> Day | str:
        """What a missing cell becomes: a day, or a word."""
        if self.missing in ("from", "until"):
            found = self.first if self.missing == "from" else self.last
            if not isinstance(found, Day):
                raise SchemaError(f"missing = {self.missing!r} needs from and until [SC044]")
            return found
        if isinstance(self.missing, str) and not _ISO.fullmatch(self.missing):
            return self.missing
        return as_day("missing", self.missing)


ColumnSpec: TypeAlias = Column | Date
"""What a schema is made of; dates become columns of the other kinds."""


def date(
    first: Day | str | None = None,
    last: Day | str | None = None,
    *,
    parts: str | Sequence[str] = "days",
    format: str = ISO_DATE,
    missing: str | Day = REFUSE,
    column: str = "",
) -> Date:
    """A day between two public days, ``"2015-01-01"`` for example; days outside are clipped to them and counted.

    ``parts`` says what it is encoded to: ``"days"`` since the first day, as a whole number is encoded, ``"month"`` or
    ``"weekday"``, as a category is, or a list of these, which are then columns called ``NAME.days`` and so on. Without
    days, no first and last day are needed. ``format`` is how the file writes dates, with ``%Y``, ``%m`` and ``%d``.
    ``missing`` is a day, ``"from"``, ``"until"``, ``"middle"``, ``"none"`` or ``"refuse"``. ``column`` is the name of
    the column in the file, if it is another.
    """
    return Date(first, last, parts, format, missing, column)


def as_day(what: str, value: object) -> Day:
    """A day that is given as one or written yyyy-mm-dd; ``what`` names it in the error."""
    if isinstance(value, Day) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, str) and _ISO.fullmatch(value):
        try:
            return Day.fromisoformat(value)
        except ValueError:
            pass
    raise SchemaError(f'{what} must be a day such as "2015-01-31", not {value!r} [SC047]')


def _month(graph: Any, days: Any) -> Any:
    """The month, by whole years that begin in March, of which 400 have always the same length."""

    def whole(value: Any, by: float) -> Any:
        return graph.add("Floor", graph.of("Div", value, by))

    day = _remainder(graph, graph.of("Add", days, _DAYS_BEFORE_1970), 146_097)
    shifted = graph.add("Sub", day, whole(day, 1460))
    shifted = graph.add("Add", shifted, whole(day, 36_524))
    year = whole(graph.add("Sub", shifted, whole(day, 146_096)), 365)
    before = graph.add("Add", graph.of("Mul", year, 365), whole(year, 4))
    of_year = graph.add("Sub", day, graph.add("Sub", before, whole(year, 100)))
    month = whole(graph.of("Add", graph.of("Mul", of_year, 5), 2), 153)
    return _remainder(graph, graph.of("Add", month, 2), 12)


def _remainder(graph: Any, value: Any, by: float) -> Any:
    times = graph.add("Floor", graph.of("Div", value, by))
    return graph.add("Sub", value, graph.of("Mul", times, by))
