"""Scores of new people by weights that parties keep: the protocol over channels, its price, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, DataError, StudyError
from colonnade.kinds.glm.exchange.sides import KeptWeights
from colonnade.kinds.glm.kept_scores import programs as kept_scores
from colonnade.kinds.glm.kept_scores.programs import New
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask, Sender
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import kept_scores_task

SENDERS = (Sender("mid", 2, 1.5, 0.4, 0.1), Sender("right", 3, 2.0, 1.5, 0.25))
execute = partial(kit.execute, kept_scores)


def new_people(rows, seed=1, **widths):
    """Rows of everybody with a constant, and weights for them."""
    rng = np.random.default_rng(seed)
    ids = [f"n{i:03d}" for i in range(rows)]
    return {
        name: New(ids, np.hstack([rng.uniform(-1, 1, (rows, width - 1)), np.ones((rows, 1))]), rng.normal(size=width))
        for name, width in ({"left": 3, "mid": 2, "right": 3} | widths).items()
    }


def still(noise, shape, stream):
    return np.zeros(shape, dtype=np.int64)


def test_without_noise_the_party_with_the_label_receives_clipped_scores_and_nobody_else_anything(monkeypatch):
    monkeypatch.setattr(AdditiveNoise, "draw", still)
    task, new = kept_scores_task(*SENDERS), new_people(30)
    found = execute(task, new)
    assert {name for name, result in found.items() if result is not None} == {"left"}
    for sender in SENDERS:
        clipped = np.clip(new[sender.owner].scores, -sender.score_clip, sender.score_clip)
        np.testing.assert_allclose(found["left"].received[sender.owner], clipped, atol=1e-7)
    assert np.array_equal(found["left"].new.scores, new["left"].scores)


def test_a_simulation_gives_what_the_protocol_gives(monkeypatch, stream):
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: np.arange(shape[0]) * noise.scale // 2**40)
    task, new = kept_scores_task(*SENDERS), new_people(30)
    there, here = execute(task, new)["left"], kept_scores.simulate(new, task, stream)
    assert list(there.received) == list(here.received) == ["mid", "right"]
    assert all(np.array_equal(there.received[name], here.received[name]) for name in here.received)
    left, two = len(new["left"].weights), ("mid", "right")
    kept = KeptWeights("left", new["left"].weights, dict.fromkeys(two, 0.5), {name: np.zeros(left) for name in two})
    assert np.array_equal(there.joint(kept), here.joint(kept))
    assert not np.array_equal(there.joint(kept), new["left"].scores)


def test_only_the_planned_scores_are_told_and_only_to_the_party_with_the_label():
    task, log = kept_scores_task(*SENDERS), {}
    ended = kit.outcomes(task, kit.programs_of(kept_scores, task, new_people(20)), log=log)
    assert ended["left"].revealed == ended[COORDINATOR].revealed == ()
    assert ended["mid"].revealed == (task.score_event("mid"),)
    told = {pair for pair, messages in log.items() if any(kind == "scores" for kind, _ in messages)}
    assert told == {("mid", "left"), ("right", "left")}


def test_other_people_too_many_people_and_rows_that_do_not_fit_are_refused():
    task, new = kept_scores_task(*SENDERS, rows_at_most=20), new_people(20)
    with raises(StudyError, "ST532"):
        execute(task, new | {"mid": replace(new["mid"], ids=[f"x{i}" for i in range(20)])})
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(task, new_people(21))
    with raises(DataError, "DA126", "right"):
        execute(task, new | {"right": replace(new["right"], weights=np.array([np.nan, 0, 0]))})
    with raises(DataError, "DA126", "mid"):
        execute(task, new | {"mid": replace(new["mid"], rows=new["mid"].rows[:-1])})


def test_tasks_that_make_no_sense():
    with raises(ValueError, "VA134"):
        KeptScoresTask(kept_scores_task().trust, "left", (), 5)
    with raises(StudyError, "ST454"):
        kept_scores_task(Sender("right", 4, 1.5, 0.0, 0.1))


def test_one_question_costs_a_score_and_the_weights():
    task = kept_scores_task()
    weights, scores = task.events
    step = Fraction(1, 1 << 28)
    assert float(scores.l2_squared * step**2) == pytest.approx(9.0, rel=1e-5)
    assert float(weights.l2_squared * step**2) == pytest.approx(0.0625, rel=1e-5)
    assert (weights.dimension, scores.dimension) == (3, 100)
    assert {event.about for event in task.events} == {("right",)}
    assert {event.audience for event in task.events} == {("left",)}
    assert task.openings == {scores: 1}
    # More people cost nothing more: each has one score, and the weights are the same.
    assert replace(task, rows_at_most=10**6).score_variance("right") == task.score_variance("right")


def test_noise_is_split_where_it_hurts_least():
    task = kept_scores_task(Sender("right", 3, 2.0, 1.5, 0.1875))
    assert task.sender("right").lean == 3
    assert [Sender("right", 3, 1.0, 0.5, drift).lean for drift in (0.0, 5e-324, 0.26, 1.0, 9.0, 1e300)] == [
        6,
        6,
        2,
        0,
        -3,
        -6,
    ]

    def cost(lean):
        """The variance of a score's noise when both noises together cost what they cost at ratio 1."""
        sender = task.sender("right")
        whole = 1 + 2.0**-lean
        return whole * (2 * sender.score_clip) ** 2 + whole * 2.0**lean * (sender.row_norm * sender.drift) ** 2

    assert cost(3) < min(cost(1), cost(6))


@settings(max_examples=5, deadline=None)
@given(st.floats(0.5, 40), st.floats(0.01, 5), st.floats(0.0, 5))
def test_the_budget_is_kept_whatever_the_bounds(epsilon, clip, drift):
    draft = kept_scores_task(Sender("right", 4, 1.5, clip, drift), rows_at_most=50)
    task = draft.calibrated(parse_budgets(epsilon, 1e-6, draft.trust))
    found = Statement.of(task.events, task.trust, 1e-6)
    assert found.epsilon("left") <= epsilon
    assert found.epsilon("right") == 0


def test_noise_that_does_not_fit_is_refused():
    draft = kept_scores_task(Sender("right", 4, 1.5, 1e6, 0.1), rows_at_most=50)
    with raises(CapacityError, "CA024"):
        draft.calibrated(parse_budgets(1e-6, 1e-6, draft.trust))
