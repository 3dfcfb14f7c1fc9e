"""The file under a ledger: what was written stays as it was written, or shows; and files of earlier versions."""

# ruff: noqa: S608 - these statements are meant to do harm

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.errors import LedgerError, PolicyError
from colonnade.privacy.ledger import Ledger, storage
from colonnade.privacy.ledger.approvers import Approver
from colonnade.privacy.ledger.caps import AlignmentsLimit
from colonnade.privacy.ledger.storage import (
    GENESIS,
    SCHEMA_VERSION,
    append_change,
    convert_ledger,
    insert_entry,
    switch_to_wal,
)
from colonnade.privacy.observers import Observer
from tests.support.errors import raises, refused
from tests.support.ledgers import DELTA, EVENT, TRUST, altered, keys

MORE_NOISE = """
CREATE TRIGGER {name} AFTER INSERT ON entries BEGIN
    INSERT OR REPLACE INTO entries (id, study, digest, created, events, trust) VALUES (NEW.id, NEW.study, NEW.digest,
    NEW.created, replace(NEW.events, ', "1000000000000"]', ', "1000000000000000000"]'), NEW.trust);
END"""
FIXTURES = Path(__file__).parents[1] / "fixtures" / "ledger"
NAMES = ("plain.sqlite", "link.sqlite", "odd %41?#name.sqlite")
EARLIER = {1: "ledger-1.db", 2: "earlier-ledger.db", 3: "ledger-3.db"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger of four entries: committed, released, sent and reserved, by eight changes."""
    ledger = Ledger(tmp_path_factory.mktemp("written") / "ledger.sqlite", owner="bank")
    by = (Approver("Ada", "console", "127.0.0.1"),)
    first, second, third = (
        ledger.reserve(f"s{n}", f"d{n}", [EVENT], TRUST, [], (), keys(*TRUST.owners), approvers=by[n:])
        for n in range(3)
    )
    ledger.mark_sent(first)
    ledger.release(second)
    ledger.commit(first)
    ledger.mark_sent(third)
    ledger.reserve("s3", "d3", [EVENT, EVENT], TRUST, [])
    return ledger.path.read_bytes()


@pytest.fixture
def path(written: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(written)
    return path


OF_ENTRIES = [
    *(f"UPDATE entries SET {column} = {column} || ' ' WHERE id = %d" for column in ("study", "digest", "created")),
    "UPDATE entries SET events = replace(events, '9', '8') WHERE id = %d",
    "UPDATE entries SET events = replace(events, ', ', ',') WHERE id = %d",
    "UPDATE entries SET events = '[]' WHERE id = %d",
    "UPDATE entries SET trust = replace(trust, '1', '2') WHERE id = %d",
    "UPDATE entries SET study = CAST(study AS BLOB) WHERE id = %d",
    "UPDATE entries SET id = 77 WHERE id = %d",
    "DELETE FROM entries WHERE id = %d",
]
OF_CHANGES = [
    "UPDATE changes SET at = replace(at, '20', '19') WHERE id = %d",
    "UPDATE chain SET hash = upper(hash) WHERE change = %d AND hash <> upper(hash)",
    f"UPDATE chain SET hash = '{GENESIS}' WHERE change = %d",
    "DELETE FROM chain WHERE change = %d",
]
COLUMNS = "study, digest, created, events, trust"
EDITS = [
    # one statement, and what is named when it shows: at the beginning, in the middle and at the end
    *((text % entry, f"entry {entry}") for text in OF_ENTRIES for entry in (1, 2, 4)),
    *((text % change, f"entry {entry}") for text in OF_CHANGES for change, entry in ((1, 1), (5, 2), (8, 4))),
    *((f"DELETE FROM changes WHERE id = {change}", "ledger.sqlite") for change in (1, 5, 8)),
    *((f"UPDATE changes SET id = 100 WHERE id = {change}", "ledger.sqlite") for change in (1, 5, 8)),
    ("UPDATE changes SET entry = 3 WHERE id = 6", "entry 3"),
    ("UPDATE changes SET state = 'sent' WHERE id = 5", "entry 2"),
    ("UPDATE changes SET state = 'released' WHERE id = 7", "entry 3"),
    ("INSERT INTO changes (entry, at, state) VALUES (4, '2030-01-01', 'released')", "entry 4"),
    ("INSERT INTO changes (id, entry, at, state) VALUES (-1, 4, '2020-01-01', 'released')", "entry 4"),
    (f"INSERT INTO entries ({COLUMNS}) SELECT {COLUMNS} FROM entries WHERE id = 1", "entry 5"),
    ("INSERT INTO chain VALUES (9, 'x')", "chain"),
    ("UPDATE people SET known = replace(known, 'sha256:shop', 'sha256:other') WHERE entry = 1", "entry 1"),
    ("DELETE FROM people WHERE entry = 2", "entry 2"),
    ("UPDATE people SET entry = 77 WHERE entry = 2", ""),
    ("UPDATE approvals SET approvers = replace(approvers, 'Ada', 'Bob') WHERE entry = 1", "entry 1"),
    ("UPDATE approvals SET approvers = replace(approvers, '127.0.0.1', '127.0.0.2') WHERE entry = 1", "entry 1"),
    ("DELETE FROM approvals WHERE entry = 1", "entry 1"),
    ("INSERT INTO approvals VALUES (2, '[]')", "entry 2"),
    ("INSERT INTO people VALUES (77, '{}')", ""),
    (
        "UPDATE changes SET id = -id WHERE id IN (2, 3)",
        "UPDATE changes SET id = CASE id WHEN -2 THEN 3 ELSE 2 END WHERE id IN (-2, -3)",
        "3",
    ),
    (
        "DELETE FROM chain WHERE change IN (2, 5)",
        "DELETE FROM changes WHERE entry = 2",
        "DELETE FROM entries WHERE id = 2",
        "3",
    ),
]


def test_every_edit_deletion_insertion_and_another_order_shows(path: Path, written: bytes) -> None:
    Ledger(path).verify()
    assert json.loads(Ledger(path).lines()[0][1])["people"] == {"own": "bank", "keys": keys(*TRUST.owners)}
    for *statements, where in EDITS:
        path.write_bytes(written)
        altered(path, *statements)
        refused(LedgerError, "LE010|LE018|LE019|LE022", where, Ledger(path).verify)


def test_an_impossible_history_shows_even_with_a_chain_that_fits(path: Path) -> None:
    ledger = Ledger(path)
    link = {"previous": ledger.head, "change": 9, "entry": 1, "state": "released", "at": "2030"}
    digest = hashlib.sha256(json.dumps(link, separators=(",", ":")).encode()).hexdigest()
    altered(
        path,
        "INSERT INTO changes (entry, at, state) VALUES (1, '2030', 'released')",
        f"INSERT INTO chain VALUES (9, '{digest}')",
    )
    refused(LedgerError, "LE023", "1", ledger.verify)


def test_nothing_is_reserved_on_a_broken_chain_but_what_was_sent_is_still_written_down(path: Path) -> None:
    ledger = Ledger(path)
    third = ledger.entries()[2]
    altered(path, "UPDATE entries SET digest = 'x' WHERE id = 1")
    refused(LedgerError, "LE018", "1", ledger.reserve, "s", "", [EVENT], TRUST, [])
    assert ledger.commit(third).state == "committed"


def test_a_cut_end_and_an_older_copy_show_only_against_a_head_noted_elsewhere(path: Path, written: bytes) -> None:
    ledger = Ledger(path)
    early = ledger.head
    ledger.commit(ledger.entries()[2])
    late = ledger.head
    for head in (early, late, late[:32].upper(), GENESIS):
        ledger.verify(head=head)
    for bad in ("", "abc", late[:31], "g" * 32, late + "0"):
        refused(LedgerError, "LE008", ledger.verify, head=bad)
    altered(path, "DELETE FROM chain WHERE change = 9", "DELETE FROM changes WHERE id = 9")
    for shorter in (path.read_bytes(), written):
        path.write_bytes(shorter)
        ledger.verify()
        refused(LedgerError, "LE009", ledger.verify, head=late)


def test_the_chain_can_be_checked_without_this_code(path: Path) -> None:
    head = "0" * 64
    for _, text in Ledger(path).lines():
        assert json.loads(text)["previous"] == head
        head = hashlib.sha256(text.encode()).hexdigest()
    assert (head, GENESIS) == (Ledger(path).head, "0" * 64)


# --- additions to the file, and who may write into it


@pytest.mark.parametrize(
    "statements",
    [
        (MORE_NOISE.format(name="evil"),),
        (MORE_NOISE.format(name="sqlitex"),),
        (
            MORE_NOISE.format(name="evil"), "PRAGMA writable_schema = ON",
            "UPDATE sqlite_schema SET name = 'sqlite_evil' WHERE name = 'evil'",
        ),
        ("CREATE TABLE sqlitex (a)",),
        ("CREATE VIEW sqlitex AS SELECT 1",),
        ("CREATE INDEX sqlitex ON entries (study)",),
        ("DROP TRIGGER entries_last",),
        ("DROP TRIGGER chain_stay", "CREATE TRIGGER chain_stay BEFORE UPDATE ON chain BEGIN SELECT 1; END"),
        ("PRAGMA user_version = 1",),
    ],
)  # fmt: skip
def test_whatever_is_added_to_the_schema_shows_and_nothing_is_reserved(path: Path, statements: tuple[str]) -> None:
    ledger = Ledger(path)
    waiting = ledger.entries()[3]
    altered(path, *statements, guarded=False)
    before = path.read_bytes()
    for action, *words in (
        (ledger.verify,),
        (ledger.reserve, "s1", "d", [EVENT], TRUST, []),
        (ledger.check, "s1", [EVENT], TRUST, []),
        (ledger.mark_sent, waiting),
        (ledger.release, waiting),
    ):
        refused(LedgerError, "LE017|LE020", action, *words)
    assert path.read_bytes() == before


def test_what_is_hashed_is_what_was_asked_for(path: Path) -> None:
    """The second line of defence, without the first: a row that comes back changed is refused before its hash."""
    swap = "CREATE TRIGGER evil2 AFTER INSERT ON changes BEGIN INSERT OR REPLACE INTO changes (id, entry, at, state) "
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute(MORE_NOISE.format(name="evil"))
        with raises(LedgerError, "LE028", "5"):
            insert_entry(base, "s", "d", "2031-01-01T00:00:00+00:00", json.dumps([EVENT.to_dict()]), TRUST.to_json())
        base.execute("DROP TRIGGER evil")
        base.execute(f"{swap} VALUES (NEW.id, NEW.entry, '1999', NEW.state); END")
        refused(LedgerError, "LE029", "4", append_change, base, 4, "released", "2031-01-01T00:00:00+00:00")


def test_the_file_is_append_only_and_durable(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for statement in ("DELETE FROM entries", "UPDATE entries SET events = '[]'", "DELETE FROM changes",
                          "UPDATE changes SET state = 'released'", "DELETE FROM chain"):  # fmt: skip
            refused(sqlite3.IntegrityError, "append-only", base.execute, statement)
    with raises(LedgerError, "LE017", "append-only"), Ledger(path).writing() as base:
        base.execute("INSERT OR REPLACE INTO entries SELECT id, 'other', digest, created, events, trust FROM entries")
    with closing(sqlite3.connect(":memory:")) as base:
        refused(LedgerError, "LE033", "memory", switch_to_wal, base)  # a place without a log is refused


def test_looking_leaves_no_trace(path: Path, written: bytes) -> None:
    Ledger(path).verify()
    assert len(Ledger(path).entries()) == 4
    assert path.read_bytes() == written
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("spoilt", ["empty", "garbage", "foreign", "newer"])
def test_files_that_are_not_ours_are_refused_and_left_alone(tmp_path: Path, path: Path, spoilt: str) -> None:
    place = path if spoilt == "newer" else tmp_path / "bank.ledger"
    if spoilt in ("foreign", "newer"):
        with closing(sqlite3.connect(place)) as base:
            base.executescript("PRAGMA user_version = 99" if spoilt == "newer" else "CREATE TABLE diary (line TEXT)")
    else:
        place.write_bytes(os.urandom(9000) if spoilt == "garbage" else b"")
    before = place.read_bytes()
    refused(LedgerError, "LE*" if before else "LE013", Ledger, place)
    assert place.read_bytes() == before
    refused(LedgerError, "LE017", Ledger, tmp_path / "missing" / "x.ledger")


def test_a_new_ledger_is_private_whatever_its_name_and_the_mask(tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real.sqlite")
    before = os.umask(0)
    try:
        made = [Ledger(tmp_path / name).created for name in NAMES]
    finally:
        os.umask(before)
    assert made == [True] * 3
    for name in NAMES:
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        Ledger(tmp_path / name).reserve("s", "", [EVENT], TRUST, [])
        assert (Ledger(tmp_path / name).created, len(Ledger(tmp_path / name).entries())) == (False, 1)
    assert (tmp_path / "link.sqlite").is_symlink()
    assert (tmp_path / "real.sqlite").is_file()


def test_an_unreadable_entry_is_not_counted_as_nothing_and_altered_ones_show(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.entries()[0].events == (EVENT,), "equal texts are read once"
    altered(path, "DROP TRIGGER entries_stay", "UPDATE entries SET events = '[]' WHERE id = 1", guarded=False)
    assert ledger.entries()[0].events == (), "what the file holds is what counts"
    refused(LedgerError, "LE020", ledger.verify)
    altered(path, "UPDATE entries SET events = '[{}]' WHERE id = 1", guarded=False)
    for action in (ledger.entries, lambda: ledger.epsilon_spent(Observer.analyst(), DELTA)):
        refused(LedgerError, "PR027", action)


def test_reading_changes_nothing(path: Path) -> None:
    with Ledger(path).reading() as base:
        refused(sqlite3.OperationalError, "readonly", base.execute, "DELETE FROM sums")


# --- a ledger of an earlier version is converted as a whole, and its old file stays


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as base:
        return int(base.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture(params=EARLIER)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path]:
    return request.param, shutil.copyfile(FIXTURES / EARLIER[request.param], tmp_path / "ledger.sqlite")


def test_entries_and_head_stay_and_the_old_file_is_kept(earlier: tuple[int, Path], tmp_path: Path) -> None:
    number, path = earlier
    before, head = Ledger(path).entries(), Ledger(path).head
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)  # through a link the file itself is converted
    done = convert_ledger(link)
    assert (done.version, done.entries, done.head, done.chained) == (number, len(before), head, number > 1)
    assert done.kept_path == path.with_name(f"ledger.sqlite.version-{number}")
    assert done.kept_path.stat().st_mode & 0o777 == 0o600
    assert (version(path), version(done.kept_path)) == (SCHEMA_VERSION, number)
    Ledger(path).verify(head)
    assert Ledger(path).entries() == Ledger(done.kept_path).entries() == before
    assert link.is_symlink()
    left = {each.name for each in tmp_path.iterdir() if not each.name.endswith(("-wal", "-shm"))}
    assert left == {path.name, done.kept_path.name, link.name}


def test_a_ledger_of_this_version_is_left_alone_and_none_is_made(path: Path, written: bytes) -> None:
    assert convert_ledger(path) is None
    refused(LedgerError, "LE012", convert_ledger, path.with_name("none.sqlite"))
    assert path.read_bytes() == written
    assert list(path.parent.iterdir()) == [path]


def test_a_refusal_or_a_failure_half_way_changes_nothing(
    earlier: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, path = earlier
    before, kept = Ledger(path).entries(), path.with_name(f"{path.name}.version-{number}")
    kept.write_bytes(b"the only copy")
    refused(LedgerError, "LE042", "version-", convert_ledger, path)
    assert kept.read_bytes() == b"the only copy"
    kept.unlink()
    heads, real = iter("ab"), storage.file_version

    def later_in_the_copy(base: sqlite3.Connection) -> int:
        """The version, but for the copy: another process was first."""
        return (
            real(base)
            if base.execute("PRAGMA database_list").fetchone()[2] == os.path.realpath(path)
            else SCHEMA_VERSION
        )

    for code, name, seems in (
        ("LE041", "file_version", later_in_the_copy),
        ("LE040", "read_head", lambda base: next(heads)),  # the copy and the ledger seem to have different heads
    ):
        with monkeypatch.context() as other:
            other.setattr(storage, name, seems)
            refused(LedgerError, code, convert_ledger, path)
    assert Ledger(path).entries() == before
    if number == 2:
        altered(path, "DROP TRIGGER entries_stay", "UPDATE entries SET study = 'x' WHERE id = 1", guarded=False)
        refused(LedgerError, "LE020", convert_ledger, path)
    assert version(path) == number


def test_what_is_only_in_the_log_is_kept_too(earlier: tuple[int, Path]) -> None:
    number, path = earlier
    with closing(sqlite3.connect(path)) as base:  # a reader, so that the log is not written back
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("BEGIN")
        base.execute("SELECT count(*) FROM entries").fetchone()
        done = convert_ledger(path)
        assert Path(f"{path}-wal").stat().st_size > 0
        alone = shutil.copyfile(done.kept_path, path.parent / "alone.sqlite")
        assert (version(alone), len(Ledger(alone).entries())) == (number, done.entries)


def test_a_ledger_of_the_first_version_is_chained_when_something_is_written(tmp_path: Path) -> None:
    path = shutil.copyfile(FIXTURES / EARLIER[1], tmp_path / "ledger.sqlite")
    before, ledger = path.read_bytes(), Ledger(path)
    entries, spent, head = ledger.entries(), ledger.epsilon_spent(Observer.analyst(), DELTA), ledger.head
    refused(LedgerError, "LE024", ledger.verify)
    assert not ledger.chained
    assert path.read_bytes() == before, "who only looks changes nothing"
    ledger.reserve("new", "", [EVENT], TRUST, [])
    assert (ledger.chained, ledger.upgraded, version(path)) == (True, True, SCHEMA_VERSION)
    assert ledger.entries()[: len(entries)] == entries
    assert ledger.epsilon_spent(Observer.analyst(), DELTA) > spent
    ledger.verify(head=head)


def test_nobody_who_asks_uses_up_the_alignments_of_others_and_hears_when_the_next_is_possible(tmp_path):
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    book, limit = Ledger(tmp_path / "l", owner="bank", clock=lambda: now[0]), AlignmentsLimit(5, 30.0, 2)

    def asks(*who):
        for each in who:
            now[0] += timedelta(hours=1)
            book.note_alignment("a study", TRUST, limit, each)

    asks("ana", "ana")
    with raises(PolicyError, ("PO701", "2 times for ana", "allows 2", "possible on 2030-01-31 at 01:00 UTC")):
        asks("ana")
    asks("ben", "", "")
    for who in ("ben", "", "cleo"):
        with raises(PolicyError, ("PO701", "5 times within", "2030-01-31 at 01:00 UTC")):
            asks(who)
    now[0] = datetime(2030, 1, 31, 1, tzinfo=UTC) - timedelta(hours=2)
    with raises(PolicyError, "PO701"):
        asks("ana")
    asks("ana")
    assert (book.count_alignments(days=30), book.studies) == (5, 0)
    book.verify()
