"""Studies that ended early: what each of them told whoever asked is in no epsilon, so they are counted.

No event is read for that, so that counting stays cheap in a ledger of many entries.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from colonnade.errors import LedgerError
from colonnade.privacy.ledger.caps import dates, since

_LAST = "SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1"


@dataclass(frozen=True)
class EarlyEnds:
    """How many studies may end early, or not have ended, within so many days, before there are no more."""

    at_most: int
    days: float


def ended_early(base: sqlite3.Connection, days: float | None, now: datetime) -> int:
    """How many studies did not end well, or have not ended: of all, or of those of the last days.

    An entry without a digest is no study but a note of the clock.
    """
    entries = base.execute(f"SELECT e.id, e.digest, e.created, ({_LAST}) FROM entries e ORDER BY e.id").fetchall()  # noqa: S608
    early = [bool(digest) and state != "committed" for _, digest, _, state in entries]
    if days is None:
        return sum(early)
    when = dates([(_read(number, created), state == "released") for number, _, created, state in entries], now)
    return sum(counts for counts, moment in zip(early, when, strict=True) if moment > since(days, now))


def _read(number: int, created: str) -> datetime:
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerError(f"entry {number} of the ledger has no readable time") from error
