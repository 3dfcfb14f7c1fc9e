"""A crew keeps count of its workers, whatever becomes of them."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.errors import EngineError, PeerStopped, ShareError
from colonnade.protocols.lanes.arbiter import Lane
from colonnade.protocols.lanes.crew import Closed, Failed, Free, Here, Lost
from colonnade.study.engine.processes import Processes
from colonnade.study.lanes import crew, worker
from colonnade.study.lanes.crew import EngineCrew, unwritten
from colonnade.wire import Identity
from colonnade.wire.workers import check_introduction
from tests.support.waiting import until

TOPIC = b"a study"
pytestmark = pytest.mark.system


@pytest.fixture
def start(forks, monkeypatch):
    made: list[EngineCrew] = []

    def start(role, workers=1, note=unwritten):
        monkeypatch.setattr(crew, "ROLE", f"tests.study.lanes.roles:{role}")
        duty: Any = SimpleNamespace(name="bank", topic=TOPIC)
        made.append(EngineCrew(Processes(forks=forks), duty, Identity.create("bank"), ["hub"], workers, note=note))
        return made[-1]

    yield start
    for each in made:
        each.close()


def has(found, lane):
    assert found.event() == Free()
    found.begin(lane)
    here = found.event()
    assert isinstance(here, Here)
    return here


def ended(found, kind, lane, words):
    event = found.event()
    assert isinstance(event, Failed)
    assert (type(event.error), event.lane if lane else None) == (kind, lane)
    assert words in str(event.error)


def test_a_lane_is_introduced_by_the_head_and_a_worker_that_is_lost_loses_it_and_is_replaced(
    start,
):
    noted: list[tuple[str, dict[str, Any]]] = []
    found = start("deaf", note=lambda what, **details: noted.append((what, details)))
    here = has(found, Lane(0))
    assert here.lane == Lane(0)
    assert check_introduction(here.introduction, found._identity.certificate, TOPIC).name == "bank"
    os.kill(found._engine.process(0), signal.SIGKILL)
    assert found.event() == Lost(Lane(0))
    has(found, Lane(0, 2))
    assert found._told == {"lost_workers": 1, "replaced_workers": 1}
    first, again = {"partition": 0, "attempt": 1}, {"partition": 0, "attempt": 2}
    why = "its process was killed, by somebody or by the system for want of memory"
    assert noted == [
        ("all workers ready", {}),
        ("worker lost", {"worker": 0, "why": why, **first}),
        ("lane lost", {"worker": 0, **first}),
        ("worker replaced", {"worker": 0, "by": 1}),
        ("lane begun again", {"worker": 1, **again}),
    ]
    found.close()
    assert found.event() == Closed()


def test_a_worker_that_is_lost_while_it_is_free_is_not_missed(start):
    found = start("deaf")
    assert found.event() == Free()
    with ThreadPoolExecutor(1) as waiting:
        later = waiting.submit(found.event)
        os.kill(found._engine.process(0), signal.SIGKILL)
        until(lambda: found._told["lost_workers"], "a loss")
        found.begin(Lane(0))
        assert isinstance(later.result(60), Here)  # and no worker was called free twice


def test_a_worker_that_does_not_give_up_is_replaced(start, monkeypatch):
    monkeypatch.setattr(crew, "_GIVE_UP_SECONDS", 0.1)
    noted: list[str] = []
    found = start("deaf", note=lambda what, **details: noted.append(what))
    has(found, Lane(0))
    found.give_up(Lane(0))
    assert found.event() == Free()  # and nothing about the lane, which is of no interest
    assert found._told == {"lost_workers": 0, "replaced_workers": 1}
    assert noted[1:] == ["lane given up", "worker ended: it did not give its lane up", "worker replaced"]


def test_no_more_workers_are_replaced_than_a_study_may_lose(start, monkeypatch):
    monkeypatch.setattr(crew, "MOST_REPLACED", 2)
    found = start("deaf")
    for number in range(2):
        has(found, Lane(number))
        os.kill(found._engine.process(number), signal.SIGKILL)
        assert found.event() == Lost(Lane(number))
    has(found, Lane(2))
    os.kill(found._engine.process(2), signal.SIGKILL)
    ended(found, EngineError, Lane(2), "workers of bank cannot go on: its process was killed")


def test_what_a_check_finds_in_a_lane_that_is_given_up_ends_the_study(start):
    found = start("finding")
    for attempt in (1, 2):
        has(found, Lane(0, attempt))  # and nothing of an error that the end of a session may bring about
        found.give_up(Lane(0, attempt))
    ended(found, ShareError, None, "a check did not hold")


def test_workers_that_cannot_be_started_or_have_no_memory_end_the_study(start):
    ended(start("stillborn"), EngineError, None, "workers of bank cannot go on: its process has ended")
    found = start("greedy")
    has(found, Lane(5))
    ended(found, EngineError, Lane(5), "no memory left")


@pytest.mark.parametrize("given_up", [False, True])
def test_a_worker_tells_what_a_check_found_and_no_loss(given_up):
    run = object.__new__(worker._Run)
    run._given_up = given_up
    assert run._failure(ShareError("a check did not hold")) == ("ShareError", "a check did not hold")
    assert run._failure(PeerStopped("gone")) is None
    assert run._failure(KeyError("a cell")) == (None if given_up else ("", "its role raised KeyError"))
