"""A table that is the answer of a database: the query, which database, and where its address is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from colonnade.disk.reading import short
from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.files import AS_USUAL
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.drivers import DRIVERS, Driver
from colonnade.tables.sources.memory import plain_batch
from colonnade.tables.sources.stores import is_address
from colonnade.tables.wording import listed

Database = Literal["postgresql", "sqlite", "duckdb"]
_ELSEWHERE = ("md:", "motherduck:")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class Query:
    """What to ask of a database, as a party says it.

    ``uri_env`` is the *name* of the environment variable that holds the address of a PostgreSQL server, with user and
    password if it needs them; the address itself stands in no file. ``file`` is the database file of SQLite or DuckDB.
    """

    query: str
    database: Database
    uri_env: str | None = None
    file: str | Path | None = None

    def __post_init__(self) -> None:
        if self.database not in DRIVERS:
            raise DataError(
                f"database must be one of {listed(sorted(DRIVERS))}, not {short(repr(self.database), 40)} [DA238]"
            )
        if not isinstance(self.query, str) or not self.query.strip(" \t\r\n;"):
            raise DataError('query must be a select, such as query = "select * from people" [DA239]')
        if DRIVERS[self.database].served:
            if self.file is not None or self.uri_env is None:
                raise DataError(
                    f"a table of {self.database} needs uri_env, the name of the environment variable that holds the "
                    "address of the database, and no file [DA240]"
                )
            if _VARIABLE.fullmatch(self.uri_env) is None:  # nothing of it is shown: it may be the address itself
                raise DataError(
                    "uri_env must be the name of an environment variable, not an address: a password never stands in a "
                    "file [DA241]"
                )
        elif self.uri_env is not None or self.file is None:
            raise DataError(f"a table of {self.database} needs file, the path of the database, and no uri_env [DA242]")
        elif is_address(str(self.file)) or str(self.file).startswith(_ELSEWHERE):  # it may hold a token
            raise DataError(
                f"file must be the path of a database of {self.database} on this machine, not an address [DA243]"
            )

    def beside(self, folder: Path) -> Query:
        """The same, with the path of the file seen from a folder."""
        if self.file is None:
            return self
        return Query(self.query, self.database, None, folder / self.file)

    @property
    def name(self) -> str:
        """How errors and pages call it: neither the address nor the query, which may quote a value."""
        return f"the {self.database} query on {f'${self.uri_env}' if self.file is None else self.file}"


class Answer(Source):
    """The rows that a query gives; it is asked once, so that all rows are of one moment."""

    again = False  # a database gives rows in any order, and may hold others a moment later

    def __init__(self, query: Query, name: str | None = None, text: TextFormat = AS_USUAL) -> None:
        super().__init__(name or query.name)
        self._query = query
        self._decimal = text.decimal or "."

    def columns(self) -> list[str]:
        """The columns of the answer; no row is computed for them."""
        with self._driver() as driver:
            return driver.columns()

    def count(self) -> int:
        """How many rows there are, counted by the database."""
        with self._driver() as driver:
            return driver.count()

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._driver() as driver:
            for batch in driver.rows(columns):
                yield plain_batch(batch)

    def _driver(self) -> Driver:
        asked, kind = self._query, DRIVERS[self._query.database]
        if asked.uri_env is None:
            return kind(self.name, str(asked.file), asked.query, self._decimal)
        address = os.environ.get(asked.uri_env)
        if not address:
            raise DataError(
                f"{self.name}: the environment variable {asked.uri_env} is not set; set it to the address of the "
                "database where this command is started [DA244]"
            )
        return kind(self.name, address, asked.query, self._decimal)


def plainly(data: str | Path | Query) -> str | dict[str, str | None]:
    """Where a table lies, as plain values for another process of this machine."""
    if isinstance(data, Query):
        file = None if data.file is None else str(Path(data.file).resolve())
        return {"query": data.query, "database": data.database, "uri_env": data.uri_env, "file": file}
    return str(data.resolve()) if isinstance(data, Path) else data


def named(plain: Any) -> str | Query:
    """What :func:`plainly` wrote."""
    return Query(**plain) if isinstance(plain, dict) else str(plain)
