"""What a process of ours does without: pandas, and giving memory back to take it again."""

from __future__ import annotations

import ctypes
import sys
from importlib.abc import MetaPathFinder
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as malloc.h names them
_LARGE, _PILE, _PAD = 1 << 25, 1 << 28, 1 << 26


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


def keep_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones, where it is one that can.

    A study makes and drops arrays of megabytes all the time. By default each is a fresh mapping, and the first touch of
    a page costs more than the arithmetic in it. Arrays above 32 MB, and piles above 256 MB, are given back.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    if mallopt(_MMAP_THRESHOLD, _LARGE):  # the others alone would make it worse
        mallopt(_TRIM_THRESHOLD, _PILE)
        mallopt(_TOP_PAD, _PAD)
