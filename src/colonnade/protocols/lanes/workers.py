"""The workers of a participant's lanes: the events that they tell, and which of their sums count."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.mpc import ShareEngine
from colonnade.protocols.joint_sum.declaration import PartialSums, add_partial_sums
from colonnade.protocols.lanes.arbiter import LaneAttempt, LaneFollower, LaneOrder
from colonnade.protocols.lanes.messages import LONGEST_INTRODUCTION
from colonnade.protocols.roles import COORDINATOR


@dataclass(frozen=True)
class WorkerFree:
    """So many more workers have nothing to do."""

    count: int = 1


@dataclass(frozen=True)
class LaneWorkerReady:
    """A worker took a lane; the others know it by this introduction."""

    lane: LaneAttempt
    introduction: bytes


@dataclass(frozen=True)
class WorkerDone:
    """A worker has the result of a lane."""

    lane: LaneAttempt
    sums: PartialSums


@dataclass(frozen=True)
class WorkerLost:
    """A worker was lost in a lane, or lost somebody else in it: the lane may be run again."""

    lane: LaneAttempt


@dataclass(frozen=True)
class WorkerFailed:
    """Something else went wrong in a lane, so the study ends."""

    lane: LaneAttempt
    error: BaseException


@dataclass(frozen=True)
class CrewClosed:
    """There will be no more events."""


CrewEvent = WorkerFree | LaneWorkerReady | WorkerDone | WorkerLost | WorkerFailed | CrewClosed


class WorkerCrew(Protocol):
    """All workers of one participant. One thread waits in :meth:`event`, another calls the rest."""

    def begin(self, lane: LaneAttempt) -> None:
        """Give a free worker this lane; ``LaneWorkerReady`` follows, or ``WorkerLost``."""

    def meet(self, lane: LaneAttempt, hub: int, introductions: Mapping[str, bytes]) -> None:
        """Let its worker meet those of all others at this hub.

        ``WorkerDone``, ``WorkerLost`` or ``WorkerFailed`` follows.
        """

    def give_up(self, lane: LaneAttempt) -> None:
        """Stop its worker's part at once, if it has any; the lane is of no interest any more.

        A worker that only waited to meet is then ``WorkerFree``. An event of the lane may still come. It counts only if
        it is ``WorkerFailed`` with an error that Colonnade raises on purpose: what a check has found, it has found.
        """

    def event(self) -> CrewEvent:
        """The next event; waits for it. A worker that has ended a lane, in whichever way, is then ``WorkerFree`` again.

        One that is dead never is. When none is left, and none will come, this raises an error, which ends the study:
        the other participants hear signs of life of the head and would wait forever.
        """

    def close(self) -> None:
        """Stop all workers; :meth:`event` then gives ``CrewClosed``, after what it had and also to whoever waits."""


@dataclass(frozen=True)
class LaneReport:
    """What a participant says of a lane."""

    what: Literal["here", "done", "lost"]
    lane: LaneAttempt
    rows: int = 0
    worker: bytes = b""


class LaneWorkers:
    """One head, without its links: events of its crew become words about lanes, and orders become tasks of its crew.

    ``engine`` is its engine in the arithmetic of sums.
    """

    def __init__(self, crew: WorkerCrew, engine: ShareEngine, partitions: int) -> None:
        self._crew, self._engine, self._partitions = crew, engine, partitions
        self._followed = LaneFollower(partitions)
        self._waiting = deque(LaneAttempt(partition) for partition in range(partitions))
        self._begun: set[LaneAttempt] = set()
        self._ended: set[LaneAttempt] = set()
        self._held: dict[LaneAttempt, PartialSums] = {}
        self._introduced: dict[LaneAttempt, bytes] = {}
        self._met: dict[LaneAttempt, bytes] = {}
        self._kept_with: dict[int, bytes] = {}
        self._total: PartialSums | None = None
        self._free = 0

    @property
    def kept(self) -> Mapping[int, int]:
        """The attempt that is kept of each partition that is settled."""
        return self._followed.kept

    @property
    def what_counts(self) -> bytes:
        """What all owners and seats must have alike: which attempts are kept, and which workers played them."""
        kept = sorted(self.kept.items())
        return b"".join(part.to_bytes(4, "little") + bytes([run]) + self._kept_with[part] for part, run in kept)

    @property
    def total(self) -> PartialSums:
        """The sum of all lanes."""
        if self._total is None or len(self.kept) < self._partitions:
            raise ValueError("lanes are added up when all of them are kept [VA138]")
        return self._total

    @property
    def rows(self) -> int:
        """The rows, or slots, of all lanes that are kept so far."""
        return 0 if self._total is None else self._total.rows

    def handle_event(self, event: CrewEvent) -> list[LaneReport]:
        """What this participant has to say when its crew tells it something."""
        if isinstance(event, WorkerFailed):
            if event.lane in self._begun or isinstance(event.error, ColonnadeError):
                raise event.error
            return []  # its worker was stopped in the middle of something, and any call of its may have failed
        if isinstance(event, CrewClosed):
            raise RuntimeError("the workers stopped before all lanes were kept")
        if isinstance(event, WorkerFree):
            self._free += event.count
            self._serve()
            return []
        lane = event.lane
        if lane not in self._begun or lane in self._ended:
            return []  # it was given up meanwhile
        if isinstance(event, LaneWorkerReady):
            if len(event.introduction) > LONGEST_INTRODUCTION:
                raise ValueError("the introduction of a worker is too long [VA139]")
            self._followed.here(lane)
            self._introduced[lane] = event.introduction
            return [LaneReport("here", lane, worker=event.introduction)]
        self._ended.add(lane)
        if isinstance(event, WorkerLost):
            return [LaneReport("lost", lane)]
        self._followed.done(lane)
        self._held[lane] = event.sums
        return [LaneReport("done", lane, rows=event.sums.rows)]

    def obey(self, order: LaneOrder) -> None:
        """Do what the coordinator says, if it may."""
        self._followed.obey(order)
        if order.what == "meet":
            if order.introductions[self._engine.name] != self._introduced[order.lane]:
                raise ProtocolError(
                    f"the {COORDINATOR} introduced another worker in the name of {self._engine.name} [MS038]"
                )
            self._met[order.lane] = _digest(order.introductions)
            self._crew.meet(order.lane, order.hub, order.introductions)
        elif order.what == "kept":
            part = self._held.pop(order.lane)
            self._kept_with[order.lane.partition] = self._met[order.lane]
            self._forget(order.lane)
            self._total = part if self._total is None else add_partial_sums(self._engine, [self._total, part])
        elif order.what == "again":
            self._give_up(LaneAttempt(order.lane.partition, order.lane.attempt - 1))
            self._waiting.append(order.lane)
            self._serve()

    def _serve(self) -> None:
        """Begin as many lanes as workers are free, in the order of all."""
        while self._free and self._waiting:
            lane = self._waiting.popleft()
            self._begun.add(lane)
            self._free -= 1
            self._crew.begin(lane)

    def _give_up(self, lane: LaneAttempt) -> None:
        if lane in self._begun:
            if lane not in self._ended:
                self._crew.give_up(lane)
            self._held.pop(lane, None)
            self._forget(lane)
        else:
            self._waiting.remove(lane)

    def _forget(self, lane: LaneAttempt) -> None:
        self._begun.discard(lane)
        self._ended.discard(lane)
        self._introduced.pop(lane, None)
        self._met.pop(lane, None)


def _digest(introductions: Mapping[str, bytes]) -> bytes:
    """A hash of who is introduced as what."""
    state = hashlib.sha256()
    for name, introduction in sorted(introductions.items()):
        for text in (name.encode(), introduction):
            state.update(len(text).to_bytes(4, "little") + text)
    return state.digest()
