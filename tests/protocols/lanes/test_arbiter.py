"""Which run of a partition counts, by rules played with heads of any speed; and who is in which partition."""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, DisagreementError, PeerLost, ProtocolError, ShareError, StudyError
from colonnade.mpc.verification.claims import COMBINED_TIMES, ERROR, STUDY_ERROR, error_chance, repetitions
from colonnade.mpc.verification.input_proofs import InputRanges, bounded_norm, projections_for
from colonnade.protocols.align import programs as aligning
from colonnade.protocols.joint_sum.declaration import PartialSums
from colonnade.protocols.lanes import partitions
from colonnade.protocols.lanes.arbiter import (
    MOST_ATTEMPTS,
    MOST_LOST,
    RUNS_THAT_MAY_CHEAT,
    LaneArbiter,
    LaneAttempt,
    LaneOrder,
)
from colonnade.protocols.lanes.lane import (
    LaneWorkerReady,
    LaneWorkers,
    WorkerDone,
    WorkerFailed,
    WorkerFree,
    WorkerLost,
)
from colonnade.protocols.lanes.partitions import MOST_PARTITIONS, Partitions, filled_length
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tools.pages import ROOT

NAMES = ("a", "b", "coordinator")


class Played:
    """One head, whose workers do what chance says: a step makes one of them go on."""

    def __init__(self, name, partitions, workers):
        self.name, self.most = name, workers
        self.workers = LaneWorkers(self, SimpleNamespace(name=name), partitions)
        self.inbox, self.events, self.lanes = deque(), deque([WorkerFree(workers)]), {}

    def begin(self, lane):
        self.lanes[lane] = "begun"
        assert len(self.lanes) <= self.most, "more lanes than workers"

    def meet(self, lane, hub, introductions):
        assert introductions == {name: f"{name} {lane}".encode() for name in NAMES}
        assert hub in range(3)
        assert self.lanes[lane] == "here"
        self.lanes[lane] = "met"

    def give_up(self, lane):
        del self.lanes[lane]
        self.events.append(WorkerFree())

    @property
    def moves(self):
        found = [("hear", None)] if self.inbox else []
        found += [("event", None)] if self.events else []
        return found + [(state, lane) for lane, state in self.lanes.items() if state != "here"]

    def step(self, move, lost):
        """What it says now."""
        what, lane = move
        if what == "hear":
            self.workers.obey(self.inbox.popleft())
            return []
        if what == "event":
            return self.workers.handle_event(self.events.popleft())
        if what == "begun" and not lost:
            self.lanes[lane] = "here"
            return self.workers.handle_event(LaneWorkerReady(lane, f"{self.name} {lane}".encode()))
        self.give_up(lane)
        return self.workers.handle_event(
            WorkerLost(lane) if lost else WorkerDone(lane, PartialSums(10 * lane.partition + lane.attempt))
        )


def decide(arbiter, who, said):
    if said.what == "here":
        return arbiter.here(who, said.lane, said.worker)
    return arbiter.done(who, said.lane, said.rows) if said.what == "done" else arbiter.lost(who, said.lane)


@settings(max_examples=100)
@given(
    partitions=st.sampled_from([1, 2, 4, 8]),
    workers=st.tuples(*[st.integers(1, 5)] * 3),
    losses=st.integers(0, 12),
    seed=st.randoms(use_true_random=False),
)
def test_any_speed_and_any_losses_end_with_one_attempt_of_every_partition(partitions, workers, losses, seed):
    arbiter = LaneArbiter(NAMES, partitions, hubs=3)
    heads = {name: Played(name, partitions, count) for name, count in zip(NAMES, workers, strict=True)}
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
        loses = lost < losses and move[0] in ("begun", "met") and seed.random() < 0.4
        lost += loses
        words[name].extend(heads[name].step(move, loses))
    if ended:
        attempts = [order.lane.attempt for order in orders if order.what == "again"]
        assert max(attempts) == MOST_ATTEMPTS
        return
    assert arbiter.over
    assert orders[-1] == LaneOrder("over")
    kept = [order.lane for order in orders if order.what == "kept"]
    assert sorted(lane.partition for lane in kept) == list(range(partitions))
    assert dict(arbiter._kept) == {lane.partition: lane.attempt for lane in kept}
    for head in heads.values():
        assert dict(head.workers.kept) == dict(arbiter._kept)
        assert head.workers.total.rows == sum(10 * lane.partition + lane.attempt for lane in kept)
        assert not head.lanes
        assert not head.workers._held, "what was given up or added is forgotten"
    assert sum(order.what == "again" for order in orders) <= lost


def meet(arbiter, lane):
    for name in NAMES:
        orders = arbiter.here(name, lane, name.encode())
    return orders


def test_words_that_do_not_fit_are_refused():
    lane = LaneAttempt(0)
    follow(
        LaneArbiter(NAMES, 2),
        [
            ("MS026", "here", "stranger", lane, b""),
            (NO_LANE, "here", "a", LaneAttempt(2), b""),
            (NO_LANE, "here", "a", LaneAttempt(0, 2), b""),
            (NO_LANE, "lost", "a", LaneAttempt(0, 0)),
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
            *((None, "here", name, LaneAttempt(1), b"") for name in NAMES),
            (None, "lost", "a", LaneAttempt(1)),
            ("MS033", "lost", "a", LaneAttempt(1)),
            ("MS033", "done", "a", LaneAttempt(1), 4),
            (None, "done", "b", LaneAttempt(1), 4),
            ("MS033", "done", "b", LaneAttempt(1), 4),
        ],
    )


def test_results_about_different_numbers_of_people_are_refused():
    arbiter, lane = LaneArbiter(NAMES, 1), LaneAttempt(0)
    meet(arbiter, lane)
    arbiter.done("a", lane, 5)
    arbiter.done("b", lane, 6)
    refused(DisagreementError, "DI003", arbiter.done, "coordinator", lane, 5)


def test_attempts_and_losses_are_bounded():
    arbiter = LaneArbiter(NAMES, 1)
    for attempt in range(1, MOST_ATTEMPTS):
        assert arbiter.lost("a", LaneAttempt(0, attempt)) == [LaneOrder("again", LaneAttempt(0, attempt + 1))]
    refused(PeerLost, "PE004", "8", arbiter.lost, "b", LaneAttempt(0, MOST_ATTEMPTS))
    arbiter, followed = LaneArbiter(NAMES, 256), Played("a", 256, 1).workers
    for partition in range(MOST_LOST):
        for order in arbiter.lost("a", LaneAttempt(partition)):
            followed.obey(order)
    refused(PeerLost, "PE005", "127", arbiter.lost, "a", LaneAttempt(200))
    refused(PeerLost, "PE005", "127", followed.obey, LaneOrder("again", LaneAttempt(200, 2)))


def test_a_hub_that_loses_one_lane_after_the_other_gets_no_more():
    arbiter, used = LaneArbiter(NAMES, 32, hubs=2), []
    for partition in range(32):
        [order] = meet(arbiter, LaneAttempt(partition))
        used.append(order.hub)
        if order.hub == 1:
            arbiter.lost("a", LaneAttempt(partition))
        else:
            for name in NAMES:
                arbiter.done(name, LaneAttempt(partition), 0)
    assert used == [0, 1] * 4 + [0] * 24


def test_orders_that_do_not_fit_are_refused():
    lane, head = LaneAttempt(0), Played("a", 2, 2)
    head.step(("event", None), lost=False)
    known = {name: f"{name} {lane}".encode() for name in NAMES}
    follow(
        head.workers,
        [
            (NO_LANE, "obey", LaneOrder("kept", LaneAttempt(2))),
            ("MS031", "obey", LaneOrder("meet", lane, 0, known)),
            ("MS032", "obey", LaneOrder("kept", lane)),
            ("MS030", "obey", LaneOrder("again", lane)),
            ("MS030", "obey", LaneOrder("again", LaneAttempt(0, 3))),
            ("MS028", "obey", LaneOrder("over")),
        ],
    )
    head.step(("begun", lane), lost=False)
    follow(
        head.workers,
        [
            ("MS038", "obey", LaneOrder("meet", lane, 0, known | {"a": b"another"})),
            ("MS032", "obey", LaneOrder("kept", lane)),
            (None, "obey", LaneOrder("meet", lane, 0, known)),
            ("MS031", "obey", LaneOrder("meet", lane, 0, known)),
        ],
    )
    head.step(("met", lane), lost=False)
    follow(
        head.workers,
        [
            (None, "obey", LaneOrder("kept", lane)),
            ("MS032", "obey", LaneOrder("kept", lane)),
            ("MS030", "obey", LaneOrder("again", LaneAttempt(0, 2))),
            ("MS028", "obey", LaneOrder("over")),
        ],
    )
    head.step(("begun", LaneAttempt(1)), lost=False)
    follow(
        head.workers,
        [
            (None, "obey", LaneOrder("again", LaneAttempt(1, 2))),
            ("MS031", "obey", LaneOrder("meet", LaneAttempt(1), 0, known)),
            ("MS032", "obey", LaneOrder("kept", LaneAttempt(1, 2))),
        ],
    )


def test_a_worker_that_fails_as_it_is_stopped_ends_nothing_but_what_a_check_found_does():
    workers = Played("a", 2, 1).workers
    workers.handle_event(WorkerFree(1))
    with pytest.raises(OSError, match="disk"):
        workers.handle_event(WorkerFailed(LaneAttempt(0), OSError("disk")))
    workers.obey(LaneOrder("again", LaneAttempt(0, 2)))
    assert workers.handle_event(WorkerFailed(LaneAttempt(0), OSError("its line was cut"))) == []
    with pytest.raises(ShareError, match="wrong claim"):
        workers.handle_event(WorkerFailed(LaneAttempt(0), ShareError("wrong claim")))


def test_the_chance_of_the_theory_page_is_that_of_the_code():
    runs = MOST_LOST + 1
    assert runs == RUNS_THAT_MAY_CHEAT == 2**7
    proofs = InputRanges((bounded_norm(40, 2**20),), 45_000, projections_for(runs))
    for losses, length, times in product((0, 1, 2), (1, 4096, 65_536, 10**6, 10**7), (1, COMBINED_TIMES)):
        often = repetitions(length, losses, times, runs)
        passing = error_chance(length, often, losses, times)
        assert runs * passing <= ERROR
        # Whoever is lost at a coin has seen it, and another is drawn.
        again = losses * Fraction(1, 2**proofs.projections)
        assert runs * (passing + proofs.error + again) < STUDY_ERROR
        assert passing + proofs.error + again <= Fraction(1, 2**47)
    page = (ROOT / "docs" / "theory" / "lanes.md").read_text(encoding="utf-8")
    assert round(math.log2(proofs.error), 1) == -49.8
    for said in (
        f"L = {MOST_LOST} lanes",
        f"{MOST_ATTEMPTS} of one partition",
        "(L + 1) ε = 2^-40",
        f"K = {proofs.projections} projections",
        f"{proofs.check_repetitions} times instead of 2",
        f"{proofs.repetitions} times instead of 3",
        "2^-49.8",
        "2^-48",
    ):
        assert said in page, said


def follow(said, steps):
    """Words or orders one after the other; those with a code are refused."""
    for code, what, *about in steps:
        if code:
            with raises(ProtocolError, code):
                getattr(said, what)(*about)
        else:
            getattr(said, what)(*about)


NO_LANE = "MS027|MS029"


# --- partitions: who is in which, how long their lists are, and alignment of one part at a time


KEY = bytes(range(32))


def test_a_person_has_one_partition_whatever_else_is_on_the_list() -> None:
    spread = Partitions(64, KEY)
    people = [f"person {number}".encode() for number in range(64_000)]
    whole, other = spread.of(people), Partitions(64, KEY[::-1]).of(people)
    assert np.array_equal(spread.of(people[:1000][::-1]), whole[:1000][::-1])
    assert [spread.of([person])[0] for person in people[:50]] == whole[:50].tolist()
    assert np.array_equal(whole // 8, Partitions(8, KEY).of(people)), "finer partitions divide coarser ones"
    assert np.all(np.abs(np.bincount(whole, minlength=64) - 1000) < 7 * math.sqrt(1000)), "they are spread evenly"
    assert 700 < np.count_nonzero(whole == other) < 1300, "and differently under another key"
    assert Partitions(1, KEY).of([b"a", b"b"]).tolist() == [0, 0]
    assert "key" not in repr(spread)


def mac(value: bytes) -> bytes:
    """CBC-MAC as the page on lanes defines it."""
    state = bytes(16)
    text = len(value).to_bytes(16, "little") + value + bytes(-len(value) % 16)
    for start in range(0, len(text), 16):
        mixed = bytes(a ^ b for a, b in zip(state, text[start : start + 16], strict=True))
        state = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor().update(mixed)  # noqa: S305
    return state


@given(st.lists(st.binary(max_size=70), max_size=40))
def test_partitions_are_the_first_bits_of_the_hash_on_the_page(values: list[bytes]) -> None:
    values += [b"", b"a" * 16, b"a" * 16 + b"\0", b"a" * 15 + b"\0", b"a" * 15]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_CHUNK", 17)
        found = Partitions(MOST_PARTITIONS, KEY).of(values)
    assert found.tolist() == [int.from_bytes(mac(value)[:2], "big") for value in values]


@pytest.mark.parametrize("count", [0, 3, -4, 2 * MOST_PARTITIONS])
def test_other_numbers_of_partitions_are_refused(count: int) -> None:
    refused(StudyError, "ST457", Partitions, count, KEY)
    refused(StudyError, "ST457", kit.align_task, ("a", "b"), partitions=count)


@given(st.integers(0, 300), st.sampled_from([1, 2, 4, 16, 64]))
def test_no_partition_exceeds_its_length_but_once_in_two_to_the_64(people: int, partitions: int) -> None:
    """The exact probability that a binomial count is above the length."""
    length, p = filled_length(people, partitions), Fraction(1, partitions)
    beyond = [math.comb(people, k) * p**k * (1 - p) ** (people - k) for k in range(length + 1, people + 1)]
    assert partitions * sum(beyond) <= Fraction(1, 2**64)
    assert length <= people


def test_the_check_shows_other_rules() -> None:
    spread, tags = Partitions(64, KEY), partitions._tags
    before = spread.check
    assert before == Partitions(64, KEY).check
    assert len({before, Partitions(32, KEY).check, Partitions(64, KEY[::-1]).check}) == 3
    for name, other in (
        ("filled_length", lambda people, count: people),
        ("_tags", lambda values, key: tags(values, key[::-1])),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitions, name, other)
            assert spread.check != before
    assert spread.check == before


def test_padded_parts_have_one_length_too_long_ones_are_refused_and_at_least_is_about_all_of_them():
    task = kit.align_task(("a", "b"), mode="helper", partitions=8, pad_to=1000)
    found = aligned(task, {"a": kit.keys_of(["x", "y"]), "b": kit.keys_of(["y"])}, {"a": 700, "b": 5})[COORDINATOR]
    assert set(found.sizes.values()) == {filled_length(1000, 8)}
    assert found.count == 1
    with raises(CapacityError, "CA020"):
        lists = {"a": kit.keys_of(f"{n}" for n in range(90)), "b": kit.keys_of(["y"])}
        aligned(kit.align_task(("a", "b"), mode="helper", partitions=8), lists, {"a": 100, "b": 100})
    task = kit.align_task(("a", "b"), mode="helper", partitions=2, at_least=50)
    found = aligned(task, {"a": kit.keys_of(["x"]), "b": kit.keys_of(["y"])}, {"a": 60, "b": 60})[COORDINATOR]
    assert found.count == 0


def aligned(task, lists, people, log=None):
    return kit.results(task, kit.align_programs(task, lists, people=people), log=log)


def sizes(fields):
    return {name: getattr(value, "shape", None) or type(value).__name__ for name, value in fields.items()}


def test_the_same_is_sent_for_parts_of_different_lengths():
    task = kit.align_task(("a", "b"), mode="dh", partitions=8)
    people = {"a": 300, "b": 300}
    heard = []
    for own in (range(100, 109), range(100, 130)):
        log: kit.Log = {}
        lists = {"a": kit.keys_of(f"{n}" for n in own), "b": kit.keys_of(["200", "300"])}
        aligned(task, lists, people, log)
        heard.append([[(kind, sizes(told)) for kind, told in log[pair] if kind != "waiting"] for pair in log])
    assert sorted(map(str, heard[0])) == sorted(map(str, heard[1]))


@pytest.mark.parametrize("mode", ["ot", "dh"])
def test_three_parties_hide_members_in_partitions_only_where_the_coordinator_could_guess_keys_anyway(mode):
    """The coordinator sees how many people of the others are common; with a party's help, in which partition."""
    refused(StudyError, "ST429", kit.align_task, ("a", "b", "c"), mode=mode, hidden=True, partitions=2)
    for allowed in ({"owners": ("a", "b"), "mode": mode}, {"owners": ("a", "b", "c"), "mode": "helper"}):
        assert kit.align_task(**allowed, hidden=True, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, partitions=2).why_not_partitions is None
    assert kit.align_task(("a", "b", "c"), mode=mode, hidden=True).partitions == 1


def test_what_partitions_tell_is_said():
    plain, parted = (kit.align_task(("a", "b"), at_least=5, partitions=count) for count in (1, 4))
    assert "in each partition" in parted.leakage[1].learns
    assert not any("partition" in leak.learns or "at_least" in leak.learns for leak in plain.leakage)
    assert (parted.agreement["partitions"], plain.agreement.get("partitions")) == (4, None)


@pytest.mark.parametrize("people", [1, 4])
def test_a_false_verdict_is_refused_in_the_same_words_whatever_a_part_holds(people, monkeypatch):
    """The coordinator cannot find out by it how many people of an owner a partition has."""
    real = aligning.coordinator_joins
    monkeypatch.setattr(aligning, "coordinator_joins", lambda *given: real(*given) + 3)
    task = kit.align_task(("a", "b"), mode="helper", partitions=8)
    keys = {"a": kit.keys_of(f"{n}" for n in range(people)), "b": kit.keys_of(["y"])}
    refused(ProtocolError, "MS*", "not about those who were matched", aligned, task, keys, {"a": 30, "b": 30})
