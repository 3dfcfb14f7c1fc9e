"""How a reproduction is run: how often, on how much data, from which seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[str, int, int], None]


def silent(phase: str, done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Options:
    """``quick`` is for tests: a few runs on a little of the data. ``full`` takes the papers' own sizes.

    With several ``workers`` what is made of jobs that need nothing of each other is measured side by side.
    """

    runs: int = 20
    quick: bool = False
    full: bool = False
    seed: int = 2024
    folder: Path | None = None
    peers: Path | None = None
    progress: Progress = silent
    workers: int = 1

    def few(self, share: int) -> int:
        """Fewer runs for what takes long and varies little, but never fewer than two."""
        return min(self.runs, max(2, self.runs // share))
