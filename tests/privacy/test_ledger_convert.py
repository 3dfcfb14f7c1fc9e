"""A ledger of an earlier version is converted as a whole, and its old file stays."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy import Ledger
from colonnade.privacy.ledger import convert as converting
from colonnade.privacy.ledger.convert import convert
from tests.support.errors import raises

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ledger"
EARLIER = {1: "ledger-1.db", 2: "earlier-ledger.db"}


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as base:
        return int(base.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture(params=EARLIER)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path]:
    place = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / EARLIER[request.param], place)
    return request.param, place


def test_entries_and_head_stay_and_the_old_file_is_kept(earlier: tuple[int, Path]) -> None:
    number, path = earlier
    before, head = Ledger(path).entries(), Ledger(path).head
    assert before
    done = convert(path)
    assert done is not None
    assert (done.version, done.entries, done.head, done.chained) == (number, len(before), head, number > 1)
    assert version(path) == 3
    Ledger(path).verify(head)
    assert Ledger(path).entries() == before
    assert done.kept.name == f"ledger.sqlite.version-{number}"
    assert version(done.kept) == number
    assert Ledger(done.kept).entries() == before
    assert done.kept.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in path.parent.iterdir() if not each.name.endswith(("-wal", "-shm"))} == {
        path.name,
        done.kept.name,
    }


def test_a_ledger_of_this_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / "ledger-3.db", path)
    before = path.read_bytes()
    assert convert(path) is None
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if "version" in each.name] == []


def test_an_earlier_copy_is_never_written_over(earlier: tuple[int, Path]) -> None:
    number, path = earlier
    kept = path.with_name(f"{path.name}.version-{number}")
    kept.write_bytes(b"the only copy")
    with raises(LedgerError, "LE042", "version-"):
        convert(path)
    assert kept.read_bytes() == b"the only copy"
    assert version(path) == number


def test_where_there_is_none_none_is_made(tmp_path: Path) -> None:
    with raises(LedgerError, "LE012"):
        convert(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_through_a_link_the_file_itself_is_converted(earlier: tuple[int, Path], tmp_path: Path) -> None:
    number, path = earlier
    link = tmp_path / "elsewhere" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    done = convert(link)
    assert done is not None
    assert done.kept == path.with_name(f"{path.name}.version-{number}")
    assert link.is_symlink()
    assert version(path) == 3


def test_what_is_only_in_the_log_is_kept_too(earlier: tuple[int, Path]) -> None:
    number, path = earlier
    with closing(sqlite3.connect(path)) as base:  # a reader, so that the log is not written back
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("BEGIN")
        base.execute("SELECT count(*) FROM entries").fetchone()
        done = convert(path)
        assert done is not None
        assert Path(f"{path}-wal").stat().st_size > 0
        alone = path.parent / "alone.sqlite"
        shutil.copyfile(done.kept, alone)
        assert version(alone) == number
        assert len(Ledger(alone).entries()) == done.entries


def test_another_process_that_was_first_is_named(earlier: tuple[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = earlier
    before = converting.version_of
    found = iter([before, lambda base: 3])  # the version at first, and that of the copy
    monkeypatch.setattr(converting, "version_of", lambda base: next(found)(base))
    with raises(LedgerError, "LE041"):
        convert(path)


KILLED = """
import os, sys
from colonnade.privacy.ledger import convert as converting
def die(*args): os._exit(9)
setattr(converting, sys.argv[2], die)
converting.convert(sys.argv[1])
"""


@pytest.mark.parametrize("at", ["rows", "_held"])
def test_after_a_crash_it_is_converted_again(earlier: tuple[int, Path], at: str) -> None:
    """Killed with the copy half made, and, by way of a copy that is there, with the ledger not yet changed."""
    number, path = earlier
    kept = path.with_name(f"{path.name}.version-{number}")
    if at == "_held":
        shutil.copyfile(path, kept)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path), at], timeout=60)
    assert ended.returncode == 9
    assert version(path) == number
    done = convert(path)
    assert done is not None
    assert done.kept == kept
    assert version(path) == 3
    assert [each.name for each in path.parent.iterdir() if each.name.endswith(".new")] == []


def test_an_altered_ledger_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / EARLIER[2], path)
    with closing(sqlite3.connect(path)) as base:
        base.executescript("DROP TRIGGER entries_stay; UPDATE entries SET study = 'another' WHERE id = 1;")
    with raises(LedgerError, "LE020"):
        convert(path)
    assert version(path) == 2
    assert list(tmp_path.glob("*version-2")) == []


def test_a_failure_half_way_changes_nothing(earlier: tuple[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    number, path = earlier
    before = Ledger(path).entries()
    calls = iter("ab")  # the copy and the ledger seem to have different heads
    monkeypatch.setattr(converting, "head", lambda base: next(calls))
    with raises(LedgerError, "LE040"):
        convert(path)
    assert version(path) == number
    assert Ledger(path).entries() == before
