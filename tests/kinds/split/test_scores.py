"""Scores of new people by kept encoders: on shares, or by embeddings that are told; exact or at an epsilon."""

from __future__ import annotations

import math
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pytest

from colonnade import SplitClassifier, SplitRegressor, SplitScores
from colonnade.errors import StudyError
from colonnade.testing.seeded import seeded
from tests.kinds.split.people import federation, roster, tables
from tests.support.errors import refused

HEADS = ("committee", "embeddings")


@cache
def learned(head: str, label: str = "kind", rows: int = 1000) -> Any:
    """A model that tests only ask; the head of two kinds, the classes or the numbers of ``label``."""
    kind = SplitRegressor if label == "amount" else SplitClassifier
    model = kind(label=f"bank.{label}", epsilon=20.0, head=head, width=12)
    return model.simulate(tables(rows, label), roster(label), seeded(3))


def asked(model: Any, new: Any, label: str, **how: Any) -> SplitScores:
    """The question in one place."""
    return SplitScores(model, **how).simulate(new, roster(label), seeded(7))


@pytest.mark.parametrize("head", HEADS)
def test_scores_are_those_of_the_model_or_have_noise_and_cost_no_more(head, tmp_path):
    model, new = learned(head), federation(80, "kind", seed=4)
    exact, noisy = SplitScores(model, exact=True).fit(new), SplitScores(model, epsilon=2.0).fit(new)
    assert np.abs(exact.scores_ - model.scores(new)).max() < 1e-3 < np.abs(noisy.scores_ - model.scores(new)).max()
    assert (exact.predictions_ == model.predict(new)).mean() > 0.95
    assert set(noisy.predictions_) <= {"low", "middle", "high"}
    assert np.abs(exact.joint.probabilities - model.predict_proba(new)).max() < 1e-3
    assert np.allclose(noisy.joint.probabilities.sum(axis=1), 1)
    assert exact.recipient == "bank"
    assert (exact.joint.ids, exact.joint.classes) == (exact.ids_, model.classes_.tolist())
    assert np.abs(asked(model, new.tables(), "kind", exact=True).scores_ - exact.scores_).max() < 1e-3
    assert [exact.privacy_.epsilon(who) for who in ("bank", "shop", "analyst")] == [math.inf, 0, 0]
    assert 1.9 < noisy.privacy_.epsilon("bank") <= 2.0
    again = SplitScores.load(noisy.save(tmp_path / "scores.json"))
    assert np.array_equal(again.scores_, noisy.scores_)
    assert again.recipient == "bank"
    assert (tmp_path / "scores.json").stat().st_mode & 0o077 == 0


def _loss(chances, truth) -> float:
    return -float(np.log(np.clip(chances[np.arange(len(truth)), truth.astype(int)], 1e-12, 1)).mean())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noisy_answers_are_no_worse_than_own_columns(head, epsilon):
    model, new = learned(head, "default", 3000), tables(3000, "default", seed=4)
    truth, joint = model.true_of(new), asked(model, new, "default", epsilon=epsilon).joint
    noisy, own = _loss(joint.probabilities, truth), _loss(joint.own_probabilities, truth)
    assert own < 0.66  # a coin has 0.69
    assert noisy < own + 0.005
    assert (joint.predictions == truth).mean() > (joint.own_predictions == truth).mean() - 0.02
    assert joint.own_scores.shape == joint.scores.shape
    assert joint.classes == [False, True]


def test_what_classes_have_in_common_needs_no_noise_and_parts_on_shares_stay_within_their_bounds():
    model = learned("committee")
    exact, noisy = (SplitScores(model, **how).plan(roster("kind")) for how in ({"exact": True}, {"epsilon": 2.0}))
    assert sum(noisy.part("shop").high) < sum(exact.part("shop").high)
    joint = asked(model, tables(50, "kind", seed=4), "kind", epsilon=2.0).joint
    assert np.abs(joint.scores.sum(axis=1)).max() < 1e-9
    for party, columns in (("bank", slice(0, 12)), ("shop", slice(12, 24))):
        weights, high = model.public_["weights"][:, columns], np.array(exact.part(party).high)
        reached = exact.gamma * np.abs(model.embedded(party, tables(200, "kind", seed=5)[party]) @ weights.T)
        assert (reached.max(axis=0) <= high).all()
        assert (high <= exact.gamma * np.linalg.norm(weights, axis=1) + 2).all()


def test_a_model_of_an_earlier_release_is_weighed_against_a_guess():
    earlier, new = copy(learned("committee", "default", 3000)), tables(3000, "default", seed=4)
    earlier.public_ = {name: earlier.public_[name] for name in ("weights", "intercept")}
    truth, joint = earlier.true_of(new), asked(earlier, new, "default", epsilon=1.0).joint
    assert _loss(joint.probabilities, truth) < _loss(joint.own_probabilities, truth) + 0.01
    assert (joint.own_predictions == truth).mean() > 0.55


def test_numbers_are_asked_about_too_and_with_noise_are_no_worse_than_own_columns():
    model, new = learned("committee", "amount", 3000), tables(2000, "amount", seed=4)
    truth, joint = model.true_of(new), asked(model, new, "amount", epsilon=1.0).joint
    assert model.score_of(truth, joint.own_predictions) > 0.2
    assert model.score_of(truth, joint.predictions) > model.score_of(truth, joint.own_predictions) - 0.01
    assert (joint.probabilities, joint.classes) == (None, None)
    few = federation(40, "amount", seed=4)
    assert np.abs(SplitScores(model, exact=True).fit(few).predictions_ - model.predict(few)).max() < 1e-2


def test_a_committee_may_tell_another_party():
    new = federation(40, "kind", seed=4)
    told = SplitScores(learned("committee"), to="shop", exact=True).fit(new)
    assert told.recipient == "shop"
    assert np.abs(told.scores_ - learned("committee").scores(new)).max() < 1e-3
    refused(StudyError, "ST221", "bank", SplitScores(learned("embeddings"), to="shop", exact=True).fit, new)


def test_questions_that_make_no_sense_are_refused(tmp_path):
    model, people = learned("committee"), federation(20, "kind")
    linear = {party: {"kind": "linear"} for party in ("bank", "shop")}
    published = SplitClassifier(label="bank.kind", head="published", unprotected=True, epochs=1, encoders=linear)
    published.simulate(tables(60, "kind"), roster("kind"), seeded(1))
    path = model.save(tmp_path / "model.json")
    own = {party: model.save_kept(tmp_path / f"{party}.npz", party) for party in ("bank", "shop")}
    for asked_of, given, *said in (
        (model, {}, "ST333"),
        (model, {"epsilon": 1.0, "exact": True}, "ST333"),
        (model, {"epsilon": {"shop": 1.0}}, "ST170", "bank"),
        (model, {"epsilon": 1.0, "rows_at_most": 0}, "ST150", "rows_at_most"),
        (published, {"exact": True}, "ST220"),
        (path, {"exact": True}, "ST268", "bank"),
    ):
        refused(StudyError, said, SplitScores(asked_of, **given).fit, people)
    refused(StudyError, "ST334", SplitScores("nothing", exact=True).checked, 3)
    question = SplitScores(path, exact=True)
    question.bring(own["shop"], "shop")  # a party brings its own encoder and nobody else's
    assert list(question.scorer.encoders_) == ["shop"]
    refused(StudyError, "ST332", "bank", "shop", question.bring, own["bank"], "shop")
