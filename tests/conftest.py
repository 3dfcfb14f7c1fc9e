from __future__ import annotations

import os
import warnings
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing.seeded import seeded as _seeded

from colonnade.randomness import Stream


@pytest.fixture
def stream() -> Stream:
    """A repeatable stream, so that a statistical test never fails by bad luck."""
    return _seeded(20240)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where the real data sets are; tests that need them skip with a reason where they are not."""
    named = os.environ.get("COLONNADE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data sets: set COLONNADE_DATA (looked in {folder})")
    return folder
