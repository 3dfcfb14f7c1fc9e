"""One fork server for all these tests: it takes a second to import everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from colonnade.study.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    found = Forks()
    found.prepare()
    yield found
    found.close()
