"""A ledger of an earlier version, brought up to this one: verified before and after, and the old file kept beside it.

The next study does the same to a ledger as it comes by; here it is done at a moment that the party chooses.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from colonnade.disk import writing
from colonnade.errors import LedgerError
from colonnade.privacy.ledger.storage import (
    SCHEMA_VERSION,
    UNCHAINED,
    LedgerFile,
    file_version,
    read_entries,
    read_head,
)


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
