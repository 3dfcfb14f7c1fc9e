"""One fork server for all these tests: it takes a second to import everything."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.study.forks import Forks

SLOW_ON_RAY = (
    "test_an_error_in_a_worker_is_told_without_data",
    "test_a_word_that_the_head_cannot_read_is_the_last_one",
    "test_a_worker_that_cannot_begin_is_told_as_such",
)
"""Each of them ends an actor, and another one takes seconds; what is the same on every engine is tested by the rest."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in [f"{name}[ray]" for name in SLOW_ON_RAY]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    found = Forks()
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    found = Path(tempfile.mkdtemp(prefix="ray-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)
