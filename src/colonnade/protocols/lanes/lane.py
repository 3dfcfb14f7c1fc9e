"""A study in lanes: one lane at one worker, and the heads of participants, which settle which lanes count.

A lane is a session of its own, in which a partition is aligned and its people are added up. Nothing is planned to be
revealed, so nothing can be opened. Everything that seats claim of their shares is settled before the lane ends. Nobody
goes on without a participant that is lost: what a seat lacks of one lane, it could not add.

The head of a participant meets the other heads in the session of the study.

The first owner shares the key of partitions with the others, and every owner lays its table out by it. Then workers
play lanes, and heads settle which of them count, owners by their links to the coordinator. In the end owners and seats
compare which attempts they hold, and release the sum of all lanes as a study without lanes does.

A head has a thread for each link that it listens to and one for its crew; they only put what they hear into its inbox.
All else happens in the thread of the session. A thread that fails ends the study. If the study ends early, the session
ends all links, which ends the threads that listen to them.

The workers of a participant's lanes tell it events, and it knows which of their sums count (:class:`LaneWorkers`).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol, TypeVar

from colonnade.errors import ColonnadeError, ConnectError, PeerLost, PeerStopped, ProtocolError, StudyError
from colonnade.message_schema import (
    BoundedBytes,
    FixedBytes,
    Integer,
    ItemList,
    MessageSchema,
    TextChoice,
    receive_message,
)
from colonnade.mpc import Committee, PeerLink, ShareEngine
from colonnade.privacy import Trust
from colonnade.privacy.events import Event
from colonnade.protocols import align
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.align.programs import too_few
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.joint_sum.declaration import PartialSums, add_partial_sums, use_sum_arithmetic
from colonnade.protocols.lanes.arbiter import (
    LONGEST_INTRODUCTION,
    MOST_ATTEMPTS,
    MOST_HUBS,
    MOST_LOST,
    RUNS_THAT_MAY_CHEAT,
    LaneArbiter,
    LaneAttempt,
    LaneOrder,
    check_attempts,
)
from colonnade.protocols.lanes.partitions import Partitions, check_fits, filled_length
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Progress, Role, silent
from colonnade.protocols.rows import MOST_ROWS, Rows, check_count, compare_digests
from colonnade.protocols.session import RunResult, SessionEndpoint, run_role
from colonnade.protocols.task import RunnableTask, TaskPrograms
from colonnade.randomness import KEY_BYTES, new_key
from colonnade.tables import Table


@dataclass(frozen=True)
class LanePlan:
    """A study in lanes, as all participants know it: its task, its alignment, and the digest of what they agreed to."""

    task: CommitteeTask
    aligning: AlignmentTask
    run: bytes
    hubs: int = 1

    def __post_init__(self) -> None:
        if (why := self.task.why_not_lanes) is not None:
            raise StudyError(f"this study cannot be done in lanes: it {why} [ST455]")
        if self.task.trust.active and self.task.trust.tries < RUNS_THAT_MAY_CHEAT:
            raise StudyError("this study was planned to be done at once, so it cannot be done in lanes [ST880]")
        check_proofs(self.task, self.partitions)
        if self.aligning.hidden and self.aligning.pad_to is not None:
            slots = self.partitions * len(self.task.owners) * self.aligning.listed_length(0)
            check_count(slots, self.task, hidden=True)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self.aligning.partitions

    @property
    def participants(self) -> tuple[str, ...]:
        """Who has a worker in every lane."""
        return (*self.task.owners, COORDINATOR)

    def run_of(self, lane: LaneAttempt) -> bytes:
        """What is agreed on of one lane, so that messages of another are no messages of this one."""
        return hashlib.sha256(self.run + f" {lane}".encode()).digest()


def check_proofs(task: CommitteeTask, partitions: int) -> None:
    """Refuse a task with more proofs of bounds than an honest owner can make in all lanes, run again or not."""
    task.check_proofs(most_rows(task, partitions), partitions + MOST_LOST)


def most_rows(task: CommitteeTask, partitions: int) -> int:
    """How many rows a lane has at most, but with a chance of 2^-64, where all lanes together have no more than due."""
    return filled_length(task.rows_limit, partitions)


@dataclass(frozen=True)
class LaneTask(RunnableTask):
    """What the session of a lane needs: the same participants and arithmetic, and nothing that may be revealed."""

    trust: Trust
    seats: Committee
    aligns, goes_on_without = True, False

    @property
    def committee(self) -> Committee:
        """The seats of the task."""
        return self.seats

    @property
    def events(self) -> tuple[Event, ...]:
        """Nothing is revealed."""
        return ()


@dataclass(frozen=True)
class LanePart:
    """An owner's part of one partition: its rows with their keys, and how many keys it has in all partitions.

    ``summands`` makes of aligned rows what is added up.
    """

    table: Table
    people: int
    summands: Callable[[Table], Rows]


def run_lane(
    place: SessionEndpoint,
    laned: LanePlan,
    lane: LaneAttempt,
    programs: TaskPrograms,
    part: LanePart | None = None,
    progress: Progress = silent,
    *,
    wait: float | None = None,
) -> RunResult[PartialSums]:
    """Play one participant's side of a lane; the coordinator has no part of a table."""
    if (part is None) != (place.name == COORDINATOR):
        raise ValueError("owners have a part of a table in every lane, and the coordinator has none [VA136]")

    def program(me: Any) -> PartialSums:
        rows = _aligned(me, laned, lane, part)
        summing = use_sum_arithmetic(me, laned.task)
        sums: PartialSums = programs.sum_rows(me, summing, laned.task, rows, part=True)
        _settle(summing)
        return sums

    return run_role(place, LaneTask(laned.task.trust, laned.task.committee), program, progress, wait=wait)


def is_loss(error: BaseException) -> bool:
    """Whether a lane that ended so may be run again: somebody is gone, or has stopped and will say why elsewhere."""
    return isinstance(error, PeerLost | PeerStopped | ConnectError)


def _aligned(me: Any, laned: LanePlan, lane: LaneAttempt, part: LanePart | None) -> Rows | None:
    """The rows of the people of this partition whom all owners hold, or at their slots."""
    with me.meter.phase("align"):
        if part is None:
            align.coordinator(me, laned.aligning)
            return None
        if part.table.keys is None:
            raise StudyError(
                "a table without keys cannot be divided into lanes: name what people are recognised by [ST456]"
            )
        found = align.owner(me, part.table.keys, laned.aligning, run=laned.run_of(lane), people=part.people)
    rows = part.summands(found.table(part.table))
    count = len(rows.ids) if rows.places is None else rows.places.size
    most = most_rows(laned.task, laned.partitions)  # for no more rows are proofs of bounds counted
    check_count(count, laned.task, hidden=laned.aligning.hidden, part=True, of_part=most)
    return rows


def _settle(me: Role) -> None:
    """Check everything that was claimed: nothing of a lane is left to be checked when it counts."""
    if me.engine.active and me.engine.has_seat:
        with me.meter.phase("check"):
            me.engine.settle()


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
        self.kept: dict[int, int] = {}
        """The attempt that is kept of each partition that is settled."""
        self._attempts, self._lost = [1] * partitions, 0
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
            self._introduced[lane] = event.introduction
            return [LaneReport("here", lane, worker=event.introduction)]
        self._ended.add(lane)
        if isinstance(event, WorkerLost):
            return [LaneReport("lost", lane)]
        self._held[lane] = event.sums
        return [LaneReport("done", lane, rows=event.sums.rows)]

    def obey(self, order: LaneOrder) -> None:
        """Do what the coordinator says, or refuse it in its name if it does not fit what it said before."""
        lane = order.lane
        if not 0 <= lane.partition < self._partitions:
            raise _not_due("spoke of a lane that there is not [MS029]")
        current = lane.partition not in self.kept and self._attempts[lane.partition] == lane.attempt
        if order.what == "over":
            if len(self.kept) < self._partitions:
                raise _not_due("ended before a lane of every partition was kept [MS028]")
        elif order.what == "meet":
            if lane not in self._introduced or lane in self._met or not current:
                raise _not_due("called to a lane that this participant is not ready for [MS031]")
            if order.introductions[self._engine.name] != self._introduced[lane]:
                raise ProtocolError(
                    f"the {COORDINATOR} introduced another worker in the name of {self._engine.name} [MS038]"
                )
            self._met[lane] = _digest(order.introductions)
            self._crew.meet(lane, order.hub, order.introductions)
        elif order.what == "kept":
            if lane not in self._held or not current:
                raise _not_due("kept a lane whose result this participant does not hold [MS032]")
            part = self._held.pop(lane)
            self.kept[lane.partition] = lane.attempt
            self._kept_with[lane.partition] = self._met[lane]
            self._forget(lane)
            self._total = part if self._total is None else add_partial_sums(self._engine, [self._total, part])
        else:
            if lane.partition in self.kept or lane.attempt != self._attempts[lane.partition] + 1:
                raise _not_due("asked for a lane again that was not lost [MS030]")
            before = LaneAttempt(lane.partition, lane.attempt - 1)
            self._lost += 1
            check_attempts(before, self._lost)
            self._attempts[lane.partition] = lane.attempt
            self._give_up(before)
            self._waiting.append(lane)
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


def _not_due(what: str) -> ProtocolError:
    return ProtocolError(f"the {COORDINATOR} {what} [MS034]")


def _digest(introductions: Mapping[str, bytes]) -> bytes:
    """A hash of who is introduced as what."""
    state = hashlib.sha256()
    for name, introduction in sorted(introductions.items()):
        for text in (name.encode(), introduction):
            state.update(len(text).to_bytes(4, "little") + text)
    return state.digest()


BEAT = 20.0
"""Seconds after which a head gives a sign of life."""
InboxItem = TypeVar("InboxItem")


class HeadInbox:
    """Items with their source, in the order in which they came; ``still`` is called at least every ``beat`` seconds."""

    def __init__(self, still: Callable[[], None], beat: float = BEAT) -> None:
        self._still, self._beat = still, beat
        self._items: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._broken: BaseException | None = None
        self._due = time.monotonic() + beat

    def listen(
        self, source: str, hear: Callable[[], InboxItem], last: Callable[[InboxItem], bool], name: str
    ) -> threading.Thread:
        """Take in what ``hear`` gives until the last of it, in a thread of this name; its error is raised in `take`."""

        def loop() -> None:
            try:
                ended = False
                while not ended:
                    item = hear()
                    self._items.put((source, item))
                    ended = last(item)
            except BaseException as error:
                self._broken = self._broken or error
                self._items.put((source, error))

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def take(self) -> tuple[str, Any]:
        """The next item and where it came from; waits for it."""
        while True:
            self._live()
            try:
                source, item = self._items.get(timeout=max(0.0, self._due - time.monotonic()))
            except Empty:
                continue
            if isinstance(item, BaseException):
                raise item
            return source, item

    def pulse(self) -> None:
        """Give a sign of life if it is due, and raise the error of a thread that failed: for long work of one's own."""
        self._live()
        if self._broken is not None:
            raise self._broken

    def _live(self) -> None:
        if time.monotonic() >= self._due:
            self._still()
            self._due = time.monotonic() + self._beat


Pulse = Callable[[], None]
"""To be called every few seconds: it shows that this party is alive, and raises an error if the study has ended."""
Split = Callable[[Partitions, Pulse], Sequence[int]]
"""Lays an owner's table out, before any lane; it returns how many keys each partition has.

Every cell is read and checked here. A cell that is found wrong in a lane would tell all in which partition it lies.
"""


def owner(
    me: Owner, laned: LanePlan, programs: TaskPrograms, crew: WorkerCrew, split: Split, *, beat: float = BEAT
) -> Any:
    """An owner's program."""
    link = me.link(COORDINATOR)
    summing = use_sum_arithmetic(me, laned.task)
    workers = LaneWorkers(crew, summing.engine, laned.partitions)
    inbox = HeadInbox(partial(_say, link, "still"), beat)
    try:
        spread = _spread(me, laned)
        # Either side waits for one kind of message alone, as it cannot know what comes next; ``what`` says it.
        due = MessageSchema(
            "lanes",
            what=TextChoice(("meet", "kept", "again", "still", "over")),
            partition=Integer(0, laned.partitions - 1),
            attempt=Integer(1, MOST_ATTEMPTS),
            hub=Integer(0, MOST_HUBS - 1),
            workers=ItemList(*[BoundedBytes(LONGEST_INTRODUCTION)] * len(laned.participants)),
        )
        orders = inbox.listen(
            COORDINATOR, partial(receive_message, link, COORDINATOR, due), _is_last, f"{me.name} hears"
        )
        _check_split(laned, split(spread, inbox.pulse))
        me.engine.notify_before_sharing()  # shares leave in lanes, and what they cost is written down before
        events = inbox.listen("crew", crew.event, _is_closed, f"{me.name}'s crew")
        while True:
            source, item = inbox.take()
            if source == "crew":
                for said in workers.handle_event(item):
                    _say(link, said.what, said.lane, said.rows, said.worker)
            elif (order := _order(item, laned)) is not None:
                _obey(me, laned, workers, order)
                if order.what == "over":
                    break
        _say(link, "over")
        orders.join()
    finally:
        crew.close()
    events.join()
    return _released(me, summing, laned, programs, workers)


def coordinator(
    me: Coordinator, laned: LanePlan, programs: TaskPrograms, crew: WorkerCrew, *, beat: float = BEAT
) -> Any:
    """The coordinator's program: it settles which lanes count, and has a worker in each of them too."""
    owners = laned.task.owners
    summing = use_sum_arithmetic(me, laned.task)
    workers = LaneWorkers(crew, summing.engine, laned.partitions)
    arbiter = LaneArbiter(laned.participants, laned.partitions, laned.hubs)

    def to_all(what: str, **fields: Any) -> None:
        for name in owners:
            _tell(me.link(name), laned, what, **fields)

    def decide(who: str, said: LaneReport) -> None:
        for order in _judged(arbiter, who, said):
            to_all(**vars(order))
            _obey(me, laned, workers, order)

    def still() -> None:
        if not arbiter.over:  # then all was said
            to_all("still")

    inbox = HeadInbox(still, beat)
    due = MessageSchema(
        "lane",
        what=TextChoice(("here", "done", "lost", "still", "over")),
        partition=Integer(0, laned.partitions - 1),
        attempt=Integer(1, MOST_ATTEMPTS),
        rows=Integer(0, MOST_ROWS),
        worker=BoundedBytes(LONGEST_INTRODUCTION),
    )
    try:
        hearing = [
            inbox.listen(name, partial(receive_message, me.link(name), name, due), _is_last, f"{me.name} hears {name}")
            for name in owners
        ]
        hearing.append(inbox.listen("crew", crew.event, _is_closed, f"{me.name}'s crew"))
        left = set(owners)
        while left:
            source, item = inbox.take()
            if source == "crew":
                for said in [] if arbiter.over else workers.handle_event(item):
                    decide(me.name, said)
            elif item["what"] == "over":
                if not arbiter.over:
                    raise ProtocolError(f"{source} ended before a lane of every partition was kept [MS035]")
                left.remove(source)
            elif item["what"] != "still":
                lane = LaneAttempt(item["partition"], item["attempt"])
                decide(source, LaneReport(item["what"], lane, item["rows"], item["worker"]))
    finally:
        crew.close()
    for thread in hearing:
        thread.join()
    return _released(me, summing, laned, programs, workers)


def _obey(me: Role, laned: LanePlan, workers: LaneWorkers, order: LaneOrder) -> None:
    """Do what is ordered, and stop as soon as it is clear that there are more rows than the study allows."""
    workers.obey(order)
    if order.what == "kept":
        done, hidden = len(workers.kept), laned.aligning.hidden
        me.progress("lanes", done, laned.partitions)
        # Slots are as many in every lane, so one lane shows it before the others are played.
        rows = workers.rows * laned.partitions // done if hidden else workers.rows
        check_count(rows, laned.task, hidden=hidden, part=True)


def _spread(me: Owner, laned: LanePlan) -> Partitions:
    """The partitions and their key, which the first owner draws and the coordinator lacks."""
    first, *others = laned.task.owners
    if me.name != first:
        due = MessageSchema("partition-key", key=FixedBytes(KEY_BYTES), check=FixedBytes(32))
        told = receive_message(me.link(first), first, due)
        spread = Partitions(laned.partitions, told["key"])
        if spread.check != told["check"]:
            raise ProtocolError(f"{first} divides people into partitions by other rules: use the same version [MS036]")
        return spread
    spread = Partitions(laned.partitions, new_key())
    for name in others:
        me.link(name).send("partition-key", key=spread.key, check=spread.check)
    return spread


def _check_split(laned: LanePlan, held: Sequence[int]) -> None:
    """Refuse a table that cannot be divided as public numbers say, before anything of it has left."""
    if len(held) != laned.partitions:
        raise ValueError("a table has a number of keys for every partition [VA135]")
    people = sum(held)
    laned.aligning.check_length(people)
    check_fits(max(held), laned.aligning.listed_length(people))


def _released(me: Role, summing: Role, laned: LanePlan, programs: TaskPrograms, workers: LaneWorkers) -> Any:
    """Compare what is held, and release the sum of all lanes, once."""
    _compare(me, laned, workers.what_counts)
    sums = workers.total
    _check_people(laned, sums)
    noise = programs.own_noise(me, laned.task) if isinstance(me, Owner) else None
    return programs.release(summing, sums, laned.task, noise)


def _compare(me: Role, laned: LanePlan, what_counts: bytes) -> None:
    """Stop unless all owners and seats hold the same lanes of the same workers, as far as they talk to each other."""
    seats = me.engine.committee.seats
    whole = dict.fromkeys([*laned.task.owners, *seats])
    if me.name not in whole:
        return
    heard = [name for name in whole if name == me.name or me.name in seats or name in seats]
    compare_digests(me, heard, laned.run + what_counts, "lanes that count")


def _check_people(laned: LanePlan, sums: PartialSums) -> None:
    """Refuse too few people, or more rows than the arithmetic is sized for."""
    if not laned.aligning.hidden and sums.rows < laned.aligning.at_least:
        raise too_few(sums.rows, laned.aligning, after="nothing was opened")
    check_count(sums.rows, laned.task, hidden=laned.aligning.hidden)


def _judged(arbiter: LaneArbiter, who: str, said: LaneReport) -> list[LaneOrder]:
    if said.what == "here":
        return arbiter.here(who, said.lane, said.worker)
    return arbiter.done(who, said.lane, said.rows) if said.what == "done" else arbiter.lost(who, said.lane)


def _say(link: PeerLink, what: str, lane: LaneAttempt | None = None, rows: int = 0, worker: bytes = b"") -> None:
    """An owner's word to the coordinator."""
    here = lane or LaneAttempt(0)
    link.send("lane", what=what, partition=here.partition, attempt=here.attempt, rows=rows, worker=worker)


def _tell(
    link: PeerLink,
    laned: LanePlan,
    what: str,
    lane: LaneAttempt | None = None,
    hub: int = 0,
    introductions: Mapping[str, bytes] | None = None,
) -> None:
    """The coordinator's word to an owner."""
    here, known = lane or LaneAttempt(0), introductions or {}
    workers = [known.get(name, b"") for name in laned.participants]
    link.send("lanes", what=what, partition=here.partition, attempt=here.attempt, hub=hub, workers=workers)


def _order(told: Mapping[str, Any], laned: LanePlan) -> LaneOrder | None:
    """What the coordinator's word orders; a sign of life orders nothing."""
    if told["what"] == "still":
        return None
    if told["hub"] >= laned.hubs:
        raise ProtocolError(f"the {COORDINATOR} called to a hub that the study does not name [MS037]")
    workers = dict(zip(laned.participants, told["workers"], strict=True))
    return LaneOrder(told["what"], LaneAttempt(told["partition"], told["attempt"]), told["hub"], workers)


def _is_last(told: Mapping[str, Any]) -> bool:
    return bool(told["what"] == "over")


def _is_closed(event: CrewEvent) -> bool:
    return isinstance(event, CrewClosed)
