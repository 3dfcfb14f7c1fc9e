"""The contract of tasks: what is refused, what follows from the rest, what a run takes, and what events are charged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.sketch.task import Sketch
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.models.registry import load, rows
from colonnade.privacy import DiscreteGaussianRelease, Repeated, Trust
from colonnade.privacy.events import innermost
from colonnade.privacy.noise.strips import strips
from colonnade.protocols.messages import told_event
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.integers import noise_share
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.on_shares import OnShares
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import Priced, Task, check_complete
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.wire import encode
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import LAWS, exchange_task, grouped_moments_task, kept_scores_task, moments_task

MOMENTS = moments_task()


@dataclass(frozen=True)
class Told(Priced):
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
        (Priced, "agreement, events, rows_limit, trust"),
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
    "sketch": Sketch(MOMENTS.trust, 10, "poisson", 1000, 50, 20, 1.0, 2**20, "skellam", noise=9),
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


@pytest.mark.parametrize("law", LAWS)
def test_tables_of_noise_are_made_ahead(law):
    task = moments_task(law=law)
    strips.cache_clear()
    task.prepare()
    made = strips.cache_info().misses
    assert made == len({noise.share * (copies if law == "skellam" else 1) for noise, copies in task.drawn})
    noise_share(task, Stream(bytes(KEY_BYTES)))
    assert strips.cache_info().misses == made, "drawing makes no other table"


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


def test_more_rows_take_more_of_everything_but_memory_where_they_are_streamed():
    task = kit.moments_task(rows_at_most=10**9, block_rows=100)
    assert task.rows_at_once == 100
    (few,), (many,) = task.loads(["o0"], 10**4), task.loads(["o0"], 10**7)
    assert many.bytes_sent > 100 * few.bytes_sent
    assert many.seconds > few.seconds
    assert many.memory == pytest.approx(few.memory, rel=0.01)
    kept = kit.scores_task(3)
    assert kept.rows_at_once is None
    (few,), (many,) = kept.loads(["o1"], 10**4), kept.loads(["o1"], 10**7)
    assert many.memory > 5 * few.memory


def test_seats_that_check_keep_a_window_of_rows_and_wait_more_often():
    plain = kit.moments_task((13,) * 3, rows_at_most=10**6)
    checked = replace(plain, trust=replace(plain.trust, security="active"))
    proven = replace(plain, trust=replace(plain.trust, security="active", inputs="proven"))
    (few,), (more,), (most,) = (task.loads(["o0"], 10**6) for task in (plain, checked, proven))
    window = 8 * len(checked.committee.system.primes) * checked.rows_per_window * len(checked.names)
    assert few.memory + window <= more.memory < most.memory
    assert plain.waits < checked.waits < proven.waits


@pytest.mark.parametrize(("numbers", "square"), [(1, 1), (3, 7), (10, 4), (1000, 10**12)])
def test_a_told_event_has_the_sensitivity_and_noise_it_is_given(numbers: int, square: int) -> None:
    event = told_event("scores of bank", "bank", numbers, square, 17, "exchange-sensitivity", ("shop",))
    assert isinstance(event, DiscreteGaussianRelease)
    assert event.shares == (("bank", Fraction(17)),)
    assert (event.audience, event.about, event.theorem) == (("shop",), ("bank",), "exchange-sensitivity")
    assert event.l2_squared == event.replace_l2_squared == square
    # The longest integer vector of this length: l1 is at most its square, and at most sqrt(numbers) times its length.
    assert event.l1 == event.replace_l1 == min(square, math.isqrt(numbers * square))


def _lost_in_all(task: OnShares) -> float:
    (event,) = task.events
    times = event.times if isinstance(event, Repeated) else 1
    return times * float(getattr(innermost(event), "lost", 0.0))


CHARGED = {
    "moments": kit.moments_task,
    "directions": kit.directions_task,
    "batches": kit.gradients_task,
    "disjoint batches": partial(kit.gradients_task, sampling="disjoint"),
    "marginals": kit.marginals_task,
}


@pytest.mark.parametrize("inputs", ["covert", "proven"])
@pytest.mark.parametrize("name", CHARGED)
def test_proofs_of_bounds_are_charged_once_for_a_study(name: str, inputs: str) -> None:
    make: Any = CHARGED[name]
    assert _lost_in_all(kit.active(make())) == 0
    task = kit.active(make(), inputs=inputs)
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
