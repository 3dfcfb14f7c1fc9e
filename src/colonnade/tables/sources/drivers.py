"""How each kind of database is asked: read only, as a stream of batches, and with errors that quote nothing."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import quote

from colonnade.errors import DataError
from colonnade.tables.arrow import pa
from colonnade.tables.sources.memory import quoted

_BATCH_ROWS = 1 << 15
_TRY = "try the query by itself"


class Driver(ABC):
    """One connection; every error becomes a sentence about the query, never with its words or with a cell."""

    served: ClassVar[bool]
    """Whether a server answers, at an address; otherwise the database is a file."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self._where = where
        self._connection: Any = None

    def __enter__(self) -> Driver:
        with self._failing():
            self._connection = self._connected()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def columns(self, statement: str) -> list[str]:
        """The columns of what a statement gives."""
        with self._failing():
            return self._columns(statement)

    def rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """What a statement gives."""
        with self._failing():
            yield from self._rows(statement, columns)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            # Whatever a driver raises may quote a cell, the query or the address.
            raise DataError(f"{self.name}: {self._why(error)}") from None

    @abstractmethod
    def _connected(self) -> Any: ...

    @abstractmethod
    def _columns(self, statement: str) -> list[str]: ...

    @abstractmethod
    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _why(self, error: Exception) -> str: ...


class PostgreSql(Driver):
    """PostgreSQL through ADBC, in one read-only transaction that sees one moment."""

    served = True
    _STATES: ClassVar = {
        "42P01": "the query names a table that is not there",
        "42703": "the query names a column that is not there",
        "42601": "the query is not SQL that the database understands",
        "42501": "the user of the database may not read what the query asks for",
        "25006": "the query would change the database; only a select is run",
        "57014": "the database cancelled the query",
        "22P02": "a cell cannot be converted as the query asks",
        "28P01": "the database does not accept the user and password of the address",
        "28000": "the database does not accept the user of the address",
        "3D000": "there is no database of the name in the address",
    }

    def _connected(self) -> Any:
        driver = needed("adbc_driver_postgresql.dbapi", "sql", self.name)
        opened = driver.connect(self._where)
        try:
            with opened.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read, read only")
        except Exception:
            opened.close()
            raise
        return opened

    def _columns(self, statement: str) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [str(each[0]) for each in cursor.description]

    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            with cursor.fetch_record_batch() as opened:
                yield from opened

    def _why(self, error: Exception) -> str:
        state = getattr(error, "sqlstate", None)
        if state:
            known = self._STATES.get(state, f"the database answers with the error {state}")
            return f"{known}; {_TRY}, with the same user"
        if self._connection is None:
            return "the database cannot be reached; check the address in the variable, and that the server is up"
        return f"the database failed while the rows were read; {_TRY}"


class Sqlite(Driver):
    """A file of SQLite through Python's own module.

    SQLite lets every cell have its own type, so the types of a column are asked for first: a column with any text is
    text, as in a CSV file, and no number is rounded on the way.
    """

    served = False

    def _connected(self) -> Any:
        path = Path(self._where)
        if not path.is_file():
            raise DataError(f"{self.name}: there is no such file; check the path")
        # A stream may be ended by another thread than the one that began it.
        opened = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, check_same_thread=False)
        opened.execute("begin")  # the types and the rows are of one moment
        return opened

    def _columns(self, statement: str) -> list[str]:
        return [str(each[0]) for each in self._connection.execute(statement).description]

    def _rows(self, statement: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        types = self._types(statement, columns)
        cursor = self._connection.execute(statement)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            cells = zip(*rows, strict=True)
            arrays = [_array(cell, kind) for cell, kind in zip(cells, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _types(self, statement: str, columns: Sequence[str]) -> list[Any]:
        asked = (f"max(typeof({quoted(c)}) = '{kind}')" for c in columns for kind in ("blob", "text", "real"))
        found = iter(self._connection.execute(f"select {', '.join(asked)} from ({statement})").fetchone())  # noqa: S608
        types = []
        for column, blob, text, real in zip(columns, found, found, found, strict=True):
            if blob:
                raise DataError(f"{self.name}: column {column!r} holds bytes; let the query give text or numbers")
            types.append(pa.large_string() if text else pa.float64() if real else pa.int64())
        return types

    def _why(self, error: Exception) -> str:
        said = str(error)
        for start, meant in {
            "no such table": "the query names a table that is not there",
            "no such column": "the query names a column that is not there",
            "file is not a database": "the file is not one of SQLite",
            "attempt to write": "the query would change the database; only a select is run",
            "database is locked": "another program is writing to the database; try again when it is done",
        }.items():
            if said.startswith(start):
                return meant
        code = getattr(error, "sqlite_errorname", None)
        return f"the database answers with {code or 'an error'}; {_TRY}"


class DuckDb(Driver):
    """A file of DuckDB through its own package, read only.

    DuckDB keeps all that it read of its file as long as its limit of memory allows, four fifths of the machine's unless
    it is told otherwise. Rows are read once, so it is told.
    """

    served = False
    _SETTINGS: ClassVar = {"memory_limit": "256MiB", "threads": 2}
    _KINDS: ClassVar = {
        "CatalogException": "the query names a table or function that is not there",
        "BinderException": "the query names a column that is not there, or compares what cannot be compared",
        "ParserException": "the query is not SQL that the database understands",
        "ConversionException": "a cell cannot be converted as the query asks",
        "OutOfMemoryException": "the query needs more memory than there is",
        "IOException": "the file cannot be opened; check the path, and that no other program writes to it",
        "InvalidInputException": "the query would change the database, or asks for what cannot be read",
    }

    def _connected(self) -> Any:
        duckdb = needed("duckdb", "duckdb", self.name)
        try:
            return duckdb.connect(self._where, read_only=True, config=self._SETTINGS)
        except duckdb.ConnectionException:  # this program has the file open with other settings, which then hold
            return duckdb.connect(self._where, read_only=True)

    def _columns(self, statement: str) -> list[str]:
        return [str(each[0]) for each in self._connection.execute(statement).description]

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
            self._connection.execute("reset memory_limit")
            yield from self._stream(statement)

    def _stream(self, statement: str) -> Iterator[pa.RecordBatch]:
        answer = self._connection.sql(statement)
        read = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader  # as it was called before
        with read(_BATCH_ROWS) as opened:
            yield from opened

    def _why(self, error: Exception) -> str:
        known = self._KINDS.get(type(error).__name__, "the database answers with an error")
        return known if "the file" in known else f"{known}; {_TRY}"


def needed(module: str, extra: str, name: str) -> Any:
    """A package that only some sources need; a sentence where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f"{name}: this needs a package that is not here: pip install 'colonnade[{extra}]'") from None


def _array(cells: Sequence[Any], kind: Any) -> Any:
    if pa.types.is_large_string(kind):
        return pa.array([each if each is None or isinstance(each, str) else repr(each) for each in cells], kind)
    return pa.array(cells, kind)


DRIVERS: dict[str, type[Driver]] = {"postgresql": PostgreSql, "sqlite": Sqlite, "duckdb": DuckDb}
