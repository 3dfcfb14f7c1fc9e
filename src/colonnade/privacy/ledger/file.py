"""The SQLite file of a ledger: made in one step, append-only, durable, not changed by reading, checked as a whole."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from colonnade.disk import reading, writing
from colonnade.errors import LedgerError
from colonnade.privacy.ledger.chain import GENESIS, Change, check_head, first_break, hashed
from colonnade.privacy.ledger.layout import (
    APPLICATION_ID,
    BUSY_SECONDS,
    BY_VERSION,
    SCHEMA,
    SCHEMA_VERSION,
    UNCHAINED,
    WITHOUT_KEYS,
    expected,
    into_wal,
    make,
    statements,
    transaction,
    version_of,
)

ALLOWED = {"sent": ("reserved",), "committed": ("reserved", "sent"), "released": ("reserved",)}
"""For each state, the states from which an entry may come to it."""
_HISTORY = (
    "SELECT c.id, c.entry, c.state, c.at, {hash}, e.study, e.digest, e.created, e.events, e.trust, {people} "
    "FROM changes c LEFT JOIN entries e ON e.id = c.entry {rest} {which} ORDER BY c.id"
)
_HASHES = "LEFT JOIN chain h ON h.change = c.id"
_KEYS = "LEFT JOIN people p ON p.entry = c.entry"
_HISTORIES = {
    UNCHAINED: _HISTORY.format(hash="NULL", people="NULL", rest="", which=""),
    WITHOUT_KEYS: _HISTORY.format(hash="h.hash", people="NULL", rest=_HASHES, which=""),
    SCHEMA_VERSION: _HISTORY.format(hash="h.hash", people="p.known", rest=f"{_HASHES} {_KEYS}", which=""),
}
_ONE = _HISTORY.format(hash="NULL", people="p.known", rest=_KEYS, which="WHERE c.id = ?")


_KEPT = threading.local()
"""In each thread the connections of :func:`at_once`, by the real paths of their files."""
_Which = tuple[int, int, int]


@contextmanager
def at_once(path: str | os.PathLike[str]) -> Iterator[None]:
    """Open a ledger once for all that this thread does with it inside; a file that is not there is left alone.

    Every use is a transaction of its own, as ever, and nothing is locked between two of them. If another file was put
    in its place meanwhile, that one is opened. It is for uses that follow at once: whoever waits for a person or a
    peer leaves it, since somebody may write an older copy over the file then, and a copy of the file alone must be
    whole.
    """
    place = os.path.realpath(path)
    bases: dict[str, tuple[_Which, sqlite3.Connection]] = _KEPT.__dict__.setdefault("bases", {})
    if place in bases or (which := _which(place)) is None:
        yield
        return
    try:
        base = _connected(Path(place), "mode=rw")
    except sqlite3.Error:  # whoever uses it says why it cannot be opened
        yield
        return
    bases[place] = which, base
    try:
        yield
    finally:
        del bases[place]
        base.close()


def _which(place: str) -> _Which | None:
    """The file that is there now, for this process; a connection does not outlive a fork."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return os.getpid(), found.st_dev, found.st_ino


def _connected(path: Path, way: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{way}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


class LedgerFile:
    """One file; each use opens it anew, so it may be shared by threads and processes, unless it is :func:`at_once`."""

    def __init__(self, path: str | os.PathLike[str], *, there: bool = False) -> None:
        """Open a ledger, or make one where none is, unless it must be ``there``."""
        self.path = Path(path)
        self.upgraded = False
        with self._named():
            self.made = not there and not self.path.exists() and make(Path(os.path.realpath(self.path)))
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The file as it is at one moment; nothing is written, not even an upgrade."""
        with at_once(self.path):
            with self._named():
                way = self._way_to_read()
            with self._opened(way) as base:
                base.execute("PRAGMA query_only = ON")
                try:
                    with transaction(base, "BEGIN"):
                        self._check_kind(base)
                        yield base
                finally:
                    base.execute("PRAGMA query_only = OFF")  # the next use may be a change

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The file, locked for one change that happens as a whole or not at all; a file without hashes gets them."""
        with self._opened("mode=rw") as base:
            with transaction(base, "BEGIN"):
                self._check_kind(base)  # before anything is written: the file may be somebody else's
            writing.sweep(Path(os.path.realpath(self.path)))
            into_wal(base)
            base.execute("PRAGMA synchronous = FULL")
            base.execute("PRAGMA foreign_keys = ON")
            base.execute("PRAGMA recursive_triggers = ON")  # otherwise REPLACE would delete without the triggers
            with transaction(base, "BEGIN IMMEDIATE"):
                upgraded = _upgrade(base)
                yield base
            self.upgraded = self.upgraded or upgraded

    @contextmanager
    def _opened(self, way: str) -> Iterator[sqlite3.Connection]:
        with self._named():
            if not self.path.exists():
                raise LedgerError(f"the ledger {self.path} is gone [LE012]")
            _check_regular(self.path)
            if self.path.stat().st_size == 0:
                raise LedgerError(
                    f"{self.path} is empty or has been emptied: put the ledger back from a copy; a party that "
                    "has never taken part in a study can name another file as its `ledger` [LE013]"
                )
            if (kept := self._kept()) is not None and way == "mode=rw":
                yield kept
                return
            with closing(_connected(self.path, way)) as base:
                yield base

    def _kept(self) -> sqlite3.Connection | None:
        """The connection that this thread keeps, if it is to the file that is there now and nobody is using it."""
        place = os.path.realpath(self.path)
        which, base = getattr(_KEPT, "bases", {}).get(place, (None, None))
        return base if base is not None and which == _which(place) and not base.in_transaction else None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except LedgerError as error:
            if str(self.path) in str(error):
                raise
            raise LedgerError(f"{self.path}: {error} [LE014]") from error
        except UnicodeDecodeError as error:
            raise LedgerError(f"the ledger {self.path} cannot be used: it holds broken text [LE015]") from error
        except (sqlite3.Error, OSError) as error:
            if "not a database" in str(error):
                raise LedgerError(
                    f"{self.path} is no ledger: name the file that `ledger` says in party.toml, or "
                    "restore a copy [LE016]"
                ) from error
            raise LedgerError(
                f"the ledger {self.path} cannot be used: {_without_content(str(error))} [LE017]"
            ) from error

    def _way_to_read(self) -> str:
        """How to open the file for reading: SQLite writes an index beside it while we read, if it can write there."""
        real = os.path.realpath(self.path)
        if os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK) and self._has_room():
            return "mode=rw"
        log = Path(f"{real}-wal")
        return "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"

    def _has_room(self) -> bool:
        try:
            if (kept := self._kept()) is not None:
                kept.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                return True
            with closing(_connected(self.path, "mode=rw")) as base:
                base.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            return "locked" in str(error)  # a disk that is full cannot hold the index
        except sqlite3.Error:
            pass  # not a ledger; the next step that opens it reports this
        return True

    def check_chain(self, base: sqlite3.Connection) -> None:
        """Refuse a file that holds more or less than the tables and guards of ours, or whose chain is broken."""
        self.check_guards(base)
        if (broken := first_break(changes(base))) is not None:
            raise LedgerError(
                f"{self.path} was altered: the chain breaks at entry {broken.entry} ({broken.state}); "
                "restore a copy [LE018]"
            )
        lone = base.execute(
            "SELECT min(id) FROM entries WHERE id NOT IN (SELECT entry FROM changes WHERE state = 'reserved')"
        ).fetchone()[0]
        if lone is not None:
            raise LedgerError(f"{self.path} was altered: entry {lone} was never reserved; restore a copy [LE019]")

    def check_guards(self, base: sqlite3.Connection) -> None:
        """Refuse a file whose schema is not, row by row, the one that this code makes."""
        if set(base.execute(SCHEMA)) != expected(version_of(base)):
            raise LedgerError(
                f"{self.path} was altered: what keeps it append-only is missing, or more was added [LE020]"
            )

    def verify(self, head: str | None = None, *, unchained: bool = False) -> None:
        """Check the whole file; with ``head``, also that it still continues from there.

        A file without a chain cannot show whether it was altered, and is refused unless ``unchained`` says otherwise.
        """
        with self.reading() as base:
            found = [str(row[0]) for row in base.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise LedgerError(f"{self.path} is damaged: {found[0]} [LE021]")
            self.check_chain(base)
            if (stray := base.execute("PRAGMA foreign_key_check").fetchone()) is not None:
                raise LedgerError(
                    f"{self.path} was altered: a row of {stray[0]} belongs to a {stray[2]} row that is gone [LE022]"
                )
            history = changes(base)
            for entry, steps in groupby(sorted(history, key=attrgetter("entry", "number")), attrgetter("entry")):
                states = [step.state for step in steps]
                if states[0] != "reserved" or any(old not in ALLOWED.get(new, ()) for old, new in pairwise(states)):
                    raise LedgerError(f"{self.path} was altered: entry {entry} has an impossible history [LE023]")
            if not is_chained(base) and not unchained:
                raise LedgerError(
                    f"{self.path} is of version {UNCHAINED} and was never chained, so it cannot show whether it was "
                    "altered: if a head of it was ever noted, restore a copy that holds it; else compare it with the "
                    "run records, and the next study will chain it as it stands [LE024]"
                )
            if head is not None:
                check_head(head, [GENESIS, *(change.hash or "" for change in history)])

    def _check_kind(self, base: sqlite3.Connection) -> None:
        application = base.execute("PRAGMA application_id").fetchone()[0]
        version = version_of(base)
        if application != APPLICATION_ID or base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            raise LedgerError(
                f"{self.path} is not a ledger of ours, or has been emptied: name the file that `ledger` says in "
                "party.toml, or put the ledger back from a copy [LE025]"
            )
        if version not in BY_VERSION:
            raise LedgerError(
                f"{self.path} has ledger version {version}; this code reads up to {SCHEMA_VERSION} [LE026]"
            )


def counted(base: sqlite3.Connection) -> int:
    """How many entries were not released."""
    released = "SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'released'"
    return int(base.execute(f"SELECT count(*) FROM entries e WHERE NOT EXISTS ({released})").fetchone()[0])  # noqa: S608


def texts_only(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row, if all its cells but the first are texts; SQLite keeps whatever somebody put there."""
    if not isinstance(row[0], int) or not all(isinstance(cell, str) for cell in row[1:]):
        raise LedgerError(f"entry {row[0]} of the ledger holds something that is no text; restore a copy [LE027]")
    return row


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
        raise LedgerError(f"the ledger did not store entry {number} as it was written; restore a copy [LE028]")
    return number


def append(base: sqlite3.Connection, entry: int, state: str, at: str) -> Change:
    """Store a change of state, read back what was stored, and add it to the chain."""
    row = base.execute("INSERT INTO changes (entry, at, state) VALUES (?, ?, ?)", (entry, at, state))
    found = base.execute(_ONE, (row.lastrowid,)).fetchone()
    stored = None if found is None else Change(*found)
    if stored is None or (stored.entry, stored.state, stored.at) != (entry, state, at):
        raise LedgerError(
            f"the ledger did not store a change of entry {entry} as it was written; restore a copy [LE029]"
        )
    _chain(base, stored, hashed(stored.line(head(base))))
    return stored


def changes(base: sqlite3.Connection) -> list[Change]:
    """All changes, the oldest first; changes in a file without hashes have those that they would get."""
    if is_chained(base):
        return [Change(*row) for row in base.execute(_HISTORIES[version_of(base)])]
    found: list[Change] = []
    for row in base.execute(_HISTORIES[UNCHAINED]):
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
    return version_of(base) != UNCHAINED


def rows(base: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Every entry: its number, study, digest, time, events, trust, its state now, and the keys of who took part."""
    known = _known(base)
    state = "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1)"
    columns = f"e.id, e.study, e.digest, e.created, e.events, e.trust, {state}, {known}"
    return base.execute(f"SELECT {columns} FROM entries e ORDER BY e.id").fetchall()  # noqa: S608 - fixed words


def runs_of(base: sqlite3.Connection, digest: str) -> list[tuple[str, str]]:
    """The time and the state now of every entry with this digest, the oldest first."""
    state = "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1)"
    query = f"SELECT e.id, e.created, {state} FROM entries e WHERE e.digest = ? ORDER BY e.id"  # noqa: S608
    return [texts_only(row)[1:] for row in base.execute(query, (digest,))]


def _known(base: sqlite3.Connection) -> str:
    """The keys of who took part in an entry ``e``, in SQL."""
    return "(SELECT p.known FROM people p WHERE p.entry = e.id)" if version_of(base) == SCHEMA_VERSION else "NULL"


def arrangements(base: sqlite3.Connection) -> list[tuple[str, str | None]]:
    """Every trust and the keys of who took part, each once, in the order in which they came first."""
    query = f"SELECT min(e.id), e.trust, {_known(base)} FROM entries e GROUP BY 2, 3 ORDER BY 1"  # noqa: S608
    return [(texts_only(row[:-1])[1], row[-1]) for row in base.execute(query)]


def times(base: sqlite3.Connection) -> list[tuple[int, str, bool]]:
    """Every entry: its number, its time, and whether it was released."""
    return [
        (number, created, state is not None)
        for number, created, state in base.execute(
            "SELECT e.id, e.created, c.state FROM entries e "
            "LEFT JOIN changes c ON c.entry = e.id AND c.state = 'released' ORDER BY e.id"
        )
    ]


def states_of(base: sqlite3.Connection, entry: int) -> list[str]:
    """The states an entry has been in, in order."""
    return [row[0] for row in base.execute("SELECT state FROM changes WHERE entry = ? ORDER BY id", (entry,))]


def _chain(base: sqlite3.Connection, change: Change, link: str) -> None:
    base.execute("INSERT INTO chain (change, hash) VALUES (?, ?)", (change.number, link))
    if base.execute("SELECT hash FROM chain WHERE change = ?", (change.number,)).fetchone() != (link,):
        raise LedgerError(f"the ledger did not store the hash of change {change.number}; restore a copy [LE030]")


def _upgrade(base: sqlite3.Connection) -> bool:
    """Bring a ledger of an earlier version up to this one in the transaction of its next change; whether it got hashes.

    Entries of before have no keys, and their hashes stay as they are.
    """
    version = version_of(base)
    if version == SCHEMA_VERSION:
        return False
    history = changes(base) if version == UNCHAINED else []
    for statement in statements(BY_VERSION[SCHEMA_VERSION].removeprefix(BY_VERSION[version])):
        base.execute(statement)
    for change in history:
        _chain(base, change, change.hash or "")
    base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return version == UNCHAINED


def _check_regular(path: Path) -> None:
    try:
        reading.check_regular(path)
    except reading.Unreadable as error:
        raise LedgerError(f"the ledger {path} cannot be used: {error} [LE031]") from None


def _without_content(said: str) -> str:
    """SQLite's own words, without the bytes of a cell that is no text."""
    return said.partition(" with text ")[0]
