"""The hash chain: whatever was written stays as it was written, or shows."""

# ruff: noqa: S608 - these statements are meant to do harm

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.ledger.chain import GENESIS
from colonnade.privacy.observers import Observer
from tests.support.errors import raises

from .conftest import EVENT, TRUST

FIRST_VERSION = """
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of three entries: committed, released, sent; eight changes with a fourth entry reserved."""
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    first, second, third = (ledger.reserve(f"s{n}", f"d{n}", [EVENT], TRUST, []) for n in range(3))
    ledger.mark_sent(first)
    ledger.release(second)
    ledger.commit(first)
    ledger.mark_sent(third)
    ledger.reserve("s3", "d3", [EVENT, EVENT], TRUST, [])
    ledger.verify()
    return path


def tamper(path: Path, *statements: str) -> None:
    """Change the file behind the ledger's back, and put everything that guards it back as it was."""
    base = sqlite3.connect(path, isolation_level=None)
    guards = base.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        base.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert base.execute(statement).rowcount != 0, statement
    for _, sql in guards:
        base.execute(sql)
    base.close()


def edits() -> Iterator[tuple[str, str]]:
    for entry in (1, 2, 3, 4):
        for column in ("study", "digest", "created"):
            yield f"UPDATE entries SET {column} = {column} || ' ' WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = replace(events, '9', '8') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = replace(events, ', ', ',') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = '[]' WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET trust = replace(trust, '1', '2') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET study = CAST(study AS BLOB) WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET id = 77 WHERE id = {entry}", f"entry {entry}"
        yield f"DELETE FROM entries WHERE id = {entry}", f"entry {entry}"
    for change, entry in enumerate((1, 2, 3, 1, 2, 1, 3, 4), start=1):
        yield f"UPDATE changes SET at = replace(at, '20', '19') WHERE id = {change}", f"entry {entry}"
        yield f"UPDATE chain SET hash = upper(hash) WHERE change = {change} AND hash <> upper(hash)", f"entry {entry}"
        yield f"UPDATE chain SET hash = '{GENESIS}' WHERE change = {change}", f"entry {entry}"
        yield f"DELETE FROM chain WHERE change = {change}", f"entry {entry}"
        yield f"DELETE FROM changes WHERE id = {change}", "ledger.sqlite"
        yield f"UPDATE changes SET id = 100 WHERE id = {change}", "ledger.sqlite"
    yield "UPDATE changes SET entry = 3 WHERE id = 6", "entry 3"
    yield "UPDATE changes SET state = 'sent' WHERE id = 5", "entry 2"
    yield "UPDATE changes SET state = 'released' WHERE id = 7", "entry 3"
    yield "INSERT INTO changes (entry, at, state) VALUES (4, '2030-01-01', 'released')", "entry 4"
    yield "INSERT INTO changes (id, entry, at, state) VALUES (-1, 4, '2020-01-01', 'released')", "entry 4"
    yield "INSERT INTO entries (study, digest, created, events, trust) SELECT study, '', '', '[]', trust FROM entries "\
          "LIMIT 1", "entry 5"  # fmt: skip
    yield "INSERT INTO chain VALUES (9, 'x')", "chain"


@pytest.mark.parametrize(("statement", "where"), list(edits()))
def test_every_edit_deletion_and_insertion_shows(path: Path, statement: str, where: str) -> None:
    tamper(path, statement)
    with raises(LedgerError, "LE010|LE018|LE019|LE022", where):
        Ledger(path).verify()


def test_another_order_shows(path: Path) -> None:
    columns = "study, digest, created, events, trust"
    swap = "UPDATE changes SET id = CASE id WHEN -2 THEN 3 ELSE 2 END WHERE id IN (-2, -3)"
    tamper(path, "UPDATE changes SET id = -id WHERE id IN (2, 3)", swap)
    with raises(LedgerError, "LE018", "3"):
        Ledger(path).verify()
    other = path.with_name("other.sqlite")
    shutil.copy(path, other)
    tamper(other, f"INSERT INTO entries ({columns}) SELECT {columns} FROM entries WHERE id = 1")
    with pytest.raises(LedgerError):
        Ledger(other).verify()


def test_a_whole_entry_taken_out_shows(path: Path) -> None:
    tamper(
        path, "DELETE FROM chain WHERE change IN (2, 5)", "DELETE FROM changes WHERE entry = 2",
        "DELETE FROM entries WHERE id = 2",
    )  # fmt: skip
    with raises(LedgerError, "LE018", "3"):
        Ledger(path).verify()


def test_guards_that_were_weakened_show(path: Path) -> None:
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("DROP TRIGGER chain_stay")
    with raises(LedgerError, "LE020"):
        Ledger(path).verify()
    base.execute("CREATE TRIGGER chain_stay BEFORE UPDATE ON chain BEGIN SELECT 1; END")
    with raises(LedgerError, "LE020"):
        Ledger(path).verify()
    base.close()


def test_an_impossible_history_shows_even_with_a_chain_that_fits(path: Path) -> None:
    ledger = Ledger(path)
    head = ledger.head
    line = json.dumps(
        {"previous": head, "change": 9, "entry": 1, "state": "released", "at": "2030"}, separators=(",", ":")
    )
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("INSERT INTO changes (entry, at, state) VALUES (1, '2030', 'released')")
    base.execute("INSERT INTO chain VALUES (9, ?)", (hashlib.sha256(line.encode()).hexdigest(),))
    base.close()
    with raises(LedgerError, "LE023", "1"):
        ledger.verify()


def test_nothing_is_reserved_on_a_broken_chain_but_what_was_sent_is_still_written_down(path: Path) -> None:
    ledger = Ledger(path)
    third = ledger.entries()[2]
    tamper(path, "UPDATE entries SET digest = 'x' WHERE id = 1")
    with raises(LedgerError, "LE018", "1"):
        ledger.reserve("s", "", [EVENT], TRUST, [])
    assert ledger.commit(third).state == "committed"


def test_a_cut_end_and_an_older_copy_show_only_against_a_head_noted_elsewhere(path: Path) -> None:
    ledger = Ledger(path)
    older = path.with_name("older.sqlite")
    early = ledger.head
    shutil.copy(path, older)
    ledger.commit(ledger.entries()[2])
    late = ledger.head
    ledger.verify(head=early)
    ledger.verify(head=late)
    ledger.verify(head=late[:32].upper())
    ledger.verify(head=GENESIS)
    old = Ledger(older)
    old.verify()
    with raises(LedgerError, "LE009"):
        old.verify(head=late)
    tamper(path, "DELETE FROM chain WHERE change = 9", "DELETE FROM changes WHERE id = 9")
    ledger.verify()
    with raises(LedgerError, "LE009"):
        ledger.verify(head=late)
    for bad in ("", "abc", late[:31], "g" * 32, late + "0"):
        with raises(LedgerError, "LE008"):
            ledger.verify(head=bad)


def test_the_chain_can_be_checked_without_this_code(path: Path) -> None:
    previous = "0" * 64
    for _, text in Ledger(path).lines():
        assert json.loads(text)["previous"] == previous
        previous = hashlib.sha256(text.encode()).hexdigest()
    assert previous == Ledger(path).head


def test_the_head_moves_with_every_change(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    heads = [ledger.head]
    assert heads == [GENESIS]
    entry = ledger.reserve("s", "", [EVENT], TRUST, [])
    heads.append(ledger.head)
    for step in (ledger.mark_sent, ledger.commit):
        step(entry)
        heads.append(ledger.head)
    assert len(set(heads)) == 4


def first_version(path: Path) -> None:
    """The file as the first version wrote it, from a ledger of today."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    with sqlite3.connect(path) as base:
        for table in ("entries", "changes"):
            rows[table] = base.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
    base.close()
    path.unlink()
    base = sqlite3.connect(path, isolation_level=None)
    base.executescript(FIRST_VERSION)
    base.execute("PRAGMA application_id = 1129270350")
    base.execute("PRAGMA user_version = 1")
    for row in rows["entries"]:
        base.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", row)
    for row in rows["changes"]:
        base.execute("INSERT INTO changes VALUES (?, ?, ?, ?)", row)
    base.close()


def test_a_ledger_of_the_first_version_is_chained_in_place(path: Path) -> None:
    now = Ledger(path)
    before, spent, head = now.entries(), now.spent(Observer.analyst(), 1e-5), now.head
    first_version(path)
    old = path.read_bytes()
    ledger = Ledger(path)
    assert ledger.entries() == before
    assert ledger.spent(Observer.analyst(), 1e-5) == spent
    assert ledger.head == head
    assert len(ledger.lines()) == 8
    with raises(LedgerError, "LE024"):
        ledger.verify()
    assert not ledger.chained
    assert path.read_bytes() == old, "who only looks changes nothing"
    ledger.commit(ledger.entries()[2])
    assert ledger.chained
    assert ledger.upgraded
    ledger.verify(head=head)
    with sqlite3.connect(path) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (3,)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            base.execute("DELETE FROM chain")
    base.close()
