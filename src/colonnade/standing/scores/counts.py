"""The files of an owner's counts: who was answered about, and beside the ledger a mark of how many that were.

The mark shows whether the file of counts was put back from a copy: then it counts less than was marked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from colonnade.errors import StorageError
from colonnade.standing.standing_file import StandingFile

COUNTS = "scores.db"
"""The file in an agent's folder."""


class OpenFile(StandingFile):
    """A file that stays open: SQLite would write the whole of it anew whenever its last connection is closed."""

    _base: sqlite3.Connection | None = None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self._base = self._base or self._connect()
            yield self._base
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be read or written: {error} [SO029]") from None

    def close(self) -> None:
        """Close the file."""
        if self._base is not None:
            self._base.close()


class CountsFile(OpenFile):
    """Who was answered about, and how often."""

    name, application_id = COUNTS, 0x436F5363
    schema = """
CREATE TABLE days (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, times INTEGER NOT NULL, asked INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (digest, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE people (
    digest TEXT NOT NULL, day TEXT NOT NULL, person TEXT NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (digest, day, person)
) STRICT, WITHOUT ROWID;
"""


class MarksFile(OpenFile):
    """Beside a ledger: how many were answered about under each of its entries."""

    application_id = 0x436F534D
    schema = """
CREATE TABLE marks (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, asked INTEGER NOT NULL,
    PRIMARY KEY (digest, day, entry)
) STRICT, WITHOUT ROWID;
"""

    def __init__(self, ledger: Path) -> None:
        self.name = f"{ledger.name}.scores"  # type: ignore[misc]
        super().__init__(ledger.parent)


def asked_on(path: Path, digest: str, day: str) -> int | None:
    """How many were answered about on a day, by a look of its own at the file; ``None`` where the day is not there."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as base:
            row = base.execute("SELECT asked FROM days WHERE digest = ? AND day = ?", (digest, day)).fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"{path} cannot be read: {error} [SO030]") from None
    return None if row is None else int(row[0])
