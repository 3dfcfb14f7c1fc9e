"""Studies that ended early: what each of them told whoever asked is in no epsilon, so they are counted.

No event is read for that, and of the entries before a period not even the times, so that counting stays cheap.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from colonnade.errors import LedgerError
from colonnade.privacy.ledger.caps import dates, since

_EARLY = "e.digest <> '' AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'committed')"
_RELEASED = "EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'released')"
_MARGIN = timedelta(days=2)
"""Times are compared as texts first, and may be written in other zones."""


@dataclass(frozen=True)
class EarlyEnds:
    """How many studies may end early, or not have ended, within so many days, before there are no more."""

    at_most: int
    days: float


def ended_early(base: sqlite3.Connection, days: float | None, now: datetime) -> int:
    """How many studies did not end well, or have not ended: of all, or of those of the last days.

    An entry without a digest is no study but a note of the clock.
    """
    if days is None:
        return int(base.execute(f"SELECT count(*) FROM entries e WHERE {_EARLY}").fetchone()[0])  # noqa: S608
    start = since(days, now)
    found = base.execute(
        f"SELECT e.id, e.created, {_RELEASED}, {_EARLY} FROM entries e WHERE e.id > ? ORDER BY e.id",  # noqa: S608
        (last_before(base, start),),
    ).fetchall()
    when = dates([(read_time(number, created), bool(released)) for number, created, released, _ in found], now)
    return sum(bool(early) for (*_, early), moment in zip(found, when, strict=True) if moment > start)


def last_before(base: sqlite3.Connection, moment: datetime) -> int:
    """The number of an entry up to which all are dated before a moment: they and their order decide nothing after it.

    The time of an entry depends on others only through later ones before it, and through those dated later than now.
    """
    bound = (moment - _MARGIN).isoformat() if moment.year > 1 else ""
    first = base.execute("SELECT min(id) FROM entries WHERE created NOT BETWEEN '0' AND ?", (bound,)).fetchone()[0]
    if first is not None:
        return int(first) - 1
    return int(base.execute("SELECT ifnull(max(id), 0) FROM entries").fetchone()[0])


def read_time(number: int, created: str) -> datetime:
    """When an entry was written."""
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerError(f"entry {number} of the ledger has no readable time [LE011]") from error
