"""What a head asks of its workers, wherever they run.

A worker is a process that keeps what it has learned from one command to the next. It runs a *role*: a function that is
named by its import path, and that gets a ``QueuedLine`` and the arguments given to ``start``. Commands and what
workers say are pickled, so both ends are of one party, which trusts both. Loss of a worker is an event, and nothing is
repeated by itself: what a lost worker did is asked again by whoever asked first, under a new name.

Keys and coins are never arguments, commands or events: a worker draws its own. Identities and streams of coins refuse
to be pickled, and so does everything that holds one.
"""

from __future__ import annotations

import pickle
import queue
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from colonnade.errors import EngineError

Cause = Literal["lost", "memory", "raised"]


@dataclass(frozen=True)
class Said:
    """What a worker said."""

    worker: int
    value: Any


@dataclass(frozen=True)
class Gone:
    """The last event of a worker.

    ``lost``: killed, or its machine is gone; another worker can do the same. ``memory``: it needed more than it may
    have. ``raised``: its role ended, or raised an error; another worker would most likely do so too.
    """

    worker: int
    why: str
    """One sentence without data."""
    cause: Cause = "lost"


Event = Said | Gone


class Engine(ABC):
    """Workers of one role."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        """All events of all workers; whoever takes them may put others in."""

    @abstractmethod
    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Start workers, and do not wait for them; as many as there are cores, if no number is given.

        ``role`` is ``"package.module:function"``. Commands can be sent at once. An engine is started once.
        """

    @abstractmethod
    def send(self, worker: int, command: Any) -> None:
        """Send a command; to a worker that is gone, nothing. What cannot be pickled is an ``EngineError``."""

    @abstractmethod
    def replace(self, worker: int) -> int:
        """End a worker if it still runs, and start another one of the same role; numbers are never used twice.

        From then on the old one causes no event; those that wait in the queue stay there. An engine that was stopped
        starts nobody: an ``EngineError``.
        """

    @abstractmethod
    def stop(self) -> None:
        """End all workers at once; from then on there are no events. May be called twice."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def pickled(value: Any, what: str) -> bytes:
    """A value as bytes; an ``EngineError`` that names its type, and not what it holds, if it cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise EngineError(
            f"{what} cannot be sent between a head and its workers: a {type(value).__name__} here cannot be pickled "
            f"({type(error).__name__}). Keys and coins are drawn by whoever uses them, and never sent [EN001]"
        ) from None
