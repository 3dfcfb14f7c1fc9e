"""The head of a participant in a study of many lanes: it meets the other heads in the session of the study.

The first owner shares the key of partitions with the others, and every owner lays its table out by it. Then workers
play lanes, and heads settle which of them count, owners by their links to the coordinator. In the end owners and seats
compare which attempts they hold, and release the sum of all lanes as a study without lanes does.

A head has a thread for each link that it listens to and one for its crew; they only put what they hear into its inbox.
All else happens in the thread of the session. A thread that fails ends the study. If the study ends early, the session
ends all links, which ends the threads that listen to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.mpc import Link
from colonnade.protocols.agreement import told_alike
from colonnade.protocols.align.programs import too_few
from colonnade.protocols.lanes import vocabulary
from colonnade.protocols.lanes.arbiter import Again, Arbiter, Kept, Lane, Meet, Order, Over
from colonnade.protocols.lanes.crew import Closed, Crew, Event
from colonnade.protocols.lanes.inbox import BEAT, Inbox
from colonnade.protocols.lanes.lane import Laned
from colonnade.protocols.lanes.partitions import Partitions, check_fits
from colonnade.protocols.lanes.workers import Said, Workers
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import check_count
from colonnade.protocols.sums import Sums, over_sums
from colonnade.protocols.task import Programs
from colonnade.randomness import new_key
from colonnade.received import received

Pulse = Callable[[], None]
"""To be called every few seconds: it shows that this party is alive, and raises an error if the study has ended."""
Split = Callable[[Partitions, Pulse], Sequence[int]]
"""Lays an owner's table out, before any lane; it returns how many keys each partition has.

Every cell is read and checked here. A cell that is found wrong in a lane would tell all in which partition it lies.
"""


def owner(me: Owner, laned: Laned, programs: Programs, crew: Crew, split: Split, *, beat: float = BEAT) -> Any:
    """An owner's program."""
    link, participants = me.link(COORDINATOR), laned.participants
    summing = over_sums(me, laned.task)
    workers = Workers(crew, summing.hand, laned.partitions)
    inbox = Inbox(partial(_say, link, "still"), beat)
    try:
        spread = _spread(me, laned)
        due = vocabulary.ordered(laned.partitions, participants)
        orders = inbox.listen(COORDINATOR, partial(received, link, COORDINATOR, due), _is_last, f"{me.name} hears")
        _check_split(laned, split(spread, inbox.pulse))
        me.hand.announce()  # shares leave in lanes, and what they cost is written down before
        events = inbox.listen("crew", crew.event, _is_closed, f"{me.name}'s crew")
        while True:
            source, item = inbox.take()
            if source == "crew":
                for said in workers.heard(item):
                    _say(link, said.what, said.lane, said.rows, said.worker)
            elif (order := _order(item, laned)) is not None:
                _obey(me, laned, workers, order)
                if isinstance(order, Over):
                    break
        _say(link, "over")
        orders.join()
    finally:
        crew.close()
    events.join()
    return _released(me, summing, laned, programs, workers)


def coordinator(me: Coordinator, laned: Laned, programs: Programs, crew: Crew, *, beat: float = BEAT) -> Any:
    """The coordinator's program: it settles which lanes count, and has a worker in each of them too."""
    owners = laned.task.owners
    summing = over_sums(me, laned.task)
    workers = Workers(crew, summing.hand, laned.partitions)
    arbiter = Arbiter(laned.participants, laned.partitions, laned.hubs)

    def to_all(what: str, **fields: Any) -> None:
        for name in owners:
            _tell(me.link(name), laned, what, **fields)

    def decide(who: str, said: Said) -> None:
        for order in _judged(arbiter, who, said):
            if isinstance(order, Meet):
                to_all("meet", lane=order.lane, hub=order.hub, introductions=order.introductions)
            elif isinstance(order, Over):
                to_all("over")
            else:
                to_all("kept" if isinstance(order, Kept) else "again", lane=order.lane)
            _obey(me, laned, workers, order)

    def still() -> None:
        if not arbiter.over:  # then all was said
            to_all("still")

    inbox, due = Inbox(still, beat), vocabulary.said(laned.partitions)
    try:
        hearing = [
            inbox.listen(name, partial(received, me.link(name), name, due), _is_last, f"{me.name} hears {name}")
            for name in owners
        ]
        hearing.append(inbox.listen("crew", crew.event, _is_closed, f"{me.name}'s crew"))
        left = set(owners)
        while left:
            source, item = inbox.take()
            if source == "crew":
                for said in [] if arbiter.over else workers.heard(item):
                    decide(me.name, said)
            elif item["what"] == "over":
                if not arbiter.over:
                    raise ProtocolError(f"{source} ended before a lane of every partition was kept [MS035]")
                left.remove(source)
            elif item["what"] != "still":
                lane = Lane(item["partition"], item["attempt"])
                decide(source, Said(item["what"], lane, item["rows"], item["worker"]))
    finally:
        crew.close()
    for thread in hearing:
        thread.join()
    return _released(me, summing, laned, programs, workers)


def _obey(me: Role, laned: Laned, workers: Workers, order: Order) -> None:
    """Do what is ordered, and stop as soon as it is clear that there are more rows than the study allows."""
    workers.obey(order)
    if isinstance(order, Kept):
        done, hidden = len(workers.kept), laned.aligning.hidden
        me.progress("lanes", done, laned.partitions)
        # Slots are as many in every lane, so one lane shows it before the others are played.
        rows = workers.rows * laned.partitions // done if hidden else workers.rows
        check_count(rows, laned.task, hidden=hidden, part=True)


def _spread(me: Owner, laned: Laned) -> Partitions:
    """The partitions and their key, which the first owner draws and the coordinator lacks."""
    first, *others = laned.task.owners
    if me.name != first:
        told = received(me.link(first), first, vocabulary.PARTITION_KEY)
        spread = Partitions(laned.partitions, told["key"])
        if spread.check != told["check"]:
            raise ProtocolError(f"{first} divides people into partitions by other rules: use the same version [MS036]")
        return spread
    spread = Partitions(laned.partitions, new_key())
    for name in others:
        me.link(name).send("partition-key", key=spread.key, check=spread.check)
    return spread


def _check_split(laned: Laned, held: Sequence[int]) -> None:
    """Refuse a table that cannot be divided as public numbers say, before anything of it has left."""
    if len(held) != laned.partitions:
        raise ValueError("a table has a number of keys for every partition [VA135]")
    people = sum(held)
    laned.aligning.check_length(people)
    check_fits(max(held), laned.aligning.listed(people))


def _released(me: Role, summing: Role, laned: Laned, programs: Programs, workers: Workers) -> Any:
    """Compare what is held, and release the sum of all lanes, once."""
    _compare(me, laned, workers.what_counts)
    sums = workers.total
    _check_people(laned, sums)
    noise = programs.own_noise(me, laned.task) if isinstance(me, Owner) else None
    return programs.release(summing, sums, laned.task, noise)


def _compare(me: Role, laned: Laned, what_counts: bytes) -> None:
    """Stop unless all owners and seats hold the same lanes of the same workers, as far as they talk to each other."""
    seats = me.hand.committee.seats
    whole = dict.fromkeys([*laned.task.owners, *seats])
    if me.name not in whole:
        return
    heard = [name for name in whole if name == me.name or me.name in seats or name in seats]
    told_alike(me, heard, laned.run + what_counts, "lanes that count")


def _check_people(laned: Laned, sums: Sums) -> None:
    """Refuse too few people, or more rows than the arithmetic is sized for."""
    if not laned.aligning.hidden and sums.rows < laned.aligning.at_least:
        raise too_few(sums.rows, laned.aligning, after="nothing was opened")
    check_count(sums.rows, laned.task, hidden=laned.aligning.hidden)


def _judged(arbiter: Arbiter, who: str, said: Said) -> list[Order]:
    if said.what == "here":
        return arbiter.here(who, said.lane, said.worker)
    return arbiter.done(who, said.lane, said.rows) if said.what == "done" else arbiter.lost(who, said.lane)


def _say(link: Link, what: str, lane: Lane | None = None, rows: int = 0, worker: bytes = b"") -> None:
    """An owner's word to the coordinator."""
    here = lane or Lane(0)
    link.send("lane", what=what, partition=here.partition, attempt=here.attempt, rows=rows, worker=worker)


def _tell(
    link: Link,
    laned: Laned,
    what: str,
    lane: Lane | None = None,
    hub: int = 0,
    introductions: Mapping[str, bytes] | None = None,
) -> None:
    """The coordinator's word to an owner."""
    here, known = lane or Lane(0), introductions or {}
    workers = [known.get(name, b"") for name in laned.participants]
    link.send("lanes", what=what, partition=here.partition, attempt=here.attempt, hub=hub, workers=workers)


def _order(told: Mapping[str, Any], laned: Laned) -> Order | None:
    """What the coordinator's word orders; a sign of life orders nothing."""
    lane, what = Lane(told["partition"], told["attempt"]), told["what"]
    if what == "meet":
        if told["hub"] >= laned.hubs:
            raise ProtocolError(f"the {COORDINATOR} called to a hub that the study does not name [MS037]")
        return Meet(lane, told["hub"], dict(zip(laned.participants, told["workers"], strict=True)))
    orders: dict[str, Order] = {"kept": Kept(lane), "again": Again(lane), "over": Over()}
    return orders.get(what)


def _is_last(told: Mapping[str, Any]) -> bool:
    return bool(told["what"] == "over")


def _is_closed(event: Event) -> bool:
    return isinstance(event, Closed)
