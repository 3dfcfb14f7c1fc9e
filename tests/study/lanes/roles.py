"""Workers that do less than they should."""

from __future__ import annotations

import os
from typing import Any

from colonnade.study.engine.contract import Line
from colonnade.study.lanes.words import Ended, GiveUp, Ready, Take
from colonnade.wire.workers import WorkerKeys


def stillborn(line: Line, duty: Any) -> None:
    os._exit(1)


def deaf(line: Line, duty: Any) -> None:
    """Takes lanes and does nothing about them."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    while True:
        line.receive()


def greedy(line: Line, duty: Any) -> None:
    """Has no memory left as soon as it has a lane."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    while not isinstance(line.receive(), Take):
        pass
    raise MemoryError


def finding(line: Line, duty: Any) -> None:
    """Finds something wrong at the moment at which its lane is given up: first by any call, then by a check."""
    line.say(Ready(WorkerKeys.create(duty.name).request))
    told = 0
    while True:
        command = line.receive()
        if isinstance(command, GiveUp):
            told += 1
            kind = "ShareError" if told == 2 else ""
            line.say(Ended(command.lane, failure=(kind, "a check did not hold")))
