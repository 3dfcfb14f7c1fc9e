"""The lowest versions that ``pyproject.toml`` allows: ``make lowest`` installs exactly them and runs the core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from itertools import zip_longest

import pytest

from tools.floors import floors
from tools.pages import ROOT


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".") if part.isdigit()]


def test_what_is_installed_is_not_below_the_floors() -> None:
    for name, lowest in floors().items():
        assert numbers(version(name)) >= numbers(lowest), name


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_pythons_are_told_apart_by_their_version_and_absent_ones_are_left_out() -> None:
    """With --dry-run the loop itself still runs, and what it would start is printed."""
    plain = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    asked = f"PYTHONS=no-such-python {sys.executable}"
    done = subprocess.run(
        ["make", "--dry-run", "pythons", asked], cwd=ROOT, env=plain, capture_output=True, text=True, check=True
    )
    assert "not here, so left out: no-such-python" in done.stdout
    assert f".venv-python{sys.version_info.major}.{sys.version_info.minor}/bin/python -m pytest" in done.stdout


def test_exactly_the_floors_are_installed() -> None:
    if os.environ.get("COLONNADE_LOWEST") != "1":
        pytest.skip("only `make lowest` installs them")
    for name, lowest in floors().items():
        pairs = zip_longest(numbers(version(name)), numbers(lowest), fillvalue=0)
        assert all(here == pinned for here, pinned in pairs), f"{name} is {version(name)}, not {lowest}"
