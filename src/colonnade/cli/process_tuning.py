"""Ways to make processes faster: no pandas, memory is kept, few collections, a quick end; and one for small ones."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # as malloc.h names them
_NOT_FLUSHED = 120  # as the interpreter says it
_LARGE, _PILE, _PAD = 1 << 25, 1 << 28, 1 << 26
_MANY_OBJECTS = 20_000


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise an error for pandas, so that it is not found; every other module is found as usual."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does when it converts its first value, if pandas is installed.

    The import takes a third of a second in every process of a study, and no process needs it. Code that imports pandas
    itself still gets it.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # pyarrow tries the import once and remembers the result
    finally:
        sys.meta_path.remove(finder)


def keep_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones, if it is glibc.

    A study makes and frees arrays of megabytes all the time. By default each is a new mapping, and the first access to
    a page costs more than the arithmetic in it. Arrays above 32 MB, and free memory above 256 MB, are given back.
    """
    mallopt = _mallopt()
    if mallopt is not None and mallopt(_MMAP_THRESHOLD, _LARGE):  # the other two alone would make it slower
        mallopt(_TRIM_THRESHOLD, _PILE)
        mallopt(_TOP_PAD, _PAD)


def collect_rarely() -> None:
    """Let the garbage collector look for circles after 20,000 new objects instead of 700.

    Importing makes hundreds of thousands of objects that all stay, and it would look through them again and again. What
    nobody refers to is freed at once all the same; circles, which are few here, wait a little longer.
    """
    gc.set_threshold(_MANY_OBJECTS, *gc.get_threshold()[1:])


def few_arenas(most: int = 2) -> None:
    """Let all threads share a few heaps, if the C library is glibc; before there are threads.

    By default each thread has its own, whose free pages lie between others that are in use. A hub has some fifteen
    threads, and after hundreds of studies that was more than what it had in use of them. A worker has a thread for
    each lane, and the free end of any heap but the first is never given back: it has one.
    """
    mallopt = _mallopt()
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, most)


def end(status: object) -> None:
    """End this process now, as the interpreter would, but without freeing every module and object one by one.

    That takes it a tenth of a second, and the system frees everything at once. Whoever traces or profiles this process
    wants the last word, so then nothing happens here.
    """
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return
    if not (status is None or isinstance(status, int)):
        return  # a sentence that the interpreter prints
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as multiprocessing does at its ends too
    atexit._run_exitfuncs()
    code = int(status or 0)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # either may have been closed by whoever started us
        try:
            stream.flush()
        except (OSError, ValueError):
            code = _NOT_FLUSHED
    os._exit(code & 0xFF)


def _mallopt() -> Any:
    try:
        return ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return None
