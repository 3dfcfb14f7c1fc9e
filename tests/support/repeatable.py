"""Every run of the suite draws the same randomness, so that a test which passed once does not fail by bad luck later.

``colonnade.randomness`` asks the operating system for keys, and so it does in users' hands. While the tests run, the
keys in this process come from the name of the test, the name of the thread and how many keys that thread has had in
that test, and from ``COLONNADE_TEST_SEED`` where it is set (``make test SEED=2``): with other keys everything must hold
as well. Participants have threads of their own names (``named`` gives one), so what is drawn does not depend on who
is faster. Threads without a name share their keys as they come; no test says anything about numbers made of those.
Other processes that a test starts draw from the operating system as always: what is said about their numbers must hold
but for a chance that the test states (``tests/support/chances.py``).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar

import colonnade.randomness

T = TypeVar("T")
SEED = os.environ.get("COLONNADE_TEST_SEED", "")
_UNNAMED = re.compile(r"^Thread.*")
_lock = threading.Lock()
_drawn: Counter[tuple[str, str]] = Counter()


def _bytes(count: int) -> bytes:
    test = os.environ.get("PYTEST_CURRENT_TEST", "collection").rpartition(" ")[0]
    thread = _UNNAMED.sub("without a name", threading.current_thread().name)
    with _lock:
        _drawn[test, thread] += 1
        number = _drawn[test, thread]
    return hashlib.shake_256(f"{SEED}{test} {thread} {number}".encode()).digest(count)


def repeat() -> None:
    """From now on keys are the same in every run of the same test."""
    colonnade.randomness.os = SimpleNamespace(urandom=_bytes)  # type: ignore[attr-defined]


def named(name: str, program: Callable[..., T], *args: object) -> T:
    """Run a participant's program in this thread, under its name."""
    threading.current_thread().name = name
    return program(*args)
