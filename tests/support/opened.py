"""Which files were opened, by whatever process: the system says so."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_OPENED = 0x20  # IN_OPEN
_HEAD = struct.Struct("iIII")


class OpenedFiles:
    """The names of the files of a folder that were opened since it is watched."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._names = descriptor, set[str]()

    @property
    def names(self) -> set[str]:
        with suppress(BlockingIOError):
            while told := os.read(self._descriptor, 1 << 16):
                at = 0
                while at < len(told):
                    *_, length = _HEAD.unpack_from(told, at)
                    at += _HEAD.size + length
                    self._names.add(told[at - length : at].rstrip(b"\0").decode())
        return self._names


@contextmanager
def watched(folder: Path) -> Iterator[OpenedFiles]:
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "inotify_init1"):
        pytest.skip("only Linux says which files are opened")
    descriptor = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        assert system.inotify_add_watch(descriptor, os.fsencode(folder), _OPENED) >= 0
        yield OpenedFiles(descriptor)
    finally:
        os.close(descriptor)
