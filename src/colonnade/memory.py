"""How a process that does one thing after another stays as small as it was: dead objects go, and freed pages go back.

Connections, and questions to the hub, end as circles of objects, by the way asyncio and gRPC are written. Python looks
for circles among old objects only once these have grown by a quarter; after all that a hub imports, that is after
hundreds of studies. And allocators keep freed pages: pyarrow's for some time, the C library's between others that are
in use, in an arena for each thread. A worker has a thread for each lane, which finds another arena than the last one.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress


def freeze_baseline() -> None:
    """What there is now stays as long as this process: leave it out of every later look, which then takes no time."""
    gc.collect()
    gc.freeze()


def release_memory() -> None:
    """After a study or a lane: let go of what it has left; nothing in a process that has not settled."""
    if not gc.get_freeze_count():
        return  # a look would take long
    gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
