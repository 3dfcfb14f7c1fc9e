"""The public periods in which answers are kept: days, weeks or months of the calendar, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

PeriodKind = Literal["day", "week", "month"]
_FOUR_WEEKS = 28


@dataclass(frozen=True)
class Period:
    """One of them: its name, which follows from the date alone, and when the next one begins."""

    kind: PeriodKind
    name: str
    ends: datetime

    @classmethod
    def at(cls, kind: PeriodKind, moment: datetime) -> Period:
        """The period of a moment."""
        day = moment.astimezone(UTC).date()
        if kind == "day":
            return cls(kind, day.isoformat(), _midnight(day + timedelta(days=1)))
        if kind == "week":
            year, week, weekday = day.isocalendar()
            return cls(kind, f"{year:04d}-W{week:02d}", _midnight(day + timedelta(days=8 - weekday)))
        later = day.replace(day=_FOUR_WEEKS) + timedelta(days=4)
        return cls(kind, f"{day:%Y-%m}", _midnight(later.replace(day=1)))

    @property
    def end(self) -> int:
        """When the next one begins, as Unix time."""
        return int(self.ends.timestamp())


def kind_named(name: str) -> PeriodKind:
    """The kind of the period that is called so."""
    return "week" if "W" in name else "day" if name.count("-") > 1 else "month"


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)
