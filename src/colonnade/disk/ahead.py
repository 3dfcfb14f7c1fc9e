"""SQLite files with a write-ahead log, which several processes open at the same time."""

from __future__ import annotations

import sqlite3
import time

_PAUSE = 0.02


def log_ahead(base: sqlite3.Connection, seconds: float) -> str:
    """Switch a file to write-ahead logging, and return how SQLite keeps its journal then: ``wal`` where it can.

    SQLite does not wait for others while it switches, whatever the connection's timeout, so we do.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            return str(base.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
