"""The file under a ledger: hidden additions, read-only places, first openings, names that are links."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from colonnade.errors import BudgetError, LedgerError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.ledger.file import add, append
from colonnade.privacy.ledger.layout import into_wal
from colonnade.privacy.ledger.without import check_without_ledger
from colonnade.privacy.observers import Budget, Observer
from tests.support.errors import raises

from .conftest import EVENT, TRUST

MORE_NOISE = """
CREATE TRIGGER {name} AFTER INSERT ON entries BEGIN
    INSERT OR REPLACE INTO entries (id, study, digest, created, events, trust) VALUES (NEW.id, NEW.study, NEW.digest,
    NEW.created, replace(NEW.events, ', "1000000000000"]', ', "1000000000000000000"]'), NEW.trust);
END"""
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.commit(ledger.mark_sent(ledger.reserve("s0", "d", [EVENT], TRUST, [])))
    return path


def altered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for statement in statements:
            base.execute(statement)


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
        ("PRAGMA user_version = 1",),
    ],
)  # fmt: skip
def test_whatever_is_added_to_the_schema_shows_and_nothing_is_reserved(path: Path, statements: tuple[str]) -> None:
    ledger = Ledger(path)
    waiting = ledger.reserve("waiting", "d", [EVENT], TRUST, [])
    altered(path, *statements)
    before = path.read_bytes()
    for action in (
        ledger.verify,
        lambda: ledger.reserve("s1", "d", [EVENT], TRUST, []),
        lambda: ledger.check("s1", [EVENT], TRUST, []),
        lambda: ledger.mark_sent(waiting),
        lambda: ledger.release(waiting),
    ):
        with raises(LedgerError, "LE017|LE020"):
            action()
    assert path.read_bytes() == before


def test_what_is_hashed_is_what_was_asked_for(path: Path) -> None:
    """The second line of defence, without the first: a row that comes back changed is refused before its hash."""
    trust, events = TRUST.to_json(), f"[{EVENT.to_json()}]"
    swap = "CREATE TRIGGER evil2 AFTER INSERT ON changes BEGIN INSERT OR REPLACE INTO changes (id, entry, at, state) "
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute(MORE_NOISE.format(name="evil"))
        with raises(LedgerError, "LE028", "2"):
            add(base, "s", "d", "2031-01-01T00:00:00+00:00", events, trust)
        base.execute("DROP TRIGGER evil")
        base.execute(f"{swap} VALUES (NEW.id, NEW.entry, '1999', NEW.state); END")
        with raises(LedgerError, "LE029", "1"):
            append(base, 1, "released", "2031-01-01T00:00:00+00:00")


def test_a_replace_asks_the_guards(path: Path) -> None:
    ledger = Ledger(path)
    with raises(LedgerError, "LE017", "append-only"), ledger._file.writing() as base:
        base.execute("INSERT OR REPLACE INTO entries SELECT id, 'other', digest, created, events, trust FROM entries")
    assert ledger.entries()[0].study == "s0"


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that anybody may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_somebody_who_may_not_write(task: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            task()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_ledger_is_read_where_nothing_may_be_written(path: Path, shelf: Path) -> None:
    copy = shelf / "ledger.sqlite"
    shutil.copy(path, copy)
    copy.chmod(0o444)
    shelf.chmod(0o555)
    spent = Ledger(path).spent(Observer.analyst(), 1e-5)

    def look() -> None:
        ledger = Ledger(copy)
        ledger.verify(ledger.head)
        assert ledger.spent(Observer.analyst(), 1e-5) == spent
        assert len(ledger.lines()) == 3
        ledger.check("s", [EVENT], TRUST, [])
        with raises(LedgerError, "LE017"):
            ledger.reserve("s", "", [EVENT], TRUST, [])

    as_somebody_who_may_not_write(look)
    assert list(shelf.iterdir()) == [copy]


def test_looking_leaves_no_trace(path: Path) -> None:
    before = path.read_bytes()
    ledger = Ledger(path)
    ledger.verify()
    ledger.entries()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def _open(path: str) -> str:
    try:
        return str(Ledger(path).made)
    except LedgerError as error:
        return str(error)


def test_of_many_first_openings_one_makes_the_file(tmp_path: Path) -> None:
    with ProcessPoolExecutor(6, mp_context=get_context("fork")) as pool:
        for number in range(8):
            said = list(pool.map(_open, [str(tmp_path / f"{number}.sqlite")] * 6))
            assert sorted(said) == ["False"] * 5 + ["True"]
    assert not list(tmp_path.glob(".*")), "no half-made file is left behind"


def test_an_empty_file_is_refused_at_once_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "l.sqlite").touch()
    with raises(LedgerError, "LE013"):
        Ledger(tmp_path / "l.sqlite")
    assert (tmp_path / "l.sqlite").stat().st_size == 0


def test_a_new_ledger_is_private_whatever_its_name_and_the_mask(tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real.sqlite")
    before = os.umask(0)
    try:
        for name in ("plain.sqlite", "link.sqlite", "odd %41?#name.sqlite"):
            ledger = Ledger(tmp_path / name)
            assert ledger.made
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
            ledger.reserve("s", "", [EVENT], TRUST, [])
            assert not Ledger(tmp_path / name).made
            assert len(Ledger(tmp_path / name).entries()) == 1
    finally:
        os.umask(before)
    assert (tmp_path / "link.sqlite").is_symlink()
    assert (tmp_path / "real.sqlite").is_file()


def test_a_place_without_a_log_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as base, raises(LedgerError, "LE033", "memory"):
        into_wal(base)


def test_a_party_without_a_ledger_is_refused_alike(tmp_path: Path) -> None:
    one = epsilon(views([EVENT], Observer.analyst(), TRUST), 1e-5).epsilon
    room = Budget("others", 100, 1e-5)
    check_without_ledger("s", [EVENT], TRUST, [Budget("analyst", one * 1.01, 1e-5), room])
    tight = [Budget("analyst", one / 2, 1e-5), room]
    with pytest.raises(BudgetError) as first:
        check_without_ledger("s", [EVENT], TRUST, tight)
    with pytest.raises(BudgetError) as second:
        Ledger(tmp_path / "l.sqlite").check("s", [EVENT], TRUST, tight)
    assert str(first.value) == str(second.value)
