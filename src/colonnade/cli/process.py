"""What this process is: the ``colonnade`` command, or a program that only uses its functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_running: list[str] = []


class BeginAgain(BaseException):
    """Raised in a process that was forked from a command: it unwinds that one, and runs its own."""


def began() -> bool:
    """Whether this process is the ``colonnade`` command, and not a program that only uses its functions."""
    return bool(_running)


@contextmanager
def running() -> Iterator[None]:
    """While it lasts, this process is the ``colonnade`` command."""
    _running.append("colonnade")
    try:
        yield
    finally:
        _running.clear()
