"""Names and modules that are imported when they are first used, because large libraries take long to load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when an attribute is first asked for; attributes are then kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # asked for by Python's own tools, not by us
            raise AttributeError(attribute)
        try:
            found = getattr(import_module(self._name), attribute)
        except AttributeError:  # a module inside it, such as csv, which must be imported by name
            found = import_module(f"{self._name}.{attribute}")
        setattr(self, attribute, found)
        return found


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from its modules and the names that each exports."""
    table = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{table[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(table), find, lambda: sorted({*vars(sys.modules[package]), *table})
