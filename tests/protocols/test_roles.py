"""Roles, rounds and tasks: what is told to whom and counted, when rounds end, and what a task says of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PeerLost, PrivacyError, ProtocolError, ShareError, StudyError
from colonnade.kinds.pca import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.sketch.model import SketchTask
from colonnade.kinds.tables import programs as marginals
from colonnade.models.registry import load, rows
from colonnade.mpc import PRIMES, Committee, ResidueSystem, Shares
from colonnade.privacy import DiscreteGaussianRelease, RepeatedRelease, Trust
from colonnade.privacy.events import unwrap
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.iteration import PreparedNoise, RoundCounter
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, Owner
from colonnade.protocols.session import partners_of
from colonnade.protocols.task import PricedTask, RunnableTask, Task, check_complete, message_event
from colonnade.wire import encode
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import LAWS, exchange_task, grouped_moments_task, kept_scores_task, moments_task, results

SYSTEM = ResidueSystem(PRIMES[:1])


NOBODY = Committee((), 0, SYSTEM)


SEATS = Committee(("a", "b", "c"), 1, SYSTEM)


NUMBERS = np.array([3, -5, 8], dtype=np.int64)


SCORES = DiscreteGaussianRelease(
    name="scores of a", shares=(("a", Fraction(4)),), dimension=3, l1=1, l2_squared=1, replace_l1=2,
    replace_l2_squared=4, tail=0.0, theorem="exchange-sensitivity", audience=("b", "c"), about=("a",),
)  # fmt: skip


class Wire:
    """A channel that keeps what is sent; nobody is at its other end."""

    def __init__(self, log: list[tuple[str, str, object]], peer: str) -> None:
        self.log, self.peer = log, peer

    def send(self, kind: str, **fields: object) -> None:
        self.log.append((self.peer, kind, fields.get("values")))

    def recv(self, kind: str, most: int) -> dict[str, object]:
        raise AssertionError(f"nothing is received here: {kind}")


def role(committee=NOBODY, planned=None):
    """An owner called a, and what happens at its place in order."""
    log: list[tuple[str, str, object]] = []
    links = {peer: Wire(log, peer) for peer in ("b", "c", COORDINATOR)}
    begin = lambda: log.append(("a", "spent", None))  # noqa: E731
    return Owner("a", links, committee, planned=planned or {SCORES: 2}, before_sharing=begin), log


def test_told_numbers_reach_everyone_equally_after_the_budget_is_marked_as_spent_once():
    me, log = role(SEATS)
    me.tell(("a", "b", "c"), "scores", NUMBERS, event=SCORES)
    assert [(peer, kind) for peer, kind, _ in log] == [("a", "spent"), ("b", "scores"), ("c", "scores")]
    assert all(np.array_equal(values, NUMBERS) for peer, _, values in log if peer != "a")
    me.tell(("b",), "scores", NUMBERS, event=SCORES)
    me.engine.deal(NUMBERS)
    assert [kind for _, kind, _ in log if kind != "keys"][3:] == ["scores", "share"]
    assert me.revealed == [SCORES]
    other, log = role(SEATS)
    wider = other.engine.with_system(ResidueSystem(PRIMES[:2]))
    wider.notify_before_sharing()
    assert wider.lost is other.engine.lost
    other.engine.deal(NUMBERS)
    other.tell(("b",), "scores", NUMBERS, event=SCORES)
    assert [kind for _, kind, _ in log if kind != "keys"] == ["spent", "share", "scores"], "shares may leave first"


class Said:
    """A channel to a seat that tells a digest, or that is lost, as the coordinator says."""

    def __init__(self, seat: str, digest: bytes | None) -> None:
        self.seat, self.digest = seat, digest

    def send(self, kind: str, **fields: object) -> None:
        assert kind == "result"

    def recv(self, kind: str, most: int) -> dict[str, object]:
        if self.digest is None:
            error = PeerLost(f"{self.seat} is lost")
            error.spare = self.seat
            raise error
        return {"digest": self.digest}


def compared(seats: int, threshold: int, *, gone: int, wrong: str = "") -> Owner:
    """An owner without a seat that has compared its result with the seats; so many of the last ones are lost."""
    names = tuple(f"s{i}" for i in range(seats))
    me = Owner("a", {}, Committee(names, threshold, SYSTEM, active=True), planned={})
    me.have_alike(NUMBERS, ("a", *names))
    told = me._alike["a", *names]
    digests = {seat: bytes(32) if seat == wrong else sha256(told).digest() for seat in names}
    me._links = {seat: Said(seat, digests[seat] if i < seats - gone else None) for i, seat in enumerate(names)}
    me.compare_results()
    return me


@pytest.mark.parametrize(
    ("seats", "threshold", "may"), [(3, 1, 0), (4, 1, 1), (5, 1, 1), (6, 2, 1), (7, 1, 2), (7, 2, 2)]
)
def test_a_result_is_kept_only_if_as_many_seats_confirm_it_as_must_be_left(seats, threshold, may):
    """The coordinator may say that seats are gone: those that are left must hold an honest one."""
    for gone in range(may + 1):
        assert len(compared(seats, threshold, gone=gone).engine.lost) == gone
    for gone in range(may + 1, seats):
        with pytest.raises(PeerLost, match="lost"):
            compared(seats, threshold, gone=gone)
    refused(ShareError, "SH018", compared, seats, threshold, gone=may, wrong="s0")


class Telling(RunnableTask):
    """A task in which a tells b and c, and nobody holds shares."""

    owners = ("a", "b", "c")
    committee = NOBODY
    trust = Trust(owners, (), 0)
    events = (SCORES,)
    openings: ClassVar = {SCORES: 2}


def test_without_a_committee_everybody_talks_with_everybody():
    names = ("a", "b", "c", COORDINATOR)
    for name in names:
        assert partners_of(name, names, Telling()) == [peer for peer in names if peer != name]
    seated = Telling()
    seated.committee = SEATS
    assert partners_of("d", ("a", "b", "c", "d", "e", COORDINATOR), seated) == ["a", "b", "c", COORDINATOR]


def test_a_mask_of_another_degree_than_the_opening_is_refused():
    me, log = role(SEATS)
    shares = [Shares(np.zeros((1, 3)), degree) for degree in (1, 2)]
    refused(ValueError, "VA145", me.reveal, shares[1], to=("b",), event=SCORES, shape=(3,), bound=9, mask=shares[0])
    assert log == []


def test_a_phase_counts_rounds_messages_and_bytes():
    played = {}

    def owner(me):
        if me.name == "a":
            with me.meter.phase("ask"):
                for peer in ("b", "c"):
                    me.link(peer).send("ask", n=NUMBERS)
                for peer in ("b", "c"):
                    me.link(peer).recv("told")
            with me.meter.phase("thank"), me.meter.phase("inner"):
                me.link("b").send("thanks")
        else:
            with me.meter.phase("answer"):
                me.link("a").recv("ask")
                me.link("a").send("told")
            if me.name == "b":
                me.link("a").recv("thanks")
        played[me.name] = me.meter.phases

    results(Telling(), {**dict.fromkeys(Telling.owners, owner), COORDINATOR: lambda me: None})
    ask, thank, inner = (played["a"][name] for name in ("ask", "thank", "inner"))
    assert (ask.rounds, ask.messages, ask.bytes) == (1, 2, 2 * len(encode(["ask", {"n": NUMBERS}])))
    assert (thank.rounds, thank.messages, thank.bytes) == (0, 1, len(encode(["thanks", {}])))
    assert (inner.rounds, inner.messages, inner.bytes) == (0, 1, thank.bytes)
    answer = played["c"]["answer"]  # what a receives before it has said anything is no round
    assert (answer.rounds, answer.messages) == (0, 1)


def went(turns, every):
    reported = []
    return list(RoundCounter(turns, lambda *said: reported.append(said), "search", every)), reported


def test_noise_that_was_drawn_ahead_is_for_one_message_only():
    ahead = PreparedNoise("bank", 9, lambda name, variance, count: np.full(count, variance))
    ahead.prepare(3)
    for wrong in [("shop", 9, 3), ("bank", 8, 3), ("bank", 9, 2)]:
        refused(ProtocolError, "MS041", ahead, *wrong)
    assert ahead("bank", 9, 3).tolist() == [9, 9, 9]
    refused(ProtocolError, "MS041", ahead, "bank", 9, 3)


FOREIGN, PUBLIC_SCORES = replace(SCORES, about=("b",), audience=("a", "c")), replace(SCORES, audience=())


@pytest.mark.parametrize("repeated", [False, True])
def test_nothing_is_told_beyond_its_audience_for_another_party_unplanned_too_often_or_in_fractions(repeated):
    def wrapped(event):
        return RepeatedRelease(event, 3) if repeated else event

    me, log = role(planned={wrapped(event): 1 for event in (SCORES, FOREIGN, PUBLIC_SCORES)})
    for to, values, event, refusal in (
        (("b", COORDINATOR), NUMBERS, SCORES, (PrivacyError, "PR136", "coordinator")),
        (("c",), NUMBERS, FOREIGN, (PrivacyError, "PR137", "b")),
        (("b",), NUMBERS, replace(SCORES, l1=2), (PrivacyError, "PR138")),
        (("b",), NUMBERS / 2, SCORES, (ValueError, "VA146", "float64")),
    ):
        with raises(*refusal):
            me.tell(to, "scores", values, event=wrapped(event))
    assert log == []
    me.tell(("b", "c", COORDINATOR), "weights", NUMBERS, event=wrapped(PUBLIC_SCORES))
    assert [peer for peer, _, _ in log] == ["a", "b", "c", COORDINATOR]
    refused(PrivacyError, "PR138", me.tell, ("b",), "weights", NUMBERS, event=wrapped(PUBLIC_SCORES))
    assert len(log) == 4


def test_rounds_are_reported_when_they_are_over_some_together_and_the_last_always():
    assert went("abc", 1) == (["a", "b", "c"], [("search", 1, 3), ("search", 2, 3), ("search", 3, 3)])
    assert went(range(5), 2)[1] == [("search", 2, 5), ("search", 4, 5), ("search", 5, 5)]


# --- the contract of tasks: what is refused, what follows from the rest, what a run takes, and what events are charged


MOMENTS = moments_task()


@dataclass(frozen=True)
class Told(PricedTask):
    """A task that forgot two members."""

    trust: Trust

    @property
    def events(self):
        return MOMENTS.events


class Whole(Told):
    agreement = property(lambda self: {})
    rows_limit = property(lambda self: 7)


@pytest.mark.parametrize(
    ("task", "missing"),
    [
        (Told, "agreement, rows_limit"),
        (type("Half", (Moments,), {"cells": Task.cells, "law": Task.law}), "cells, law"),
        (PricedTask, "agreement, events, rows_limit, trust"),
    ],
)
def test_an_incomplete_task_is_refused_and_what_it_lacks_is_named(task, missing):
    refused(StudyError, "ST537", "new", task.__name__, missing, check_complete, task, "kind 'new', here")


@pytest.mark.parametrize("task", [Whole, *dict.fromkeys(task for row in rows() for task in load(row.kind).tasks)])
def test_a_complete_task_is_taken(task):
    check_complete(task, "anywhere")
    assert not task.__abstractmethods__


ADJUSTABLES = {
    **{law: grouped_moments_task(law=law, known=int(law == LAWS[-1])).adjustable(500) for law in LAWS},
    "slopes": exchange_task().adjustable(None),
    "scores": kept_scores_task().adjustable(None),
    "sketch": SketchTask(MOMENTS.trust, 10, "poisson", 1000, 50, 20, 1.0, 2**20, "skellam", noise=9),
}


each = pytest.mark.parametrize("draft", ADJUSTABLES.values(), ids=ADJUSTABLES)


@each
@settings(max_examples=25, deadline=None)
@given(wanted=st.floats(0.1, 50))
def test_noise_by_its_multiple_and_by_its_error_are_inverses(draft, wanted):
    found = draft.with_multiplier(wanted)
    assert found.multiplier >= wanted * (1 - 1e-12)
    assert found.multiplier == pytest.approx(wanted, rel=1e-2)
    again = draft.with_error(found.error)
    assert again.error <= found.error * (1 + 1e-9)
    assert again.multiplier == pytest.approx(found.multiplier, rel=1e-2)
    assert type(found) is type(again) is type(draft)


@each
def test_more_noise_is_a_larger_error_and_nothing_else_changes_and_what_cannot_be_counted_says_why(draft):
    little, much = (draft.with_multiplier(times) for times in (1.0, 3.0))
    assert much.error == pytest.approx(3 * little.error, rel=1e-2)
    for fact in ("number_of_rows", "number_of_rounds", "error_on", "rows_between", "about_all"):
        assert getattr(little, fact) == getattr(much, fact) == getattr(draft, fact)
    if draft.why_no_rounds is not None:
        refused(StudyError, "ST536", draft.with_rounds, 3)
    else:
        assert draft.with_rounds(3).number_of_rounds == 3
    if draft.why_no_rows is not None:
        assert "{study}" in draft.why_no_rows


ROWS = 5000  # so many that shares are packed


MANY = {"rows_at_most": 10_000}


FORECASTS = {
    "three owners": (moments, kit.moments_task((5, 3, 4), **MANY)),
    "some without a seat": (moments, kit.moments_task((3,) * 5, ("o1", "o2", COORDINATOR), **MANY)),
    "two corrupt seats": (moments, kit.moments_task((3,) * 5, threshold=2, **MANY)),
    "directions": (directions, kit.directions_task((8, 6, 9), **MANY)),
    "marginals, seven seats": (marginals, kit.marginals_task(((2, 9), *([6],) * 6), threshold=2, label=0, **MANY)),
    "polynomials": (
        polynomial,
        kit.polynomial_task((2, 2, 2), ["o0.c0 * o1.c1 + o0.c1 * o2.c0 - o1.c0 * o2.c1"], gamma=1024, **MANY),
    ),
}


@pytest.mark.parametrize(("programs", "task"), FORECASTS.values(), ids=FORECASTS)
def test_the_forecast_of_bytes_is_about_what_is_sent(programs, task):
    log: kit.Log = {}
    tables = kit.codes_of(task, ROWS) if programs is marginals else kit.tables_of(task, ROWS)
    kit.execute(programs, task, tables, log=log)
    participants = (*task.owners, COORDINATOR)
    for one in task.loads(participants, ROWS):
        sent = sum(
            len(encode([kind, fields]))
            for (sender, _), messages in log.items()
            if sender == one.participant
            for kind, fields in messages
        )
        assert one.bytes_sent == pytest.approx(sent, rel=0.1, abs=4000), one.participant


@pytest.mark.parametrize(("numbers", "square"), [(1, 1), (3, 7), (10, 4), (1000, 10**12)])
def test_a_told_event_has_the_sensitivity_and_noise_it_is_given(numbers: int, square: int) -> None:
    event = message_event("scores of bank", "bank", numbers, square, 17, "exchange-sensitivity", ("shop",))
    assert isinstance(event, DiscreteGaussianRelease)
    assert event.shares == (("bank", Fraction(17)),)
    assert (event.audience, event.about, event.theorem) == (("shop",), ("bank",), "exchange-sensitivity")
    assert event.l2_squared == event.replace_l2_squared == square
    # The longest integer vector of this length: l1 is at most its square, and at most sqrt(numbers) times its length.
    assert event.l1 == event.replace_l1 == min(square, math.isqrt(numbers * square))


def _lost_in_all(task: CommitteeTask) -> float:
    (event,) = task.events
    times = event.times if isinstance(event, RepeatedRelease) else 1
    return times * float(getattr(unwrap(event), "lost", 0.0))


CHARGED = {
    "moments": kit.moments_task,
    "directions": kit.directions_task,
    "batches": kit.gradients_task,
    "disjoint batches": partial(kit.gradients_task, sampling="disjoint"),
    "marginals": kit.marginals_task,
}


@pytest.mark.parametrize("name", CHARGED)
def test_proofs_of_bounds_are_charged_once_for_a_study(name: str) -> None:
    make: Any = CHARGED[name]
    assert _lost_in_all(kit.active(make())) == 0
    task = kit.active(make(), inputs="proven")
    # Section 10 of docs/theory/kit.active-security.md: below 2^-38 an owner, once in a study.
    assert task.shown_by_proofs == Fraction(len(task.owners), 2**38)
    assert _lost_in_all(task) == pytest.approx(len(task.owners) / 2**38, rel=1e-12)
    assert Fraction(_lost_in_all(task)) >= task.shown_by_proofs * (1 - Fraction(1, 2**50))


def test_an_error_finer_than_the_integers_and_other_rows_of_messages_are_refused():
    with raises(StudyError, "ST505"):
        MOMENTS.adjustable(1).with_error(1e-9)
    assert exchange_task().adjustable(40).number_of_rows == 40
    with raises(StudyError, "ST493"):
        exchange_task().adjustable(41)
