"""Which run of a partition counts: pure rules, played with heads of any speed and any number of workers."""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DisagreementError, PeerLost, ProtocolError, ShareError
from colonnade.mpc.verify.folding import IN_ALL
from colonnade.protocols.lanes.arbiter import (
    MOST_ATTEMPTS,
    MOST_LOST,
    Again,
    Arbiter,
    Followed,
    Kept,
    Lane,
    Meet,
    Over,
)
from colonnade.protocols.lanes.crew import Done, Failed, Free, Here, Lost
from colonnade.protocols.lanes.workers import Workers
from colonnade.protocols.sums import Sums
from tests.support.errors import raises, refused
from tools.pages import ROOT

NAMES = ("a", "b", "coordinator")


class Played:
    """One head, whose workers do what chance says: a step makes one of them go on."""

    def __init__(self, name, partitions, workers, choose):
        self.name, self.choose = name, choose
        self.workers = Workers(self, SimpleNamespace(name=name), partitions)
        self.inbox, self.events = deque(), deque([Free(workers)])
        self.begun, self.met, self.most, self.lent = [], [], workers, 0
        self.counted = {}

    def begin(self, lane):
        self.lent += 1
        assert self.lent <= self.most, "more lanes than workers"
        self.begun.append(lane)

    def meet(self, lane, hub, introductions):
        assert introductions == {name: f"{name} {lane}".encode() for name in NAMES}
        assert hub in range(3)
        self.begun.remove(("here", lane))
        self.met.append(lane)

    def give_up(self, lane):
        for lanes, entry in ((self.begun, lane), (self.begun, ("here", lane)), (self.met, lane)):
            if entry in lanes:
                lanes.remove(entry)
        self._free()

    def _free(self):
        self.lent -= 1
        self.events.append(Free())

    @property
    def moves(self):
        found = [("hear", None)] if self.inbox else []
        found += [("event", None)] if self.events else []
        found += [("here", lane) for lane in self.begun if isinstance(lane, Lane)]
        return found + [("end", lane) for lane in self.met]

    def step(self, move, lost):
        """What it says now."""
        what, lane = move
        if what == "hear":
            order = self.inbox.popleft()
            self.workers.obey(order)
            return []
        if what == "event":
            return self.workers.heard(self.events.popleft())
        if lost:
            (self.begun if what == "here" else self.met).remove(lane)
            self._free()
            return self.workers.heard(Lost(lane))
        if what == "here":
            self.begun[self.begun.index(lane)] = ("here", lane)
            return self.workers.heard(Here(lane, f"{self.name} {lane}".encode()))
        self.met.remove(lane)
        self._free()
        return self.workers.heard(Done(lane, Sums(10 * lane.partition + lane.attempt)))


def decide(arbiter, who, said):
    if said.what == "here":
        return arbiter.here(who, said.lane, said.worker)
    return arbiter.done(who, said.lane, said.rows) if said.what == "done" else arbiter.lost(who, said.lane)


@settings(max_examples=150)
@given(
    partitions=st.sampled_from([1, 2, 4, 8]),
    workers=st.tuples(*[st.integers(1, 5)] * 3),
    losses=st.integers(0, 12),
    seed=st.randoms(use_true_random=False),
)
def test_any_speed_and_any_losses_end_with_one_attempt_of_every_partition(partitions, workers, losses, seed):
    arbiter = Arbiter(NAMES, partitions, hubs=3)
    heads = {name: Played(name, partitions, count, seed) for name, count in zip(NAMES, workers, strict=True)}
    words: dict[str, deque] = {name: deque() for name in NAMES}  # on their way to the coordinator
    orders, lost, ended = [], 0, False
    while True:
        moves = [(name, move) for name, head in heads.items() for move in head.moves]
        moves += [(name, ("told", None)) for name, said in words.items() if said]
        if not moves:
            break
        name, move = seed.choice(moves)
        if move[0] == "told":
            try:
                given_ = decide(arbiter, name, words[name].popleft())
            except PeerLost:
                ended = True
                break
            orders += given_
            for head in heads.values():
                head.inbox.extend(given_)
            continue
        loses = lost < losses and move[0] in ("here", "end") and seed.random() < 0.4
        lost += loses
        words[name].extend(heads[name].step(move, loses))
    if ended:
        attempts = [order.lane.attempt for order in orders if isinstance(order, Again)]
        assert max(attempts) == MOST_ATTEMPTS
        return
    assert arbiter.over
    assert orders[-1] == Over()
    kept = [order.lane for order in orders if isinstance(order, Kept)]
    assert sorted(lane.partition for lane in kept) == list(range(partitions))
    assert dict(arbiter.kept) == {lane.partition: lane.attempt for lane in kept}
    for head in heads.values():
        assert dict(head.workers.kept) == dict(arbiter.kept)
        assert head.workers.total.rows == sum(10 * lane.partition + lane.attempt for lane in kept)
        assert head.lent == 0
        assert not head.workers._held, "what was given up or added is forgotten"
    assert sum(isinstance(order, Again) for order in orders) <= lost


def meet(arbiter, lane):
    for name in NAMES:
        orders = arbiter.here(name, lane, name.encode())
    return orders


def test_words_that_do_not_fit_are_refused():
    lane = Lane(0)
    follow(
        Arbiter(NAMES, 2),
        [
            ("MS026", "here", "stranger", lane, b""),
            (NO_LANE, "here", "a", Lane(2), b""),
            (NO_LANE, "here", "a", Lane(0, 2), b""),
            (NO_LANE, "lost", "a", Lane(0, 0)),
            ("MS025", "done", "a", lane, 3),
            (None, "here", "a", lane, b""),
            ("MS033", "here", "a", lane, b"another"),
            ("MS025", "done", "a", lane, 3),
            (None, "here", "b", lane, b""),
            (None, "here", "coordinator", lane, b""),
            (None, "done", "a", lane, 3),
            ("MS033", "done", "a", lane, 3),
            ("MS033", "lost", "a", lane),
            (None, "done", "b", lane, 3),
            (None, "done", "coordinator", lane, 3),
            ("MS033", "lost", "a", lane),
            ("MS033", "here", "b", lane, b""),
            # Words about a lane that was given up count once.
            *((None, "here", name, Lane(1), b"") for name in NAMES),
            (None, "lost", "a", Lane(1)),
            ("MS033", "lost", "a", Lane(1)),
            ("MS033", "done", "a", Lane(1), 4),
            (None, "done", "b", Lane(1), 4),
            ("MS033", "done", "b", Lane(1), 4),
        ],
    )


def test_results_about_different_numbers_of_people_are_refused():
    arbiter, lane = Arbiter(NAMES, 1), Lane(0)
    meet(arbiter, lane)
    arbiter.done("a", lane, 5)
    arbiter.done("b", lane, 6)
    refused(DisagreementError, "DI003", arbiter.done, "coordinator", lane, 5)


def test_attempts_and_losses_are_bounded():
    arbiter = Arbiter(NAMES, 1)
    for attempt in range(1, MOST_ATTEMPTS):
        assert arbiter.lost("a", Lane(0, attempt)) == [Again(Lane(0, attempt + 1))]
    refused(PeerLost, "PE004", "8", arbiter.lost, "b", Lane(0, MOST_ATTEMPTS))
    arbiter, followed = Arbiter(NAMES, 256), Followed(256)
    for partition in range(MOST_LOST):
        for order in arbiter.lost("a", Lane(partition)):
            followed.obey(order)
    refused(PeerLost, "PE005", "127", arbiter.lost, "a", Lane(200))
    refused(PeerLost, "PE005", "127", followed.obey, Again(Lane(200, 2)))


def test_a_hub_that_loses_one_lane_after_the_other_gets_no_more():
    arbiter, used = Arbiter(NAMES, 32, hubs=2), []
    for partition in range(32):
        [order] = meet(arbiter, Lane(partition))
        used.append(order.hub)
        if order.hub == 1:
            arbiter.lost("a", Lane(partition))
        else:
            for name in NAMES:
                arbiter.done(name, Lane(partition), 0)
    assert used == [0, 1] * 4 + [0] * 24


def test_orders_that_do_not_fit_are_refused():
    lane = Lane(0)
    follow(
        Followed(2),
        [
            (NO_LANE, "obey", Kept(Lane(2))),
            ("MS031", "obey", Meet(lane, 0, {})),
            ("MS032", "obey", Kept(lane)),
            ("MS030", "obey", Again(lane)),
            ("MS030", "obey", Again(Lane(0, 3))),
            ("MS028", "obey", Over()),
            (None, "here", lane),
            (None, "obey", Meet(lane, 0, {})),
            ("MS031", "obey", Meet(lane, 0, {})),
            (None, "done", lane),
            (None, "obey", Kept(lane)),
            ("MS032", "obey", Kept(lane)),
            ("MS030", "obey", Again(Lane(0, 2))),
            ("MS028", "obey", Over()),
            (None, "here", Lane(1)),
            (None, "obey", Again(Lane(1, 2))),
            ("MS031", "obey", Meet(Lane(1), 0, {})),
            ("MS032", "obey", Kept(Lane(1, 2))),
        ],
    )


def test_a_worker_that_fails_as_it_is_stopped_ends_nothing_but_what_a_check_found_does():
    crew = Played("a", 2, 1, None)
    workers = crew.workers
    workers.heard(Free(1))
    with pytest.raises(OSError, match="disk"):
        workers.heard(Failed(Lane(0), OSError("disk")))
    workers.obey(Again(Lane(0, 2)))
    assert workers.heard(Failed(Lane(0), OSError("its line was cut"))) == []
    with pytest.raises(ShareError, match="wrong claim"):
        workers.heard(Failed(Lane(0), ShareError("wrong claim")))


def test_the_chance_of_the_theory_page_is_that_of_the_code():
    assert (MOST_LOST + 1) * Fraction(IN_ALL) == Fraction(1, 2**33)
    page = (ROOT / "docs" / "theory" / "lanes.md").read_text(encoding="utf-8")
    assert f"L = {MOST_LOST} lanes" in page
    assert f"{MOST_ATTEMPTS} of one partition" in page
    assert "(L + 1) ε = 2^-33" in page


def test_a_lane_is_kept_when_all_hold_it_and_a_loss_is_another_attempt():
    arbiter, lane, again = Arbiter(NAMES, 2), Lane(0), Lane(1, 2)
    assert meet(arbiter, lane) == [Meet(lane, 0, {name: name.encode() for name in NAMES})]
    assert [arbiter.done(name, lane, 5) for name in NAMES] == [[], [], [Kept(lane)]]
    meet(arbiter, Lane(1))
    arbiter.done("a", Lane(1), 5)
    assert arbiter.lost("b", Lane(1)) == [Again(again)]
    assert arbiter.lost("coordinator", Lane(1)) == [], "it crossed the order on its way, and does not lose the next"
    assert len(meet(arbiter, again)) == 1
    assert [arbiter.done(name, again, 0) for name in NAMES] == [[], [], [Kept(again), Over()]]


def follow(said, steps):
    """Words or orders one after the other; those with a code are refused."""
    for code, what, *about in steps:
        if code:
            with raises(ProtocolError, code):
                getattr(said, what)(*about)
        else:
            getattr(said, what)(*about)


NO_LANE = "MS027|MS029"
