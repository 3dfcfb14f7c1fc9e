"""Files as they are read: regular ones of a bounded size, whose nesting and numbers are bounded too.

Whoever asks for a file says in its own words, and with its own error, which file cannot be used; here the reason is
given, as the rest of that sentence.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from colonnade.errors import last_code

MAX_WRITTEN_BYTES = 1 << 26
"""More bytes than any file that people write."""
MAX_LEARNED_BYTES = 1 << 32
"""More bytes than any file of learned values; scores of ten million people are below a quarter of it."""
MAX_DEPTH = 64
"""No file of ours nests values deeper."""
_KEY_PARTS = 32
_PIECE = 1 << 20
_SEVERAL = ""
_MOST_BITS = 1 << 11
_NOT_A_KEY = re.compile(
    r"#[^\n]*"
    r'|"""(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)'  # it always ends, or one text would be searched again from every place
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf'(?<![\w-])(?:[\w-]++|"")(?:[ \t]*+\.[ \t]*+(?:[\w-]++|"")){{{_KEY_PARTS}}}', re.ASCII)


_NOTED: ContextVar[dict[Path, str] | None] = ContextVar("noted", default=None)


class UnreadableFile(Exception):  # noqa: N818 - always turned into an error of ours
    """The reason why a file cannot be read; ``missing`` if there is none."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class MalformedFile(UnreadableFile):
    """The reason why the content of a file is not what it should be."""


def check_regular(path: Path) -> None:
    """Raise unless there is a regular file at this path; nothing is opened, so a pipe is not waited for."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
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
                content = b"" if found.st_size > most else _read(file, found.st_size, most)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if max(found.st_size, len(content)) > most:
        raise UnreadableFile(f"it has more than {most:,} bytes, which no such file has [VA006]")
    if (noted := _NOTED.get()) is not None:
        digest = hashlib.sha256(content).hexdigest()
        noted[path.absolute()] = digest if noted.get(path.absolute(), digest) == digest else _SEVERAL
    return content


@contextmanager
def record_digests() -> Iterator[dict[Path, str]]:
    """Note the SHA-256 of everything that is read inside, of the very bytes; one that changed meanwhile has none."""
    found: dict[Path, str] = {}
    before = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(before)


def _read(file: BinaryIO, size: int, most: int) -> bytes:
    """At most one byte more than so many; it is expected to have a size, and room is made for no more than that."""
    parts, left, wanted = [], most + 1, size + 1
    while left > 0 and (part := file.read(min(wanted, left))):
        parts.append(part)
        left, wanted = left - len(part), _PIECE
    return b"".join(parts)


def read_text(path: Path, most: int = MAX_WRITTEN_BYTES) -> str:
    """The text of a regular file in UTF-8, with line breaks as they are read from any text file."""
    try:
        text = read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedFile("it is not UTF-8 text [VA007]") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """What a file of TOML holds."""
    return parse_toml(read_text(path))


def read_json(path: Path, most: int = MAX_LEARNED_BYTES) -> Any:
    """What a file of JSON holds."""
    return parse_json(read_text(path, most))


def parse_toml(text: str) -> dict[str, Any]:
    """What TOML text holds."""
    if not isinstance(text, str):
        raise MalformedFile("it is no text [VA008]")
    # Python's parser takes time that grows with the square of the number of parts of a key.
    if _LONG_KEY.search(_NOT_A_KEY.sub('""', text)):
        raise MalformedFile(f"a key in it has more than {_KEY_PARTS} parts [VA009]")
    with _parse_errors():
        found = tomllib.loads(text)
    _check(found)
    return found


def parse_json(text: str) -> Any:
    """What JSON text holds; it has no infinite numbers, and no halves of characters, which cannot be written again."""
    if not isinstance(text, str):
        raise MalformedFile("it is no text [VA010]")
    with _parse_errors():
        found = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
    _check(found)
    return found


@contextmanager
def _parse_errors() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise MalformedFile("its values are nested too deeply [VA011]") from None
    except UnicodeEncodeError:
        raise MalformedFile("a text in it holds half a character [VA012]") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise MalformedFile(shorten(str(error))) from None
    except ValueError:  # Python converts no integer of more than some thousand digits
        raise MalformedFile("a number in it is none, or has too many digits [VA013]") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number [VA014]")


def _check(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        inside = [each.values() if type(each) is dict else each for each in level]
        held = [each for values in inside for each in values if type(each) in (dict, list, int)]
        # Python reads any hexadecimal integer, but converts none of more than some thousand digits to text.
        if any(type(each) is int and each.bit_length() > _MOST_BITS for each in held):
            raise MalformedFile("a number in it has too many digits [VA015]")
        level = [each for each in held if type(each) is not int]
        if not level:
            return
    raise MalformedFile("its values are nested too deeply [VA016]")


def _check_regular(mode: int) -> None:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    if not stat.S_ISREG(mode):
        raise UnreadableFile(f"it is {kinds.get(stat.S_IFMT(mode), 'something else')} and not a file [VA017]")


def _unreadable(error: OSError | ValueError) -> UnreadableFile:
    if not isinstance(error, OSError):
        return UnreadableFile("no file can have this name [VA018]")  # it holds a null character
    if error.errno == errno.ENXIO:
        return UnreadableFile("it is a socket and not a file [VA019]")
    return UnreadableFile(error.strerror or "reading failed", missing=isinstance(error, FileNotFoundError))


def shorten(text: str, most: int = 1000) -> str:
    """A text of which only the beginning is shown if it is long: a damaged file may hold anything."""
    return text if len(text) <= most else f"{text[:most]}...{last_code(text)}"
