"""A party's own record of what it has revealed: durable before the first byte leaves, and never taken back.

One SQLite file, append-only and chained by hashes. An entry is *reserved* before a study starts, *sent* from
the moment a byte may have left, and *committed* when the study ended well. All three count in full; only an
entry that was never sent can be *released*. What an observer has learned is always composed anew by the
accountant from every counted event.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from colonnade.errors import BudgetError, LedgerError, PrivacyError
from colonnade.privacy.events import Event, from_dict
from colonnade.privacy.ledger import caps as limits
from colonnade.privacy.ledger.caps import Left, Period, Spending, since, within_days
from colonnade.privacy.ledger.chain import Change, lines
from colonnade.privacy.ledger.file import ALLOWED, LedgerFile, append, changes, head, states_of
from colonnade.privacy.observers import Budget, Observer, Trust


@dataclass(frozen=True)
class Entry:
    """One study's reservation and its state now."""

    id: int
    study: str
    digest: str
    created: str
    state: str
    events: tuple[Event, ...]
    trust: Trust


class Ledger:
    """The ledger in one file; each call opens the file anew, so it may be shared by threads and processes."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], datetime] | None = None) -> None:
        self._file = LedgerFile(path)
        self._clock = clock or (lambda: datetime.now(UTC))

    @property
    def path(self) -> Path:
        """Where the ledger lies."""
        return self._file.path

    @property
    def head(self) -> str:
        """The hash of the last change: who notes it can tell later whether anything was cut off or put back."""
        with self._file.opened() as base:
            return head(base)

    def reserve(
        self,
        study: str,
        digest: str,
        events: Sequence[Event],
        trust: Trust,
        caps: Sequence[Budget],
        periods: Sequence[Period] = (),
    ) -> Entry:
        """Write the cost of a study down, or refuse it; two reservations never pass on the same remainder."""
        with self._file.writing() as base:
            now = self._clock()
            self._refuse(base, study, [(event, trust) for event in events], caps, periods, now)
            at = _written(now)
            row = base.execute(
                "INSERT INTO entries (study, digest, created, events, trust) VALUES (?, ?, ?, ?, ?)",
                (study, digest, at, json.dumps([event.to_dict() for event in events]), trust.to_json()),
            )
            number = int(row.lastrowid or 0)
            append(base, number, "reserved", at)
        return Entry(number, study, digest, at, "reserved", tuple(events), trust)

    def check(
        self, study: str, events: Sequence[Event], trust: Trust, caps: Sequence[Budget], periods: Sequence[Period] = ()
    ) -> None:
        """Refuse what :meth:`reserve` would refuse now, and write nothing."""
        with self._file.opened() as base:
            self._refuse(base, study, [(event, trust) for event in events], caps, periods, self._clock())

    def mark_sent(self, entry: Entry) -> Entry:
        """Call before the first byte leaves; from here on the entry can never be released."""
        return self._advance(entry, "sent")

    def commit(self, entry: Entry) -> Entry:
        """The study ended well."""
        return self._advance(entry, "committed")

    def release(self, entry: Entry) -> Entry:
        """Give back a reservation of which nothing was ever sent."""
        return self._advance(entry, "released")

    def spent(self, observer: Observer, delta: float, *, days: float | None = None) -> float:
        """What an observer has learned from all counted studies together, or from those of the last days."""
        with self._file.opened() as base:
            everything = _spendings(base)
        stored = everything if days is None else within_days(everything, days, self._clock())
        return limits.total(limits.flat(stored), observer, delta).epsilon

    def left(self, caps: Sequence[Budget], periods: Sequence[Period] = ()) -> tuple[Left, ...]:
        """What each cap leaves each observer: for ever first, then period by period."""
        with self._file.opened() as base:
            return limits.remainders(caps, periods, _spendings(base), self._clock())

    def entries(self, *, days: float | None = None) -> tuple[Entry, ...]:
        """All entries, the oldest first, or those of the last days."""
        with self._file.opened() as base:
            if days is None:
                return _entries(base)
            recent = since(days, self._clock())
            return tuple(entry for when, entry in _dated(base) if when > recent)

    def lines(self) -> tuple[tuple[Change, str], ...]:
        """The whole chain: every change, and the text whose hash is chained."""
        with self._file.opened() as base:
            return tuple(lines(changes(base)))

    def verify(self, head: str | None = None) -> None:
        """Check the whole file: SQLite's own checks, the chain, readable events, possible histories of states.

        With ``head``, a hash noted earlier, also that the ledger still holds everything up to there.
        """
        self._file.verify(head)
        self.entries()

    def _refuse(
        self,
        base: sqlite3.Connection,
        study: str,
        new: limits.History,
        caps: Sequence[Budget],
        periods: Sequence[Period],
        now: datetime,
    ) -> None:
        if not new:
            raise LedgerError(f"study {study!r} asks for a reservation without any event")
        self._file.check_chain(base)
        if problems := limits.refusals(caps, periods, _spendings(base), new, now):
            raise BudgetError(f"study {study!r} is over budget: {'; '.join(problems)}")

    def _advance(self, entry: Entry, state: str) -> Entry:
        with self._file.writing() as base:
            states = states_of(base, entry.id)
            if not states:
                raise LedgerError(f"{self.path} has no entry {entry.id}")
            if states[-1] not in ALLOWED[state]:
                raise LedgerError(f"entry {entry.id} is {states[-1]} and cannot become {state}")
            append(base, entry.id, state, _written(self._clock()))
        return replace(entry, state=state)


def _entries(base: sqlite3.Connection) -> tuple[Entry, ...]:
    rows = base.execute(
        "SELECT e.id, e.study, e.digest, e.created, e.events, e.trust, "
        "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1) "
        "FROM entries e ORDER BY e.id"
    )
    try:
        return tuple(
            Entry(
                number, study, digest, created, str(state),
                tuple(from_dict(event) for event in json.loads(events)), Trust.from_json(trust),
            )
            for number, study, digest, created, events, trust, state in rows
        )  # fmt: skip
    except (ValueError, TypeError, PrivacyError) as error:
        # What cannot be read cannot be counted, and a budget that cannot be counted is not spent from.
        raise LedgerError(f"the ledger holds an entry that cannot be read: {error}") from error


def _dated(base: sqlite3.Connection) -> Iterator[tuple[datetime, Entry]]:
    """Every entry and its time; none is taken to be older than one before it, whatever the clock said."""
    latest = datetime.min.replace(tzinfo=UTC)
    for entry in _entries(base):
        try:
            latest = max(latest, datetime.fromisoformat(entry.created))
        except (ValueError, TypeError) as error:
            raise LedgerError(f"entry {entry.id} of the ledger has no readable time") from error
        yield latest, entry


def _spendings(base: sqlite3.Connection) -> list[Spending]:
    """What counts: every entry that was not released."""
    return [
        Spending(when, [(event, entry.trust) for event in entry.events])
        for when, entry in _dated(base)
        if entry.state != "released"
    ]


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
