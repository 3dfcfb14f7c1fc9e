"""A study in lanes whose workers are threads: every lane is a room of its own, and any worker can be killed in it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from colonnade.protocols.lanes import lane as laning
from colonnade.protocols.lanes.arbiter import RUNS_THAT_MAY_CHEAT, LaneAttempt
from colonnade.protocols.lanes.lane import (
    CrewClosed,
    LanePart,
    LanePlan,
    LaneWorkerReady,
    WorkerDone,
    WorkerFailed,
    WorkerFree,
    WorkerLost,
    is_loss,
    run_lane,
)
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables import Schema, number, read_table
from colonnade.tables.keys import Key, KeyPlan, TableKeys
from colonnade.wire import InMemoryNetwork
from tests.support import protocols as kit

Deaths = Mapping[tuple[str, LaneAttempt], int]
"""Whose worker dies in which lane, and after how many messages; at zero before it meets anybody."""
LATE = 1 << 30
"""So many messages no lane has: the worker dies when it is done, before its head hears of that."""


class Killed(BaseException):
    """A worker is killed here."""


@dataclass
class Held:
    """What an owner holds: people, and a row of numbers of each."""

    people: list[str]
    values: Any

    @cached_property
    def table(self) -> Any:
        """The rows, with their keys; no cell of them is read."""
        frame = pa.table({"id": self.people, "x": np.zeros(len(self.people))})
        return read_table(frame, Schema({"x": number(0, 1)}), id="id", keys=KeyPlan((Key("id"),)))

    def part(self, places: np.ndarray) -> LanePart:
        """The rows of one partition."""
        whole = self.table
        some = whole.take_rows(places)
        some.keys = TableKeys(
            whole.keys.names, [whole.keys.values[place] for place in places], np.arange(len(places)), 0, 0
        )
        return LanePart(
            some,
            len(self.people),
            lambda rows: kit.Rows(self.values[rows.row_numbers - 1], list(rows.ids), rows.places),
        )


@dataclass
class Lanes:
    """All rooms, what was played in them, and who dies where."""

    laned: LanePlan
    programs: Any
    deaths: Deaths = field(default_factory=dict)
    rooms: dict[tuple[LaneAttempt, int], InMemoryNetwork] = field(default_factory=dict)
    results: dict[tuple[str, LaneAttempt], Any] = field(default_factory=dict)
    """What each worker has added up, also in lanes that were lost."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def room(self, lane: LaneAttempt, hub: int) -> InMemoryNetwork:
        with self.lock:
            return self.rooms.setdefault((lane, hub), InMemoryNetwork(self.laned.participants))


class Recording:
    """Programs that note what a worker has added up."""

    def __init__(self, lanes: Lanes, name: str, lane: LaneAttempt) -> None:
        self.lanes, self.who = lanes, (name, lane)

    def sum_rows(self, *given: Any, **named: Any) -> Any:
        found = self.lanes.results[self.who] = self.lanes.programs.sum_rows(*given, **named)
        return found


class IdleCrew:
    """One worker that has the same result of every lane at once."""

    def __init__(self, sums: Any, workers: int = 1) -> None:
        self.sums = sums
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.events.put(WorkerFree(workers))

    def begin(self, lane: LaneAttempt) -> None:
        self.events.put(LaneWorkerReady(lane, b"a worker"))

    def meet(self, lane: LaneAttempt, hub: int, introductions: Mapping[str, bytes]) -> None:
        self.events.put(WorkerDone(lane, self.sums))
        self.events.put(WorkerFree())

    def give_up(self, lane: LaneAttempt) -> None:
        self.events.put(WorkerFree())

    def event(self) -> Any:
        return self.events.get()

    def close(self) -> None:
        self.events.put(CrewClosed())


class ThreadCrew(IdleCrew):
    """Workers of one participant."""

    def __init__(self, name: str, workers: int, lanes: Lanes, part: Callable[[int], LanePart | None]) -> None:
        super().__init__(None, workers)
        self.name, self.lanes, self.part = name, lanes, part
        self.places: dict[LaneAttempt, Any] = {}
        self.threads: list[threading.Thread] = []

    def begin(self, lane: LaneAttempt) -> None:
        if self.lanes.deaths.get((self.name, lane)) == 0:
            self.events.put(WorkerLost(lane))
            self.events.put(WorkerFree())
        else:
            self.events.put(LaneWorkerReady(lane, f"{self.name} in {lane}".encode()))

    def meet(self, lane: LaneAttempt, hub: int, introductions: Mapping[str, bytes]) -> None:
        assert introductions == {name: f"{name} in {lane}".encode() for name in self.lanes.laned.participants}
        place = self.places[lane] = self.lanes.room(lane, hub).place(self.name)
        name = f"{self.name} in {lane}"
        self.threads.append(threading.Thread(target=self._work, args=(lane, place), name=name, daemon=True))
        self.threads[-1].start()

    def give_up(self, lane: LaneAttempt) -> None:
        if lane in self.places:
            self.places[lane].abort("its head gave this lane up")
        else:
            self.events.put(WorkerFree())

    def close(self) -> None:
        for place in self.places.values():
            place.abort("its head has closed")
        self.events.put(CrewClosed())

    def _work(self, lane: LaneAttempt, place: Any) -> None:
        if (left := self.lanes.deaths.get((self.name, lane))) is not None:
            mortal(place, left)
        try:
            part = self.part(lane.partition)
            played = run_lane(place, self.lanes.laned, lane, Recording(self.lanes, self.name, lane), part)
        except BaseException as error:
            loss = isinstance(error, Killed) or is_loss(error)
            self.events.put(WorkerLost(lane) if loss else WorkerFailed(lane, error))
        else:
            assert not played.revealed
            self.events.put(WorkerLost(lane) if left == LATE else WorkerDone(lane, played.result))
        self.events.put(WorkerFree())


def mortal(place: Any, left: int) -> None:
    """Let whoever is at this place die without a word after so many messages."""
    counted, real = [left], place.channel

    class Dying:
        def __init__(self, link: Any) -> None:
            self.link = link

        def send(self, kind: str, /, **fields: Any) -> None:
            if not counted[0]:
                raise Killed
            counted[0] -= 1
            self.link.send(kind, **fields)

        def recv(self, kind: str, *most: int) -> dict[str, Any]:
            found: dict[str, Any] = self.link.recv(kind, *most)
            return found

    place.channel = lambda peer: Dying(real(peer))
    place.abort = lambda reason: None


@dataclass
class Study:
    """Everything of one run: who has how many workers, and what everybody holds."""

    laned: LanePlan
    programs: Any
    held: Mapping[str, Held]
    workers: Mapping[str, int] = field(default_factory=dict)
    deaths: Deaths = field(default_factory=dict)
    beat: float = 20.0
    crews: dict[str, ThreadCrew] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.laned, self.programs, self.deaths)
        self.keys: dict[str, bytes] = {}

    def made(self) -> dict[str, Callable[[Any], Any]]:
        """The program of everybody."""
        return {name: self._owner(name) for name in self.laned.task.owners} | {COORDINATOR: self._coordinator}

    def outcomes(self, **changed: Callable[[Any], Any]) -> dict[str, Any]:
        """What everybody has in the end, or its error; some programs may be others."""
        return kit.outcomes(self.laned.task, self.made() | changed)

    def results(self) -> dict[str, Any]:
        """What everybody has in the end; all must succeed, and no thread is left behind."""
        found = kit.results(self.laned.task, self.made())
        self.check_threads()
        return found

    def check_threads(self) -> None:
        """No thread of this study runs on."""
        for crew in self.crews.values():
            for thread in crew.threads:
                thread.join(60)
                assert not thread.is_alive()
        for thread in threading.enumerate():
            if " hears" in thread.name or thread.name.endswith("'s crew"):
                thread.join(60)
                assert not thread.is_alive()

    def crew(self, name: str, part: Callable[[int], LanePart | None]) -> ThreadCrew:
        self.crews[name] = ThreadCrew(name, self.workers.get(name, 2), self.lanes, part)
        return self.crews[name]

    def _owner(self, name: str) -> Callable[[Any], Any]:
        held, places = self.held[name], {}

        def split(spread: Any, pulse: Callable[[], None]) -> list[int]:
            pulse()
            self.keys[name] = spread.key
            of = spread.of(held.table.keys.values)
            places.update({p: np.flatnonzero(of == p) for p in range(spread.count)})
            return [len(places[p]) for p in range(spread.count)]

        def part(partition: int) -> LanePart:
            return held.part(places[partition])

        def program(me: Any) -> Any:
            return laning.owner(me, self.laned, self.programs, self.crew(name, part), split, beat=self.beat)

        return program

    def _coordinator(self, me: Any) -> Any:
        crew = self.crew(COORDINATOR, lambda partition: None)
        return laning.coordinator(me, self.laned, self.programs, crew, beat=self.beat)


def laned(task: Any, partitions: int, **settings: Any) -> LanePlan:
    """A task in so many partitions, its people recognised by an id."""
    hidden = getattr(task, "hidden", False)
    task = replace(task, trust=replace(task.trust, tries=RUNS_THAT_MAY_CHEAT))
    aligning = kit.AlignmentTask(task.trust, (Key("id"),), hidden=hidden, partitions=partitions, **settings)
    return LanePlan(task, aligning, b"a study".ljust(32))


def common(held: Mapping[str, Held]) -> dict[str, np.ndarray]:
    """The rows of the people whom all hold, in one order."""
    people = sorted(set.intersection(*(set(own.people) for own in held.values())))
    return {name: own.values[[own.people.index(person) for person in people]] for name, own in held.items()}
