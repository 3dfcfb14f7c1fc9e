"""Workers help their head with the party's table before the first lane: they read, check and split it in parts.

A worker that is lost is replaced, and another does what it had. What a worker fails at is left to the head: it may see
files that workers do not, and if it fails too, its error is the one that is told.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import EngineError
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.study.engine.contract import Event, Gone
from colonnade.study.lanes.words import Help, Helped
from colonnade.tables.spool.chores import Chore
from colonnade.tables.spool.room import whole

_MOST_LOST = 4
"""So many workers may be lost with the same part of the work."""
_LOOK_SECONDS = 1.0
_KEY = "partitions"


class Workers(Protocol):
    """What is asked of a crew, by the only thread that hears its events before the first lane."""

    def idle(self) -> int | None:
        """A worker that has nothing to do, which is busy from now on."""

    def command(self, worker: int, command: Any) -> None:
        """Send a command."""

    def heard(self, seconds: float) -> Event:
        """The next event of a worker, after those that a crew sees to by itself; ``queue.Empty`` if none comes."""

    def rest(self, worker: int) -> None:
        """A worker has nothing to do."""


def helped(command: Help) -> Helped:
    """A worker's part."""
    try:
        return Helped(command.number, command.chore.done())
    except Exception:  # whatever it is, its head meets it again
        return Helped(command.number, failed=True)


def shared(workers: Workers, chores: Sequence[Chore], pulse: Callable[[], None]) -> Iterator[tuple[int, Any]]:
    """The head's part: places and results of chores as they come (``colonnade.tables.spool.chores.Hands``)."""
    waiting, given, failed = list(range(len(chores))), dict[int, int](), False
    heapify(waiting)
    lost = Counter[int]()
    while given or (waiting and not failed):
        while waiting and not failed and (worker := workers.idle()) is not None:
            given[worker] = heappop(waiting)
            workers.command(worker, Help(given[worker], chores[given[worker]]))
        pulse()
        try:
            event = workers.heard(_LOOK_SECONDS)
        except queue.Empty:
            continue
        number = given.pop(event.worker, None)
        if number is None:
            continue
        if isinstance(event, Gone):
            heappush(waiting, number)
            lost[number] += 1
            if lost[number] == _MOST_LOST:
                raise EngineError(
                    f"{_MOST_LOST} workers were lost with the same part of the table: {event.why} [EN029]"
                )
        elif isinstance(event.value, Helped):
            workers.rest(event.worker)
            failed |= event.value.failed
            if not event.value.failed:
                yield number, event.value.result


@dataclass(frozen=True)
class SpreadFrom:
    """Finds the partition of each key as the owners have agreed; pickled, it says where their key lies.

    That is the private folder of the table, which tells all that the key does.
    """

    folder: Path
    count: int

    @classmethod
    def written(cls, spread: Partitions, folder: Path) -> SpreadFrom:
        """Lay the key there."""
        with whole(folder, _KEY) as file:
            file.write(spread.key)
        return cls(folder, spread.count)

    def forget(self) -> None:
        """Delete the key."""
        (self.folder / _KEY).unlink(missing_ok=True)

    @cached_property
    def _spread(self) -> Partitions:
        return Partitions(self.count, (self.folder / _KEY).read_bytes())

    def __call__(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The partition of each key."""
        return self._spread.of(keys)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "count": self.count}
