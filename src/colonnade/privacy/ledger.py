"""A party's own record of what it has revealed: durable before the first byte leaves, and never taken back.

One SQLite file, append-only (triggers refuse updates and deletions). An entry is *reserved* before a study
starts, *sent* from the moment a byte may have left, and *committed* when the study ended well. All three
count in full; only an entry that was never sent can be *released*. What an observer has learned is always
composed anew by the accountant from every counted event.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from colonnade.errors import BudgetError, LedgerError, PrivacyError
from colonnade.privacy import accountant
from colonnade.privacy.events import Event, View, alike, from_dict, view
from colonnade.privacy.observers import Alike, Budget, Observer, Trust
from colonnade.privacy.statement import rounded_up

SCHEMA_VERSION = 1
APPLICATION_ID = 0x434F4C4E
_BUSY_SECONDS = 30.0
_FIRST_WRITE_SECONDS = 2.0
_EMPTY = (0, 0, 0)
_SHOWN = 8
_SCHEMA = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, study TEXT NOT NULL, digest TEXT NOT NULL, created TEXT NOT NULL,
    events TEXT NOT NULL, trust TEXT NOT NULL);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL REFERENCES entries (id), at TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'sent', 'committed', 'released')),
    UNIQUE (entry, state));
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER changes_stay BEFORE UPDATE ON changes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER changes_last BEFORE DELETE ON changes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_ALLOWED = {"sent": ("reserved",), "committed": ("reserved", "sent"), "released": ("reserved",)}


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


History = Sequence[tuple[Event, Trust]]


class Ledger:
    """The ledger in one file; each call opens the file anew, so it may be shared by threads and processes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._opened(create=True) as base:
            self._create(base)

    def reserve(self, study: str, digest: str, events: Sequence[Event], trust: Trust, caps: Sequence[Budget]) -> Entry:
        """Write the cost of a study down, or refuse it; two reservations never pass on the same remainder."""
        new = [(event, trust) for event in events]
        if not new:
            raise LedgerError(f"study {study!r} asks for a reservation without any event")
        with self._writing() as base:
            stored = [(event, entry.trust) for entry in _counted(base) for event in entry.events]
            if problems := _over(caps, stored, new, trust):
                raise BudgetError(f"study {study!r} is over budget: {'; '.join(problems)}")
            now = _now()
            row = base.execute(
                "INSERT INTO entries (study, digest, created, events, trust) VALUES (?, ?, ?, ?, ?)",
                (study, digest, now, json.dumps([event.to_dict() for event in events]), trust.to_json()),
            )
            number = int(row.lastrowid or 0)
            _append(base, number, "reserved", now)
        return Entry(number, study, digest, now, "reserved", tuple(events), trust)

    def mark_sent(self, entry: Entry) -> Entry:
        """Call before the first byte leaves; from here on the entry can never be released."""
        return self._advance(entry, "sent")

    def commit(self, entry: Entry) -> Entry:
        """The study ended well."""
        return self._advance(entry, "committed")

    def release(self, entry: Entry) -> Entry:
        """Give back a reservation of which nothing was ever sent."""
        return self._advance(entry, "released")

    def spent(self, observer: Observer, delta: float) -> float:
        """What an observer has learned from all counted studies together."""
        with self._opened() as base:
            stored = [(event, entry.trust) for entry in _counted(base) for event in entry.events]
        return _total(stored, observer, delta).epsilon

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the oldest first."""
        with self._opened() as base:
            return _entries(base)

    def verify(self) -> None:
        """Check the whole file: SQLite's own checks, readable events, possible histories of states."""
        with self._opened() as base:
            found = [str(row[0]) for row in base.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise LedgerError(f"{self.path} is damaged: {found[0]}")
            if base.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise LedgerError(f"{self.path} is damaged: a change belongs to no entry")
            triggers = base.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone()[0]
            if triggers != _SCHEMA.count("CREATE TRIGGER"):
                raise LedgerError(f"{self.path} was altered: what keeps it append-only is missing")
            for entry in _entries(base):
                states = [row[0] for row in base.execute(*_states_of(entry.id))]
                steps = pairwise(states)
                if states[:1] != ["reserved"] or any(old not in _ALLOWED.get(new, ()) for old, new in steps):
                    raise LedgerError(f"{self.path} was altered: entry {entry.id} has an impossible history")

    def _advance(self, entry: Entry, state: str) -> Entry:
        with self._writing() as base:
            states = [row[0] for row in base.execute(*_states_of(entry.id))]
            if not states:
                raise LedgerError(f"{self.path} has no entry {entry.id}")
            if states[-1] not in _ALLOWED[state]:
                raise LedgerError(f"entry {entry.id} is {states[-1]} and cannot become {state}")
            _append(base, entry.id, state, _now())
        return Entry(entry.id, entry.study, entry.digest, entry.created, state, entry.events, entry.trust)

    def _create(self, base: sqlite3.Connection) -> None:
        base.execute("BEGIN IMMEDIATE")
        try:
            if _marks(base) == _EMPTY:  # another process may have been first
                for statement in _SCHEMA.strip().split(";\n"):
                    base.execute(statement)
                base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            base.execute("COMMIT")
        except BaseException:
            base.execute("ROLLBACK")
            raise

    def _check(self, base: sqlite3.Connection, create: bool) -> None:
        application, version, tables = found = _marks(base)
        if found == _EMPTY and create:
            return
        if application != APPLICATION_ID or not tables:
            raise LedgerError(f"{self.path} is not a ledger of ours, or has been emptied; name another file")
        if version != SCHEMA_VERSION:
            raise LedgerError(f"{self.path} has ledger version {version}; this code reads {SCHEMA_VERSION}")

    def _make_file(self) -> None:
        """A new file, or one that is already a ledger: an empty one may be a ledger that was lost."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            return
        except FileExistsError:
            patience = time.monotonic() + _FIRST_WRITE_SECONDS
        while self.path.is_file() and self.path.stat().st_size == 0:
            if time.monotonic() > patience:  # no other process is just making it
                raise LedgerError(f"{self.path} is empty: put the ledger back from a copy, or delete it to start anew")
            time.sleep(0.02)

    @contextmanager
    def _opened(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self._make_file()
            elif not self.path.exists():
                raise LedgerError(f"the ledger {self.path} is gone")
            base = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._check(base, create)  # before anything is written: the file may be somebody else's
                _into_wal(base)
                base.execute("PRAGMA synchronous = FULL")
                base.execute("PRAGMA foreign_keys = ON")
                yield base
            finally:
                base.close()
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._opened() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                yield base
                base.execute("COMMIT")
            except BaseException:
                if base.in_transaction:
                    base.execute("ROLLBACK")
                raise


def _over(caps: Sequence[Budget], stored: History, new: History, trust: Trust) -> list[str]:
    """One sentence for each observer whose cap the new events would exceed."""
    everything = [*stored, *new]
    same = alike(everything)
    problems: dict[str, None] = {}
    for cap in caps:
        for observer in _capped(cap, everything, trust, same):
            known = stored if cap.named else _within(stored, observer)
            asked = new if cap.named else _within(new, observer)
            total = _total([*known, *asked], observer, cap.delta)
            if total.epsilon <= cap.epsilon or not asked:
                continue
            before = _total(known, observer, cap.delta).epsilon
            alone = _total(asked, observer, cap.delta).epsilon
            left = math.floor(max(0.0, cap.epsilon - before) * 1e4) / 1e4
            why = f" ({total.reason})" if total.reason else ""
            text = f"{observer}: spent {rounded_up(before)}, asked {rounded_up(alone)}, left {left:g}"
            problems[f"{text} of {cap.epsilon:g} at delta {cap.delta:g}{why}"] = None
    shown = list(problems)
    return shown if len(shown) <= _SHOWN else [*shown[:_SHOWN], f"{len(shown) - _SHOWN} more observers"]


def _capped(cap: Budget, history: History, trust: Trust, same: Alike) -> list[Observer]:
    if cap.named:
        return [Observer.parse(cap.selector)]
    found: dict[Observer, None] = {}
    for known in dict.fromkeys([trust, *(past for _, past in history)]):
        try:
            found.update(dict.fromkeys(cap.observers(known, same if len(known.owners) > _SHOWN else None)))
        except PrivacyError:
            continue  # in that study nobody of this kind stays within the threshold
    return list(found)


def _within(history: History, observer: Observer) -> History:
    """The events whose own threshold covers the observer: a group's cap is a promise under it."""
    return [(event, trust) for event, trust in history if trust.broken(observer) is None]


def _views(history: History, observer: Observer) -> tuple[View, ...]:
    return tuple(view(event, observer, trust) for event, trust in history)


def _total(history: History, observer: Observer, delta: float) -> accountant.Bound:
    return accountant.epsilon(_views(history, observer), delta)


def _marks(base: sqlite3.Connection) -> tuple[int, int, int]:
    application = base.execute("PRAGMA application_id").fetchone()[0]
    version = base.execute("PRAGMA user_version").fetchone()[0]
    return application, version, base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


def _into_wal(base: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait for others while it switches, so we do."""
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def _states_of(entry: int) -> tuple[str, tuple[int]]:
    return "SELECT state FROM changes WHERE entry = ? ORDER BY id", (entry,)


def _append(base: sqlite3.Connection, entry: int, state: str, at: str) -> None:
    base.execute("INSERT INTO changes (entry, at, state) VALUES (?, ?, ?)", (entry, at, state))


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


def _counted(base: sqlite3.Connection) -> list[Entry]:
    return [entry for entry in _entries(base) if entry.state != "released"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
