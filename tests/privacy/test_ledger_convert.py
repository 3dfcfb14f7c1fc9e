"""A ledger of an earlier version is converted as a whole, and its old file stays."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy import Ledger
from colonnade.privacy.ledger import convert as converting
from colonnade.privacy.ledger.convert import convert

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
    with pytest.raises(LedgerError):
        convert(path)
    assert kept.read_bytes() == b"the only copy"
    assert version(path) == number


def test_an_altered_ledger_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(FIXTURES / EARLIER[2], path)
    with closing(sqlite3.connect(path)) as base:
        base.executescript("DROP TRIGGER entries_stay; UPDATE entries SET study = 'another' WHERE id = 1;")
    with pytest.raises(LedgerError):
        convert(path)
    assert version(path) == 2
    assert list(tmp_path.glob("*version-2")) == []


def test_a_failure_half_way_changes_nothing(earlier: tuple[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    number, path = earlier
    before = Ledger(path).entries()
    calls = iter("ab")  # the copy and the ledger seem to have different heads
    monkeypatch.setattr(converting, "head", lambda base: next(calls))
    with pytest.raises(LedgerError):
        convert(path)
    assert version(path) == number
    assert Ledger(path).entries() == before
