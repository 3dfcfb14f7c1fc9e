"""How a process that stands for months stays as small as it was: circles of dead objects go, and freed pages go back.

Connections, and questions to the hub, end as circles of objects, by the way asyncio and gRPC are written. Python looks
for circles among old objects only once these have grown by a quarter; after all that a hub imports, that is after
hundreds of studies. And the C library keeps freed pages between others that are in use, in an arena for each thread.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def settle() -> None:
    """What there is now stays as long as this process: leave it out of every later look, which then takes no time."""
    gc.collect()
    gc.freeze()


def tidy() -> None:
    """After a study: let go of what it has left; nothing in a process that has not settled, where a look takes long."""
    if not gc.get_freeze_count():
        return
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
