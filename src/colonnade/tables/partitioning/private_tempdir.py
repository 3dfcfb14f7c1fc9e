"""A private folder for the partitions of a table, which is gone when nobody needs it any more."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from colonnade.disk import writing
from colonnade.errors import DataError

_PLACE = "colonnade-spool"
_TRIES, _PAUSE_SECONDS = 50, 0.1


class PrivateTempDir:
    """A folder that only this user can open, with a random name.

    It is locked as long as this process lives, so that the next one to make a room in the same folder can tell it from
    what a killed process left, and deletes that. It is deleted by the process that made it, not by its children.
    """

    def __init__(self, folder: Path) -> None:
        place = folder.absolute() / _PLACE
        with disk_errors(folder):
            _make_folder(place.parent)
            _refuse_world_writable(place.parent)
            writing.remove_leftovers(place)
            held = ExitStack()
            self.path = writing.private_folder(place, held)
        self.remove = weakref.finalize(self, _remove_folder, self.path, held, os.getpid())


def remove_stale_dirs(folder: Path) -> None:
    """Delete the rooms in a folder whose processes were killed."""
    writing.remove_leftovers(folder.absolute() / _PLACE)


@contextmanager
def write_atomically(folder: Path, name: str) -> Iterator[BinaryIO]:
    """A private file that gets its name when it is whole.

    So who is killed while writing it leaves nothing of this name, and if two write the same, one of both is there.
    """
    private = folder / f".{name}.{secrets.token_hex(8)}"
    with disk_errors(folder):
        try:
            with _create_file(private) as file:
                yield file
            os.replace(private, folder / name)
        except BaseException:
            private.unlink(missing_ok=True)
            raise


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that names the folder."""
    try:
        yield
    except OSError as error:
        why = error.strerror or "writing failed"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise DataError(
                f"the partitions of the table cannot be written: {why}; allow more (ulimit -n) [DA265]"
            ) from None
        raise DataError(
            f"the partitions of the table cannot be written to {folder}: {why}; make room there, or name a folder on a "
            "larger disk [DA266]"
        ) from None


def _create_file(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _make_folder(folder: Path) -> None:
    """Make a folder and those it lies in, where they are not there yet; only this user can open them."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(0o700, exist_ok=True)


def _refuse_world_writable(folder: Path) -> None:
    mode = folder.stat().st_mode if os.name == "posix" else 0
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise DataError(
            f"every user of this machine can rename what lies in {folder}, so partitions of a table could be exchanged "
            "there: name another folder, or let only its owner write to it (chmod o-w) [DA267]"
        )


def _remove_folder(path: Path, held: ExitStack, maker: int) -> None:
    if os.getpid() == maker:
        for _ in range(_TRIES):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(_PAUSE_SECONDS)  # a worker on another machine is not gone at once, and writes meanwhile
        held.close()
