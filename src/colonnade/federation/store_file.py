"""SQLite files of standing processes: made when they are first opened, durable, one transaction for each use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from colonnade.disk.writing import enable_write_ahead_log
from colonnade.errors import FederationError, StorageError
from colonnade.sanitize import sanitize

_BUSY_SECONDS = 30.0
_LONGEST_DETAIL = 2000
Values = Sequence[Any] | Mapping[str, Any]
AUDIT_SCHEMA = """
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL,
    what TEXT NOT NULL, study TEXT, detail TEXT NOT NULL
) STRICT;
"""


class StoreFile:
    """One file; each use opens it anew, so that a standing process, its console and commands may share it."""

    name: ClassVar[str]
    schema: ClassVar[str]
    application_id: ClassVar[int]
    version: ClassVar[int] = 1
    private_folder: ClassVar[bool] = False
    """Whether the folder is the program's own, and for nobody else to read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.name
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.private_folder:
                folder.chmod(0o700)  # whoever made it may have let others read what else is in it
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StorageError(f"{error.filename or self.path} cannot be used: {error.strerror} [SO035]") from None
        with self._connection() as connection:
            enable_write_ahead_log(connection, _BUSY_SECONDS)
        with self.writing() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            made_by = connection.execute("PRAGMA application_id").fetchone()[0]
            empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if empty and not version:
                for statement in filter(str.strip, self.schema.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={self.application_id}")
                connection.execute(f"PRAGMA user_version={self.version}")
            elif version != self.version or made_by != self.application_id:
                raise FederationError(
                    f"{self.path} was written by another program, or by another release: name a new folder [FE103]"
                )

    def rows(self, query: str, values: Values = ()) -> list[sqlite3.Row]:
        """What a query finds."""
        with self._connection() as connection:
            return connection.execute(query, values).fetchall()

    def row(self, query: str, values: Values = ()) -> sqlite3.Row | None:
        """The first that a query finds, if it finds any."""
        return next(iter(self.rows(query, values)), None)

    def count_by_state(self, table: str) -> dict[str, int]:
        """How many rows of a table are in which state."""
        return dict(map(tuple, self.rows(f"SELECT state, count(*) FROM {table} GROUP BY state")))  # noqa: S608

    def change(self, statement: str, values: Values = ()) -> int:
        """Change something in a transaction of its own; returns how many rows that were."""
        with self.writing() as connection:
            return connection.execute(statement, values).rowcount

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """What the file holds at one moment."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk at the end; an error in it changes nothing."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(self._connect()) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be read or written: {error} [SO036]") from None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        return connection


@dataclass(frozen=True)
class AuditEntry:
    """One line of the audit log: who did what."""

    at: str
    who: str
    role: str
    what: str
    study: str | None
    detail: str


class AuditLog:
    """Who did what, in the table ``audit`` of a file; lines are only ever added."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

    def add(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        """Append a line."""
        values = (
            timestamp_now(),
            sanitize(who),
            sanitize(role),
            sanitize(what),
            study,
            sanitize(detail, _LONGEST_DETAIL),
        )
        self._file.change("INSERT INTO audit (at, who, role, what, study, detail) VALUES (?, ?, ?, ?, ?, ?)", values)

    def latest(self, limit: int = 200, who: str | None = None) -> list[AuditEntry]:
        """The last lines, the newest first: all, or one person's."""
        rows = self._file.rows(
            "SELECT at, who, role, what, study, detail FROM audit WHERE :who IS NULL OR who = :who "
            "ORDER BY number DESC LIMIT :limit",
            {"who": who and sanitize(who), "limit": limit},
        )
        return [AuditEntry(**dict(row)) for row in rows]


def timestamp_now() -> str:
    """This moment, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
