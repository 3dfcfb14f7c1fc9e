"""The bank and the shop, whose model is fitted once for all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import kit


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> kit.Place:
    return kit.Place.make(tmp_path_factory.mktemp("scores") / "s")


@pytest.fixture(scope="module")
def place(built: kit.Place, tmp_path_factory: pytest.TempPathFactory) -> kit.Place:
    """A copy for the tests of one file."""
    return kit.Place(Path(shutil.copytree(built.folder, tmp_path_factory.mktemp("place") / "s")))
