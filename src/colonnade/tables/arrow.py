"""``pa`` and ``pc``: pyarrow and its compute functions, which are imported when one of them is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc"]


class _Later:
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


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = _Later("pyarrow"), _Later("pyarrow.compute")
