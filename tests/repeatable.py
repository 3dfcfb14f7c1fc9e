"""Every run of the suite draws the same randomness, so that a test which passed once does not fail by bad luck later.

``colonnade.randomness`` asks the operating system for keys, and so it does in users' hands. While the tests run, the
keys in this process come from the name of the test, the name of the thread and how many keys that thread has had in
that test. Participants have threads of their own names; what is drawn does not depend on which of them is faster.
Other processes that a test starts draw from the operating system as always: what is said about their numbers must hold
but for a chance that the test states (``tests/chances.py``).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from types import SimpleNamespace

import colonnade.randomness

_UNNAMED = re.compile(r"Thread-\d+")
_lock = threading.Lock()
_drawn: Counter[tuple[str, str]] = Counter()


def _bytes(count: int) -> bytes:
    test = os.environ.get("PYTEST_CURRENT_TEST", "collection").rpartition(" ")[0]
    thread = _UNNAMED.sub("thread", threading.current_thread().name)
    with _lock:
        _drawn[test, thread] += 1
        number = _drawn[test, thread]
    return hashlib.shake_256(f"{test} {thread} {number}".encode()).digest(count)


def repeat() -> None:
    """From now on keys are the same in every run of the same test."""
    colonnade.randomness.os = SimpleNamespace(urandom=_bytes)  # type: ignore[attr-defined]
