"""What a head asks of its workers, and what it hears from them.

A head never waits for a worker: it gives a task and hears of it by an event. How workers are started, and where they
run, is no matter of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from colonnade.protocols.lanes.arbiter import Lane
from colonnade.protocols.sums import Sums


@dataclass(frozen=True)
class Free:
    """So many more workers have nothing to do."""

    count: int = 1


@dataclass(frozen=True)
class Here:
    """A worker took a lane; the others know it by this introduction."""

    lane: Lane
    introduction: bytes


@dataclass(frozen=True)
class Done:
    """A worker has the result of a lane."""

    lane: Lane
    sums: Sums


@dataclass(frozen=True)
class Lost:
    """A worker was lost in a lane, or lost somebody else in it: the lane may be run again."""

    lane: Lane


@dataclass(frozen=True)
class Failed:
    """Something else went wrong in a lane, so the study ends."""

    lane: Lane
    error: BaseException


@dataclass(frozen=True)
class Closed:
    """There will be no more events."""


Event = Free | Here | Done | Lost | Failed | Closed


class Crew(Protocol):
    """All workers of one participant. One thread waits in :meth:`event`, another calls the rest."""

    def begin(self, lane: Lane) -> None:
        """Give a free worker this lane; ``Here`` follows, or ``Lost``."""

    def meet(self, lane: Lane, hub: int, introductions: Mapping[str, bytes]) -> None:
        """Let its worker meet those of all others at this hub; ``Done``, ``Lost`` or ``Failed`` follows."""

    def give_up(self, lane: Lane) -> None:
        """Stop its worker's part at once, if it has any; the lane is of no interest any more.

        A worker that only waited to meet is then ``Free``. An event of the lane may still come. It counts only if it is
        ``Failed`` with an error that Colonnade raises on purpose: what a check has found, it has found.
        """

    def event(self) -> Event:
        """The next event; waits for it. A worker that has ended a lane, in whichever way, is then ``Free`` again.

        One that is dead never is. When none is left, and none will come, this raises an error, which ends the study:
        the other participants hear signs of life of the head and would wait forever.
        """

    def close(self) -> None:
        """Stop all workers; :meth:`event` gives ``Closed`` after what it had before, also to whoever waits in it."""
