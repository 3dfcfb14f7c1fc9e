"""A worker of a participant: it makes its own keys, and plays lanes one after another.

A lane has a thread, so that the worker hears when its head gives the lane up. Then the session is aborted, which ends
whatever the thread waits for; a worker that goes on computing is replaced by its head.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace

from threadpoolctl import threadpool_limits

from colonnade.errors import ColonnadeError, PeerStopped
from colonnade.memory import freeze_baseline, release_memory
from colonnade.protocols.lanes.arbiter import LaneAttempt
from colonnade.protocols.lanes.lane import LanePart, is_loss, run_lane
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.engine.base import WorkerLine, describe_error
from colonnade.study.lanes.messages import (
    AbortLane,
    LaneResult,
    StartLane,
    TableChore,
    TakeLane,
    WorkerLinks,
    WorkerReady,
    WorkerTask,
    do_chore,
)
from colonnade.tables.partitioning import PartitionedTable
from colonnade.wire import Endpoint
from colonnade.wire.workers import WorkerKeys

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
