"""The head of a participant in a study in lanes: its table in partitions, its workers, and what is recorded of both.

Its workers on its engine are a crew, as the head of lanes asks for them (``protocols/lanes/lane.py``).

A worker that is lost costs the lane that it had, and is replaced. One that was told to give a lane up and does not, is
replaced too. The head hears of everything by one queue, in which this object puts its own words as well.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, Self, cast

from colonnade import errors
from colonnade.errors import ColonnadeError, EngineError, StudyError
from colonnade.models.base import Estimator
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.lanes import lane as laning
from colonnade.protocols.lanes.arbiter import LaneAttempt
from colonnade.protocols.lanes.lane import (
    BEAT,
    CrewClosed,
    CrewEvent,
    LanePlan,
    LaneWorkerReady,
    WorkerDone,
    WorkerFailed,
    WorkerFree,
    WorkerLost,
)
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.study.alignment_session import RunNotes, record_alignment
from colonnade.study.connect import MeetingPoint
from colonnade.study.engine.base import Engine, WorkerLoss, WorkerMessage
from colonnade.study.lanes.worker import (
    ROLE,
    AbortLane,
    ChoreResult,
    LaneResult,
    LinkFacts,
    PartitionFinder,
    StartLane,
    TableChore,
    TakeLane,
    WorkerReady,
    WorkerTask,
    merge_links,
)
from colonnade.study.party_config import PartyConfig
from colonnade.study.party_file import DEFAULT_WORKERS, ComputeSection, WorkerOptions
from colonnade.study.spec import Study
from colonnade.tables import Schema
from colonnade.tables.partitioning import PartitionedTable, StagedTable, stage_table
from colonnade.tables.partitioning.partitions import PrivateTempDir
from colonnade.tables.partitioning.staging import PartitionRunner, WorkUnit
from colonnade.wire import Certificate, Identity
from colonnade.wire.link_offers import DirectLinkSettings, RouteCallback
from colonnade.wire.workers import introduce

MOST_REPLACED = 256
"""So many workers of one participant may be lost in a study."""
_MOST_LOST = 4
"""So many workers may be lost with the same part of the work."""
_LOOK_SECONDS = 1.0
_MOST_STILLBORN = 3
"""So many workers in a row may be lost before they say a word."""
_INTRODUCED = timedelta(hours=24)
_GIVE_UP_SECONDS = 5.0
_OURSELVES = -1

Note = Callable[..., None]
"""Writes a line into the record: what happened, and details without data."""


def ignore_note(what: str, **details: Any) -> None:
    """Write nothing down."""


class LaneWorkerPool:
    """All workers of one participant."""

    def __init__(
        self,
        engine: Engine[Any],
        duty: WorkerTask,
        identity: Identity,
        hubs: Sequence[str],
        workers: int | None,
        told: RouteCallback | None = None,
        note: Note = ignore_note,
    ) -> None:
        """``hubs`` are the addresses that this participant's workers dial, in the order of the study.

        ``told`` hears, once for each peer, that packets of a lane go through a hub which should go directly. ``note``
        is told what is lost and what is done about it (docs/how-to/lanes.md).
        """
        self._engine, self._duty, self._identity, self._hubs = engine, duty, identity, tuple(hubs)
        self._note = note
        self._lock = threading.RLock()
        self._requests: dict[int, bytes] = {}
        self._idle: deque[int] = deque()
        self._lanes: dict[LaneAttempt, int] = {}
        self._waiting: deque[LaneAttempt] = deque()
        self._leaving: dict[int, float] = {}
        """Until when workers may take to give up a lane."""
        self._replaces: dict[int, int] = {}
        """Whom workers replace that have not said a word yet: the last before them that did."""
        self._free = 0
        """How many free workers the head knows of; some of them may be lost meanwhile."""
        self._stillborn = 0
        self._all_ready = False
        self._closed = False
        self._folder: str | None = None
        self._people = 0
        self._first: float | None = None
        self._last = 0.0
        self._attempts: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._told = {"lost_workers": 0, "replaced_workers": 0}
        self._used = {"processor_seconds": 0.0, "sent": 0}
        self._links: LinkFacts = {}
        self._told_way, self._through_hub = told, set[str]()
        self.claims = 0
        """How many claims about shares were checked in lanes that ended well here."""
        self._workers = set(engine.start(ROLE, (duty,), workers))
        self.size = len(self._workers)
        """How many workers there are."""

    def share(self, chores: Sequence[WorkUnit], pulse: Callable[[], None]) -> Iterator[tuple[int, Any]]:
        """Let workers do these, before the first lane: places and results as they come.

        Nobody waits for events of lanes yet. What a worker fails at is left to the head.
        """
        waiting, given, failed = list(range(len(chores))), dict[int, int](), False
        lost = Counter[int]()
        while given or (waiting and not failed):
            while waiting and not failed and self._idle:
                worker = self._idle.popleft()
                given[worker] = heappop(waiting)
                self._engine.send(worker, TableChore(given[worker], chores[given[worker]]))
            pulse()
            try:
                event = self._heard(_LOOK_SECONDS)
            except queue.Empty:
                continue
            number = given.pop(event.worker, None)
            if number is None:
                continue
            if isinstance(event, WorkerLoss):
                heappush(waiting, number)
                lost[number] += 1
                if lost[number] == _MOST_LOST:
                    raise EngineError(
                        f"{_MOST_LOST} workers were lost with the same part of the table: {event.why} [EN029]"
                    )
            elif isinstance(event.value, ChoreResult):
                self._idle.append(event.worker)
                failed |= event.value.failed
                if not event.value.failed:
                    yield number, event.value.result

    def lay(self, folder: str, people: int) -> None:
        """Where the partitions of the party's table lie, before the first lane."""
        with self._lock:
            self._folder, self._people = folder, people
            self._serve()

    def _heard(self, seconds: float) -> WorkerMessage | WorkerLoss:
        """The next event of a worker; one that is gone is replaced, and one that is ready is idle."""
        event = self._engine.events.get(timeout=seconds)
        with self._lock:
            if event.worker in self._workers:
                if isinstance(event, WorkerLoss):
                    if (why := self._lose(event.worker, event, None)) is not None:
                        raise why
                elif isinstance(event.value, WorkerReady):
                    self._ready(event.worker, event.value)
        return event

    # What the head asks

    def begin(self, lane: LaneAttempt) -> None:
        """Give a free worker this lane, or the next that is free."""
        with self._lock:
            self._first = self._first or time.monotonic()
            self._attempts[lane.partition] = lane.attempt
            self._free -= 1
            self._waiting.append(lane)
            self._serve()

    def meet(self, lane: LaneAttempt, hub: int, introductions: Mapping[str, bytes]) -> None:
        """Let its worker meet those of all others."""
        with self._lock:
            if (worker := self._lanes.get(lane)) is not None:  # or it was lost, which the head will hear
                self._engine.send(worker, StartLane(lane, self._hubs[hub], dict(introductions)))

    def give_up(self, lane: LaneAttempt) -> None:
        """Stop its worker's part at once."""
        with self._lock:
            if (worker := self._lanes.get(lane)) is not None:
                self._note_lane("lane given up", lane, worker)
                self._leaving[worker] = time.monotonic() + _GIVE_UP_SECONDS
                self._engine.send(worker, AbortLane(lane))
                self._say(None)  # whoever waits for events looks at the clock now
            else:
                with suppress(ValueError):
                    self._waiting.remove(lane)
                self._serve()

    def event(self) -> CrewEvent:
        """The next event; waits for it."""
        while True:
            try:
                heard = self._engine.events.get(timeout=self._patience())
            except queue.Empty:
                self._replace_the_slow()
                continue
            if heard.worker == _OURSELVES and isinstance(heard, WorkerMessage):
                if heard.value is not None:
                    found: CrewEvent = heard.value
                    return found
                continue
            with self._lock:
                if heard.worker in self._workers:
                    self._hear(heard)

    def close(self) -> None:
        """Stop all workers."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._last = time.monotonic()
                self._workers.clear()
                self._leaving.clear()
                self._engine.stop()
                self._say(CrewClosed())

    @property
    def rows(self) -> int:
        """How many people were added up, in the last run of each partition."""
        return sum(self._rows.values())

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says of it: counts and times, no data."""
        seconds = 0.0 if self._first is None else (self._last or time.monotonic()) - self._first
        used = {"processor_seconds": round(self._used["processor_seconds"], 3), "sent": int(self._used["sent"])}
        return {
            "partitions": self._duty.laned.partitions,
            "done": len(self._rows),
            "attempts": sum(self._attempts.values()),
            "workers": self.size,
            **self._told,
            "seconds": round(seconds, 3),
            **used,
            **({"links": self._links} if self._links else {}),
        }

    # The caller holds the lock

    def _hear(self, heard: WorkerMessage | WorkerLoss) -> None:
        worker = heard.worker
        if isinstance(heard, WorkerLoss):
            lane = next((lane for lane, whose in self._lanes.items() if whose == worker), None)
            if (why := self._lose(worker, heard, lane)) is not None:
                self._say(WorkerFailed(lane or LaneAttempt(0), why))
        elif isinstance(heard.value, WorkerReady):
            self._ready(worker, heard.value)
        elif isinstance(heard.value, LaneResult) and self._lanes.get(heard.value.lane) == worker:
            self._ended(worker, heard.value)
        self._serve()

    def _ended(self, worker: int, ended: LaneResult) -> None:
        lane = ended.lane
        del self._lanes[lane]
        self._idle.append(worker)
        self._used["processor_seconds"] += ended.seconds
        self._used["sent"] += ended.sent
        merge_links(self._links, ended.links)
        given_up = self._leaving.pop(worker, None) is not None
        if ended.sums is not None:
            self.claims += ended.claims
            self._rows[lane.partition] = ended.sums.rows
            self._tell_ways(ended.through_hub)  # in lost lanes, links break because a worker is gone
            if lane.attempt > 1:
                self._note_lane("repeated lane done", lane, worker)
            self._say(WorkerDone(lane, ended.sums))
        elif ended.failure is not None and (ended.failure[0] or not given_up):
            self._say(WorkerFailed(lane, _error(self._duty.name, *ended.failure)))
        elif not given_up:
            self._note_lane("lane lost", lane, worker)
            self._say(WorkerLost(lane))

    def _ready(self, worker: int, said: WorkerReady) -> None:
        self._stillborn = 0
        self._requests[worker] = said.request
        self._idle.append(worker)
        if (before := self._replaces.pop(worker, None)) is not None:
            self._note("worker replaced", worker=before, by=worker)
        if not self._all_ready and len(self._requests) == self.size:
            self._all_ready = True
            self._note("all workers ready")

    def _tell_ways(self, through_hub: Mapping[str, str]) -> None:
        for peer in sorted(through_hub.keys() - self._through_hub):
            self._through_hub.add(peer)
            if self._told_way is not None:
                with suppress(Exception):  # whoever is told must not break what it is told about
                    self._told_way(peer, f"in lanes, {through_hub[peer]}")

    def _lose(self, worker: int, gone: WorkerLoss, lane: LaneAttempt | None) -> EngineError | None:
        """A worker is gone: another takes its place, or the error, if that would fare no better."""
        self._stillborn += worker not in self._requests
        self._told["lost_workers"] += 1
        had = {} if lane is None else {"partition": lane.partition, "attempt": lane.attempt}
        self._note("worker lost", worker=worker, why=gone.why, **had)
        useless = self._stillborn > _MOST_STILLBORN or self._told["lost_workers"] > MOST_REPLACED
        if gone.cause != "lost" or useless:
            return EngineError(f"workers of {self._duty.name} cannot go on: {gone.why} [EN027]")
        self._replace(worker, lane)
        return None

    def _replace(self, worker: int, lane: LaneAttempt | None) -> None:
        given_up = self._leaving.pop(worker, None) is not None
        self._requests.pop(worker, None)
        with suppress(ValueError):
            self._idle.remove(worker)
        if lane is not None:
            del self._lanes[lane]
            if not given_up:
                self._note_lane("lane lost", lane, worker)
                self._say(WorkerLost(lane))
        self._told["replaced_workers"] += 1
        self._workers.remove(worker)
        another = self._engine.replace(worker)
        self._workers.add(another)
        self._replaces[another] = self._replaces.pop(worker, worker)

    def _serve(self) -> None:
        """Give lanes to workers that are free, and tell the head of others that it does not know of."""
        while self._waiting and self._idle:
            lane, worker = self._waiting.popleft(), self._idle.popleft()
            self._lanes[lane] = worker
            self._engine.send(worker, TakeLane(lane, self._folder, self._people))
            if lane.attempt > 1:
                self._note_lane("lane begun again", lane, worker)
            until = datetime.now(UTC) + _INTRODUCED
            introduction = introduce(self._identity, self._requests[worker], self._duty.topic, until)
            self._say(LaneWorkerReady(lane, introduction))
        while len(self._idle) > self._free:
            self._free += 1
            self._say(WorkerFree())

    def _note_lane(self, what: str, lane: LaneAttempt, worker: int) -> None:
        self._note(what, partition=lane.partition, attempt=lane.attempt, worker=worker)

    def _say(self, event: CrewEvent | None) -> None:
        self._engine.events.put(WorkerMessage(_OURSELVES, event))

    # Those that do not give up

    def _patience(self) -> float | None:
        with self._lock:
            due = min(self._leaving.values(), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _replace_the_slow(self) -> None:
        with self._lock:
            now = time.monotonic()
            for worker in [worker for worker, due in self._leaving.items() if due <= now]:
                lane = next((lane for lane, whose in self._lanes.items() if whose == worker), None)
                self._note("worker ended: it did not give its lane up", worker=worker)
                self._replace(worker, lane)


def _error(name: str, kind: str, sentence: str) -> ColonnadeError:
    """What a worker has raised, raised here: one of our errors by its name, any other without data."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, ColonnadeError):
        return found(sentence)
    return EngineError(f"a worker of {name} failed: {sentence} [EN028]")


_REACH_SECONDS = 10.0
"""For how long a worker tries to reach a hub, at first or again: a lane that is lost can be run at another one."""


class LanesHead(ABC):
    """What the heads of owners and of the coordinator have in common; it is left when the study ends, in any way."""

    def __init__(
        self,
        study: Study,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions,
        told: RouteCallback | None,
    ) -> None:
        self._study, self._model, self._identity, self._certificates = study, model, identity, certificates
        self._place, self._record, self._asked, self._told = place, record, asked, told
        self._left = ExitStack()
        try:
            self._own_crew = self._prepare()
        except BaseException:
            self._left.close()
            raise

    @abstractmethod
    def _prepare(self) -> LaneWorkerPool:
        """The workers; an owner's table is read and checked before."""

    @cached_property
    def laned(self) -> LanePlan:
        """The study as all participants know it."""
        aligning = self._study.aligning
        if aligning is None:
            raise StudyError("lanes needs [align] [ST559]")
        hubs = len(self._study.content.coordinator.lane_hubs)
        return LanePlan(cast("CommitteeTask", self._study.task), aligning, bytes.fromhex(self._study.digest), hubs)

    def _crew(
        self, compute: ComputeSection, hubs: Sequence[str], direct: DirectLinkSettings, schema: Schema | None = None
    ) -> LaneWorkerPool:
        limits = self._study.content.limits
        settings = limits.of_participant(min(limits.join, _REACH_SECONDS))
        settings["reconnect_grace"] = min(limits.reconnect, _REACH_SECONDS)
        duty = WorkerTask(
            self._identity.name,
            self.laned,
            self._model,
            dict(self._certificates),
            self._place.topic(self._study.digest),
            settings,
            limits.join,
            schema,
            direct if self._study.content.coordinator.links == "direct" else None,
            self._place.room,
        )
        engine = compute.open_engine(self._asked.forks)
        crew = LaneWorkerPool(
            engine, duty, self._identity, hubs, compute.workers, self._told, self._record.record_public
        )
        self._left.callback(lambda: self._record.add(lanes=crew.facts))
        self._left.callback(crew.close)
        self._record.record_public("workers started", workers=crew.size, engine=compute.engine)
        return crew

    @property
    def claims(self) -> int:
        """How many claims about shares were checked in lanes."""
        return self._own_crew.claims

    @property
    def _beat(self) -> float:
        return min(BEAT, self._study.content.limits.silence / 3)

    def _hubs(self, own: str) -> list[str]:
        return [own, *self._study.content.coordinator.hubs]

    def _write_down(self, crew: LaneWorkerPool, start: float, counts: Mapping[str, Any]) -> None:
        aligning = self.laned.aligning
        record_alignment(self._record, aligning, False, start, None if aligning.hidden else crew.rows, counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()


class OwnerLanesHead(LanesHead):
    """An owner's: its table is read and checked once, with its workers, and lies in a private folder until the end."""

    def __init__(
        self,
        study: Study,
        config: PartyConfig,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions = DEFAULT_WORKERS,
        told: RouteCallback | None = None,
    ) -> None:
        self._config, self._compute = config, asked.compute(config.content.compute)
        super().__init__(study, model, identity, certificates, place, record, asked, told)

    def _prepare(self) -> LaneWorkerPool:
        self._gathered = self._read()
        return self._started

    @cached_property
    def _started(self) -> LaneWorkerPool:
        """The workers: they are started when there is something to do for them, at the latest before lanes."""
        hub = self._place.hub or self._study.content.coordinator.address
        return self._crew(self._compute, self._hubs(hub), self._config.content.network.direct, self._schema)

    @property
    def _schema(self) -> Schema:
        return self._study.roster.schemas[self._config.name].with_text_format(self._config.content.text_format)

    def _hands(self, pulse: laning.Pulse) -> PartitionRunner:
        return lambda chores: self._started.share(chores, pulse)

    def _read(self) -> StagedTable:
        study, config, own = self._study, self._config, self._config.content
        plan = self.laned.aligning.plan
        room = PrivateTempDir(config.spool)
        self._left.callback(room.remove)  # after workers have ended, who may write there
        gathered = stage_table(
            config.data,
            self._schema,
            plan,
            room,
            id=own.id,
            columns=config.key_columns(plan),
            misfits=own.misfits,
            label=study.label_of(config.name),
            workers=self._hands(lambda: None),
        )
        report = gathered.report
        misfits = dict(report.misfits)
        self._record.record_public(
            "table checked", rows=gathered.rows, clipped=report.total_clipped, misfits=misfits, keys=gathered.keys
        )
        self._record.add(misfits=misfits, rows_held=gathered.rows)
        self.laned.aligning.check_length(gathered.keys)
        if study.content.align is not None and study.content.align.used_again:
            self._record.record_public("in lanes, an alignment is neither kept nor used again")
        return gathered

    def owner(self, me: Owner) -> Any:
        """The program."""
        start, gathered = time.monotonic(), self._gathered
        self._config.note_alignment(self._study)  # one, in however many partitions

        def split(spread: Partitions, pulse: laning.Pulse) -> list[int]:
            partition_of = PartitionFinder.write(spread, gathered.folder)
            spool: PartitionedTable = gathered.split(
                partition_of, spread.count, self._hands(pulse), self._compute.memory
            )
            partition_of.forget()
            self._own_crew.lay(str(spool.folder), gathered.keys)
            self._record.record_public("table in partitions", partitions=spread.count)
            return [int(length) for length in spool.lengths]

        found = laning.owner(me, self.laned, self.laned.task.programs, self._own_crew, split, beat=self._beat)
        counts = {"rows": gathered.rows, "missing": gathered.missing, "repeated": gathered.repeated}
        counts |= {"unlabelled": gathered.unlabelled} if gathered.unlabelled else {}
        self._write_down(self._own_crew, start, counts)
        return found


class CoordinatorLanesHead(LanesHead):
    """The coordinator's: it has workers, and no table."""

    def __init__(
        self,
        study: Study,
        model: Estimator,
        identity: Identity,
        certificates: Mapping[str, Certificate],
        place: MeetingPoint,
        record: RunNotes,
        asked: WorkerOptions = DEFAULT_WORKERS,
        told: RouteCallback | None = None,
        *,
        dial: bool = True,
    ) -> None:
        self._dial = dial
        super().__init__(study, model, identity, certificates, place, record, asked, told)

    def _prepare(self) -> LaneWorkerPool:
        compute = self._asked.compute()
        # Its own processes need not come in by the door that strangers use.
        own = self._place.hub if compute.address is None else None
        hubs = self._hubs(own or self._study.content.coordinator.address)
        return self._crew(compute, hubs, DirectLinkSettings(dials=self._dial))

    def coordinator(self, me: Coordinator) -> Any:
        """The program."""
        start = time.monotonic()
        found = laning.coordinator(me, self.laned, self.laned.task.programs, self._own_crew, beat=self._beat)
        self._write_down(self._own_crew, start, {})
        return found
