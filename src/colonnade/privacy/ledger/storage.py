"""The SQLite file of a ledger: made in one step, append-only, durable, chained by hashes, and checked as a whole.

Reading changes nothing. A change is written as one line of JSON that starts with the hash of the line before; its own
hash is the SHA-256 of that line. A reservation's line holds the whole entry, with the very text that the file stores,
the keys of everybody in the study, and who approved it from where, as far as the file has them. So an edit, a deletion,
an insertion or another order of past rows shows, and whoever noted the last hash (the *head*) can tell later whether
the ledger still continues from there. The next study brings a ledger of an earlier version up to this one;
:func:`convert_ledger` does it at a moment that the party chooses, verifies it before and after, and keeps the old file
beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from colonnade.disk import reading, writing
from colonnade.disk.writing import enable_write_ahead_log
from colonnade.errors import LedgerError

APPLICATION_ID = 0x434F4C4E
SCHEMA_VERSION = 4
UNCHAINED, WITHOUT_KEYS, WITHOUT_APPROVERS = 1, 2, 3
BUSY_SECONDS = 30.0
_ENTRY_TABLES = """
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
_CHAIN_TABLE = """
CREATE TABLE chain (change INTEGER PRIMARY KEY REFERENCES changes (id), hash TEXT NOT NULL);
CREATE TRIGGER chain_stay BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER chain_last BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_PARTICIPANT_TABLE = """
CREATE TABLE people (entry INTEGER PRIMARY KEY REFERENCES entries (id), known TEXT NOT NULL);
CREATE TRIGGER people_stay BEFORE UPDATE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER people_last BEFORE DELETE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_COST_TABLE = """
CREATE TABLE sums (
    first INTEGER NOT NULL, last INTEGER NOT NULL, content TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (first, last));
"""
_APPROVER_TABLE = """
CREATE TABLE approvals (entry INTEGER PRIMARY KEY REFERENCES entries (id), approvers TEXT NOT NULL);
CREATE TRIGGER approvals_stay BEFORE UPDATE ON approvals BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER approvals_last BEFORE DELETE ON approvals BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
BY_VERSION = {
    UNCHAINED: _ENTRY_TABLES,
    WITHOUT_KEYS: _ENTRY_TABLES + _CHAIN_TABLE,
    WITHOUT_APPROVERS: _ENTRY_TABLES + _CHAIN_TABLE + _PARTICIPANT_TABLE + _COST_TABLE,
    SCHEMA_VERSION: _ENTRY_TABLES + _CHAIN_TABLE + _PARTICIPANT_TABLE + _COST_TABLE + _APPROVER_TABLE,
}
"""The whole schema of each version of the file."""
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


def file_version(base: sqlite3.Connection) -> int:
    """The version of an open file."""
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def make_file(place: Path) -> bool:
    """Make a new ledger in one step, so that no half-made file is ever there; false if another process was first."""
    writing.remove_leftovers(place)
    with writing.private_workspace(place) as room:
        new = room / place.name
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        _fill(new)
        _check_whole(new)
        with new.open("rb") as made:
            os.fsync(made.fileno())
        first = writing.claim_name(new, place)
    writing.sync_folder(place.parent)
    return first


def _fill(new: Path) -> None:
    """Write the tables of a ledger into the file itself; the log, which a full disk may leave unread, comes last."""
    with closing(sqlite3.connect(new, isolation_level=None)) as base:
        base.execute("PRAGMA synchronous = FULL")
        with transaction(base, "BEGIN IMMEDIATE"):
            for statement in split_statements(BY_VERSION[SCHEMA_VERSION]):
                base.execute(statement)
            base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        switch_to_wal(base)
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _check_whole(new: Path) -> None:
    """Refuse a new file that does not hold, without its log, exactly the tables of a ledger: the disk may be full."""
    with closing(sqlite3.connect(f"{new.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        sound = [str(row[0]) for row in base.execute("PRAGMA integrity_check")] == ["ok"]
        application = base.execute("PRAGMA application_id").fetchone()[0]
        tables = frozenset(base.execute(SCHEMA))
        if (sound, application, file_version(base), tables) != (
            True,
            APPLICATION_ID,
            SCHEMA_VERSION,
            expected_schema(SCHEMA_VERSION),
        ):
            raise LedgerError("a new ledger could not be written as a whole: make room on its disk [LE032]")


@cache
def expected_schema(version: int) -> frozenset[tuple[str, str, str, str | None]]:
    """Every row of the schema of a ledger, with what SQLite adds by itself."""
    with closing(sqlite3.connect(":memory:")) as base:
        for statement in split_statements(BY_VERSION[version]):
            base.execute(statement)
        return frozenset(base.execute(SCHEMA))


def split_statements(script: str) -> list[str]:
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


def switch_to_wal(base: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, without which a ledger is not used."""
    if (mode := enable_write_ahead_log(base, BUSY_SECONDS)) != "wal":
        raise LedgerError(
            f"a ledger needs a write-ahead log, and SQLite keeps its journal as {mode!r} here: move the ledger to "
            "a local disk [LE033]"
        )


GENESIS = "0" * 64
"""What the first line names as the hash before it; the head of an empty ledger."""
LEAST_DIGITS = 32
"""128 bits: with fewer digits, somebody could search for another chain whose hash starts with them."""


@dataclass(frozen=True)
class LedgerChange:
    """One change of state as it is stored, with its entry, and the hash that was stored for it."""

    number: int
    entry: int
    state: str
    at: str
    hash: str | None
    study: str
    digest: str
    created: str
    events: str
    trust: str
    people: str | None = None
    approvers: str | None = None

    def line(self, previous: str) -> str:
        """The text that is hashed."""
        fields: dict[str, str | int] = {"previous": previous, "change": self.number, "entry": self.entry}
        fields |= {"state": self.state, "at": self.at}
        if self.state != "reserved":
            return _compact(fields)
        fields |= {"study": self.study, "digest": self.digest, "created": self.created}
        people = "" if self.people is None else f',"people":{self.people}'
        said = "" if self.approvers is None else f',"approvers":{self.approvers}'
        return f'{_compact(fields)[:-1]},"events":{self.events},"trust":{self.trust}{people}{said}}}'


def hash_line(line: str) -> str:
    """The hash of a line of the chain."""
    return hashlib.sha256(line.encode()).hexdigest()


def chain_lines(changes: Iterable[LedgerChange]) -> Iterator[tuple[LedgerChange, str]]:
    """Every change with its line; each names the hash that is *stored* for the one before."""
    previous = GENESIS
    for change in changes:
        yield change, change.line(previous)
        previous = change.hash or ""


def check_head(head: str, known: Iterable[str]) -> None:
    """Refuse unless a head that was noted earlier is still in the chain."""
    wanted = head.strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", wanted):
        raise LedgerError(
            f"a head is {LEAST_DIGITS} to 64 hexadecimal digits, as `colonnade ledger show` prints it [LE008]"
        )
    if not any(found.startswith(wanted) for found in known):
        raise LedgerError(
            f"the head {wanted[:12]}... is not in this ledger: its end was cut off, an older copy was put back, "
            "or the whole was written anew; find the copy that holds it [LE009]"
        )


def _compact(fields: dict[str, str | int]) -> str:
    try:
        return json.dumps(fields, separators=(",", ":"))
    except TypeError as error:
        raise LedgerError(f"entry {fields['entry']} of the ledger holds something that is no text [LE010]") from error


ALLOWED = {"sent": ("reserved",), "committed": ("reserved", "sent"), "released": ("reserved",)}
"""For each state, the states from which an entry may come to it."""
_HISTORY = (
    "SELECT c.id, c.entry, c.state, c.at, {hash}, e.study, e.digest, e.created, e.events, e.trust, {more} "
    "FROM changes c LEFT JOIN entries e ON e.id = c.entry {rest} {which} ORDER BY c.id"
)
_HASHES = "LEFT JOIN chain h ON h.change = c.id"
_KEYS = "LEFT JOIN people p ON p.entry = c.entry"
_APPROVERS = "LEFT JOIN approvals a ON a.entry = c.entry"
_HISTORIES = {
    UNCHAINED: _HISTORY.format(hash="NULL", more="NULL, NULL", rest="", which=""),
    WITHOUT_KEYS: _HISTORY.format(hash="h.hash", more="NULL, NULL", rest=_HASHES, which=""),
    WITHOUT_APPROVERS: _HISTORY.format(hash="h.hash", more="p.known, NULL", rest=f"{_HASHES} {_KEYS}", which=""),
    SCHEMA_VERSION: _HISTORY.format(
        hash="h.hash", more="p.known, a.approvers", rest=f"{_HASHES} {_KEYS} {_APPROVERS}", which=""
    ),
}
_ONE = _HISTORY.format(hash="NULL", more="p.known, a.approvers", rest=f"{_KEYS} {_APPROVERS}", which="WHERE c.id = ?")


def _connect(path: Path, way: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{way}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


class LedgerFile:
    """One file; each use opens it anew, so threads and processes may share it."""

    def __init__(self, path: str | os.PathLike[str], *, there: bool = False) -> None:
        """Open a ledger, or make one where none is, unless it must be ``there``."""
        self.path = Path(path)
        """Where the ledger lies."""
        self.upgraded = False
        """Whether a change through this object added hashes to a ledger that had none."""
        with self._named():
            self.created = not there and not self.path.exists() and make_file(Path(os.path.realpath(self.path)))
            """Whether this object made the file; nothing is on record then, even if something was revealed before."""
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The file as it is at one moment; nothing is written, not even an upgrade."""
        with self._named():
            way = self._way_to_read()
        with self._opened(way) as base:
            base.execute("PRAGMA query_only = ON")
            with transaction(base, "BEGIN"):
                self._check_kind(base)
                yield base

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The file, locked for one change that happens as a whole or not at all; a file without hashes gets them."""
        with self._opened("mode=rw") as base:
            with transaction(base, "BEGIN"):
                self._check_kind(base)  # before anything is written: the file may be somebody else's
            writing.remove_leftovers(Path(os.path.realpath(self.path)))
            switch_to_wal(base)
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
            with closing(_connect(self.path, way)) as base:
                yield base

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
            said = str(error).partition(" with text ")[0]  # without the bytes of a cell that is no text
            raise LedgerError(f"the ledger {self.path} cannot be used: {said} [LE017]") from error

    def _way_to_read(self) -> str:
        """How to open the file for reading: SQLite writes an index beside it while we read, if it can write there."""
        real = os.path.realpath(self.path)
        room = os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK)
        if room:
            try:
                with closing(_connect(self.path, "mode=rw")) as base:
                    base.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            except sqlite3.OperationalError as error:
                room = "locked" in str(error)  # a disk that is full cannot hold the index
            except sqlite3.Error:
                pass  # not a ledger; the next step that opens it reports this
        log = Path(f"{real}-wal")
        return "mode=rw" if room else "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"

    def check_chain(self, base: sqlite3.Connection) -> None:
        """Refuse a file that holds more or less than the tables and guards of ours, or whose chain is broken."""
        self.check_guards(base)
        for change, line in chain_lines(read_changes(base)):
            if change.hash != hash_line(line):
                raise LedgerError(
                    f"{self.path} was altered: the chain breaks at entry {change.entry} ({change.state}); "
                    "restore a copy [LE018]"
                )
        lone = base.execute(
            "SELECT min(id) FROM entries WHERE id NOT IN (SELECT entry FROM changes WHERE state = 'reserved')"
        ).fetchone()[0]
        if lone is not None:
            raise LedgerError(f"{self.path} was altered: entry {lone} was never reserved; restore a copy [LE019]")

    def check_guards(self, base: sqlite3.Connection) -> None:
        """Refuse a file whose schema is not, row by row, the one that this code makes."""
        if set(base.execute(SCHEMA)) != expected_schema(file_version(base)):
            raise LedgerError(
                f"{self.path} was altered: what keeps it append-only is missing, or more was added [LE020]"
            )

    def verify(self, head: str | None = None, *, unchained: bool = False) -> None:
        """Check the whole file; with ``read_head``, also that it still continues from there.

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
            history = read_changes(base)
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
        version = file_version(base)
        if application != APPLICATION_ID or base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            raise LedgerError(
                f"{self.path} is not a ledger of ours, or has been emptied: name the file that `ledger` says in "
                "party.toml, or put the ledger back from a copy [LE025]"
            )
        if version not in BY_VERSION:
            raise LedgerError(
                f"{self.path} has ledger version {version}; this code reads up to {SCHEMA_VERSION} [LE026]"
            )


def count_entries(base: sqlite3.Connection) -> int:
    """How many entries were not released."""
    released = "SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'released'"
    return int(base.execute(f"SELECT count(*) FROM entries e WHERE NOT EXISTS ({released})").fetchone()[0])  # noqa: S608


def check_texts(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row, if all its cells but the first are texts; SQLite keeps whatever somebody put there."""
    if not isinstance(row[0], int) or not all(isinstance(cell, str) for cell in row[1:]):
        raise LedgerError(f"entry {row[0]} of the ledger holds something that is no text; restore a copy [LE027]")
    return row


def insert_entry(
    base: sqlite3.Connection,
    study: str,
    digest: str,
    at: str,
    events: str,
    trust: str,
    people: str | None = None,
    approvers: str | None = None,
) -> int:
    """Store a new entry as reserved, with who took part and who approved where that is known; return its number."""
    entry = (study, digest, at, events, trust)
    row = base.execute("INSERT INTO entries (study, digest, created, events, trust) VALUES (?, ?, ?, ?, ?)", entry)
    number = int(row.lastrowid or 0)
    if people is not None:
        base.execute("INSERT INTO people (entry, known) VALUES (?, ?)", (number, people))
    if approvers is not None:
        base.execute("INSERT INTO approvals (entry, approvers) VALUES (?, ?)", (number, approvers))
    stored = append_change(base, number, "reserved", at)
    found = (stored.study, stored.digest, stored.created, stored.events, stored.trust, stored.people, stored.approvers)
    if found != (*entry, people, approvers):
        raise LedgerError(f"the ledger did not store entry {number} as it was written; restore a copy [LE028]")
    return number


def append_change(base: sqlite3.Connection, entry: int, state: str, at: str) -> LedgerChange:
    """Store a change of state, read back what was stored, and add it to the chain."""
    row = base.execute("INSERT INTO changes (entry, at, state) VALUES (?, ?, ?)", (entry, at, state))
    found = base.execute(_ONE, (row.lastrowid,)).fetchone()
    stored = None if found is None else LedgerChange(*found)
    if stored is None or (stored.entry, stored.state, stored.at) != (entry, state, at):
        raise LedgerError(
            f"the ledger did not store a change of entry {entry} as it was written; restore a copy [LE029]"
        )
    _chain(base, stored, hash_line(stored.line(read_head(base))))
    return stored


def read_changes(base: sqlite3.Connection) -> list[LedgerChange]:
    """All changes, the oldest first; changes in a file without hashes have those that they would get."""
    if is_chained(base):
        return [LedgerChange(*row) for row in base.execute(_HISTORIES[file_version(base)])]
    found: list[LedgerChange] = []
    for row in base.execute(_HISTORIES[UNCHAINED]):
        change = LedgerChange(*row)
        found.append(replace(change, hash=hash_line(change.line((found[-1].hash if found else None) or GENESIS))))
    return found


def read_head(base: sqlite3.Connection) -> str:
    """The hash of the last change."""
    if not is_chained(base):
        history = read_changes(base)
        return (history[-1].hash if history else None) or GENESIS
    row = base.execute("SELECT hash FROM chain ORDER BY change DESC LIMIT 1").fetchone()
    return GENESIS if row is None else str(row[0])


def is_chained(base: sqlite3.Connection) -> bool:
    """Whether the file has hashes of its own."""
    return file_version(base) != UNCHAINED


def read_entries(base: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Every entry: its number, study, digest, time, events, trust, its state now, and the keys of who took part."""
    known = _known(base)
    state = "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1)"
    columns = f"e.id, e.study, e.digest, e.created, e.events, e.trust, {state}, {known}"
    return base.execute(f"SELECT {columns} FROM entries e ORDER BY e.id").fetchall()  # noqa: S608 - fixed words


def read_runs(base: sqlite3.Connection, digest: str) -> list[tuple[str, str]]:
    """The time and the state now of every entry with this digest, the oldest first."""
    state = "(SELECT c.state FROM changes c WHERE c.entry = e.id ORDER BY c.id DESC LIMIT 1)"
    query = f"SELECT e.id, e.created, {state} FROM entries e WHERE e.digest = ? ORDER BY e.id"  # noqa: S608
    return [check_texts(row)[1:] for row in base.execute(query, (digest,))]


def _known(base: sqlite3.Connection) -> str:
    """The keys of who took part in an entry ``e``, in SQL."""
    version = file_version(base)
    return "(SELECT p.known FROM people p WHERE p.entry = e.id)" if version >= WITHOUT_APPROVERS else "NULL"


def read_approvals(base: sqlite3.Connection) -> dict[int, str]:
    """Who approved each entry of which that is on record."""
    kept = file_version(base) == SCHEMA_VERSION
    return dict(base.execute("SELECT entry, approvers FROM approvals").fetchall() if kept else ())


def read_arrangements(base: sqlite3.Connection) -> list[tuple[str, str | None]]:
    """Every trust and the keys of who took part, each once, in the order in which they came first."""
    query = f"SELECT min(e.id), e.trust, {_known(base)} FROM entries e GROUP BY 2, 3 ORDER BY 1"  # noqa: S608
    return [(check_texts(row[:-1])[1], row[-1]) for row in base.execute(query)]


def read_times(base: sqlite3.Connection) -> list[tuple[int, str, bool]]:
    """Every entry: its number, its time, and whether it was released."""
    return [
        (number, created, state is not None)
        for number, created, state in base.execute(
            "SELECT e.id, e.created, c.state FROM entries e "
            "LEFT JOIN changes c ON c.entry = e.id AND c.state = 'released' ORDER BY e.id"
        )
    ]


def read_states(base: sqlite3.Connection, entry: int) -> list[str]:
    """The states an entry has been in, in order."""
    return [row[0] for row in base.execute("SELECT state FROM changes WHERE entry = ? ORDER BY id", (entry,))]


def _chain(base: sqlite3.Connection, change: LedgerChange, link: str) -> None:
    base.execute("INSERT INTO chain (change, hash) VALUES (?, ?)", (change.number, link))
    if base.execute("SELECT hash FROM chain WHERE change = ?", (change.number,)).fetchone() != (link,):
        raise LedgerError(f"the ledger did not store the hash of change {change.number}; restore a copy [LE030]")


def _upgrade(base: sqlite3.Connection) -> bool:
    """Bring a ledger of an earlier version up to this one in the transaction of its next change; whether it got hashes.

    Entries of before have no keys, and their hashes stay as they are.
    """
    version = file_version(base)
    if version == SCHEMA_VERSION:
        return False
    history = read_changes(base) if version == UNCHAINED else []
    for statement in split_statements(BY_VERSION[SCHEMA_VERSION].removeprefix(BY_VERSION[version])):
        base.execute(statement)
    for change in history:
        _chain(base, change, change.hash or "")
    base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return version == UNCHAINED


def _check_regular(path: Path) -> None:
    try:
        reading.check_regular(path)
    except reading.UnreadableFile as error:
        raise LedgerError(f"the ledger {path} cannot be used: {error} [LE031]") from None


@dataclass(frozen=True)
class Conversion:
    """What was done: from which version, where the old file is, and what the ledger holds."""

    version: int
    kept_path: Path
    entries: int
    head: str

    @property
    def chained(self) -> bool:
        """Whether the old file had a chain, so that it could show whether it was altered."""
        return self.version != UNCHAINED


def convert_ledger(path: str | os.PathLike[str]) -> Conversion | None:
    """Convert the ledger in its place; ``None`` if it is of this version already, and then nothing is written.

    Other processes see the ledger before or after, and nothing in between. What it holds stays entry by entry, and so
    does its head. If anything fails, the ledger is as it was.
    """
    file = LedgerFile(path, there=True)
    with file.reading() as base:
        version = file_version(base)
    file.verify(unchained=True)
    if version == SCHEMA_VERSION:
        return None
    with file.writing() as base:  # a writer waits from here on, and the file on disk is still the old one
        kept, before = _keep(file.path, version)
        if (read_entries(base), read_head(base)) != before:
            raise LedgerError(
                f"{file.path} would hold something else after it was converted; nothing was changed [LE040]"
            )
    file.verify()
    return Conversion(version, kept, len(before[0]), before[1])


Held = tuple[list[tuple[object, ...]], str]
"""Entries and head."""


def _keep(path: Path, version: int) -> tuple[Path, Held]:
    """A copy of the file as it is on disk, beside it, and what it holds; an equal one that is there already serves."""
    place = Path(os.path.realpath(path))
    kept = place.with_name(f"{place.name}.version-{version}")
    writing.remove_leftovers(kept)
    with writing.private_workspace(kept) as room:
        copy = room / kept.name
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            closing(sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(copy, isolation_level=None)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # so that the copy is one file
            if file_version(new) != version:
                raise LedgerError(
                    f"{path} was converted by another process meanwhile: look at it with `ledger show` [LE041]"
                )
            found = read_entries(new), read_head(new)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        if not writing.claim_name(copy, kept) and _held(kept, version) != found:
            raise LedgerError(
                f"there is {kept} already, and it may be the only copy: keep it under another name [LE042]"
            )
    writing.sync_folder(kept.parent)
    return kept, found


def _held(kept: Path, version: int) -> Held | None:
    """What a copy holds that an earlier try has left; ``None`` if it is something else."""
    try:
        with closing(sqlite3.connect(f"{kept.as_uri()}?mode=ro", uri=True)) as base:
            return (read_entries(base), read_head(base)) if file_version(base) == version else None
    except sqlite3.Error:
        return None
