"""A head's own side of lanes: which lanes its workers have, which results it holds, and the sum of those that count."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.mpc import Hand
from colonnade.protocols.lanes.arbiter import Again, Followed, Kept, Lane, Meet, Order
from colonnade.protocols.lanes.crew import Closed, Crew, Event, Failed, Free, Here, Lost
from colonnade.protocols.lanes.vocabulary import LONGEST_INTRODUCTION
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.sums import Sums, together


@dataclass(frozen=True)
class Said:
    """What a participant says of a lane."""

    what: Literal["here", "done", "lost"]
    lane: Lane
    rows: int = 0
    worker: bytes = b""


class Workers:
    """One head, without its links: events of its crew become words about lanes, and orders become tasks of its crew.

    ``hand`` is its hand in the arithmetic of sums.
    """

    def __init__(self, crew: Crew, hand: Hand, partitions: int) -> None:
        self._crew, self._hand, self._partitions = crew, hand, partitions
        self._followed = Followed(partitions)
        self._waiting = deque(Lane(partition) for partition in range(partitions))
        self._begun: set[Lane] = set()
        self._ended: set[Lane] = set()
        self._held: dict[Lane, Sums] = {}
        self._introduced: dict[Lane, bytes] = {}
        self._met: dict[Lane, bytes] = {}
        self._kept_with: dict[int, bytes] = {}
        self._total: Sums | None = None
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
    def total(self) -> Sums:
        """The sum of all lanes."""
        if self._total is None or len(self.kept) < self._partitions:
            raise ValueError("lanes are added up when all of them are kept [VA138]")
        return self._total

    @property
    def rows(self) -> int:
        """The rows, or slots, of all lanes that are kept so far."""
        return 0 if self._total is None else self._total.rows

    def heard(self, event: Event) -> list[Said]:
        """What this participant has to say when its crew tells it something."""
        if isinstance(event, Failed):
            if event.lane in self._begun or isinstance(event.error, ColonnadeError):
                raise event.error
            return []  # its worker was stopped in the middle of something, and any call of its may have failed
        if isinstance(event, Closed):
            raise RuntimeError("the workers stopped before all lanes were kept")
        if isinstance(event, Free):
            self._free += event.count
            self._serve()
            return []
        lane = event.lane
        if lane not in self._begun or lane in self._ended:
            return []  # it was given up meanwhile
        if isinstance(event, Here):
            if len(event.introduction) > LONGEST_INTRODUCTION:
                raise ValueError("the introduction of a worker is too long [VA139]")
            self._followed.here(lane)
            self._introduced[lane] = event.introduction
            return [Said("here", lane, worker=event.introduction)]
        self._ended.add(lane)
        if isinstance(event, Lost):
            return [Said("lost", lane)]
        self._followed.done(lane)
        self._held[lane] = event.sums
        return [Said("done", lane, rows=event.sums.rows)]

    def obey(self, order: Order) -> None:
        """Do what the coordinator says, if it may."""
        self._followed.obey(order)
        if isinstance(order, Meet):
            if order.introductions[self._hand.name] != self._introduced[order.lane]:
                raise ProtocolError(
                    f"the {COORDINATOR} introduced another worker in the name of {self._hand.name} [MS038]"
                )
            self._met[order.lane] = _digest(order.introductions)
            self._crew.meet(order.lane, order.hub, order.introductions)
        elif isinstance(order, Kept):
            part = self._held.pop(order.lane)
            self._kept_with[order.lane.partition] = self._met[order.lane]
            self._forget(order.lane)
            self._total = part if self._total is None else together(self._hand, [self._total, part])
        elif isinstance(order, Again):
            self._give_up(Lane(order.lane.partition, order.lane.attempt - 1))
            self._waiting.append(order.lane)
            self._serve()

    def _serve(self) -> None:
        """Begin as many lanes as workers are free, in the order of all."""
        while self._free and self._waiting:
            lane = self._waiting.popleft()
            self._begun.add(lane)
            self._free -= 1
            self._crew.begin(lane)

    def _give_up(self, lane: Lane) -> None:
        if lane in self._begun:
            if lane not in self._ended:
                self._crew.give_up(lane)
            self._held.pop(lane, None)
            self._forget(lane)
        else:
            self._waiting.remove(lane)

    def _forget(self, lane: Lane) -> None:
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
