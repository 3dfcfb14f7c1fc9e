"""Scores of new people by kept encoders: on shares, or by embeddings that are told; exact or at an epsilon."""

from __future__ import annotations

import math
from copy import copy

import numpy as np
import pytest

from colonnade import SplitClassifier, SplitRegressor, SplitScores
from colonnade.errors import StudyError
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.kinds.split.embeddings.task import NewEmbeddings
from colonnade.testing.seeded import seeded
from tests.kinds.split.people import federation, roster, tables
from tests.support.errors import raises

pytestmark = pytest.mark.filterwarnings("ignore:colonnade.testing.seeded")
HEADS = ("committee", "embeddings")


@pytest.fixture(scope="module")
def models() -> dict[str, SplitClassifier]:
    held = tables(1000, "kind")
    return {
        head: SplitClassifier(label="bank.kind", epsilon=20.0, head=head, width=12).simulate(
            held, roster("kind"), seeded(3)
        )
        for head in HEADS
    }


@pytest.mark.parametrize("head", HEADS)
def test_exact_scores_are_those_of_the_model(head, models):
    new = federation(80, "kind", seed=4)
    asked = SplitScores(models[head], exact=True).fit(new)
    assert asked.recipient == "bank"
    assert np.abs(asked.scores_ - models[head].scores(new)).max() < 1e-3
    assert (asked.predictions_ == models[head].predict(new)).mean() > 0.95
    assert math.isinf(asked.privacy_.epsilon("bank"))
    assert asked.privacy_.epsilon("shop") == asked.privacy_.epsilon("analyst") == 0
    assert asked.joint.ids == asked.ids_
    assert asked.joint.classes == models[head].classes_.tolist()
    assert np.abs(asked.joint.probabilities - models[head].predict_proba(new)).max() < 1e-3


@pytest.mark.parametrize("head", HEADS)
def test_scores_at_an_epsilon_have_noise_and_cost_no_more(head, models):
    new = federation(80, "kind", seed=4)
    asked = SplitScores(models[head], epsilon=2.0).fit(new)
    assert 1.9 < asked.privacy_.epsilon("bank") <= 2.0
    assert np.abs(asked.scores_ - models[head].scores(new)).max() > 1e-3
    assert set(asked.predictions_) <= {"low", "middle", "high"}
    assert np.allclose(asked.joint.probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("how", [{"exact": True}, {"epsilon": 3.0}])
def test_a_simulation_answers_like_the_protocol(head, how, models):
    question = SplitScores(models[head], rows_at_most=200, **how)
    task = question.plan(roster("kind"))
    assert isinstance(task, Scores if head == "committee" else NewEmbeddings)
    held = tables(60, "kind", seed=4)
    first, second = (SplitScores(models[head], **how).simulate(held, roster("kind"), seeded(9)) for _ in range(2))
    assert np.array_equal(first.scores_, second.scores_)
    if "exact" in how:
        assert np.abs(first.scores_ - models[head].scores(held)).max() < 1e-3


@pytest.fixture(scope="module")
def flags() -> dict[str, SplitClassifier]:
    held = tables(3000, "default")
    return {
        head: SplitClassifier(label="bank.default", epsilon=20.0, head=head, width=12).simulate(
            held, roster("default"), seeded(3)
        )
        for head in HEADS
    }


def _loss(chances, truth) -> float:
    return -float(np.log(np.clip(chances[np.arange(len(truth)), truth.astype(int)], 1e-12, 1)).mean())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noisy_answers_are_no_worse_than_own_columns(head, epsilon, flags):
    new = tables(3000, "default", seed=4)
    truth = flags[head].true_of(new)
    joint = SplitScores(flags[head], epsilon=epsilon).simulate(new, roster("default"), seeded(7)).joint
    noisy, own = _loss(joint.probabilities, truth), _loss(joint.own_probabilities, truth)
    assert own < 0.66  # a coin has 0.69
    assert noisy < own + 0.005
    assert (joint.predictions == truth).mean() > (joint.own_predictions == truth).mean() - 0.02
    assert joint.own_scores.shape == joint.scores.shape
    assert joint.classes == [False, True]


def test_noisy_answers_come_near_to_exact_ones_as_epsilon_grows(flags):
    new, model = tables(2000, "default", seed=4), flags["committee"]
    truth = model.true_of(new)
    exact = SplitScores(model, exact=True).simulate(new, roster("default"), seeded(7)).joint
    assert (exact.deviations == 0).all()
    losses, deviations = [_loss(exact.own_probabilities, truth)], []
    for epsilon in (3.0, 60.0):
        joint = SplitScores(model, epsilon=epsilon).simulate(new, roster("default"), seeded(7)).joint
        lead = np.diff(joint.scores, axis=1) - np.diff(exact.scores, axis=1)
        assert np.sqrt(np.mean(lead**2)) < 1.3 * 2 * joint.deviations[0, 0]  # leads of two classes, each the other's
        losses.append(_loss(joint.probabilities, truth))
        deviations.append(joint.deviations[0, 0])
    assert losses[2] < losses[1] - 0.005
    assert losses[2] > _loss(exact.probabilities, truth)
    assert deviations[1] < 0.95 * deviations[0]


def test_what_classes_have_in_common_needs_no_noise(models):
    model = models["committee"]
    exact, noisy = (SplitScores(model, **how).plan(roster("kind")) for how in ({"exact": True}, {"epsilon": 2.0}))
    assert sum(noisy.part("shop").high) < sum(exact.part("shop").high)
    joint = SplitScores(model, epsilon=2.0).simulate(tables(50, "kind", seed=4), roster("kind"), seeded(1)).joint
    assert np.abs(joint.scores.sum(axis=1)).max() < 1e-9


def test_a_model_of_an_earlier_release_is_weighed_against_a_guess(flags):
    earlier = copy(flags["committee"])
    earlier.public_ = {name: earlier.public_[name] for name in ("weights", "intercept")}
    new = tables(3000, "default", seed=4)
    truth = earlier.true_of(new)
    joint = SplitScores(earlier, epsilon=1.0).simulate(new, roster("default"), seeded(7)).joint
    assert _loss(joint.probabilities, truth) < _loss(joint.own_probabilities, truth) + 0.01
    assert (joint.own_predictions == truth).mean() > 0.55


def test_numbers_with_noise_are_no_worse_than_own_columns():
    model = SplitRegressor(label="bank.amount", epsilon=20.0, width=12).simulate(
        tables(3000, "amount"), roster("amount"), seeded(3)
    )
    new = tables(2000, "amount", seed=4)
    truth = model.true_of(new)
    joint = SplitScores(model, epsilon=1.0).simulate(new, roster("amount"), seeded(7)).joint
    assert model.score_of(truth, joint.own_predictions) > 0.2
    assert model.score_of(truth, joint.predictions) > model.score_of(truth, joint.own_predictions) - 0.01
    assert joint.probabilities is None
    assert joint.classes is None


def test_parts_on_shares_stay_within_their_bounds(models):
    model = models["committee"]
    task = SplitScores(model, exact=True).plan(roster("kind"))
    weights = model.public_["weights"]
    for party, columns in (("bank", slice(0, 12)), ("shop", slice(12, 24))):
        reached = task.gamma * np.abs(model.embedded(party, tables(200, "kind", seed=5)[party]) @ weights[:, columns].T)
        assert (reached.max(axis=0) <= np.array(task.part(party).high)).all()
        norms = task.gamma * np.linalg.norm(weights[:, columns], axis=1)
        assert (np.array(task.part(party).high) <= norms + 2).all()


def test_a_committee_may_tell_another_party(models):
    new = federation(40, "kind", seed=4)
    asked = SplitScores(models["committee"], to="shop", exact=True).fit(new)
    assert asked.recipient == "shop"
    assert np.abs(asked.scores_ - models["committee"].scores(new)).max() < 1e-3
    with raises(StudyError, "ST221", "bank"):
        SplitScores(models["embeddings"], to="shop", exact=True).fit(new)


def test_numbers_are_asked_about_too():
    model = SplitRegressor(label="bank.amount", epsilon=20.0, width=12).simulate(
        tables(600, "amount"), roster("amount"), seeded(3)
    )
    new = federation(40, "amount", seed=4)
    asked = SplitScores(model, exact=True).fit(new)
    assert np.abs(asked.predictions_ - model.predict(new)).max() < 1e-2


def test_a_question_comes_back_from_its_file(models, tmp_path):
    asked = SplitScores(models["committee"], epsilon=5.0).fit(federation(30, "kind", seed=4))
    again = SplitScores.load(asked.save(tmp_path / "scores.json"))
    assert np.array_equal(again.scores_, asked.scores_)
    assert again.recipient == "bank"
    assert (tmp_path / "scores.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "ST333"),
        ({"epsilon": 1.0, "exact": True}, "ST333"),
        ({"epsilon": {"shop": 1.0}}, ("ST170", "bank")),
        ({"epsilon": 1.0, "rows_at_most": 0}, ("ST150", "rows_at_most")),
    ],
)
def test_questions_that_make_no_sense_are_refused(given, said, models):
    with raises(StudyError, said):
        SplitScores(models["committee"], **given).fit(federation(20, "kind"))


def test_only_a_split_model_with_its_encoders_answers(models, tmp_path):
    with raises(StudyError, "ST334"):
        SplitScores("nothing", exact=True).checked(3)
    published = SplitClassifier(
        label="bank.kind",
        head="published",
        unprotected=True,
        epochs=1,
        encoders={"shop": {"kind": "linear"}, "bank": {"kind": "linear"}},
    ).simulate(tables(60, "kind"), roster("kind"), seeded(1))
    with raises(StudyError, "ST220"):
        SplitScores(published, exact=True).fit(federation(20, "kind"))
    path = models["committee"].save(tmp_path / "model.json")
    with raises(StudyError, "ST268", "bank"):
        SplitScores(path, exact=True).fit(federation(20, "kind"))


def test_a_party_brings_its_own_encoder_and_nobody_elses(models, tmp_path):
    model = models["committee"]
    path = model.save(tmp_path / "model.json")
    own = {party: model.save_kept(tmp_path / f"{party}.npz", party) for party in ("bank", "shop")}
    question = SplitScores(path, exact=True)
    question.bring(own["shop"], "shop")
    assert list(question.scorer.encoders_) == ["shop"]
    with raises(StudyError, "ST332", "bank", "shop"):
        question.bring(own["bank"], "shop")
