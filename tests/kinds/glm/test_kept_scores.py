"""Scores of new people by weights that parties keep: the protocol, its price, whole questions, how sure they are."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import flag
from colonnade.errors import CapacityError, DataError, StudyError
from colonnade.kinds.glm import kept_scores, planning as glm_plan
from colonnade.kinds.glm.kept_scores import KeptScores, KeptScoresTask, NewRows, ScoreSender
from colonnade.kinds.glm.model import GLM
from colonnade.kinds.glm.sides import KeptWeights, PassiveParty, fit_corrected
from colonnade.models import Roster
from colonnade.models.assessment import assess_chances
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import NOISE_UNIT
from colonnade.randomness import Stream
from colonnade.testing import seeded
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.federations import aligned, federation, numbers
from tests.support.protocols import kept_scores_task

# --- the protocol


SENDERS = (ScoreSender("mid", 2, 1.5, 0.4, 0.1), ScoreSender("right", 3, 2.0, 1.5, 0.25))
execute = partial(kit.execute, kept_scores)


def new_people(rows):
    """Rows of everybody with a constant, and weights for them."""
    rng = np.random.default_rng(1)
    ids = [f"n{i:03d}" for i in range(rows)]
    return {
        name: NewRows(
            ids, np.hstack([rng.uniform(-1, 1, (rows, width - 1)), np.ones((rows, 1))]), rng.normal(size=width)
        )
        for name, width in {"left": 3, "mid": 2, "right": 3}.items()
    }


def test_the_party_with_the_label_receives_clipped_scores_and_nobody_else_anything(monkeypatch):
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, stream: np.zeros(shape, dtype=np.int64))
    task, new, log = kept_scores_task(*SENDERS), new_people(30), {}
    ended = kit.outcomes(task, kit.programs_of(kept_scores, task, new), log=log)
    assert {name for name, played in ended.items() if played.result is not None} == {"left"}
    found = ended["left"].result
    for sender in SENDERS:
        clipped = np.clip(new[sender.owner].scores, -sender.score_clip, sender.score_clip)
        np.testing.assert_allclose(found.received[sender.owner], clipped, atol=1e-7)
    assert np.array_equal(found.new.scores, new["left"].scores)
    assert ended["left"].revealed == ended[COORDINATOR].revealed == ()
    assert ended["mid"].revealed == (task.score_event("mid"),)
    told = {pair for pair, messages in log.items() if any(kind == "scores" for kind, _ in messages)}
    assert told == {("mid", "left"), ("right", "left")}


def test_a_simulation_gives_what_the_protocol_gives(monkeypatch, stream):
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: np.arange(shape[0]) * noise.scale // 2**40)
    task, new, two = kept_scores_task(*SENDERS), new_people(30), ("mid", "right")
    there, here = execute(task, new)["left"], kept_scores.simulate(new, task, stream)
    assert tuple(there.received) == tuple(here.received) == two
    assert all(np.array_equal(there.received[name], here.received[name]) for name in two)
    own = new["left"].weights
    kept = KeptWeights("left", own, dict.fromkeys(two, 0.5), {name: np.zeros(len(own)) for name in two})
    assert np.array_equal(there.estimate(kept).scores, here.estimate(kept).scores)
    assert not np.array_equal(there.estimate(kept).scores, new["left"].scores)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"mid": {"ids": [f"x{i}" for i in range(20)]}}, StudyError, "ST532"),
        ({"right": {"weights": np.array([np.nan, 0, 0])}}, DataError, ("DA126", "right")),
        ({"mid": {"rows": np.ones((19, 2))}}, DataError, ("DA126", "mid")),
    ],
)
def test_what_is_refused(changes, error, said):
    task, new = kept_scores_task(*SENDERS, rows_at_most=20), new_people(20)
    with raises(error, said):
        execute(task, new | {name: replace(new[name], **change) for name, change in changes.items()})
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(task, new_people(21))
    with raises(ValueError, "VA134"):
        KeptScoresTask(kept_scores_task().trust, "left", (), 5)
    with raises(StudyError, "ST454"):
        kept_scores_task(ScoreSender("right", 4, 1.5, 0.0, 0.1))
    draft = kept_scores_task(ScoreSender("right", 4, 1.5, 1e6, 0.1), rows_at_most=50)
    with raises(CapacityError, "CA024"):
        draft.calibrate(parse_budgets(1e-6, 1e-6, draft.trust))


def test_one_question_costs_a_score_and_the_weights():
    task = kept_scores_task()
    weights, scores = task.events
    step = Fraction(1, 1 << 28)
    assert float(scores.l2_squared * step**2) == pytest.approx(9.0, rel=1e-5)
    assert float(weights.l2_squared * step**2) == pytest.approx(0.0625, rel=1e-5)
    assert (weights.dimension, scores.dimension) == (3, 100)
    assert {(event.about, event.audience) for event in task.events} == {(("right",), ("left",))}
    assert task.openings == {scores: 1}
    # More people cost nothing more: each has one score, and the weights are the same.
    assert replace(task, rows_at_most=10**6).score_variance("right") == task.score_variance("right")


def test_noise_is_split_where_it_hurts_least():
    drifts = {0.0: 6, 5e-324: 6, 0.26: 2, 1.0: 0, 9.0: -3, 1e300: -6}
    assert {drift: ScoreSender("right", 3, 1.0, 0.5, drift).lean for drift in drifts} == drifts
    sender, costs = ScoreSender("right", 3, 2.0, 1.5, 0.1875), {}
    for lean in (1, 3, 6):
        # The variance of a score's noise when both noises together cost what they cost at ratio 1.
        blur = 2.0**lean * (sender.row_norm * sender.drift) ** 2
        costs[lean] = (1 + 2.0**-lean) * ((2 * sender.score_clip) ** 2 + blur)
    assert sender.lean == min(costs, key=costs.get) == 3


@settings(max_examples=5, deadline=None)
@given(st.floats(0.5, 40), st.floats(0.01, 5), st.floats(0.0, 5))
def test_the_budget_is_kept_whatever_the_bounds(epsilon, clip, drift):
    draft = kept_scores_task(ScoreSender("right", 4, 1.5, clip, drift), rows_at_most=50)
    task = draft.calibrate(parse_budgets(epsilon, 1e-6, draft.trust))
    found = Statement.of(task.events, task.trust, 1e-6)
    assert found.epsilon("left") <= epsilon
    assert found.epsilon("right") == 0


# --- whole questions


SCHEMAS = {"left": numbers("a", y=flag()), "mid": numbers("b"), "right": numbers("cd")}


def columns(rows, seed=0):
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.uniform(-1, 1, (4, rows))
    yes = rng.random(rows) < 1 / (1 + np.exp(-3 * a - 2 * b - 4 * c + d))
    return {"left": {"a": a, "y": yes}, "mid": {"b": b}, "right": {"c": c, "d": d}}


def planned(model, roster, rows, times):
    return glm_plan.draft_exchange(model.choices(), model.setting(roster, rows), times)


def told_by(question, task, me, table):
    return question.owner(me, table, task)


@pytest.fixture(scope="module")
def known():
    return federation(columns(800), SCHEMAS)


@pytest.fixture(scope="module")
def model(known):
    fitted = GLM(label="left.y")
    task = replace(planned(fitted, known.roster, 800, 0.2), noise=NOISE_UNIT // 64)
    return fitted.simulate(known.tables(), known.roster, task=task)


def test_the_party_with_the_label_gets_scores_of_new_people_and_every_question_is_charged(model):
    """Each party holds some people that others lack, in an order of its own."""
    ids, held = [f"1-{k:04d}" for k in range(200)], columns(200, seed=1)
    new = aligned({name: pd.DataFrame({"id": ids, **each}) for name, each in held.items()}, SCHEMAS, "id")
    found = model.joint_scores(new, epsilon=50.0)
    assert sorted(found.ids) == ids
    truth = dict(zip(ids, held["left"]["y"], strict=True))
    assert np.mean(found.predictions == [truth[name] for name in found.ids]) > 0.55
    assert np.corrcoef(found.scores[:, 0], model.scores(new.tables())[:, 0])[0, 1] > 0.6
    assert 49 < found.privacy_.epsilon("left") <= 50
    assert found.privacy_.epsilon("mid") == found.privacy_.epsilon("right") == found.privacy_.epsilon("analyst") == 0
    names = {event.name for event in found.privacy_.events}
    assert names == {f"{what} of {who}" for what in ("new scores", "blurred weights") for who in ("mid", "right")}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["alternating", "gradient"]), st.integers(1, 3))
def test_weights_of_two_neighbours_differ_by_the_drift_at_most(seed, method, rounds):
    rng = np.random.default_rng(seed)
    rows, roster = 30, Roster.of({"left": SCHEMAS["left"], "right": SCHEMAS["right"]})
    model = GLM(label="left.y", method=method, epochs=rounds + 1, message_clip=2.0, strength=0.05)
    task = planned(model, roster, rows, 1.0)
    one = np.hstack([rng.uniform(-1, 1, (rows, 2)), np.ones((rows, 1))])
    other, changed = one.copy(), rng.integers(rows)
    one[changed, :2], other[changed, :2] = (1, 1), rng.choice([-1, 1], 2)
    sides = [PassiveParty(held, "right", task) for held in (one, other)]
    for step in task.steps:
        slopes = rng.normal(0, 3, rows)
        slopes[changed] = rng.choice([3, 3, -3])
        for side in sides:
            side.take(step.batch, slopes)
    drift = glm_plan.senders(task)["right"]["drift"]
    assert np.linalg.norm(sides[0].weights - sides[1].weights) <= drift


# About what multiples of the sensitivity epsilons of 0.1, 2, 8 and 10 need.
def test_bad_questions_are_refused_before_anything_is_sent(model, known, tmp_path):
    held = columns(20, 3)
    two = federation(held, {name: SCHEMAS[name] for name in ("left", "right")})
    strange = federation(held, SCHEMAS | {"mid": numbers("b", -2, 2)})
    alone = GLM.load(model.save(tmp_path / "model.json"))
    alone.load_kept(model.save_kept(tmp_path / "left.json", "left"))
    for asked, people, said in (
        (GLM(label="left.y"), known, "ST169"),
        (model, held, "ST127"),
        (model, two, ("ST123", "mid")),
        (model, strange, "ST208"),
        (alone, known, "ST108"),
    ):
        with raises(StudyError, said):
            asked.joint_scores(people, epsilon=1.0)
    for question, said in ((KeptScores(rows_at_most=5), "ST126"), (KeptScores(model), "ST122")):
        with raises(StudyError, said):
            question.plan(known.roster)
    asked = KeptScores(model).draft(known.roster, 800)
    for task, said in ((replace(asked, model="another"), "ST125"), (replace(asked, rows_at_most=100), "CA030")):
        with raises((StudyError, CapacityError), said):
            known.run(task, partial(told_by, question, task), partial(question.coordinator, task=task))


# --- how sure chances are


BELIEVED = {"bank": numbers("ab", y=flag()), "shop": numbers("cde")}


def believed(rows, seed):
    """The bank's first column foretells a part of the shop's, and one in four has the label."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = rng.uniform(-1, 1, (5, rows))
    c = 0.6 * a + 0.4 * c
    yes = rng.random(rows) < 1 / (1 + np.exp(1.5 - 2 * a - b - 3 * c - 2 * d))
    return federation({"bank": {"a": a, "b": b, "y": yes}, "shop": {"c": c, "d": d, "e": e}}, BELIEVED)


@pytest.fixture(scope="module")
def others():
    return believed(4_000, 1)


@pytest.fixture(scope="module")
def fits():
    """Models by repeatable noise, from hardly any to much that others say."""
    many = believed(10_000, 0)
    asked = [("alternating", 0.1), ("alternating", 3.0), ("alternating", 30.0), ("gradient", 0.1)]
    models = {each: GLM(label="bank.y", method=each[0], epsilon=each[1]) for each in asked}
    return {each: model.simulate(many.tables(), many.roster, seeded(3)) for each, model in models.items()}


def answered(question, people, task, seed):
    return question.simulate(people.tables(), people.roster, seeded(seed), task=task).joint


def best_alone(people):
    """The log-loss of a logistic regression on the bank's columns, fitted to these people."""
    table = people.tables()["bank"]
    rows, truth = np.column_stack([table.column("a"), table.column("b"), np.ones(table.rows)]), table.column("y")[:, 0]
    return assess_chances(truth > 0, 1 / (1 + np.exp(-rows @ fit_corrected(rows, truth, [], 1e-9)))).log_loss


@pytest.mark.parametrize(
    ("method", "epsilon"), [("alternating", 0.1), ("alternating", 3.0), ("alternating", 30.0), ("gradient", 0.1)]
)
def test_chances_are_not_too_sure_and_what_others_say_does_no_harm(fits, others, method, epsilon):
    model = fits[method, epsilon]
    question = KeptScores(model, epsilon=epsilon)
    found = answered(question, others, question.plan_for_rows(others.roster, 4_000), 1)
    asked, alone = (
        assess_chances(model.true_of(others), each[:, 1]) for each in (found.probabilities, found.own_probabilities)
    )
    assert alone.log_loss == pytest.approx(best_alone(others), abs=0.004)
    assert 0.85 < alone.slope < 1.15
    assert 0.85 < asked.slope < 1.2
    assert asked.log_loss < alone.log_loss + 0.002
    assert np.array_equal(found.predictions, found.probabilities[:, 1] > 0.5)
    assert np.array_equal(found.own_predictions, found.own_probabilities[:, 1] > 0.5)
    by_all = model.assess(others, exact=True)
    if epsilon > 1:
        assert 0.7 < by_all.slope < 1.3
        assert abs(by_all.intercept) < 0.3
        assert by_all.log_loss < asked.log_loss


def test_a_score_is_that_of_a_question(fits, others, monkeypatch):
    monkeypatch.setattr(Stream, "fresh", lambda: seeded(6))
    model, truth = fits["alternating", 30.0], others.tables()["bank"].column("y")[:, 0] > 0
    charged, best = model.privacy_.epsilon("bank"), model.score(others, exact=True)
    assert best == np.mean(model.predict(others) == truth)
    # At hardly any epsilon a question tells nothing, and at a huge one nearly all.
    assert model.score(others, epsilon=0.01) < model.score(others, epsilon=1e4) <= best + 0.01
    assert model.assess(others, epsilon=0.01).auc < model.assess(others, exact=True).auc - 0.02
    tables = others.tables()
    encoded = np.hstack([tables["bank"].select(["a", "b"]).matrix(), tables["shop"].matrix()])
    with raises(StudyError, "ST129"):
        model.score(encoded, truth, encoded=True)
    assert model.score(encoded, truth, encoded=True, exact=True) == best
    with raises(DataError, "DA058", "3", "4000"):
        model.score(others, truth[:3])
    assert model.privacy_.epsilon("bank") == charged


def test_kept_weights_know_what_to_expect_and_earlier_files_do_not(fits, others, tmp_path):
    model = fits["alternating", 3.0]
    path = model.save_kept(tmp_path / "bank.json", "bank")
    content = json.loads(path.read_text())
    assert content.pop("spreads") == model.kept_["bank"].spreads
    path.write_text(json.dumps(content))
    other = GLM.load(model.save(tmp_path / "model.json"))
    other.load_kept(path)
    assert other.kept_["bank"].spreads == {}
    other.kept_["shop"] = model.kept_["shop"]
    found = other.joint_scores(others, epsilon=10.0)
    assert 0 < found.probabilities.min() <= found.probabilities.max() < 1
