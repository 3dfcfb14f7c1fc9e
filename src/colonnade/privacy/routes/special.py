"""The functions of ``scipy.special``, which is imported when one of them is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # asked for by Python's own tools, not by us
        raise AttributeError(name)
    found = globals()[name] = getattr(import_module("scipy.special"), name)
    return found
