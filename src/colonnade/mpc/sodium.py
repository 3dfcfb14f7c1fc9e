"""libsodium as rbcl packages it, for operations in ristretto255.

rbcl writes its copy of libsodium into a temporary file whenever it is imported, and leaves it there. A library that is
loaded needs its file no longer, so it is removed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import ModuleType

import rbcl


def _tidy() -> None:
    unpacked = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
    if isinstance(unpacked, str):
        with suppress(OSError):  # Windows keeps the file of a library that is loaded; a forked process may be second
            os.unlink(unpacked)


_tidy()
LIBRARY: ModuleType = rbcl
