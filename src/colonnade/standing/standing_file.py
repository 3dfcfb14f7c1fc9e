"""SQLite files of standing processes: made when they are first opened, durable, one transaction for each use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar

from colonnade.disk.ahead import log_ahead
from colonnade.errors import ColonnadeError

_BUSY_SECONDS = 30.0


class StandingFile:
    """One file; each use opens it anew, so that a standing process, its console and commands may share it."""

    name: ClassVar[str]
    schema: ClassVar[str]
    application_id: ClassVar[int]
    later: ClassVar[str] = ""
    """What a later release added beside it, which earlier ones leave alone: ``CREATE ... IF NOT EXISTS``."""
    version: ClassVar[int] = 1
    unusable: ClassVar[type[ColonnadeError]]
    """The error where the disk or the file cannot be used."""
    foreign: ClassVar[type[ColonnadeError]]
    """The error where another program or release wrote it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise self.unusable(f"{error.filename or self.path} cannot be used: {error.strerror} [SO035]") from None
        with self._connection() as connection:
            log_ahead(connection, _BUSY_SECONDS)
            connection.execute("BEGIN IMMEDIATE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            made_by = connection.execute("PRAGMA application_id").fetchone()[0]
            empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if empty and not version:
                for statement in filter(str.strip, self.schema.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={self.application_id}")
                connection.execute(f"PRAGMA user_version={self.version}")
            elif version != self.version or made_by != self.application_id:
                raise self.foreign(
                    f"{self.path} was written by another program, or by another release: name a new folder [FE103]"
                )
            for statement in filter(str.strip, self.later.split(";")):
                connection.execute(statement)
            connection.execute("COMMIT")

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
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("PRAGMA foreign_keys=ON")
                yield connection
        except sqlite3.Error as error:
            raise self.unusable(f"{self.path} cannot be read or written: {error} [SO036]") from None
