"""Files as they are written: whole or not at all, on disk when the call returns, private where they must be.

SQLite files have a write-ahead log, because several processes open them at the same time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_NEW = ".new"
_OLD = 3600.0  # seconds; no ledger takes so long to make
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)


def write_files(contents: Mapping[Path, bytes], *, private: bool = False) -> None:
    """Write files, each as a whole or not at all, which are on disk when this returns; an OSError names the file.

    None is replaced before all are on disk under other names. Then they are replaced one after the other, as they are
    given: what tells whether the others belong to it comes last, so that a reader of files of two kinds sees it.
    Nobody but this user can read a private file, whatever the mask of the process, the folder, or an earlier file says.
    Only regular files are replaced, and links to them: no device, pipe, socket or folder, whoever asks for it.
    """
    for path in contents:
        _refuse_special(path)
    with ExitStack() as left:
        partials = {
            path: left.enter_context(_write_partial(path, content, private)) for path, content in contents.items()
        }
        for path, partial in partials.items():
            with _name_file_in_errors(path):
                os.replace(partial, path)
        for folder in {path.parent for path in contents}:
            sync_folder(folder)


def _refuse_special(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file, and only those are replaced", os.fspath(path))


def create_files(contents: Mapping[Path, bytes], private: Collection[Path] = ()) -> None:
    """Write files that must not be there yet, all of them or none; an OSError names the one that is, or that fails."""
    with ExitStack() as left:
        partials = {
            path: left.enter_context(_write_partial(path, content, path in private))
            for path, content in contents.items()
        }
        with ExitStack() as undone:
            for path, partial in partials.items():
                with _name_file_in_errors(path):
                    if not claim_name(partial, path):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                undone.callback(_remove, path)
            for folder in {path.parent for path in contents}:
                sync_folder(folder)
            undone.pop_all()


def claim_name(source: Path, place: Path) -> bool:
    """Give a file its name unless another file has it; return whether it was free."""
    try:
        os.link(source, place)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        with lock_folder(place.parent):
            if place.exists():
                return False
            os.rename(source, place)
            return True


@contextmanager
def _write_partial(path: Path, content: bytes, private: bool) -> Iterator[Path]:
    """The content in a file of another name, which is gone at the end unless it was given its own."""
    with ExitStack() as left:
        with _name_file_in_errors(path):
            if private:
                remove_leftovers(path)
                partial, mode = left.enter_context(private_workspace(path)) / path.name, 0o600
            else:
                partial, mode = path.with_name(f"{path.name}.partial"), 0o666
                left.callback(_remove, partial)
            with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield partial


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk, where the system can tell."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # a folder that may be written and not read, or a system whose folders cannot be opened
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def private_workspace(place: Path) -> Iterator[Path]:
    """A private folder beside a place, in which a file is made that will be put there; it is gone at the end."""
    with ExitStack() as held:
        room = private_folder(place, held)
        try:
            yield room
        finally:
            shutil.rmtree(room, ignore_errors=True)


def private_folder(place: Path, held: ExitStack) -> Path:
    """A new folder beside a place, with a random name, that only this user can open.

    It is locked until ``held`` is closed, so that :func:`remove_leftovers` can tell it from one that a killed process
    left. The lock is on the folder: closing a file in it would also release the locks that SQLite has on that file.
    """
    while True:
        room = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_NEW, dir=place.parent))  # its mode is 0700
        with suppress(FileNotFoundError):
            held.enter_context(lock_folder(room))
        if room.exists():
            return room
        held.close()  # it was swept before it was locked


def remove_leftovers(place: Path) -> None:
    """Delete what processes left that were killed while they made the file at this place."""
    ours = re.compile(rf"{re.escape(f'.{place.name}.')}[a-z0-9_]{{8}}{re.escape(_NEW)}(-wal|-shm|-journal)?")
    with suppress(OSError):  # whoever wants something of this folder will be told what is wrong with it
        for name in filter(ours.fullmatch, os.listdir(place.parent)):
            left = place.parent / name
            with suppress(OSError):
                if left.is_dir() and not left.is_symlink():
                    with lock_folder(left, wait=False):
                        shutil.rmtree(left)
                elif time.time() - left.lstat().st_mtime > _OLD:  # earlier releases made ledgers in such files
                    left.unlink()


@contextmanager
def lock_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep out others that lock the same folder; without ``wait``, an OSError if it is locked, or cannot be."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a file system without locks, if this waits
            if not wait:
                raise
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


_PAUSE = 0.02


def enable_write_ahead_log(base: sqlite3.Connection, seconds: float) -> str:
    """Switch a file to write-ahead logging, and return how SQLite keeps its journal then: ``wal`` where it can.

    SQLite does not wait for others while it switches, whatever the connection's timeout, so we do.
    """
    import sqlite3  # only stores need it

    give_up = time.monotonic() + seconds
    while True:
        try:
            return str(base.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
