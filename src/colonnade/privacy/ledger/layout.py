"""What is in the file of a ledger, by its version, and how a new one is made: in one step, checked, and durable."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from colonnade.disk import writing
from colonnade.disk.ahead import log_ahead
from colonnade.errors import LedgerError

APPLICATION_ID = 0x434F4C4E
SCHEMA_VERSION = 3
UNCHAINED, WITHOUT_KEYS = 1, 2
BUSY_SECONDS = 30.0
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
_PEOPLE = """
CREATE TABLE people (entry INTEGER PRIMARY KEY REFERENCES entries (id), known TEXT NOT NULL);
CREATE TRIGGER people_stay BEFORE UPDATE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER people_last BEFORE DELETE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_SUMS = """
CREATE TABLE sums (
    first INTEGER NOT NULL, last INTEGER NOT NULL, content TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (first, last));
"""
BY_VERSION = {
    UNCHAINED: _ENTRIES,
    WITHOUT_KEYS: _ENTRIES + _CHAIN,
    SCHEMA_VERSION: _ENTRIES + _CHAIN + _PEOPLE + _SUMS,
}
"""The whole schema of each version of the file."""
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


def version_of(base: sqlite3.Connection) -> int:
    """The version of an open file."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def make(place: Path) -> bool:
    """Make a new ledger in one step, so that no half-made file is ever there; false if another process was first."""
    writing.sweep(place)
    with writing.workshop(place) as room:
        new = room / place.name
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _fill(new)
        _check_whole(new)
        with new.open("rb") as made:
            os.fsync(made.fileno())
        first = writing.claim(new, place)
    writing.sync_folder(place.parent)
    return first


def _fill(new: Path) -> None:
    """Write the tables of a ledger into the file itself; the log, which a full disk may leave unread, comes last."""
    with closing(sqlite3.connect(new, isolation_level=None)) as base:
        base.execute("PRAGMA synchronous = FULL")
        with transaction(base, "BEGIN IMMEDIATE"):
            for statement in statements(BY_VERSION[SCHEMA_VERSION]):
                base.execute(statement)
            base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        into_wal(base)
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _check_whole(new: Path) -> None:
    """Refuse a new file that does not hold, without its log, exactly the tables of a ledger: the disk may be full."""
    with closing(sqlite3.connect(f"{new.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        sound = [str(row[0]) for row in base.execute("PRAGMA integrity_check")] == ["ok"]
        application = base.execute("PRAGMA application_id").fetchone()[0]
        tables = frozenset(base.execute(SCHEMA))
        if (sound, application, version_of(base), tables) != (
            True,
            APPLICATION_ID,
            SCHEMA_VERSION,
            expected(SCHEMA_VERSION),
        ):
            raise LedgerError("a new ledger could not be written as a whole: make room on its disk [LE032]")


@cache
def expected(version: int) -> frozenset[tuple[str, str, str, str | None]]:
    """Every row of the schema of a ledger, with what SQLite adds by itself."""
    with closing(sqlite3.connect(":memory:")) as base:
        for statement in statements(BY_VERSION[version]):
            base.execute(statement)
        return frozenset(base.execute(SCHEMA))


def statements(script: str) -> list[str]:
    """The statements of a script, one by one."""
    return [statement.strip().removesuffix(";") for statement in script.strip().split(";\n")]


@contextmanager
def transaction(base: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Do what happens inside as a whole or not at all."""
    base.execute(begin)
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        if base.in_transaction:
            base.execute("ROLLBACK")
        raise


def into_wal(base: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, without which a ledger is not used."""
    if (mode := log_ahead(base, BUSY_SECONDS)) != "wal":
        raise LedgerError(
            f"a ledger needs a write-ahead log, and SQLite keeps its journal as {mode!r} here: move the ledger to "
            "a local disk [LE033]"
        )
