"""The contract of tasks: what is refused as incomplete, what follows from the rest, and noise by error or multiple."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.kinds.sketch.task import Sketch
from colonnade.models.registry import load, rows
from colonnade.privacy import Trust
from colonnade.privacy.noise.strips import strips
from colonnade.protocols.moments.integers import noise_share
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.task import Adjustable, Priced, Task, check_complete
from colonnade.randomness import KEY_BYTES, Stream
from tests.support.errors import raises
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
    with raises(StudyError, "ST537", "new", task.__name__, missing):
        check_complete(task, "kind 'new', here")


@pytest.mark.parametrize("task", [Whole, *dict.fromkeys(task for row in rows() for task in load(row.kind).tasks)])
def test_a_complete_task_is_taken(task):
    check_complete(task, "anywhere")
    assert not task.__abstractmethods__


def test_what_only_has_a_price_says_nothing_of_rows_and_cannot_be_adjusted():
    task = Whole(MOMENTS.trust)
    assert (task.rows_fixed, task.rows_stated, task.adjustable(5)) == (False, None, None)
    assert task.released == "releases no second moments"


def test_each_event_is_opened_once_unless_the_task_says_otherwise():
    class Twice(Moments):
        events = property(lambda self: MOMENTS.events * 2)

    assert MOMENTS.openings == {MOMENTS.event: 1}
    task = Twice(MOMENTS.blocks, MOMENTS.trust, 64, 32, 1000, noise=9)
    assert task.openings == Counter({MOMENTS.event: 2})


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
def test_more_noise_is_a_larger_error_and_nothing_else_changes(draft):
    little, much = (draft.with_multiplier(times) for times in (1.0, 3.0))
    assert much.error == pytest.approx(3 * little.error, rel=1e-2)
    for found in (little, much):
        assert (found.number_of_rows, found.number_of_rounds) == (draft.number_of_rows, draft.number_of_rounds)
        assert (found.error_on, found.rows_between, found.about_all) == (
            draft.error_on, draft.rows_between, draft.about_all
        )  # fmt: skip


@each
def test_what_cannot_be_counted_says_why(draft):
    assert isinstance(draft, Adjustable)
    if draft.why_no_rounds is not None:
        with raises(StudyError, "ST536"):
            draft.with_rounds(3)
    else:
        assert draft.with_rounds(3).number_of_rounds == 3
    if draft.why_no_rows is not None:
        assert "{study}" in draft.why_no_rows


def test_an_error_finer_than_the_integers_is_refused():
    with raises(StudyError, "ST505"):
        MOMENTS.adjustable(1).with_error(1e-9)


def test_the_rows_of_messages_stand_in_the_study():
    assert exchange_task().adjustable(40).number_of_rows == 40
    with raises(StudyError, "ST493"):
        exchange_task().adjustable(41)


@pytest.mark.parametrize("law", LAWS)
def test_tables_of_noise_are_made_ahead(law):
    task = moments_task(law=law)
    strips.cache_clear()
    task.prepare()
    made = strips.cache_info().misses
    assert made == len({noise.share * (copies if law == "skellam" else 1) for noise, copies in task.drawn})
    noise_share(task, Stream(bytes(KEY_BYTES)))
    assert strips.cache_info().misses == made, "drawing makes no other table"
