"""Levels of scores over channels: who is told what, the law of the answers, their price, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from colonnade.errors import CapacityError, DataError, StudyError
from colonnade.kinds.prediction.levels import choice, programs as levels
from colonnade.kinds.prediction.levels.task import NOISE_UNIT, Levels, Respondent
from colonnade.kinds.prediction.scores.programs import Parts
from colonnade.privacy import Statement, Trust, parse_budgets
from colonnade.privacy.calibrate import with_least_noise
from colonnade.privacy.noise.response import MOST_EPSILON
from colonnade.protocols.roles import COORDINATOR
from colonnade.testing.seeded import seeded
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import levels_task

execute = partial(kit.execute, levels)


def parts(rows, seed=1, owners=("left", "mid", "other", "right")):
    rng = np.random.default_rng(seed)
    ids = [f"n{i:03d}" for i in range(rows)]
    return {name: Parts(ids, rng.normal(0, 0.5, (rows, 1))) for name in owners}


def truthful(monkeypatch):
    monkeypatch.setattr(levels, "randomised_response", lambda given, *_: given)


def test_the_entitled_party_hears_the_levels_of_those_asked_and_nobody_else_anything(monkeypatch):
    truthful(monkeypatch)
    task, new = levels_task(), parts(60)
    found = execute(task, new)
    assert {name for name, result in found.items() if result is not None} == {"left"}
    heard = found["left"]
    assert list(heard.levels) == ["mid", "right"]
    mid, right = (np.rint(new[name].values[:, 0] * 256) for name in ("mid", "right"))
    assert np.array_equal(heard.levels["mid"], (mid >= -64).astype(int) + (mid >= 64))
    assert np.array_equal(heard.levels["right"], right >= 0)
    assert np.array_equal(heard.own, new["left"].values)
    assert heard.ids == tuple(new["left"].ids)


def test_only_the_planned_answers_are_told_and_only_to_the_entitled_party():
    task, log = levels_task(), {}
    ended = kit.outcomes(task, kit.programs_of(levels, task, parts(20)), log=log)
    assert ended["left"].revealed == ended["other"].revealed == ended[COORDINATOR].revealed == ()
    assert ended["mid"].revealed == (task.events[0],)
    told = {pair for pair, messages in log.items() if any(kind == "levels" for kind, _ in messages)}
    assert told == {("mid", "left"), ("right", "left")}


def test_a_simulation_gives_what_the_protocol_gives(monkeypatch):
    truthful(monkeypatch)
    task, new = levels_task(), parts(30)
    there, here = execute(task, new)["left"], levels.simulate(new, task, seeded(1))
    assert all(np.array_equal(there.levels[name], here.levels[name]) for name in here.levels)


def test_answers_are_true_as_often_as_the_odds_say():
    """A true answer has probability 2/3 here; five deviations of 40,000 answers are missed once in a million runs."""
    task = replace(levels_task(), noise=round(NOISE_UNIT / (2 * math.log(4))))
    asked, rows = task.asked[0], 40_000
    told = levels.answers(np.full(rows, 10.0), asked, task, seeded(2))
    assert float(task.odds) == pytest.approx(4, rel=1e-6)
    shares = np.bincount(told, minlength=3) / rows
    assert np.allclose(shares, [1 / 6, 1 / 6, 2 / 3], atol=5 * math.sqrt(2 / 9 / rows))


@settings(max_examples=6, deadline=None)
@given(st.floats(0.01, 30), st.integers(1, 3))
def test_epsilon_is_shared_by_those_who_are_asked_and_never_exceeded(epsilon, count):
    names = ("a", "b", "c")[:count]
    trust = Trust(("to", *names), (), 0)
    draft = Levels(trust, "to", tuple(Respondent(name, (0,)) for name in names), 256, 10)
    budgets = parse_budgets(epsilon, 1e-30, trust)
    task = with_least_noise(draft.with_noise, trust, budgets, owners=1)
    found = Statement.of(task.events, trust, 1e-5)
    most = min(epsilon, count * MOST_EPSILON)
    assert 0.99 * most <= count * math.log(task.odds) <= epsilon
    assert found.epsilon("to") <= epsilon
    assert all(found.epsilon(name) == 0 for name in (*names, "analyst", "coordinator"))


def test_a_coalition_is_charged_for_those_outside_of_it():
    task = replace(levels_task(), noise=NOISE_UNIT // 4)
    found = Statement.of(task.events, task.trust, 1e-5)
    assert found.epsilon("left") == pytest.approx(4, rel=1e-4)
    assert found.epsilon("left+mid") == pytest.approx(2, rel=1e-4)
    assert found.epsilon("left+other") == pytest.approx(4, rel=1e-4)
    assert found.epsilon("mid+right") == 0


def test_refusals():
    task, new = levels_task(rows_at_most=20), parts(20)
    with raises(StudyError, "ST532"):
        execute(task, new | {"mid": replace(new["mid"], ids=[f"x{i}" for i in range(20)])})
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(task, parts(21))
    with raises(DataError, "DA127", "mid"):
        execute(task, new | {"mid": replace(new["mid"], values=new["mid"].values * np.nan)})
    with raises(StudyError, "ST458", "left", "mid", "other", "right", "nobody"):
        levels_task(to="nobody")
    with raises(ValueError, "VA141"):
        levels_task(asked=(Respondent("left", (0,)),))
    with raises(ValueError, "VA140"):
        Respondent("mid", (3, 3))


def test_other_cuts_odds_or_owners_are_other_tasks():
    task = levels_task()
    others = [
        replace(task, noise=task.noise // 2),
        replace(task, asked=(Respondent("mid", (-64, 65)), task.asked[1])),
        replace(task, asked=task.asked[:1]),
        replace(task, model="another"),
    ]
    assert len({str(each.agreement) for each in (task, *others)}) == 5


# --- which levels


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 5.0])
def test_the_share_that_is_told_is_that_of_the_integral(epsilon):
    found, odds = choice.best(epsilon), math.exp(epsilon)
    count = len(found.cuts) + 1
    told = 0.0
    for low, high in pairwise((-math.inf, *found.cuts, math.inf)):
        inside = norm.cdf(high) - norm.cdf(low)
        moment = quad(lambda x: x * norm.pdf(x), low, high)[0]
        chance = (odds * inside + (1 - inside)) / (odds + count - 1)
        mean = (odds - 1) * moment / (odds + count - 1) / chance
        told += chance * mean**2
    assert found.heard == pytest.approx(told, rel=1e-6)


def test_more_epsilon_tells_more_by_more_levels():
    found = [choice.best(epsilon) for epsilon in (0.1, 1.0, 3.0, 5.0, 8.0, 12.0)]
    assert [len(each.cuts) + 1 for each in found] == [2, 2, 3, 6, 16, 16]
    assert all(low.heard < high.heard for low, high in pairwise(found))
    assert found[2].heard == pytest.approx(0.59, abs=0.005)
    assert found[-1].heard < 1


def test_cuts_are_whole_and_apart_however_narrow_the_part_is():
    found = choice.best(5.0)
    assert found.whole(1.0, 1e-9, 64) == (64, 65, 66, 67, 68)
    wide = found.whole(-2.0, 3.0, 1 << 16)
    assert np.allclose(np.array(wide) / (1 << 16), -2 + 3 * np.array(found.cuts), atol=1e-4)


def test_facts_and_loads():
    task = levels_task()
    assert task.facts["levels"] == {"mid": 3, "right": 2}
    assert task.odds == Fraction(task.agreement["odds"])
    sent = {load.participant: load.bytes_sent for load in task.loads((*task.owners, COORDINATOR), 50)}
    assert sent == {"left": 0, "mid": 400, "other": 0, "right": 400, COORDINATOR: 0}
