"""The files of an owner's counts: who was answered about, and beside the ledger a mark of how many that were.

The mark shows whether the file of counts was put back from a copy: then it counts less than was marked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from colonnade.disk.ahead import log_ahead
from colonnade.errors import StorageError

_VERSION = 1
_BUSY_SECONDS = 30.0
_COUNTS = """
CREATE TABLE days (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, times INTEGER NOT NULL, asked INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (digest, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE people (
    digest TEXT NOT NULL, day TEXT NOT NULL, person TEXT NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (digest, day, person)
) STRICT, WITHOUT ROWID;
"""
_MARKS = """
CREATE TABLE marks (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, asked INTEGER NOT NULL,
    PRIMARY KEY (digest, day, entry)
) STRICT, WITHOUT ROWID;
"""


class Counted:
    """One SQLite file. Every use of it is one transaction, on disk at its end."""

    def __init__(self, path: Path, tables: str) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StorageError(f"{error.filename or path} cannot be used: {error.strerror} [SO027]") from None
        with self._named():
            # It stays open: SQLite would write the whole file anew whenever its last connection is closed.
            self._base = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            log_ahead(self._base, _BUSY_SECONDS)
            self._base.execute("PRAGMA synchronous=FULL")
        with self.writing(lambda: None) as base:
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if not version and not base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in filter(str.strip, tables.split(";")):
                    base.execute(statement)
                base.execute(f"PRAGMA user_version={_VERSION}")
            elif version != _VERSION:
                raise StorageError(
                    f"{path} was written by another program, or by another release: use the release that "
                    "wrote it [SO028]"
                )

    @contextmanager
    def writing(self, undone: Callable[[], None]) -> Iterator[sqlite3.Connection]:
        """One transaction; ``undone`` is called if it was not written."""
        with self._named():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                undone()
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be read or written: {error} [SO029]") from None

    def close(self) -> None:
        """Close the file."""
        self._base.close()


def counts(path: Path) -> Counted:
    """The file that says who was answered about, and how often."""
    return Counted(path, _COUNTS)


def marks(ledger: Path) -> Counted:
    """The file beside a ledger that says how many were answered about under each of its entries."""
    return Counted(ledger.with_name(f"{ledger.name}.scores"), _MARKS)


def asked_on(path: Path, digest: str, day: str) -> int | None:
    """How many were answered about on a day, by a look of its own at the file; ``None`` where the day is not there."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as base:
            row = base.execute("SELECT asked FROM days WHERE digest = ? AND day = ?", (digest, day)).fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"{path} cannot be read: {error} [SO030]") from None
    return None if row is None else int(row[0])
