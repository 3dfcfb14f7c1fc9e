"""The SQLite file of a ledger: made once, append-only, durable, upgraded in place, checked as a whole."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

from colonnade.errors import LedgerError
from colonnade.privacy.ledger.chain import GENESIS, Change, check_head, first_break, hashed

SCHEMA_VERSION = 2
APPLICATION_ID = 0x434F4C4E
ALLOWED = {"sent": ("reserved",), "committed": ("reserved", "sent"), "released": ("reserved",)}
"""From which states an entry may come into another."""
_BUSY_SECONDS = 30.0
_FIRST_WRITE_SECONDS = 2.0
_EMPTY = (0, 0, 0)
_UNCHAINED = 1
_ENTRIES = """
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
_CHAIN = """
CREATE TABLE chain (change INTEGER PRIMARY KEY REFERENCES changes (id), hash TEXT NOT NULL);
CREATE TRIGGER chain_stay BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER chain_last BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_HISTORY = (
    "SELECT c.id, c.entry, c.state, c.at, {hash}, e.study, e.digest, e.created, e.events, e.trust "
    "FROM changes c LEFT JOIN entries e ON e.id = c.entry {rest} ORDER BY c.id"
)
_CHAINED = _HISTORY.format(hash="h.hash", rest="LEFT JOIN chain h ON h.change = c.id")
_NOT_CHAINED = _HISTORY.format(hash="NULL", rest="")
_ONE = _HISTORY.format(hash="NULL", rest="WHERE c.id = ?")


class LedgerFile:
    """One file; each use opens it anew, so it may be shared by threads and processes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.opened(create=True) as base, _transaction(base):
            if _marks(base) == _EMPTY:  # another process may have been first
                for statement in _statements(_ENTRIES + _CHAIN):
                    base.execute(statement)
                base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def opened(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        """The file, open for reading."""
        try:
            if create:
                self._make_file()
            elif not self.path.exists():
                raise LedgerError(f"the ledger {self.path} is gone")
            base = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._check_kind(base, create)  # before anything is written: the file may be somebody else's
                _into_wal(base)
                base.execute("PRAGMA synchronous = FULL")
                base.execute("PRAGMA foreign_keys = ON")
                _upgrade(base)
                yield base
            finally:
                base.close()
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The file, locked for one change that happens as a whole or not at all."""
        with self.opened() as base, _transaction(base):
            yield base

    def check_chain(self, base: sqlite3.Connection) -> None:
        """Refuse a file whose chain is broken, and name the first entry where it is."""
        broken = first_break(changes(base))
        if broken is not None:
            raise LedgerError(
                f"{self.path} was altered: the chain breaks at entry {broken.entry} ({broken.state}); restore a copy"
            )
        lone = base.execute(
            "SELECT min(id) FROM entries WHERE id NOT IN (SELECT entry FROM changes WHERE state = 'reserved')"
        ).fetchone()[0]
        if lone is not None:
            raise LedgerError(f"{self.path} was altered: entry {lone} was never reserved; restore a copy")

    def verify(self, head: str | None = None) -> None:
        """Check the whole file; with ``head``, also that it still continues from there."""
        with self.opened() as base:
            found = [str(row[0]) for row in base.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise LedgerError(f"{self.path} is damaged: {found[0]}")
            self.check_chain(base)
            if (stray := base.execute("PRAGMA foreign_key_check").fetchone()) is not None:
                raise LedgerError(
                    f"{self.path} was altered: a row of {stray[0]} belongs to a {stray[2]} row that is gone"
                )
            written = {row[0] for row in base.execute("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'")}
            if written != set(_statements(_ENTRIES + _CHAIN)):
                raise LedgerError(f"{self.path} was altered: what keeps it append-only is missing, or more was added")
            history = changes(base)
            for entry, steps in groupby(sorted(history, key=attrgetter("entry", "number")), attrgetter("entry")):
                states = [step.state for step in steps]
                if states[0] != "reserved" or any(old not in ALLOWED.get(new, ()) for old, new in pairwise(states)):
                    raise LedgerError(f"{self.path} was altered: entry {entry} has an impossible history")
            if head is not None:
                check_head(head, [GENESIS, *(change.hash or "" for change in history)])

    def _check_kind(self, base: sqlite3.Connection, create: bool) -> None:
        application, version, tables = found = _marks(base)
        if found == _EMPTY and create:
            return
        if application != APPLICATION_ID or not tables:
            raise LedgerError(f"{self.path} is not a ledger of ours, or has been emptied; name another file")
        if version not in (_UNCHAINED, SCHEMA_VERSION):
            raise LedgerError(f"{self.path} has ledger version {version}; this code reads up to {SCHEMA_VERSION}")

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


def append(base: sqlite3.Connection, entry: int, state: str, at: str) -> None:
    """Write a change of state down, and chain it."""
    row = base.execute("INSERT INTO changes (entry, at, state) VALUES (?, ?, ?)", (entry, at, state))
    written = base.execute(_ONE, (row.lastrowid,)).fetchone()
    _chain(base, Change(*written), head(base))


def changes(base: sqlite3.Connection) -> list[Change]:
    """All changes, the oldest first."""
    return [Change(*row) for row in base.execute(_CHAINED)]


def head(base: sqlite3.Connection) -> str:
    """The hash of the last change."""
    row = base.execute("SELECT hash FROM chain ORDER BY change DESC LIMIT 1").fetchone()
    return GENESIS if row is None else str(row[0])


def states_of(base: sqlite3.Connection, entry: int) -> list[str]:
    """The states an entry has been in, in order."""
    return [row[0] for row in base.execute("SELECT state FROM changes WHERE entry = ? ORDER BY id", (entry,))]


def _chain(base: sqlite3.Connection, change: Change, previous: str) -> str:
    found = hashed(change.line(previous))
    base.execute("INSERT INTO chain (change, hash) VALUES (?, ?)", (change.number, found))
    return found


def _upgrade(base: sqlite3.Connection) -> None:
    """Chain a ledger that was written before there was a chain, in place and at once."""
    if _marks(base)[1] != _UNCHAINED:
        return
    with _transaction(base):
        if _marks(base)[1] != _UNCHAINED:  # another process was first
            return
        for statement in _statements(_CHAIN):
            base.execute(statement)
        previous = GENESIS
        for row in base.execute(_NOT_CHAINED).fetchall():
            previous = _chain(base, Change(*row), previous)
        base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _statements(script: str) -> list[str]:
    return [statement.strip().removesuffix(";") for statement in script.strip().split(";\n")]


@contextmanager
def _transaction(base: sqlite3.Connection) -> Iterator[None]:
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        if base.in_transaction:
            base.execute("ROLLBACK")
        raise


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
