"""What a process of ours does without."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Nothing, for everything but pandas, which is not to be found."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does at the first value that it converts, where there is one.

    That takes a third of a second in every process of a study, and none of them has a use for it. Whoever imports
    pandas itself still gets it.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # pyarrow looks once, and remembers
    finally:
        sys.meta_path.remove(finder)
