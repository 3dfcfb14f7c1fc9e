"""The SQLite file of a ledger: made in one step, append-only, durable, not changed by reading, checked as a whole."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from colonnade.errors import LedgerError
from colonnade.privacy.ledger.chain import GENESIS, Change, check_head, first_break, hashed
from colonnade.privacy.ledger.schema import (
    BY_VERSION,
    HISTORIES,
    LATER,
    ONE,
    SCHEMA,
    SCHEMA_VERSION,
    UNCHAINED,
)

APPLICATION_ID = 0x434F4C4E
ALLOWED = {"sent": ("reserved",), "committed": ("reserved", "sent"), "released": ("reserved",)}
"""For each state, the states from which an entry may come to it."""
_BUSY_SECONDS = 30.0


class LedgerFile:
    """One file; each use opens it anew, so it may be shared by threads and processes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.upgraded = False
        with self._named():
            self.made = not self.path.exists() and _make(Path(os.path.realpath(self.path)))
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The file as it is at one moment; nothing is written, not even an upgrade."""
        with self._named():
            way = self._way_to_read()
        with self._opened(way) as base:
            base.execute("PRAGMA query_only = ON")
            with _transaction(base, "BEGIN"):
                self._check_kind(base)
                yield base

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The file, locked for one change that happens as a whole or not at all; a file without hashes gets them."""
        with self._opened("mode=rw") as base:
            with _transaction(base, "BEGIN"):
                self._check_kind(base)  # before anything is written: the file may be somebody else's
            _into_wal(base)
            base.execute("PRAGMA synchronous = FULL")
            base.execute("PRAGMA foreign_keys = ON")
            base.execute("PRAGMA recursive_triggers = ON")  # otherwise REPLACE would delete without the triggers
            with _transaction(base, "BEGIN IMMEDIATE"):
                upgraded = _upgrade(base)
                yield base
            self.upgraded = self.upgraded or upgraded

    @contextmanager
    def _opened(self, way: str) -> Iterator[sqlite3.Connection]:
        with self._named():
            if not self.path.exists():
                raise LedgerError(f"the ledger {self.path} is gone")
            if self.path.is_file() and self.path.stat().st_size == 0:
                raise LedgerError(
                    f"{self.path} is empty or has been emptied: put the ledger back from a copy; only if this party "
                    "has never taken part in a study, delete the empty file"
                )
            with closing(self._connected(way)) as base:
                yield base

    def _connected(self, way: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{way}"
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: {error}") from error

    def _way_to_read(self) -> str:
        """How to open the file for reading: SQLite writes an index beside it while we read, if it can write there."""
        real = os.path.realpath(self.path)
        if os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK) and self._has_room():
            return "mode=rw"
        log = Path(f"{real}-wal")
        return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"

    def _has_room(self) -> bool:
        try:
            with closing(self._connected("mode=rw")) as base:
                base.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            return "locked" in str(error)  # a disk that is full cannot hold the index
        except sqlite3.Error:
            pass  # not a ledger; the next step that opens it reports this
        return True

    def check_chain(self, base: sqlite3.Connection) -> None:
        """Refuse a file that holds more or less than the tables and guards of ours, or whose chain is broken."""
        self.check_guards(base)
        self._check_lines(changes(base), GENESIS)
        self._check_lone(base, 0)

    def check_chain_after(self, base: sqlite3.Connection, change: int, entry: int) -> None:
        """The same, but of the chain only what follows a change, and of the entries only those that follow an entry."""
        self.check_guards(base)
        found = base.execute("SELECT hash FROM chain WHERE change = ?", (change,)).fetchone()
        self._check_lines((Change(*row) for row in base.execute(LATER, (change,))), found[0] if found else GENESIS)
        self._check_lone(base, entry)

    def _check_lines(self, history: Iterable[Change], previous: str) -> None:
        broken = first_break(history, previous)
        if broken is not None:
            raise LedgerError(
                f"{self.path} was altered: the chain breaks at entry {broken.entry} ({broken.state}); restore a copy"
            )

    def _check_lone(self, base: sqlite3.Connection, after: int) -> None:
        lone = base.execute(
            "SELECT min(id) FROM entries WHERE (id > ? OR id < 1) AND id NOT IN "
            "(SELECT entry FROM changes WHERE state = 'reserved' AND (entry > ? OR entry < 1))",
            (after, after),
        ).fetchone()[0]
        if lone is not None:
            raise LedgerError(f"{self.path} was altered: entry {lone} was never reserved; restore a copy")

    def check_guards(self, base: sqlite3.Connection) -> None:
        """Refuse a file whose schema is not, row by row, the one that this code makes."""
        if set(base.execute(SCHEMA)) != _expected(_version(base)):
            raise LedgerError(f"{self.path} was altered: what keeps it append-only is missing, or more was added")

    def verify(self, head: str | None = None) -> None:
        """Check the whole file; with ``head``, also that it still continues from there."""
        with self.reading() as base:
            found = [str(row[0]) for row in base.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise LedgerError(f"{self.path} is damaged: {found[0]}")
            self.check_chain(base)
            if (stray := base.execute("PRAGMA foreign_key_check").fetchone()) is not None:
                raise LedgerError(
                    f"{self.path} was altered: a row of {stray[0]} belongs to a {stray[2]} row that is gone"
                )
            history = changes(base)
            for entry, steps in groupby(sorted(history, key=attrgetter("entry", "number")), attrgetter("entry")):
                states = [step.state for step in steps]
                if states[0] != "reserved" or any(old not in ALLOWED.get(new, ()) for old, new in pairwise(states)):
                    raise LedgerError(f"{self.path} was altered: entry {entry} has an impossible history")
            if not is_chained(base):
                raise LedgerError(
                    f"{self.path} is of version {UNCHAINED} and was never chained, so it cannot show whether it was "
                    "altered: if a head of it was ever noted, restore a copy that holds it; else compare it with the "
                    "run records, and the next study will chain it as it stands"
                )
            if head is not None:
                check_head(head, [GENESIS, *(change.hash or "" for change in history)])

    def _check_kind(self, base: sqlite3.Connection) -> None:
        application = base.execute("PRAGMA application_id").fetchone()[0]
        version = _version(base)
        if application != APPLICATION_ID or base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            raise LedgerError(f"{self.path} is not a ledger of ours, or has been emptied; name another file")
        if version not in BY_VERSION:
            raise LedgerError(f"{self.path} has ledger version {version}; this code reads up to {SCHEMA_VERSION}")


def add(
    base: sqlite3.Connection, study: str, digest: str, at: str, events: str, trust: str, people: str | None = None
) -> int:
    """Store a new entry as reserved, with the keys of who took part where they are known, and return its number."""
    entry = (study, digest, at, events, trust)
    row = base.execute("INSERT INTO entries (study, digest, created, events, trust) VALUES (?, ?, ?, ?, ?)", entry)
    number = int(row.lastrowid or 0)
    if people is not None:
        base.execute("INSERT INTO people (entry, known) VALUES (?, ?)", (number, people))
    stored = append(base, number, "reserved", at)
    if (stored.study, stored.digest, stored.created, stored.events, stored.trust, stored.people) != (*entry, people):
        raise LedgerError(f"the ledger did not store entry {number} as it was written; restore a copy")
    return number


def append(base: sqlite3.Connection, entry: int, state: str, at: str) -> Change:
    """Store a change of state, read back what was stored, and add it to the chain."""
    row = base.execute("INSERT INTO changes (entry, at, state) VALUES (?, ?, ?)", (entry, at, state))
    found = base.execute(ONE, (row.lastrowid,)).fetchone()
    stored = None if found is None else Change(*found)
    if stored is None or (stored.entry, stored.state, stored.at) != (entry, state, at):
        raise LedgerError(f"the ledger did not store a change of entry {entry} as it was written; restore a copy")
    _chain(base, stored, hashed(stored.line(head(base))))
    return stored


def changes(base: sqlite3.Connection) -> list[Change]:
    """All changes, the oldest first; changes in a file without hashes have those that they would get."""
    if is_chained(base):
        return [Change(*row) for row in base.execute(HISTORIES[_version(base)])]
    found: list[Change] = []
    for row in base.execute(HISTORIES[UNCHAINED]):
        change = Change(*row)
        found.append(replace(change, hash=hashed(change.line((found[-1].hash if found else None) or GENESIS))))
    return found


def head(base: sqlite3.Connection) -> str:
    """The hash of the last change."""
    if not is_chained(base):
        history = changes(base)
        return (history[-1].hash if history else None) or GENESIS
    row = base.execute("SELECT hash FROM chain ORDER BY change DESC LIMIT 1").fetchone()
    return GENESIS if row is None else str(row[0])


def is_chained(base: sqlite3.Connection) -> bool:
    """Whether the file has hashes of its own."""
    return _version(base) != UNCHAINED


def rows(base: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Every entry: its number, study, digest, time, events, trust, the keys of who took part, and its state now."""
    known = "(SELECT p.known FROM people p WHERE p.entry = e.id)" if _version(base) == SCHEMA_VERSION else "NULL"
    state = "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1)"
    columns = f"e.id, e.study, e.digest, e.created, e.events, e.trust, {known}, {state}"
    return base.execute(f"SELECT {columns} FROM entries e ORDER BY e.id").fetchall()  # noqa: S608 - fixed words


def times(base: sqlite3.Connection, after: int = 0) -> list[tuple[int, str, bool]]:
    """Every entry that follows one: its number, its time, and whether it was released."""
    return [
        (number, created, state is not None)
        for number, created, state in base.execute(
            "SELECT e.id, e.created, c.state FROM entries e "
            "LEFT JOIN changes c ON c.entry = e.id AND c.state = 'released' WHERE e.id > ? ORDER BY e.id",
            (after,),
        )
    ]


def states_of(base: sqlite3.Connection, entry: int) -> list[str]:
    """The states an entry has been in, in order."""
    return [row[0] for row in base.execute("SELECT state FROM changes WHERE entry = ? ORDER BY id", (entry,))]


def _version(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _chain(base: sqlite3.Connection, change: Change, link: str) -> None:
    base.execute("INSERT INTO chain (change, hash) VALUES (?, ?)", (change.number, link))
    if base.execute("SELECT hash FROM chain WHERE change = ?", (change.number,)).fetchone() != (link,):
        raise LedgerError(f"the ledger did not store the hash of change {change.number}; restore a copy")


def _upgrade(base: sqlite3.Connection) -> bool:
    """Bring a ledger of an earlier version up to this one in the transaction of its next change; whether it got hashes.

    Entries of before have no keys, and their hashes stay as they are.
    """
    version = _version(base)
    if version == SCHEMA_VERSION:
        return False
    history = changes(base) if version == UNCHAINED else []
    for statement in _statements(BY_VERSION[SCHEMA_VERSION].removeprefix(BY_VERSION[version])):
        base.execute(statement)
    for change in history:
        _chain(base, change, change.hash or "")
    base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return version == UNCHAINED


def _make(place: Path) -> bool:
    """Make a new ledger in one step, so that no half-made file is ever there; false if another process was first."""
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".new", dir=place.parent)  # mode 0600
    os.close(handle)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as base:
            _into_wal(base)
            base.execute("PRAGMA synchronous = FULL")
            with _transaction(base, "BEGIN IMMEDIATE"):
                for statement in _statements(BY_VERSION[SCHEMA_VERSION]):
                    base.execute(statement)
                base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        first = _put(Path(name), place)
    finally:
        os.unlink(name)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return first


def _put(source: Path, place: Path) -> bool:
    """Give a file its name unless another file has it; return whether it was free."""
    try:
        os.link(source, place)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        pass
    try:
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(source.read_bytes())
            file.flush()
            os.fsync(file.fileno())
        return True
    except FileExistsError:
        return False


@cache
def _expected(version: int) -> frozenset[tuple[str, str, str, str | None]]:
    """Every row of the schema of a ledger, with what SQLite adds by itself."""
    with closing(sqlite3.connect(":memory:")) as base:
        for statement in _statements(BY_VERSION[version]):
            base.execute(statement)
        return frozenset(base.execute(SCHEMA))


def _statements(script: str) -> list[str]:
    return [statement.strip().removesuffix(";") for statement in script.strip().split(";\n")]


@contextmanager
def _transaction(base: sqlite3.Connection, begin: str) -> Iterator[None]:
    base.execute(begin)
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        if base.in_transaction:
            base.execute("ROLLBACK")
        raise


def _into_wal(base: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait for others while it switches, so we do."""
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            mode = base.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.02)
            continue
        if mode != "wal":
            raise LedgerError(
                f"a ledger needs a write-ahead log, and SQLite keeps its journal as {mode!r} here: move the ledger to "
                "a local disk"
            )
        return
