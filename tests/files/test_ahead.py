"""SQLite files are opened by several processes at once: whoever comes first is waited for."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from colonnade.disk import ahead
from colonnade.standing.desk_store import DeskFile
from colonnade.standing.scores.counts import counts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file without tables, as another process that makes it has it at first."""
    path = tmp_path / "desk.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("CREATE TABLE t (n INTEGER)")
        base.execute("DROP TABLE t")
    return path


def until_first_pause(other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Another process writes to the file; it ends when somebody begins to wait for it. Returns the pauses."""
    other.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        other.execute("ROLLBACK")

    monkeypatch.setattr(ahead.time, "sleep", pause)
    return pauses


@pytest.mark.parametrize("opened", [lambda path: DeskFile(path.parent).path, lambda path: counts(path).path])
def test_the_log_waits_for_another_process(
    opened: Callable[[Path], Path], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        pauses = until_first_pause(other, monkeypatch)
        assert opened(file) == file
        assert len(pauses) == 1, "SQLite itself does not wait here, whatever the timeout of the connection"
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_nobody_waits_for_ever(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other, closing(sqlite3.connect(file)) as base:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            ahead.log_ahead(base, -1.0)
        other.execute("ROLLBACK")
        assert ahead.log_ahead(base, -1.0) == "wal"
