"""The example of three organisations, as a copy that a test may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studies import copy_example


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Its study file; nobody has made keys, and the hub's port is free."""
    return copy_example(tmp_path / "s")[0] / "STUDY.toml"
