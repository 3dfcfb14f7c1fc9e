"""The head of a participant in a study of many lanes: it meets the other heads in the session of the study.

The first owner shares the key of partitions with the others, and every owner lays its table out by it. Then workers
play lanes, and heads settle which of them count, owners by their links to the coordinator. In the end owners and seats
compare which attempts they hold, and release the sum of all lanes as a study without lanes does.

A head has a thread for each link that it listens to and one for its crew; they only put what they hear into its inbox.
All else happens in the thread of the session. A thread that fails ends the study. If the study ends early, the session
ends all links, which ends the threads that listen to them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from colonnade.errors import ProtocolError
from colonnade.message_schema import receive_message
from colonnade.mpc import PeerLink
from colonnade.protocols.agreement import compare_digests
from colonnade.protocols.align.programs import too_few
from colonnade.protocols.joint_sum.declaration import PartialSums, use_sum_arithmetic
from colonnade.protocols.lanes import messages
from colonnade.protocols.lanes.arbiter import LaneArbiter, LaneAttempt, LaneOrder
from colonnade.protocols.lanes.lane import LanePlan
from colonnade.protocols.lanes.partitions import Partitions, check_fits
from colonnade.protocols.lanes.workers import CrewClosed, CrewEvent, LaneReport, LaneWorkers, WorkerCrew
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import check_count
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import new_key

BEAT = 20.0
"""Seconds after which a head gives a sign of life."""
InboxItem = TypeVar("InboxItem")


@dataclass(frozen=True)
class _Broken:
    """A thread ended with this error."""

    error: BaseException


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
                self._items.put((source, _Broken(error)))

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
            if isinstance(item, _Broken):
                raise item.error
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
    link, participants = me.link(COORDINATOR), laned.participants
    summing = use_sum_arithmetic(me, laned.task)
    workers = LaneWorkers(crew, summing.engine, laned.partitions)
    inbox = HeadInbox(partial(_say, link, "still"), beat)
    try:
        spread = _spread(me, laned)
        due = messages.lane_order_message(laned.partitions, participants)
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

    inbox, due = HeadInbox(still, beat), messages.lane_report_message(laned.partitions)
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
        told = receive_message(me.link(first), first, messages.PARTITION_KEY)
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
