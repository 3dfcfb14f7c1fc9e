"""Workers that do less than they should."""

from __future__ import annotations

import os
import weakref

from colonnade.errors import StudyError
from colonnade.protocols.lanes.lane import run_lane
from colonnade.study.lanes import worker
from colonnade.study.lanes.worker import AbortLane, LaneResult, TakeLane, WorkerReady
from colonnade.wire.workers import WorkerKeys


def stillborn(line, duty):
    os._exit(1)


def deaf(line, duty):
    """Takes lanes and does nothing about them."""
    line.say(WorkerReady(WorkerKeys.create(duty.name).request))
    while True:
        line.receive()


def greedy(line, duty):
    """Has no memory left as soon as it has a lane."""
    line.say(WorkerReady(WorkerKeys.create(duty.name).request))
    while not isinstance(line.receive(), TakeLane):
        pass
    raise MemoryError


def finding(line, duty):
    """Finds something wrong at the moment at which its lane is given up: first by any call, then by a check."""
    line.say(WorkerReady(WorkerKeys.create(duty.name).request))
    told = 0
    while True:
        command = line.receive()
        if isinstance(command, AbortLane):
            told += 1
            kind = "ShareError" if told == 2 else ""
            line.say(LaneResult(command.lane, failure=(kind, "a check did not hold")))


def weighing(line, duty):
    """Takes no further lane while it holds something of the one before: its part of the table, with keys and cells."""
    held = []

    def noted(place, laned, lane, programs, part=None, **settings):
        left = [type(seen()).__name__ for seen in held if seen() is not None]
        if left:
            raise StudyError(f"a lane is over, and a worker holds {left} of it")
        held[:] = [] if part is None else map(weakref.ref, (part.table, part.table.keys, part.table._cells))
        return run_lane(place, laned, lane, programs, part, **settings)

    assert worker.run_lane is run_lane
    worker.run_lane = noted
    worker.main(line, duty)
