from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import Federation, Party, Schema, flag, number
from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.glm import plan as glm_plan
from colonnade.kinds.glm.exchange.fits import Objective, free_fit
from colonnade.kinds.glm.exchange.sides import PassiveDescent, PassiveFit
from colonnade.kinds.glm.kept_scores.model import KeptScores, asking
from colonnade.kinds.glm.model import GLM
from colonnade.models import Estimator, Roster
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.messages import NOISE_UNIT
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

UNIT = number(-1, 1)
SCHEMAS = {
    "left": Schema({"a": UNIT, "y": flag()}),
    "mid": Schema({"b": UNIT}),
    "right": Schema({"c": UNIT, "d": UNIT}),
}


def frames(rows, seed=0):
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.uniform(-1, 1, (4, rows))
    yes = rng.random(rows) < 1 / (1 + np.exp(-3 * a - 2 * b - 4 * c + d))
    ids = [f"{seed}-{k:04d}" for k in range(rows)]
    return {
        "left": pd.DataFrame({"id": ids, "a": a, "y": yes}),
        "mid": pd.DataFrame({"id": ids, "b": b}),
        "right": pd.DataFrame({"id": ids, "c": c, "d": d}),
    }


def federation(rows, seed=0, parties=("left", "mid", "right")):
    held = frames(rows, seed)
    return Federation([Party(name, held[name], schema=SCHEMAS[name], id="id") for name in parties])


@pytest.fixture(scope="module")
def known():
    return federation(800)


@pytest.fixture(scope="module")
def model(known):
    fitted = GLM(label="left.y")
    task = glm_plan.draft(fitted.choices(), fitted.setting(known.roster, 800), 0.2)
    return fitted.simulate(known.tables(), known.roster, task=replace(task, noise=NOISE_UNIT // 64))


@pytest.fixture(scope="module")
def asked(model, unaligned):
    """New people, of whom each party holds some that others lack, in an order of its own."""
    apart = unaligned(frames(200, seed=1), "id")
    new = Federation([Party(name, apart[name], schema=SCHEMAS[name], id="id") for name in SCHEMAS])
    new.align(on="id", mode="helper")
    return new, model.joint_scores(new, epsilon=50.0)


def test_the_party_with_the_label_gets_scores_of_new_people(model, asked):
    new, found = asked
    assert len(found.ids) == 200
    assert all(name.startswith("1-") for name in found.ids)
    truth = frames(200, seed=1)["left"].set_index("id").loc[found.ids, "y"].to_numpy()
    assert np.mean(found.predictions == truth) > 0.55
    exact = model.scores(new.tables())
    assert np.corrcoef(found.scores[:, 0], exact[:, 0])[0, 1] > 0.6


def test_every_question_is_charged_to_whom_it_tells(asked):
    _, found = asked
    assert 49 < found.privacy_.epsilon("left") <= 50
    assert found.privacy_.epsilon("mid") == found.privacy_.epsilon("right") == found.privacy_.epsilon("analyst") == 0
    names = {event.name for event in found.privacy_.events}
    assert names == {f"{what} of {who}" for what in ("new scores", "blurred weights") for who in ("mid", "right")}


def test_messages_without_noise_are_clipped_scores(monkeypatch, model, known, stream):
    def still(noise, shape, stream):
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(AdditiveNoise, "draw", still)
    question = KeptScores(model, epsilon=1.0, rows_at_most=800)
    task = question.draft(known.roster, 800)
    answers = question.simulated(known.tables(), task, stream)
    for name in ("mid", "right"):
        rows, weights = model.kept_rows(name, known.tables()[name])
        clip = task.sender(name).score_clip
        assert answers.received[name] == pytest.approx(np.clip(rows @ weights, -clip, clip), abs=1e-7)
    rows, weights = model.kept_rows("left", known.tables()["left"].select(["a"]))
    assert answers.new.scores == pytest.approx(rows @ weights)


def test_a_passive_party_and_the_coordinator_come_back_with_nothing(model, known, tmp_path, stream):
    task = KeptScores(model).draft(known.roster, 800)
    theirs = KeptScores(model).conclude(known.roster, task, None)
    assert theirs.ids_ is None
    assert Estimator.load(theirs.save(tmp_path / "scores.json")).scores_ is None
    ours = KeptScores(model).simulate(known.tables(), known.roster, stream, task=task)
    again = Estimator.load(ours.save(tmp_path / "scores.json"))
    assert isinstance(again, KeptScores)
    assert again.ids_ == ours.ids_
    assert np.array_equal(again.scores_, ours.scores_)


# --- bounds


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["alternating", "gradient"]), st.integers(1, 3))
def test_weights_of_two_neighbours_differ_by_the_drift_at_most(seed, method, rounds):
    rng = np.random.default_rng(seed)
    rows, roster = 30, Roster.of({"left": SCHEMAS["left"], "right": SCHEMAS["right"]})
    model = GLM(label="left.y", method=method, epochs=rounds + 1, message_clip=2.0, strength=0.05)
    task = glm_plan.draft(model.choices(), model.setting(roster, rows), 1.0)
    drift = glm_plan.senders(task)["right"]["drift"]
    one = np.hstack([rng.uniform(-1, 1, (rows, 2)), np.ones((rows, 1))])
    other, changed = one.copy(), rng.integers(rows)
    one[changed, :2], other[changed, :2] = (1, 1), rng.choice([-1, 1], 2)
    kind = PassiveFit if method == "alternating" else PassiveDescent
    sides = [kind(held, "right", task) for held in (one, other)]
    for step in task.steps:
        slopes = rng.normal(0, 3, rows)
        slopes[changed] = rng.choice([3, 3, -3])
        for side in sides:
            side.take(step.batch, slopes)
    assert np.linalg.norm(sides[0].weights - sides[1].weights) <= drift


def alone(known, new):
    """How often the party with the label is right by its own columns alone."""
    tables = [each.tables()["left"] for each in (known, new)]
    rows = [np.column_stack([table.column("a"), np.ones(table.rows)]) for table in tables]
    labels = [table.column("y")[:, 0] for table in tables]
    family = GLM(label="left.y").family_of(GLM(label="left.y").design(SCHEMAS))
    weights = free_fit(Objective(rows[0], labels[0], family, np.full(2, 1e-3), np.zeros(2)))
    return np.mean((rows[1] @ weights > 0) == (labels[1] > 0))


# About what multiples of the sensitivity epsilons of 0.1, 2, 8 and 10 need.
LOUD, MIDDLING, CALM, QUIET = (round(NOISE_UNIT * times**2) for times in (40.0, 2.6, 0.85, 0.7))


@pytest.mark.parametrize(
    ("method", "noise", "gain"),
    [
        ("alternating", LOUD, -0.015),
        ("gradient", LOUD, -0.015),
        ("alternating", CALM, 0.02),
        ("gradient", CALM, -1.0),  # so few steps over so few people may end with far too large factors
    ],
)
def test_what_others_say_never_does_much_harm(known, method, noise, gain, stream):
    """Margins are seven deviations or more of a mean of three draws, so no seed was picked."""
    new = federation(1000, seed=5)
    tables, held, roster, least = new.tables(), known.tables(), new.roster, alone(known, new)
    model = GLM(label="left.y", method=method, epochs=2)
    times = (noise / NOISE_UNIT) ** 0.5
    task = replace(glm_plan.draft(model.choices(), model.setting(roster, 800), times), noise=noise)
    kept, right = [], {MIDDLING: [], QUIET: []}
    for _ in range(3):
        model.simulate(held, roster, stream, task=task)
        kept.append(model.score(tables, exact=True))
        question = KeptScores(model)
        for asked, found in right.items():
            told = question.simulated(tables, replace(question.draft(roster, 1000), noise=asked), stream)
            found.append(np.mean(model.answers(question.linear(told)) == model.true_of(tables)))
    assert np.mean(kept) > least + gain
    assert np.mean(right[MIDDLING]) > least - 0.025  # with the blur taken for noise that averages out: 0.1 below
    assert np.mean(right[QUIET]) > least - 0.04


def test_a_planned_fit_already_says_what_a_question_will_be(model, known):
    fit = glm_plan.draft(GLM(label="left.y").choices(), model.setting(known.roster, 800), 0.2)
    assert replace(KeptScores(model).draft(known.roster, 77), model="") == asking(fit, 77)


# --- what is refused


def test_bad_questions_are_refused_before_anything_is_sent(model, known, tmp_path):
    with raises(StudyError, "ST169"):
        GLM(label="left.y").joint_scores(known, epsilon=1.0)
    with raises(StudyError, "ST127"):
        model.joint_scores(frames(5), epsilon=1.0)
    with raises(StudyError, "ST123", "mid"):
        model.joint_scores(federation(20, 3, ("left", "right")), epsilon=1.0)
    with raises(StudyError, "ST126"):
        KeptScores(rows_at_most=5).plan(known.roster)
    with raises(StudyError, "ST122"):
        KeptScores(model).plan(known.roster)
    held = frames(20, 3)
    other = SCHEMAS | {"mid": Schema({"b": number(-2, 2)})}
    strange = Federation([Party(name, held[name], schema=other[name], id="id") for name in other])
    with raises(StudyError, "ST208"):
        model.joint_scores(strange, epsilon=1.0)
    alone = GLM.load(model.save(tmp_path / "model.json"))
    alone.load_kept(model.save_kept(tmp_path / "left.json", "left"))
    with raises(StudyError, "ST108"):
        alone.joint_scores(known, epsilon=5.0)
    question = KeptScores(model)
    task = replace(question.draft(known.roster, 800), model="another")
    with raises(StudyError, "ST125"):
        known.run(task, lambda me, t: question.owner(me, t, task), lambda me: question.coordinator(me, task))


def test_too_many_people_are_refused(model, known):
    question = KeptScores(model)
    task = question.draft(known.roster, 100)
    with pytest.raises(CapacityError):
        known.run(task, lambda me, table: question.owner(me, table, task), lambda me: question.coordinator(me, task))
