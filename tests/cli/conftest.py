"""The example of three organisations, as a copy that a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.studies import edit

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
_MADE = shutil.ignore_patterns("certs", "alignments", "*.key", "*.crt", "*.sqlite*")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Its study file; nobody has made keys, and the hub's port is free."""
    shutil.copytree(EXAMPLE, tmp_path / "s", ignore=_MADE)
    path = tmp_path / "s" / "STUDY.toml"
    edit(path, ("7443", str(free_port())))
    return path
