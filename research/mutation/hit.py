"""Copied beside the package as ``_mutation_probe``: notes which test reaches which mutant, and how long tests take.

It stands alone, since processes that tests start import it too. ``FOLDER`` is filled in when it is copied.
"""

from __future__ import annotations

import json
import os
from typing import Any

FOLDER = "."
_noted: tuple[int, set[tuple[str, str]]] = (0, set())


def hit(mutant: str) -> None:
    """Note once a process that the test which is running now came here."""
    global _noted
    test, me = os.environ.get("PYTEST_CURRENT_TEST", ""), os.getpid()
    if _noted[0] != me:
        _noted = (me, set())
    if (mutant, test) not in _noted[1]:
        _noted[1].add((mutant, test))
        _append(f"hits-{me}.jsonl", [mutant, test, int(_started())])


def _started() -> bool:
    """Whether this is a process that a test has started, rather than one that runs tests."""
    return os.environ.get("_MUTATION_RUNNER") != str(os.getpid())


def _append(name: str, what: list[Any]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = os.open(os.path.join(FOLDER, name), flags, 0o600)
    try:
        os.write(file, json.dumps(what).encode() + b"\n")
    finally:
        os.close(file)


def pytest_configure(config: Any) -> None:
    os.environ["_MUTATION_RUNNER"] = str(os.getpid())
    global _controls
    _controls = not hasattr(config, "workerinput")


_controls = False


def pytest_runtest_logreport(report: Any) -> None:
    if _controls:
        _append("tests.jsonl", [report.nodeid, report.when, report.outcome, round(report.duration, 4)])
