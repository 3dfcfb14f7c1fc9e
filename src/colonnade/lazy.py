"""Names that a package exports and imports when they are first used, because large libraries take long to load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from its modules and the names that each exports."""
    table = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{table[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(table), find, lambda: sorted({*vars(sys.modules[package]), *table})
