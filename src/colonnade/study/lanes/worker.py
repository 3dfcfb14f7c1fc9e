"""A worker of a participant: it makes its own keys, and plays lanes one after another; and what its head and it say.

A lane has a thread, so that the worker hears when its head gives the lane up. Then the session is aborted, which ends
whatever the thread waits for; a worker that goes on computing is replaced by its head.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from colonnade.errors import ColonnadeError, PeerStopped
from colonnade.memory import freeze_baseline, release_memory
from colonnade.models.base import Estimator
from colonnade.protocols.joint_sum.declaration import PartialSums
from colonnade.protocols.lanes.arbiter import LaneAttempt
from colonnade.protocols.lanes.lane import LanePart, LanePlan, is_loss, run_lane
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.engine.base import WorkerLine, describe_error
from colonnade.study.party_file import record_links
from colonnade.tables import Schema
from colonnade.tables.partitioning import PartitionedTable
from colonnade.tables.partitioning.partitions import write_atomically
from colonnade.tables.partitioning.staging import WorkUnit
from colonnade.wire import Certificate, Endpoint
from colonnade.wire.link_offers import DIRECTLY, DirectLinkSettings
from colonnade.wire.workers import WorkerKeys


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is told at its birth: the study, as all participants know it, and for whom it works."""

    name: str
    laned: LanePlan
    model: Estimator
    """Not fitted: it says what is added up."""
    certificates: Mapping[str, Certificate]
    """Those that the study pins."""
    topic: bytes
    """Of the study's own sessions."""
    settings: Mapping[str, Any]
    """How it dials a hub."""
    wait: float
    """For how many seconds it waits for the other workers of a lane."""
    schema: Schema | None = None
    """Of the party's table; the coordinator has none."""
    direct: DirectLinkSettings | None = None
    """How its head connects to others, where the study asks for direct links."""
    room: str = ""
    """That of the study at a standing hub, whose lanes are those of this room."""


@dataclass(frozen=True)
class TakeLane:
    """Command: this lane is yours; open your partition, if you have one."""

    lane: LaneAttempt
    folder: str | None = None
    people: int = 0
    """How many keys there are in all partitions."""


@dataclass(frozen=True)
class StartLane:
    """Command: meet the others at this hub, and add up."""

    lane: LaneAttempt
    address: str
    introductions: Mapping[str, bytes]


@dataclass(frozen=True)
class AbortLane:
    """Command: the lane is of no interest any more."""

    lane: LaneAttempt


@dataclass(frozen=True)
class TableChore:
    """Command, before the first lane: do this part of the work on the party's table."""

    number: int
    chore: WorkUnit


@dataclass(frozen=True)
class ChoreResult:
    """How that ended: with a result, or it failed. Then the head does it, and tells why it cannot be done."""

    number: int
    result: Any = None
    failed: bool = False


@dataclass(frozen=True)
class WorkerReady:
    """A worker's first word; the request is that of its keys, and public."""

    request: bytes


@dataclass(frozen=True)
class LaneResult:
    """How a lane ended: with sums, by a failure (the name of its class, a sentence without data), or it was lost."""

    lane: LaneAttempt
    sums: PartialSums | None = None
    failure: tuple[str, str] | None = None
    seconds: float = 0.0
    """Processor time."""
    sent: int = 0
    """Bytes, sealed."""
    claims: int = 0
    """How many claims about shares were checked with the other seats."""
    links: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By which way packets went to each peer."""
    through_hub: Mapping[str, str] = field(default_factory=dict)
    """For a peer, in one sentence, why that was the hub."""


_KEY = "partitions"


def do_chore(command: TableChore) -> ChoreResult:
    """A worker's part."""
    try:
        return ChoreResult(command.number, command.chore.run())
    except Exception:  # whatever it is, its head meets it again
        return ChoreResult(command.number, failed=True)


@dataclass(frozen=True)
class PartitionFinder:
    """Finds the partition of each key as the owners have agreed; pickled, it says where their key lies.

    That is the private folder of the table, which tells all that the key does.
    """

    folder: Path
    count: int

    @classmethod
    def write(cls, spread: Partitions, folder: Path) -> PartitionFinder:
        """Lay the key there."""
        with write_atomically(folder, _KEY) as file:
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


LinkFacts = dict[str, dict[str, Any]]
"""For every peer, what ``run.json`` says of the way to it."""
_COUNTED = ("direct_sent", "direct_received", "hub_sent", "hub_received", "connections")


class WorkerLinks:
    """Those of one worker, in one lane after the other; without ``direct``, everything goes through hubs."""

    def __init__(self, direct: DirectLinkSettings | None, host: str | None) -> None:
        self._direct = None if direct is None else direct.for_worker(host)
        self._through_hub: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """How to join the next lane."""
        return {} if self._direct is None else {"direct": self._direct, "told": self._told}

    def end_lane(self, place: Endpoint) -> tuple[LinkFacts, dict[str, str]]:
        """What came of a lane's links, and for each peer a sentence on why its packets went through the hub."""
        ways = place.routes
        if self._direct is not None:
            # A wall that swallows what is sent would cost each lane a moment; packets go through the hub until then.
            self._direct = replace(
                self._direct, waits_for_links=all(way.links or not way.is_dialler for way in ways.values())
            )
        said, self._through_hub = self._through_hub, {}
        return record_links(ways, place.counters.peers), said

    def _told(self, peer: str, sentence: str) -> None:
        if sentence != DIRECTLY:
            self._through_hub[peer] = sentence


def merge_links(all_lanes: LinkFacts, lane: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the ways of one lane to those of others."""
    for peer, now in lane.items():
        before = all_lanes.setdefault(peer, {"lanes": 0, "way": now["way"], **dict.fromkeys(_COUNTED, 0)})
        before["lanes"] += 1
        before.update({key: before[key] + now[key] for key in _COUNTED})
        if before["way"] != now["way"]:
            before["way"] = "both"
        if "why" in now:
            before["why"] = now["why"]


ROLE = "colonnade.study.lanes.worker:main"
_GIVEN_UP = "its head gave this lane up [PE008]"


def main(line: WorkerLine, duty: WorkerTask) -> None:
    """The role: it ends with its head."""
    keys, links = WorkerKeys.create(duty.name), WorkerLinks(duty.direct, line.host)
    line.say(WorkerReady(keys.request))
    if duty.schema is not None:
        duty.laned.task.prepare()
    freeze_baseline()
    run: _LaneRun | None = None
    with threadpool_limits(limits=1, user_api="blas"):
        while True:
            command = line.receive()
            if isinstance(command, TableChore):
                done = do_chore(command)
                release_memory()
                line.say(done)
            elif isinstance(command, TakeLane):
                run = _LaneRun(line, duty, keys, links, command)
            elif run is not None and command.lane == run.lane:
                run.heed(command)


class _LaneRun:
    """One lane, from when it was given to this worker until it ends."""

    def __init__(
        self, line: WorkerLine, duty: WorkerTask, keys: WorkerKeys, links: WorkerLinks, taken: TakeLane
    ) -> None:
        self.lane: LaneAttempt = taken.lane
        self._line, self._duty, self._keys, self._links, self._taken = line, duty, keys, links, taken
        self._commands: queue.SimpleQueue[StartLane | AbortLane] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._place: Endpoint | None = None
        self._given_up = False
        threading.Thread(target=self._live, name=str(self.lane), daemon=True).start()

    def heed(self, command: StartLane | AbortLane) -> None:
        """A command about this lane."""
        self._commands.put(command)
        if isinstance(command, AbortLane):
            with self._lock:
                self._given_up = True
                if self._place is not None:
                    self._place.abort(_GIVEN_UP)

    def _live(self) -> None:
        start = time.process_time()
        try:
            ended = self._played()
        except BaseException as error:
            ended = LaneResult(self.lane, failure=self._failure(error))
        if self._place is not None:
            links, through_hub = self._links.end_lane(self._place)
            sent = self._place.counters.total.sealed_sent
            ended = replace(ended, sent=sent, links=links, through_hub=through_hub)
        with self._lock:
            self._place = None
        release_memory()  # before the head hears that this worker is free: the next lane finds it as small
        self._line.say(replace(ended, seconds=time.process_time() - start))

    def _failure(self, error: BaseException) -> tuple[str, str] | None:
        """What a head is told; ``None`` for a loss, and for whatever a session that was aborted may bring about."""
        if is_loss(error):
            return None
        if isinstance(error, ColonnadeError):  # what a check has found, it has found, also in a lane that is given up
            return type(error).__name__, str(error)
        return None if self._given_up else ("", describe_error(error))

    def _played(self) -> LaneResult:
        duty, part = self._duty, self._part()
        told = self._commands.get()
        if isinstance(told, AbortLane):
            return LaneResult(self.lane)
        place = self._keys.join_lane(
            told.address,
            self.lane.partition,
            self.lane.attempt,
            told.introductions,
            duty.certificates,
            duty.topic,
            home=duty.room,
            hub_name=COORDINATOR,
            **duty.settings,
            **self._links.settings,
        )
        with self._lock:
            self._place = place
            if self._given_up:
                place.abort(_GIVEN_UP)
                place.close()
                raise PeerStopped(_GIVEN_UP)
        played = run_lane(place, duty.laned, self.lane, duty.laned.task.programs, part, wait=duty.wait)
        return LaneResult(self.lane, played.result, claims=played.settled)

    def _part(self) -> LanePart | None:
        duty, taken = self._duty, self._taken
        if duty.schema is None or taken.folder is None:
            return None
        table = PartitionedTable.open(taken.folder, duty.schema).partition(self.lane.partition)
        model, task = duty.model, duty.laned.task
        return LanePart(table, taken.people, lambda rows: model.summands(duty.name, rows, task))
