"""The lowest versions that ``pyproject.toml`` allows: ``make lowest`` installs exactly them and runs the core."""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import version
from itertools import zip_longest

import pytest

from .book import ROOT


def floors() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("floors", ROOT / "tools" / "floors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.floors()
    return found


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".") if part.isdigit()]


def test_what_is_installed_is_not_below_the_floors() -> None:
    for name, lowest in floors().items():
        assert numbers(version(name)) >= numbers(lowest), name


def test_exactly_the_floors_are_installed() -> None:
    if os.environ.get("COLONNADE_LOWEST") != "1":
        pytest.skip("only `make lowest` installs them")
    for name, lowest in floors().items():
        pairs = zip_longest(numbers(version(name)), numbers(lowest), fillvalue=0)
        assert all(here == pinned for here, pinned in pairs), f"{name} is {version(name)}, not {lowest}"
