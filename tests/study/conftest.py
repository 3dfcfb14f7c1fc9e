"""One fork server for all tests of studies, since it takes a second to import everything; and short paths."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from colonnade.study.fork_server import ForkServer


@pytest.fixture(scope="session")
def forks():
    found = ForkServer()
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def folder():
    """A folder with a short path, as sockets need it."""
    found = Path(tempfile.mkdtemp(prefix="ray-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)
