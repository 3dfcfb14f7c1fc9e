"""Columns of days: what a schema says of them, and the encoded columns that follow.

A date becomes one or several ordinary columns: the days since a public first day, which are a whole number between two
bounds; the month, of 12 values; the weekday, of 7. So bounds, norms, codes and noise are those of numbers and
categories, and nothing else needs to know of dates.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from colonnade.errors import SchemaError
from colonnade.tables.columns import NOWHERE, REFUSE, Category, Column, Field, Number

Part = Literal["days", "month", "weekday"]
Day: TypeAlias = datetime.date

ISO_DATE = "%Y-%m-%d"
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
_DIRECTIVE = re.compile("%(.)", re.DOTALL)
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Days(Number):
    """The days of a date since a public first day; see :func:`date`."""

    first: str = "1970-01-01"
    format: str = ISO_DATE
    column: str = ""

    kind = "date"

    def number_of(self, day: Day) -> float:
        """A day as the number that the column holds."""
        return float((day - Day.fromisoformat(self.first)).days)

    def day_of(self, number: float) -> str:
        """The day of a number within the bounds, as yyyy-mm-dd."""
        return (Day.fromisoformat(self.first) + datetime.timedelta(days=round(number))).isoformat()

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "from": self.first, "until": self.day_of(self.high), "as": "days"}
        if self.missing != REFUSE:
            found["missing"] = self.missing if isinstance(self.missing, str) else self.day_of(self.missing)
        return found | _of_file(self.format, self.column)


@dataclass(frozen=True, slots=True)
class Calendar(Category):
    """The month or the weekday of a date; see :func:`date`."""

    part: Part = "month"
    format: str = ISO_DATE
    column: str = ""

    kind = "date"

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "as": self.part}
        if self.missing != REFUSE:
            found["missing"] = self.missing
        return found | _of_file(self.format, self.column)


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
        check_format(self.format)
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
            return Days(0.0, span, unit, "signed", "none", missing, True, first.isoformat(), self.format, column)
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


Declared: TypeAlias = Column | Date
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


def source_of(name: str, column: Column) -> str:
    """The column of a party's file that a column of its schema is read from."""
    return getattr(column, "column", "") or name


def section_of(name: str, column: Column) -> str:
    """The name of the date that a column was made of, where a date has several; otherwise the column's own."""
    part = "days" if isinstance(column, Days) else column.part if isinstance(column, Calendar) else None
    return name if part is None else name.removesuffix(f".{part}")


def decoded_column(column: Column) -> Column:
    """How the cells of a table made from encoded rows are read again: dates, and the names of months and weekdays."""
    if isinstance(column, Days):
        return replace(column, format=ISO_DATE, column="")
    return Category(column.values, column.missing) if isinstance(column, Calendar) else column


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


def _of_file(format: str, column: str) -> dict[str, Field]:
    found: dict[str, Field] = {} if format == ISO_DATE else {"format": format}
    return found | ({"column": column} if column else {})


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
