"""The file under a ledger: what was written stays as it was written, or shows; and files of earlier versions."""

# ruff: noqa: S608 - these statements are meant to do harm

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy.ledger import Ledger, convert as converting, file
from colonnade.privacy.ledger.chain import GENESIS
from colonnade.privacy.ledger.convert import convert
from colonnade.privacy.ledger.file import add, append, at_once
from colonnade.privacy.ledger.layout import into_wal
from colonnade.privacy.observers import Observer
from tests.support.errors import raises, refused
from tests.support.ledgers import DELTA, EVENT, TRUST, altered

MORE_NOISE = """
CREATE TRIGGER {name} AFTER INSERT ON entries BEGIN
    INSERT OR REPLACE INTO entries (id, study, digest, created, events, trust) VALUES (NEW.id, NEW.study, NEW.digest,
    NEW.created, replace(NEW.events, ', "1000000000000"]', ', "1000000000000000000"]'), NEW.trust);
END"""
FIXTURES = Path(__file__).parents[1] / "fixtures" / "ledger"
EARLIER = {1: "ledger-1.db", 2: "earlier-ledger.db"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger of four entries: committed, released, sent and reserved, by eight changes."""
    ledger = Ledger(tmp_path_factory.mktemp("written") / "ledger.sqlite")
    first, second, third = (ledger.reserve(f"s{n}", f"d{n}", [EVENT], TRUST, []) for n in range(3))
    ledger.mark_sent(first)
    ledger.release(second)
    ledger.commit(first)
    ledger.mark_sent(third)
    ledger.reserve("s3", "d3", [EVENT, EVENT], TRUST, [])
    ledger.verify()
    return ledger.path.read_bytes()


@pytest.fixture
def path(written: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(written)
    return path


def edits():
    """One statement, and what is named when it shows: at the beginning, in the middle and at the end."""
    for entry in (1, 2, 4):
        for column in ("study", "digest", "created"):
            yield f"UPDATE entries SET {column} = {column} || ' ' WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = replace(events, '9', '8') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = replace(events, ', ', ',') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET events = '[]' WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET trust = replace(trust, '1', '2') WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET study = CAST(study AS BLOB) WHERE id = {entry}", f"entry {entry}"
        yield f"UPDATE entries SET id = 77 WHERE id = {entry}", f"entry {entry}"
        yield f"DELETE FROM entries WHERE id = {entry}", f"entry {entry}"
    for change, entry in ((1, 1), (5, 2), (8, 4)):
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
    columns = "study, digest, created, events, trust"
    yield f"INSERT INTO entries ({columns}) SELECT {columns} FROM entries WHERE id = 1", "entry 5"
    yield "INSERT INTO chain VALUES (9, 'x')", "chain"


ANOTHER_ORDER = (
    "UPDATE changes SET id = -id WHERE id IN (2, 3)",
    "UPDATE changes SET id = CASE id WHEN -2 THEN 3 ELSE 2 END WHERE id IN (-2, -3)",
)
A_WHOLE_ENTRY = (
    "DELETE FROM chain WHERE change IN (2, 5)",
    "DELETE FROM changes WHERE entry = 2",
    "DELETE FROM entries WHERE id = 2",
)


def test_every_edit_deletion_insertion_and_another_order_shows(path: Path, written: bytes) -> None:
    for *statements, where in [*edits(), (*ANOTHER_ORDER, "3"), (*A_WHOLE_ENTRY, "3")]:
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
    cut = path.read_bytes()
    for shorter in (cut, written):
        path.write_bytes(shorter)
        ledger.verify()
        refused(LedgerError, "LE009", ledger.verify, head=late)


def test_the_chain_can_be_checked_without_this_code_and_its_head_moves_with_every_change(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    heads = [ledger.head]
    assert heads == [GENESIS] == ["0" * 64]
    entry = ledger.reserve("s", "", [EVENT], TRUST, [])
    heads.append(ledger.head)
    for step in (ledger.mark_sent, ledger.commit):
        step(entry)
        heads.append(ledger.head)
    texts = [text for _, text in ledger.lines()]
    assert [json.loads(text)["previous"] for text in texts] == heads[:3]
    assert [hashlib.sha256(text.encode()).hexdigest() for text in texts] == heads[1:]


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
    waiting = ledger.reserve("waiting", "d", [EVENT], TRUST, [])
    altered(path, *statements, guarded=False)
    before = path.read_bytes()
    for action in (
        ledger.verify,
        lambda: ledger.reserve("s1", "d", [EVENT], TRUST, []),
        lambda: ledger.check("s1", [EVENT], TRUST, []),
        lambda: ledger.mark_sent(waiting),
        lambda: ledger.release(waiting),
    ):
        refused(LedgerError, "LE017|LE020", action)
    assert path.read_bytes() == before


def test_what_is_hashed_is_what_was_asked_for(path: Path) -> None:
    """The second line of defence, without the first: a row that comes back changed is refused before its hash."""
    swap = "CREATE TRIGGER evil2 AFTER INSERT ON changes BEGIN INSERT OR REPLACE INTO changes (id, entry, at, state) "
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute(MORE_NOISE.format(name="evil"))
        with raises(LedgerError, "LE028", "5"):
            add(base, "s", "d", "2031-01-01T00:00:00+00:00", f"[{EVENT.to_json()}]", TRUST.to_json())
        base.execute("DROP TRIGGER evil")
        base.execute(f"{swap} VALUES (NEW.id, NEW.entry, '1999', NEW.state); END")
        refused(LedgerError, "LE029", "4", append, base, 4, "released", "2031-01-01T00:00:00+00:00")


def test_the_file_is_append_only_private_and_durable(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new.sqlite")
    assert ledger.path.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for statement in ("DELETE FROM entries", "UPDATE entries SET events = '[]'", "DELETE FROM changes",
                          "UPDATE changes SET state = 'released'", "DELETE FROM chain"):  # fmt: skip
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                base.execute(statement)
    with raises(LedgerError, "LE017", "append-only"), Ledger(path)._file.writing() as base:
        base.execute("INSERT OR REPLACE INTO entries SELECT id, 'other', digest, created, events, trust FROM entries")
    assert Ledger(path).entries()[0].study == "s0"
    with closing(sqlite3.connect(":memory:")) as base, raises(LedgerError, "LE033", "memory"):
        into_wal(base)  # a place without a log is refused


def test_looking_leaves_no_trace(path: Path, written: bytes) -> None:
    ledger = Ledger(path)
    ledger.verify()
    ledger.entries()
    assert path.read_bytes() == written
    assert list(path.parent.iterdir()) == [path]


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE diary (line TEXT)")
        base.commit()


def _newer(path: Path) -> None:
    Ledger(path)
    altered(path, "PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "spoil", [Path.touch, lambda path: path.write_bytes(os.urandom(9000)), _foreign, _newer],
    ids=["empty", "garbage", "foreign", "newer"],
)  # fmt: skip
def test_files_that_are_not_ours_are_refused_and_left_alone(tmp_path: Path, spoil) -> None:
    path = tmp_path / "bank.ledger"
    spoil(path)
    before = path.read_bytes()
    refused(LedgerError, "LE*" if before else "LE013", Ledger, path)
    assert path.read_bytes() == before
    refused(LedgerError, "LE017", Ledger, tmp_path / "missing" / "x.ledger")


def test_a_new_ledger_is_private_whatever_its_name_and_the_mask(tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real.sqlite")
    before = os.umask(0)
    try:
        for name in ("plain.sqlite", "link.sqlite", "odd %41?#name.sqlite"):
            ledger = Ledger(tmp_path / name)
            assert ledger.made
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
            ledger.reserve("s", "", [EVENT], TRUST, [])
            assert not Ledger(tmp_path / name).made
            assert len(Ledger(tmp_path / name).entries()) == 1
    finally:
        os.umask(before)
    assert (tmp_path / "link.sqlite").is_symlink()
    assert (tmp_path / "real.sqlite").is_file()


def test_an_unreadable_entry_is_not_counted_as_nothing_and_altered_ones_show(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.entries()[0].events == (EVENT,), "equal texts are read once"
    altered(path, "DROP TRIGGER entries_stay", "UPDATE entries SET events = '[]' WHERE id = 1", guarded=False)
    assert ledger.entries()[0].events == (), "what the file holds is what counts"
    refused(LedgerError, "LE020", ledger.verify)
    altered(path, "UPDATE entries SET events = '[{}]' WHERE id = 1", guarded=False)
    for action in (ledger.entries, lambda: ledger.spent(Observer.analyst(), DELTA)):
        refused(LedgerError, "PR027", action)


# --- uses that follow each other open it once, and are transactions of their own as ever


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The connections that were made."""
    found: list[Path] = []
    real = file._connected

    def noted(path: Path, way: str) -> sqlite3.Connection:
        found.append(path)
        return real(path, way)

    monkeypatch.setattr(file, "_connected", noted)
    return found


def reserve(path: Path, study: str) -> None:
    ledger = Ledger(path)
    ledger.commit(ledger.mark_sent(ledger.reserve(study, "d", [EVENT], TRUST, [])))


def studies(path: Path) -> list[str]:
    """Those that came after the first four."""
    Ledger(path).verify()
    return [entry.study for entry in Ledger(path).entries()][4:]


def test_several_uses_open_it_once_and_leave_a_whole_file(path: Path, opened: list[Path], tmp_path: Path) -> None:
    with at_once(path):
        reserve(path, "s4")
        with at_once(path):
            assert Ledger(path).studies == 4
        reserve(path, "s5")
        Ledger(path).check("s6", [EVENT], TRUST, [])
    assert len(opened) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ledger.sqlite"], "its log is in it"
    opened.clear()
    assert studies(path) == ["s4", "s5"]
    assert opened, "outside it is opened anew"
    with at_once(tmp_path / "new.sqlite"):
        assert Ledger(tmp_path / "new.sqlite").made


def test_others_write_in_between_and_an_error_in_one_use_changes_nothing(path: Path) -> None:
    with at_once(path):
        ledger = Ledger(path)
        other = Thread(target=reserve, args=(path, "theirs"))
        other.start()
        other.join()
        assert ledger.studies == 4
        entry = ledger.mark_sent(ledger.reserve("ours", "d", [EVENT], TRUST, []))
        refused(LedgerError, "LE006", "released", ledger.release, entry)
        with pytest.raises(ZeroDivisionError), ledger._file.reading():
            raise ZeroDivisionError
        with ledger._file.reading() as base, pytest.raises(sqlite3.OperationalError, match="readonly"):
            base.execute("DELETE FROM sums")
        ledger.commit(entry)
    assert studies(path) == ["theirs", "ours"]
    assert [entry.state for entry in Ledger(path).entries()[4:]] == ["committed", "committed"]


def test_a_file_that_is_put_in_its_place_is_the_one_that_is_used(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "copy")
    with at_once(path):
        known = Ledger(path)
        assert known.studies == 3
        os.replace(tmp_path / "copy", path)
        reserve(path, "s4")
        assert known.studies == 4
        path.rename(tmp_path / "moved")
        with raises(LedgerError, "LE012"):
            assert known.head
        (tmp_path / "moved").rename(path)
    assert studies(path) == ["s4"]


def test_a_forked_process_opens_it_for_itself(path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.getpid() + 1
    with at_once(path):
        monkeypatch.setattr(os, "getpid", lambda: child)
        before = len(opened)
        assert Ledger(path).studies == 3
        assert len(opened) > before
        monkeypatch.undo()


# --- a ledger of an earlier version is converted as a whole, and its old file stays


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as base:
        return int(base.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture(params=EARLIER)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path]:
    place = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / EARLIER[request.param], place)
    return request.param, place


def test_entries_and_head_stay_and_the_old_file_is_kept(earlier: tuple[int, Path], tmp_path: Path) -> None:
    number, path = earlier
    before, head = Ledger(path).entries(), Ledger(path).head
    assert before
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.sqlite"
    link.symlink_to(path)  # through a link the file itself is converted
    done = convert(link)
    assert (done.version, done.entries, done.head, done.chained) == (number, len(before), head, number > 1)
    assert link.is_symlink()
    assert version(path) == 3
    Ledger(path).verify(head)
    assert Ledger(path).entries() == before
    assert done.kept == path.with_name(f"ledger.sqlite.version-{number}")
    assert version(done.kept) == number
    assert Ledger(done.kept).entries() == before
    assert done.kept.stat().st_mode & 0o777 == 0o600
    left = {each.name for each in tmp_path.iterdir() if not each.name.endswith(("-wal", "-shm"))}
    assert left == {path.name, done.kept.name, "elsewhere"}


def test_a_ledger_of_this_version_is_left_alone_and_none_is_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / "ledger-3.db", path)
    before = path.read_bytes()
    assert convert(path) is None
    assert path.read_bytes() == before
    refused(LedgerError, "LE012", convert, tmp_path / "none.sqlite")
    assert [each for each in tmp_path.iterdir() if "version" in each.name or "none" in each.name] == []


def test_a_refusal_or_a_failure_half_way_changes_nothing(
    earlier: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, path = earlier
    before, kept = Ledger(path).entries(), path.with_name(f"{path.name}.version-{number}")
    kept.write_bytes(b"the only copy")
    refused(LedgerError, "LE042", "version-", convert, path)
    assert kept.read_bytes() == b"the only copy"
    kept.unlink()
    with monkeypatch.context() as other:
        found = iter([converting.version_of, lambda base: 3])  # at first, and in the copy: another process was first
        other.setattr(converting, "version_of", lambda base: next(found)(base))
        refused(LedgerError, "LE041", convert, path)
    with monkeypatch.context() as other:
        calls = iter("ab")  # the copy and the ledger seem to have different heads
        other.setattr(converting, "head", lambda base: next(calls))
        refused(LedgerError, "LE040", convert, path)
    assert version(path) == number
    assert Ledger(path).entries() == before
    if number == 2:
        altered(path, "DROP TRIGGER entries_stay", "UPDATE entries SET study = 'x' WHERE id = 1", guarded=False)
        refused(LedgerError, "LE020", convert, path)
        assert version(path) == number


def test_what_is_only_in_the_log_is_kept_too(earlier: tuple[int, Path]) -> None:
    number, path = earlier
    with closing(sqlite3.connect(path)) as base:  # a reader, so that the log is not written back
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("BEGIN")
        base.execute("SELECT count(*) FROM entries").fetchone()
        done = convert(path)
        assert Path(f"{path}-wal").stat().st_size > 0
        alone = path.parent / "alone.sqlite"
        shutil.copyfile(done.kept, alone)
        assert version(alone) == number
        assert len(Ledger(alone).entries()) == done.entries


def test_a_ledger_of_the_first_version_is_chained_when_something_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / EARLIER[1], path)
    before = path.read_bytes()
    ledger = Ledger(path)
    entries, spent, head = ledger.entries(), ledger.spent(Observer.analyst(), DELTA), ledger.head
    refused(LedgerError, "LE024", ledger.verify)
    assert not ledger.chained
    assert path.read_bytes() == before, "who only looks changes nothing"
    ledger.reserve("new", "", [EVENT], TRUST, [])
    assert ledger.chained
    assert ledger.upgraded
    assert ledger.entries()[: len(entries)] == entries
    assert ledger.spent(Observer.analyst(), DELTA) > spent
    ledger.verify(head=head)
    assert version(path) == 3
    with closing(sqlite3.connect(path)) as base, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        base.execute("DELETE FROM chain")
