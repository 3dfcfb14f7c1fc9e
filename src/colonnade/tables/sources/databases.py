"""Tables that are the answer of a database: read only, as a stream of batches.

A query says which database and where its address is. Errors quote neither the query nor a cell.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from colonnade.disk.reading import shorten
from colonnade.errors import DataError
from colonnade.tables.cell_parsing import AS_USUAL, TextFormat, itemise, pa, pc
from colonnade.tables.sources.base import TableSource, quote_identifier, simplify_batch
from colonnade.tables.sources.object_stores import is_address

_BATCH_ROWS = 1 << 15
_TRY = "try the query by itself"
_NO_SELECT = "the query is not SQL that the database understands, or is not one select alone"


class DatabaseDriver(ABC):
    """One connection; every error becomes a sentence about the query, never with its words or with a cell."""

    has_server: ClassVar[bool]
    """Whether a server answers, at an address; otherwise the database is a file."""

    def __init__(self, name: str, where: str, query: str, decimal: str = ".") -> None:
        """``decimal`` is the sign before fractions where a number becomes text."""
        self.name = name
        self._where = where
        self._query = query.strip().rstrip(";").rstrip()
        self._decimal = decimal
        self._numerals: set[str] = set()
        self._connection: Any = None

    def __enter__(self) -> DatabaseDriver:
        with self._failing():
            self._connection = self._connected()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def columns(self) -> list[str]:
        """The columns of the answer, a name twice where two are called so; no row is computed for them."""
        with self._failing():
            return self._columns()

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the answer; the database is not asked for others."""
        with self._failing():
            for batch in self._rows(self._asking(", ".join(self._chosen(columns))), columns):
                # DuckDB finds a name whatever its capitals are, and then the first of two.
                if batch.schema.names != list(columns):
                    raise DataError(
                        f"{self.name}: names of columns differ by capitals alone; rename one in the query [DA204]"
                    )
                yield batch

    def count(self) -> int:
        """How many rows the answer has, counted by the database."""
        with self._failing():
            found = [batch for batch in self._rows(self._asking("count(*) as n"), ["n"]) if batch.num_rows]
            return int(found[0].column(0)[0].as_py())

    def _asking(self, what: str) -> str:
        # The line break ends a comment at the end of the query.
        return f"select {what} from ({self._query}\n) as colonnade_source"  # noqa: S608 - the party's own query

    def _chosen(self, columns: Sequence[str]) -> list[str]:
        return [quote_identifier(column) for column in columns]

    def _columns(self) -> list[str]:
        return [str(each[0]) for each in self._connection.execute(f"{self._asking('*')} limit 0").description]

    def _path(self) -> str:
        """The database file, whatever else a driver would take its name for."""
        path = Path(self._where)
        if not path.is_file():
            raise DataError(f"{self.name}: there is no such file; check the path [DA205]")
        return str(path.resolve())

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            # Whatever a driver raises may quote a cell, the query or the address.
            raise DataError(f"{self.name}: {self._why(error)} [DA206]") from None

    @abstractmethod
    def _connected(self) -> Any: ...

    @abstractmethod
    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _why(self, error: Exception) -> str: ...


class PostgreSqlDriver(DatabaseDriver):
    """PostgreSQL through ADBC, in one read-only transaction that sees one moment."""

    has_server = True
    _STATES: ClassVar = {
        "42P01": "the query names a table that is not there",
        "42703": "the query names a column that is not there",
        "42601": _NO_SELECT,
        "42501": "the user of the database may not read what the query asks for",
        "25006": "the query would change the database; only a select is run",
        "57014": "the database cancelled the query",
        "22P02": "a cell cannot be converted as the query asks",
        "28P01": "the database does not accept the user and password of the address",
        "28000": "the database does not accept the user of the address",
        "3D000": "there is no database of the name in the address",
    }

    def _connected(self) -> Any:
        driver = import_optional("adbc_driver_postgresql.dbapi", "sql", self.name)
        opened = driver.connect(self._where)
        try:
            with opened.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read, read only")
        except Exception:
            opened.close()
            raise
        return opened

    def _columns(self) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(f"{self._asking('*')} limit 0")
            return [str(each[0]) for each in cursor.description]

    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            with cursor.fetch_record_batch() as opened:
                yield from opened if self._decimal == "." else map(self._signed, opened)

    def _chosen(self, columns: Sequence[str]) -> list[str]:
        """What to ask for, by the types of the database: drivers say of some that they are bytes, or whole numbers."""
        kinds = self._kinds(columns)
        if "money" in kinds:  # which comes in cents, or whatever the locale has
            odd = columns[kinds.index("money")]
            raise DataError(f"{self.name}: column {odd!r} holds money; let the query turn it into numeric [DA207]")
        self._numerals.update(column for column, kind in zip(columns, kinds, strict=True) if kind == "numeric")
        names = map(quote_identifier, columns)
        return [f"{name}::text as {name}" if kind == "uuid" else name for name, kind in zip(names, kinds, strict=True)]

    def _kinds(self, columns: Sequence[str]) -> list[str]:
        """The types of columns. As nothing fits the empty condition, no row of the query is computed."""
        asked = ", ".join(f"pg_typeof({quote_identifier(column)})::text" for column in columns)
        with self._connection.cursor() as cursor:
            source = f"({self._query}\n) as colonnade_source"
            cursor.execute(f"select {asked} from (select 1) as one left join {source} on false")  # noqa: S608
            return list(map(str, cursor.fetchone()))

    def _signed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The driver writes numbers of any length as text; a party whose text has another sign is given that one."""
        plain = simplify_batch(batch)
        arrays = [
            pc.replace_substring(cells, ".", self._decimal) if name in self._numerals else cells
            for name, cells in zip(plain.schema.names, plain.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=plain.schema.names)

    def _why(self, error: Exception) -> str:
        state = getattr(error, "sqlstate", None)
        if state:
            known = self._STATES.get(state, f"the database answers with the error {state}")
            return f"{known}; {_TRY}, with the same user [DA208]"
        if self._connection is None:
            return (
                "the database cannot be reached; check the address in the variable, and that the server is up [DA209]"
            )
        return f"the database failed while the rows were read; {_TRY} [DA210]"


class SqliteDriver(DatabaseDriver):
    """A file of SQLite through Python's own module.

    SQLite lets every cell have its own type, so the types of a column are asked for first: a column with any text is
    text, as in a CSV file, and no number is rounded on the way.
    """

    has_server = False

    def _connected(self) -> Any:
        import sqlite3

        path = self._path()
        # A stream may be ended by another thread than the one that began it.
        opened = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, check_same_thread=False)
        opened.execute("begin")  # the types and the rows are of one moment
        return opened

    def _columns(self) -> list[str]:
        # SQLite calls the second column of a name "name:1"; the first would be read without a word.
        found = super()._columns()
        there = set(found)
        return [
            first if first in there and place.isdigit() else name
            for name in found
            for first, _, place in [name.rpartition(":")]
        ]

    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        types = self._types(statement, columns)
        cursor = self._connection.execute(statement)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            cells = zip(columns, zip(*rows, strict=True), types, strict=True)
            yield pa.RecordBatch.from_arrays([self._array(*each) for each in cells], names=list(columns))

    def _types(self, statement: str, columns: Sequence[str]) -> list[Any]:
        # One number for each column: the answer of a query has 2,000 columns at most.
        asked = (
            f"max(case typeof({quote_identifier(c)}) when 'blob' then 3 when 'text' then 2 when 'real' then 1 end)"
            for c in columns
        )
        found = self._connection.execute(f"select {', '.join(asked)} from ({statement})").fetchone()  # noqa: S608
        types = []
        for column, kind in zip(columns, found, strict=True):
            if kind == 3:
                raise DataError(
                    f"{self.name}: column {column!r} holds bytes; let the query give text or numbers [DA211]"
                )
            types.append({2: pa.large_string(), 1: pa.float64()}.get(kind, pa.int64()))
        return types

    def _array(self, column: str, cells: Sequence[Any], kind: Any) -> Any:
        if pa.types.is_large_string(kind):
            return pa.array([self._text(each) for each in cells], kind)
        try:
            return pa.array(cells, kind)
        except pa.ArrowException:
            raise DataError(
                f"{self.name}: column {column!r} holds fractions, and whole numbers with too many digits to stand "
                "beside them; let the query give text, or numbers of one kind [DA212]"
            ) from None

    def _text(self, cell: Any) -> str | None:
        if cell is None or isinstance(cell, str):
            return cell
        return repr(cell).replace(".", self._decimal)

    def _why(self, error: Exception) -> str:
        said = str(error)
        for start, meant in {
            "no such table": "the query names a table that is not there [DA213]",
            "no such column": "the query names a column that is not there [DA214]",
            "file is not a database": "the file is not one of SQLite [DA215]",
            "attempt to write": "the query would change the database; only a select is run [DA216]",
            "database is locked": "another program is writing to the database; try again when it is done [DA217]",
            "Could not decode": "a cell holds text that is not UTF-8; let the query turn it into text that is [DA218]",
        }.items():
            if said.startswith(start):
                return meant
        if said.endswith(("syntax error", "incomplete input")):
            return f"{_NO_SELECT}; {_TRY} [DA219]"
        code = getattr(error, "sqlite_errorname", None)
        return f"the database answers with {code or 'an error'}; {_TRY} [DA220]"


class DuckDbDriver(DatabaseDriver):
    """A file of DuckDB through its own package, read only.

    The query, and views that are in the file, reach the tables of the file and nothing else: no other file, no network,
    no extension that is not loaded yet.

    DuckDB keeps all that it read of its file as long as its limit of memory allows, four fifths of the machine's unless
    it is told otherwise. Rows are read once, so it is told.
    """

    has_server = False
    _frugal = True
    _SETTINGS: ClassVar = {"memory_limit": "256MiB", "threads": 2}
    # In this order; without a folder for what does not fit in memory, no row is written beside the file.
    _LOCKED: ClassVar = {"temp_directory": "", "enable_external_access": "false", "lock_configuration": "true"}
    _LOCKING: ClassVar = Lock()
    _KINDS: ClassVar = {
        "CatalogException": "the query names a table or function that is not there",
        "BinderException": "the query names a column that is not there, or compares what cannot be compared",
        "ParserException": "the query is not SQL that the database understands",
        "ConversionException": "a cell cannot be converted as the query asks",
        "OutOfMemoryException": "the query needs more memory than there is",
        "PermissionException": "the query, or a view that it names, asks for something outside the database file",
        "IOException": "the file cannot be opened; check the path, and that no other program writes to it",
        "InvalidInputException": "the query would change the database, or asks for what cannot be read",
    }

    def _connected(self) -> Any:
        duckdb = import_optional("duckdb", "duckdb", self.name)
        path = self._path()
        settings = self._SETTINGS if self._frugal else {}
        try:
            opened = duckdb.connect(path, read_only=True, config=settings)
        except duckdb.ConnectionException:  # this program has the file open itself, with settings that stay its own
            opened = duckdb.connect(":memory:", config=settings)
            quoted, named = path.replace("'", "''"), quote_identifier(Path(path).stem)
            opened.execute(f"attach '{quoted}' as {named} (read_only); use {named}")
        # Of several statements DuckDB would run all, and one that copies rows to a file is not kept from it.
        try:
            with self._LOCKING:  # all connections of this program to a file have its settings in common
                # By its whole name: a macro of the file could have the short one.
                asked = ", ".join(f"system.main.current_setting('{name}')::varchar" for name in self._LOCKED)
                if opened.execute(f"select {asked}").fetchall() != [(*self._LOCKED.values(),)]:
                    for name, value in self._LOCKED.items():
                        opened.execute(f"set {name} = '{value}'")
            if [each.type for each in opened.extract_statements(self._query)] != [duckdb.StatementType.SELECT]:
                raise DataError(f"{self.name}: the query is not one select; only a select is run [DA221]")
        except Exception:
            opened.close()
            raise
        return opened

    def _columns(self) -> list[str]:
        return list(map(str, self._connection.sql(self._query).columns))

    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        given = False
        try:
            for batch in self._stream(statement):
                given = True
                yield batch
        except Exception as error:
            # Some queries cannot do with little memory; they fail before the first row.
            if given or type(error).__name__ != "OutOfMemoryException":
                raise
            self._connection.close()
            self._frugal = False
            self._connection = self._connected()
            yield from self._stream(statement)

    def _stream(self, statement: str) -> Iterator[pa.RecordBatch]:
        answer = self._connection.sql(statement)
        read = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader  # as it was called before
        with read(_BATCH_ROWS) as opened:
            yield from opened

    def _why(self, error: Exception) -> str:
        known = self._KINDS.get(type(error).__name__, "the database answers with an error")
        return known if "the file" in known else f"{known}; {_TRY} [DA222]"


def import_optional(module: str, extra: str, name: str) -> Any:
    """A package that only some sources need; a sentence where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{name}: this needs a package that is not here: pip install 'colonnade[{extra}]' [DA223]"
        ) from None


DRIVERS: dict[str, type[DatabaseDriver]] = {
    "postgresql": PostgreSqlDriver,
    "sqlite": SqliteDriver,
    "duckdb": DuckDbDriver,
}


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
                f"database must be one of {itemise(sorted(DRIVERS))}, not {shorten(repr(self.database), 40)} [DA238]"
            )
        if not isinstance(self.query, str) or not self.query.strip(" \t\r\n;"):
            raise DataError('query must be a select, such as query = "select * from people" [DA239]')
        if DRIVERS[self.database].has_server:
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

    def relative_to(self, folder: Path) -> Query:
        """The same, with the path of the file seen from a folder."""
        if self.file is None:
            return self
        return Query(self.query, self.database, None, folder / self.file)

    @property
    def name(self) -> str:
        """How errors and pages call it: neither the address nor the query, which may quote a value."""
        return f"the {self.database} query on {f'${self.uri_env}' if self.file is None else self.file}"


class QuerySource(TableSource):
    """The rows that a query gives; it is asked once, so that all rows are of one moment."""

    rereadable = False  # a database gives rows in any order, and may hold others a moment later

    def __init__(self, query: Query, name: str | None = None, text: TextFormat = AS_USUAL) -> None:
        super().__init__(name or query.name)
        self._query = query
        self._decimal = text.fraction

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
                yield simplify_batch(batch)

    def _driver(self) -> DatabaseDriver:
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


def data_to_plain(data: str | Path | Query) -> str | dict[str, str | None]:
    """Where a table lies, as plain values for another process of this machine."""
    if isinstance(data, Query):
        file = None if data.file is None else str(Path(data.file).resolve())
        return {"query": data.query, "database": data.database, "uri_env": data.uri_env, "file": file}
    return str(data.resolve()) if isinstance(data, Path) else data


def data_from_plain(plain: Any) -> str | Query:
    """What :func:`data_to_plain` wrote."""
    return Query(**plain) if isinstance(plain, dict) else str(plain)
