"""Files on disk: only regular files of a bounded size are read, and files are written as a whole or not at all.

Whoever asks for a file says in its own words, and with its own error, which file cannot be used; here the reason is
given, as the rest of that sentence.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked, and nothing is swept
    fcntl = None  # type: ignore[assignment]

WRITTEN_BY_PEOPLE = 1 << 26
"""More bytes than any file that people write."""
LEARNED = 1 << 32
"""More bytes than any file of learned values; scores of ten million people are below a quarter of it."""
DEEPEST = 64
"""No file of ours nests values deeper."""
_KEY_PARTS = 32
_NEW = ".new"
_OLD = 3600.0  # seconds; no ledger takes so long to make
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
_NOT_A_KEY = re.compile(
    r"#[^\n]*"
    r'|"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf'(?<![\w-])(?:[\w-]++|"")(?:[ \t]*+\.[ \t]*+(?:[\w-]++|"")){{{_KEY_PARTS}}}', re.ASCII)


class Unreadable(Exception):  # noqa: N818 - always turned into an error of ours
    """The reason why a file cannot be read; ``missing`` if there is none."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class Malformed(Unreadable):
    """The reason why the content of a file is not what it should be."""


def check_regular(path: Path) -> None:
    """Raise unless there is a regular file at this path; nothing is opened, so a pipe is not waited for."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _reason(error) from None
    _check_regular(mode)


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            found = os.fstat(descriptor)
            _check_regular(found.st_mode)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1) if found.st_size <= most else b""
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise _reason(error) from None
    if max(found.st_size, len(content)) > most:
        raise Unreadable(f"it has more than {most:,} bytes, which no such file has")
    return content


def read_text(path: Path, most: int = WRITTEN_BY_PEOPLE) -> str:
    """The text of a regular file in UTF-8, with line breaks as they are read from any text file."""
    try:
        text = read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8 text") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """What a file of TOML holds."""
    return toml_of(read_text(path))


def read_json(path: Path, most: int = LEARNED) -> Any:
    """What a file of JSON holds."""
    return json_of(read_text(path, most))


def toml_of(text: str) -> dict[str, Any]:
    """What TOML text holds."""
    if not isinstance(text, str):
        raise Malformed("it is no text")
    # Python's parser takes time that grows with the square of the number of parts of a key.
    if _LONG_KEY.search(_NOT_A_KEY.sub('""', text)):
        raise Malformed(f"a key in it has more than {_KEY_PARTS} parts")
    with _malformed():
        found = tomllib.loads(text)
    _check_depth(found)
    return found


def json_of(text: str) -> Any:
    """What JSON text holds; it has no infinite numbers, and no halves of characters, which cannot be written again."""
    if not isinstance(text, str):
        raise Malformed("it is no text")
    with _malformed():
        found = json.loads(text, parse_constant=_no_number)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
    _check_depth(found)
    return found


@contextmanager
def _malformed() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise Malformed("its values are nested too deeply") from None
    except UnicodeEncodeError:
        raise Malformed("a text in it holds half a character") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise Malformed(short(str(error))) from None
    except ValueError:  # Python converts no integer of more than some thousand digits
        raise Malformed("a number in it is none, or has too many digits") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inside = [each.values() if type(each) is dict else each for each in level if type(each) in (dict, list)]
        level = [each for values in inside for each in values if type(each) in (dict, list)]
        if not level:
            return
    raise Malformed("its values are nested too deeply")


def _check_regular(mode: int) -> None:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    if not stat.S_ISREG(mode):
        raise Unreadable(f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file")


def _reason(error: OSError | ValueError) -> Unreadable:
    if not isinstance(error, OSError):
        return Unreadable("no file can have this name")  # it holds a null character
    if error.errno == errno.ENXIO:
        return Unreadable("it is a socket and not a file")
    return Unreadable(error.strerror or "reading failed", missing=isinstance(error, FileNotFoundError))


def short(text: str, most: int = 1000) -> str:
    """A text of which only the beginning is shown if it is long: a damaged file may hold anything."""
    return text if len(text) <= most else f"{text[:most]}..."


# --- writing


def put(contents: Mapping[Path, bytes], *, private: bool = False) -> None:
    """Write files so that they are on disk when this returns, all of them or none; an OSError names the file.

    Nobody but this user can read a private file, whatever the mask of the process, the folder, or an earlier file says.
    """
    with ExitStack() as left:
        partials = {path: left.enter_context(_written(path, content, private)) for path, content in contents.items()}
        for path, partial in partials.items():
            with _about(path):
                os.replace(partial, path)
        for folder in {path.parent for path in contents}:
            sync_folder(folder)


@contextmanager
def _written(path: Path, content: bytes, private: bool) -> Iterator[Path]:
    """The content in a file of another name, which is gone at the end unless it was given its own."""
    with ExitStack() as left:
        with _about(path):
            if private:
                sweep(path)
                partial, mode = left.enter_context(workshop(path)) / path.name, 0o600
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
def workshop(place: Path) -> Iterator[Path]:
    """A private folder beside a place, in which a file is made that will be put there; it is gone at the end.

    It is locked as long as it is used, so that :func:`sweep` can tell it from one that a killed process left. The lock
    is on the folder: closing a file in it would also release the locks that SQLite has on that file.
    """
    while True:
        room = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_NEW, dir=place.parent))  # its mode is 0700
        with ExitStack() as held:
            with suppress(FileNotFoundError):
                held.enter_context(locked(room))
            if not room.exists():
                continue  # it was swept before it was locked
            try:
                yield room
            finally:
                shutil.rmtree(room, ignore_errors=True)
            return


def sweep(place: Path) -> None:
    """Delete what processes left that were killed while they made the file at this place."""
    ours = re.compile(rf"{re.escape(f'.{place.name}.')}[a-z0-9_]{{8}}{re.escape(_NEW)}(-wal|-shm|-journal)?")
    with suppress(OSError):  # whoever wants something of this folder will be told what is wrong with it
        for name in filter(ours.fullmatch, os.listdir(place.parent)):
            left = place.parent / name
            with suppress(OSError):
                if left.is_dir() and not left.is_symlink():
                    with locked(left, wait=False):
                        shutil.rmtree(left)
                elif time.time() - left.lstat().st_mtime > _OLD:  # earlier releases made ledgers in such files
                    left.unlink()


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep out others that lock the same folder; without ``wait``, an OSError if it is locked, or cannot be."""
    if fcntl is None:
        if not wait:
            raise OSError("folders cannot be locked here")
        yield
        return
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
def _about(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise
