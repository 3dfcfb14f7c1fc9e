"""Chances of people who were not in the fit: as sure as they should be, by all weights and by answers to a question."""

from __future__ import annotations

import json

import numpy as np
import pytest

from colonnade import Federation, Party, Schema, flag, number
from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm.exchange.last_fit import corrected_fit
from colonnade.kinds.glm.exchange.sides import KeptWeights
from colonnade.kinds.glm.kept_scores.model import KeptScores
from colonnade.kinds.glm.model import GLM
from colonnade.models.assessment import assess
from colonnade.randomness import Stream
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

UNIT = number(-1, 1)
SCHEMAS = {
    "bank": Schema({"a": UNIT, "b": UNIT, "y": flag()}),
    "shop": Schema({"c": UNIT, "d": UNIT, "e": UNIT}),
}


def people(rows, seed):
    """The bank's first column foretells a part of the shop's, and one in four has the label."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = rng.uniform(-1, 1, (5, rows))
    c = 0.6 * a + 0.4 * c
    yes = rng.random(rows) < 1 / (1 + np.exp(1.5 - 2 * a - b - 3 * c - 2 * d))
    ids = [f"{seed}-{k:05d}" for k in range(rows)]
    held = {
        "bank": pd.DataFrame({"id": ids, "a": a, "b": b, "y": yes}),
        "shop": pd.DataFrame({"id": ids, "c": c, "d": d, "e": e}),
    }
    return Federation([Party(name, held[name], schema=each, id="id") for name, each in SCHEMAS.items()])


@pytest.fixture(scope="module")
def known():
    return people(10_000, 0)


@pytest.fixture(scope="module")
def new():
    return people(4_000, 1)


@pytest.fixture(scope="module")
def fits(known):
    """Models at three epsilons, by repeatable noise."""
    model = {epsilon: GLM(label="bank.y", epsilon=epsilon) for epsilon in (3.0, 10.0, 30.0)}
    return {at: each.simulate(known.tables(), known.roster, seeded(int(at))) for at, each in model.items()}


@pytest.mark.parametrize("epsilon", [3.0, 10.0, 30.0])
def test_chances_are_not_too_sure(fits, new, epsilon):
    model = fits[epsilon]
    by_all = model.assess(new, exact=True)
    assert 0.7 < by_all.slope < 1.3
    assert abs(by_all.intercept) < 0.3
    question = KeptScores(model, epsilon=epsilon).simulate(
        new.tables(), new.roster, seeded(1), task=KeptScores(model, epsilon=epsilon).planned(new.roster, 4_000)
    )
    found, truth = question.joint, model.true_of(new)
    asked, alone = (assess(truth, each[:, 1]) for each in (found.probabilities, found.own_probabilities))
    assert 0.85 < asked.slope < 1.2
    assert 0.85 < alone.slope < 1.15
    assert asked.log_loss < alone.log_loss + 0.002
    assert by_all.log_loss < asked.log_loss
    assert found.classes == [False, True]
    assert np.array_equal(found.predictions, found.probabilities[:, 1] > 0.5)
    assert np.array_equal(found.own_predictions, found.own_probabilities[:, 1] > 0.5)
    assert found.deviations.shape == found.scores.shape == found.own_scores.shape


def test_own_columns_alone_are_as_good_as_a_fit_to_them(fits, known, new):
    held, others = known.tables()["bank"], new.tables()["bank"]
    rows, asked = (np.column_stack([each.column("a"), each.column("b"), np.ones(each.rows)]) for each in (held, others))
    weights = corrected_fit(rows, held.column("y")[:, 0], [], 1e-9)  # without received scores: a logistic regression
    chances = 1 / (1 + np.exp(-asked @ weights))
    model = fits[3.0]
    task = KeptScores(model).draft(new.roster, 4_000)
    own = KeptScores(model).simulate(new.tables(), new.roster, seeded(2), task=task).joint.own_probabilities[:, 1]
    truth = model.true_of(new)
    assert assess(truth, own).log_loss == pytest.approx(assess(truth, chances).log_loss, abs=0.002)


def test_a_score_is_that_of_a_question(fits, new, monkeypatch):
    monkeypatch.setattr(Stream, "fresh", lambda: seeded(6))
    model = fits[30.0]
    best = model.score(new, exact=True)
    assert best == np.mean(model.predict(new) == model.true_of(new))
    # At hardly any epsilon a question tells nothing, and at a huge one nearly all.
    little, much = model.score(new, epsilon=0.01), model.score(new, epsilon=1e4)
    assert little < much <= best + 0.01
    assert model.assess(new, epsilon=0.01).auc < model.assess(new, exact=True).auc - 0.02
    tables = new.tables()
    encoded = np.hstack([tables["bank"].select(["a", "b"]).matrix(), tables["shop"].matrix()])
    truth = model.true_of(new)
    with raises(StudyError, "ST129"):
        model.score(encoded, truth, encoded=True)
    assert model.score(encoded, truth, encoded=True, exact=True) == best
    with raises(DataError, "DA058", "3", "4000"):
        model.score(new, truth[:3])
    charged = model.privacy_.epsilon("bank")
    model.score(new)
    assert model.privacy_.epsilon("bank") == charged


def test_kept_weights_know_what_to_expect_and_earlier_files_do_not(fits, new, tmp_path):
    model = fits[10.0]
    path = model.save_kept(tmp_path / "bank.json", "bank")
    content = json.loads(path.read_text())
    assert content["spreads"] == model.kept_["bank"].spreads
    other = GLM.load(model.save(tmp_path / "model.json"))
    for broken in ({"spreads": {"far": 1.0}}, {"spreads": {"shop": -1.0}}, {"spreads": {"shop": None}}):
        path.write_text(json.dumps(content | broken))
        with raises(StudyError, "ST115|ST119"):
            other.load_kept(path)
    path.write_text(json.dumps({key: value for key, value in content.items() if key != "spreads"}))
    assert other.load_kept(path) == "bank"
    assert other.kept_["bank"].spreads == {}
    other.kept_["shop"] = model.kept_["shop"]
    found = other.joint_scores(new, epsilon=10.0)
    assert 0 < found.probabilities.min() <= found.probabilities.max() < 1
    assert KeptWeights("shop", model.kept_["shop"].weights).spreads == {}


def test_means_of_counts_are_raised_by_what_is_not_known(known):
    counted = Schema({"a": UNIT, "n": number(0, 20)})
    rng = np.random.default_rng(3)
    a, c = rng.uniform(-1, 1, (2, 2_000))
    drawn = np.minimum(rng.poisson(np.exp(0.5 + 0.3 * a + c)), 20)
    ids = [f"{k:05d}" for k in range(2_000)]
    group = Federation(
        [
            Party("bank", pd.DataFrame({"id": ids, "a": a, "n": drawn}), schema=counted, id="id"),
            Party("shop", pd.DataFrame({"id": ids, "c": c}), schema=Schema({"c": UNIT}), id="id"),
        ]
    )
    model = GLM(family="poisson", label="bank.n", epsilon=30.0).simulate(group.tables(), group.roster, seeded(4))
    question = KeptScores(model, epsilon=1.0)
    found = question.simulate(group.tables(), group.roster, seeded(5), task=question.planned(group.roster, 2_000)).joint
    assert found.probabilities is None
    assert found.predictions.mean() == pytest.approx(drawn.mean(), rel=0.1)
    assert (found.predictions > model.answers(found.scores)).all()
