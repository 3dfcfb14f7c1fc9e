"""Workers that do less than they should."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from typing import Any

from colonnade.protocols.lanes.lane import play_lane
from colonnade.study.engine.contract import Line
from colonnade.study.lanes import worker
from colonnade.study.lanes.words import Ended, GiveUp, Ready, Take
from colonnade.wire.workers import WorkerKeys


def stillborn(line, duty):
    os._exit(1)


def deaf(line, duty):
    """Takes lanes and does nothing about them."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    while True:
        line.receive()


def greedy(line, duty):
    """Has no memory left as soon as it has a lane."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    while not isinstance(line.receive(), Take):
        pass
    raise MemoryError


def finding(line, duty):
    """Finds something wrong at the moment at which its lane is given up: first by any call, then by a check."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    told = 0
    while True:
        command = line.receive()
        if isinstance(command, GiveUp):
            told += 1
            kind = "ShareError" if told == 2 else ""
            line.say(Ended(command.lane, failure=(kind, "a check did not hold")))


class _Weighing(Line):
    """The line of a worker; with every lane that ends it says how much of all its lanes is gone, and what is not."""

    def __init__(self, line):
        self.host, self._line, self.seen = line.host, line, list[weakref.ref[Any]]()

    def receive(self, seconds=None):
        return self._line.receive(seconds)

    def say(self, value):
        if isinstance(value, Ended):
            left = [type(each).__name__ for each in (seen() for seen in self.seen) if each is not None]
            gone = len(self.seen) - len(left)
            failure = ("StudyError", f"a lane is over, and a worker holds {left} of it") if left else value.failure
            value = replace(value, sums=None if left else value.sums, failure=failure, claims=gone)
            self.seen.clear()
        self._line.say(value)


def weighing(line, duty):
    """A worker that says what it still holds of a lane that is over: its part of the table, with keys and cells."""
    said = _Weighing(line)

    def noted(place, laned, lane, programs, part=None, **settings):
        if part is not None:
            said.seen += [weakref.ref(each) for each in (part.table, part.table.keys, part.table._cells)]
        return play_lane(place, laned, lane, programs, part, **settings)

    worker.play_lane = noted
    worker.main(said, duty)
