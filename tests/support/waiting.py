"""Waiting for what others do: whoever waits looks at a state until it is there, and never for seconds to pass."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")
STUCK_SECONDS = 300.0


def until(look: Callable[[], Found | None], what: str = "it", seconds: float = STUCK_SECONDS) -> Found:
    """Look until there is something; an error that says what was waited for, if there never is."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"{what}: nothing after {seconds:.0f} s"
        time.sleep(0.01)
    return found


def below(folder: Path, *patterns: str) -> list[Path]:
    """What is called so in a folder, even while others make and remove files there."""
    names = ((Path(place), name) for place, folders, files in os.walk(folder) for name in (*folders, *files))
    return [place / name for place, name in names if any(fnmatch(name, pattern) for pattern in patterns)]
