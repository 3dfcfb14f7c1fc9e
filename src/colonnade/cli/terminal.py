"""The terminal of a person: text that is not cut, and progress bars. It brings ``rich``, which programs do not need."""

from __future__ import annotations

import errno
import math
import os
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

_FEW = 10  # with fewer steps no rate is shown
_BAR_WIDTH = 20


class _Console(Console):
    """A console that raises an error when its reader has closed the pipe."""

    def on_broken_pipe(self) -> None:
        """Raise the error, so that it is reported like any other."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


console = _Console(highlight=False, soft_wrap=True)


class PaceColumn(ProgressColumn):
    """The steps done, the steps in a second, and the time that is left."""

    def render(self, task: Task) -> Text:
        """Such as ``4,096/100,000  2,310/s  left 0:00:41``."""
        took, passed = task.finished_time, task.finished_time or task.elapsed
        so_far = task.completed / passed if passed else None
        return Text(pace(task.completed, task.total, so_far if took else task.speed or so_far, took))


def pace(done: float, total: float | None, speed: float | None, took: float | None = None) -> str:
    """The steps done of all steps, steps in a second, and the time left or, at the end, the time that it took."""
    parts = [f"{done:,.0f}/{'?' if total is None else f'{total:,.0f}'}"]
    if speed and (total is None or total >= _FEW) and (took is None or took >= 1):
        parts.append(f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")
    if took is not None:
        parts.append(f"took {timedelta(seconds=round(took))}")
    elif speed and total is not None:
        parts.append(f"left {timedelta(seconds=math.ceil(max(total - done, 0) / speed))}")
    return "  ".join(parts)


def bars_on(screen: Console) -> Progress:
    """Progress bars, each on one line; on a narrow screen the bar itself becomes shorter."""
    steps = PaceColumn(table_column=Column(no_wrap=True))
    return Progress(TextColumn("{task.description:>10}"), BarColumn(_BAR_WIDTH), steps, console=screen)
