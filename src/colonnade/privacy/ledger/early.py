"""Studies that ended early: what each of them told whoever asked is in no epsilon, so they are counted.

No event is read for that, so that counting stays cheap.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from colonnade.errors import LedgerError
from colonnade.privacy.ledger.caps import dates, since

_EARLY = "e.digest <> '' AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'committed')"
_RELEASED = "EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'released')"


@dataclass(frozen=True)
class EarlyEnds:
    """How many studies may end early, or not have ended, within so many days, before there are no more."""

    at_most: int
    days: float


def ended_early(base: sqlite3.Connection, days: float | None, now: datetime) -> int:
    """How many studies did not end well, or have not ended: of all, or of those of the last days.

    An entry without a digest is no study but a note of the clock.
    """
    query = f"SELECT e.id, e.created, {_RELEASED}, {_EARLY} FROM entries e ORDER BY e.id"  # noqa: S608 - fixed words
    found = base.execute(query).fetchall()
    if days is None:
        return sum(early for *_, early in found)
    when = dates([(read_time(number, created), bool(released)) for number, created, released, _ in found], now)
    return sum(early for (*_, early), moment in zip(found, when, strict=True) if moment > since(days, now))


def read_time(number: int, created: str) -> datetime:
    """When an entry was written."""
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerError(f"entry {number} of the ledger has no readable time [LE011]") from error
