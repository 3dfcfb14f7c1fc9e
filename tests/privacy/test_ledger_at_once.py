"""Uses of a ledger that follow each other open it once, and are transactions of their own as ever."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy.ledger import Ledger, file
from colonnade.privacy.ledger.file import at_once
from tests.support.errors import raises

from .conftest import EVENT, TRUST


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    reserve(path, "s0")
    return path


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
    Ledger(path).verify()
    return [entry.study for entry in Ledger(path).entries()]


def test_several_uses_open_it_once_and_leave_a_whole_file(path: Path, opened: list[Path], tmp_path: Path) -> None:
    with at_once(path):
        reserve(path, "s1")
        with at_once(path):
            assert Ledger(path).studies == 2
        reserve(path, "s2")
        Ledger(path).check("s3", [EVENT], TRUST, [])
    assert len(opened) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ledger.sqlite"], "its log is in it"
    opened.clear()
    assert studies(path) == ["s0", "s1", "s2"]
    assert opened, "outside it is opened anew"


def test_a_file_that_is_not_there_is_made_as_ever(tmp_path: Path) -> None:
    with at_once(tmp_path / "new.sqlite"):
        ledger = Ledger(tmp_path / "new.sqlite")
        assert ledger.made
        reserve(tmp_path / "new.sqlite", "s0")
    assert studies(tmp_path / "new.sqlite") == ["s0"]


def test_others_write_in_between(path: Path) -> None:
    with at_once(path):
        assert Ledger(path).studies == 1
        other = Thread(target=reserve, args=(path, "theirs"))
        other.start()
        other.join()
        assert Ledger(path).studies == 2
        reserve(path, "ours")
    assert studies(path) == ["s0", "theirs", "ours"]


def test_an_error_in_one_use_changes_nothing_and_the_next_goes_on(path: Path) -> None:
    with at_once(path):
        ledger = Ledger(path)
        entry = ledger.mark_sent(ledger.reserve("s1", "d", [EVENT], TRUST, []))
        with raises(LedgerError, "LE006", "released"):
            ledger.release(entry)
        with pytest.raises(ZeroDivisionError), ledger._file.reading():
            raise ZeroDivisionError
        ledger.commit(entry)
    assert [entry.state for entry in Ledger(path).entries()] == ["committed", "committed"]


def test_nothing_is_written_by_a_use_that_reads(path: Path) -> None:
    with (
        at_once(path),
        Ledger(path)._file.reading() as base,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        base.execute("DELETE FROM sums")


def test_a_file_that_is_put_in_its_place_is_the_one_that_is_used(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "copy")
    with at_once(path):
        known = Ledger(path)
        assert known.studies == 1
        os.replace(tmp_path / "copy", path)
        reserve(path, "s1")
        assert known.studies == 2
        path.rename(tmp_path / "moved")
        with raises(LedgerError, "LE012"):
            assert known.head
        (tmp_path / "moved").rename(path)
    assert studies(path) == ["s0", "s1"]


def test_a_forked_process_opens_it_for_itself(path: Path, opened: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    child = os.getpid() + 1
    with at_once(path):
        monkeypatch.setattr(os, "getpid", lambda: child)
        before = len(opened)
        assert Ledger(path).studies == 1
        assert len(opened) > before
        monkeypatch.undo()


def test_equal_texts_are_read_once_and_altered_ones_show(path: Path) -> None:
    assert Ledger(path).entries()[0].events == (EVENT,)
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("DROP TRIGGER entries_stay")
        base.execute("UPDATE entries SET events = '[]'")
    assert Ledger(path).entries()[0].events == (), "what the file holds is what counts"
    with raises(LedgerError, "LE020"):
        Ledger(path).verify()
