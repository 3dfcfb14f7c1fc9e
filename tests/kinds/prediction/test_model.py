"""Scores of new people opened to one party: exact, with noise or by levels; their bounds, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import Federation, Ledger, Party, Schema, Statement, category, flag, number
from colonnade.errors import BudgetError, PrivacyError, StudyError
from colonnade.kinds import PCA
from colonnade.kinds.prediction.model import JointPrediction, bound_score_part, joint_scores, scored_features
from colonnade.kinds.prediction.score_posterior import (
    GUESSED,
    PUBLISHED,
    PartPrior,
    ScorePosterior,
    flatten_scores,
    guess_prior,
    posterior_of_prior,
    update_by_levels,
    update_by_noisy_sums,
)
from colonnade.kinds.prediction.task import QuantisedAnswers, Scores
from colonnade.kinds.regression.model import LogisticRegression
from colonnade.models import Estimator, Roster
from colonnade.models.score_result import JointScores
from colonnade.privacy import parse_budgets
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon, randomised_response
from colonnade.protocols.roles import COORDINATOR
from colonnade.testing import seeded
from tests.support.errors import refused
from tests.support.federations import aligned, federation, numbers
from tests.support.models import SCHEMAS as MADE, fitted, frames

SCHEMAS = {
    "bank": Schema({"age": number(18, 90), "default": flag()}),
    "shop": Schema({"city": category(["Delft", "Utrecht"], missing="none"), "visits": number(0, 50, scale="unit")}),
    "clinic": Schema({"smoker": flag(), "bmi": number(10, 50, missing="middle")}),
}
NEW = SCHEMAS | {"bank": SCHEMAS["bank"].without("default")}
NAMES = ["bank.age", "shop.city=Delft", "shop.city=Utrecht", "shop.visits", "clinic.smoker", "clinic.bmi"]


class Weights:
    """A model as small as joint prediction allows: it knows nothing of how the weights were found."""

    kind = "weights"

    def __init__(self, coef, intercept, schemas=SCHEMAS, names=NAMES):
        self.coef_, self.intercept_ = np.array(coef, dtype=float), np.array(intercept, dtype=float)
        self.schemas_, self.feature_names_in_ = dict(schemas), list(names)

    def partial(self, party, source):
        mine = [i for i, name in enumerate(self.feature_names_in_) if name.startswith(f"{party}.")]
        return source.matrix() @ self.coef_[:, mine].T

    def answers(self, scores):
        return scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)


def columns(rows, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "bank": {"age": rng.uniform(18, 90, rows), "default": rng.random(rows) < 0.5},
        "shop": {"city": rng.choice(["Delft", "Utrecht", None], rows), "visits": rng.integers(0, 60, rows)},
        "clinic": {"smoker": rng.random(rows) < 0.3, "bmi": rng.uniform(12, 48, rows)},
    }


def federated(rows=50, schemas=NEW, seed=0):
    return federation(columns(rows, seed), schemas)


@pytest.fixture(scope="module")
def people():
    """People who had to be found first."""
    ids = [f"p{i:04d}" for i in range(50)]
    frames = {name: pd.DataFrame({"id": ids, **held}) for name, held in columns(50).items()}
    shuffled = {name: frame.sample(frac=1, random_state=k) for k, (name, frame) in enumerate(frames.items())}
    return aligned(shuffled, NEW, "id", mode="dh")


def in_the_clear(model, people, parties=None):
    tables = people.tables()
    parts = [model.partial(name, tables[name].select(scored_features(model, name))) for name in parties or tables]
    return sum(parts) + model.intercept_


BINARY = Weights([[1.5, -0.7, 0.4, 2.0, -1.25, 0.3]], [0.2])
SEVERAL = Weights(np.random.default_rng(1).normal(0, 1, (3, 6)), [0.1, 0.0, -0.4])


@pytest.mark.parametrize("to", ["bank", "shop", "clinic"])
def test_exact_scores_are_those_of_the_model(to, people):
    found, want = joint_scores(SEVERAL, people, to=to, exact=True), in_the_clear(SEVERAL, people)
    np.testing.assert_allclose(found.scores, want, atol=2 / 2**16)
    assert found.ids == people.tables()[to].own_ids != people.tables()[to].ids
    assert np.array_equal(found.predictions, SEVERAL.answers(found.scores))
    assert math.isinf(found.privacy_.epsilon(to))
    assert found.privacy_.epsilon("analyst") == 0
    simulated = JointPrediction(SEVERAL, to=to, exact=True).simulate(people.tables(), people.roster, seeded(1))
    assert np.array_equal(simulated.scores_, found.scores)
    if to == "bank":  # the reason for infinity is named
        said = "exact score of every person, hence exactly what the columns of shop, clinic add up to in it"
        assert f"bank receives the {said}" in " ".join(str(found.privacy_).split())


def test_the_label_may_be_there_and_is_not_looked_at():
    both = [joint_scores(BINARY, federated(schemas=each), to="shop", exact=True).scores for each in (SCHEMAS, NEW)]
    assert np.array_equal(*both)


def test_a_party_without_weights_may_be_told():
    more = federation(columns(20) | {"insurer": {"policy": [True] * 20}}, NEW | {"insurer": Schema({"policy": flag()})})
    found = joint_scores(BINARY, more, to="insurer", exact=True)
    np.testing.assert_allclose(found.scores, in_the_clear(BINARY, more, NEW), atol=2 / 2**16)


def test_noise_is_as_large_as_it_says_and_costs_what_was_allowed():
    people = federated(20_000)
    fitted = JointPrediction(BINARY, to="bank", epsilon=40.0).simulate(people.tables(), people.roster, seeded(3))
    task = fitted.plan(people.roster)
    assert 39.9 < fitted.privacy_.epsilon("bank") <= 40.0
    for other in ("analyst", "coordinator", "shop", "clinic"):
        assert fitted.privacy_.epsilon(other) == 0
    assert math.isinf(fitted.privacy_.epsilon("bank+shop"))
    wrong, alone = (found - in_the_clear(BINARY, people) for found in (fitted.scores_, fitted.joint.own_scores))
    assert np.std(wrong) < min(task.noise_std, np.std(alone))
    # Both rest on how 20,000 people differ, which is seen through noise of about their deviation: the two differ by a
    # hundredth.
    assert np.std(wrong) == pytest.approx(float(fitted.joint.deviations.mean()), rel=0.08)


# --- levels, and what stands beside scores


@pytest.fixture(scope="module")
def population_model():
    """A regression of two parties' columns, of which both matter, and new people with what is true of them."""
    rng = np.random.default_rng(5)
    bank = rng.normal(0, 1, (3, 6000))
    shop = 0.5 * bank + rng.normal(0, 0.8, (3, 6000))
    paid = rng.random(6000) < 1 / (1 + np.exp(-(bank[0] - 0.5 + 1.5 * shop[0] - shop[1])))
    held = {
        "bank": {"b0": bank[0], "b1": bank[1], "b2": bank[2], "paid": paid},
        "shop": {"s0": shop[0], "s1": shop[1], "s2": shop[2]},
    }
    schemas = {"bank": numbers(["b0", "b1", "b2"], -3, 3, paid=flag()), "shop": numbers(["s0", "s1", "s2"], -3, 3)}
    known, new = halves(held, schemas)
    fitted = LogisticRegression(label="bank.paid", epsilon=4.0, method="one-shot")
    model = fitted.simulate(known, Roster.of(schemas), seeded(5))
    return model, new, Roster.of(schemas), paid[3000:]


def halves(held, schemas):
    """Tables of the first and of the second half of the people."""
    tables = federation(held, schemas).tables()
    rows = np.arange(len(next(iter(tables.values())).ids))
    return ({name: table.take_rows(part) for name, table in tables.items()} for part in np.split(rows, 2))


def area(paid, scores):
    """The chance that somebody who paid has the larger score."""
    ranks = np.argsort(np.argsort(scores))
    return (ranks[paid].mean() - (paid.sum() - 1) / 2) / (~paid).sum()


@pytest.mark.parametrize("to", ["bank", "shop"])
@pytest.mark.parametrize("answers", ["noise", "levels"])
def test_joint_scores_are_better_than_own_columns_and_know_how_wrong_they_are(population_model, to, answers):
    """A party's own columns are those of the public model, with what they foretell of the others'."""
    model, tables, roster, paid = population_model
    truth, areas = model.scores(tables), []
    for epsilon in (0.5, 1.0, 3.0, 6.0):
        asked = JointPrediction(model, to=to, epsilon=epsilon, answers=answers).simulate(
            tables, roster, stream=seeded(6)
        )
        joint = asked.joint
        wrong, alone = (float(np.mean(np.square(found - truth))) for found in (joint.scores, joint.own_scores))
        assert wrong < alone * 1.005
        assert wrong == pytest.approx(float(np.mean(np.square(joint.deviations))), rel=0.3)
        areas.append(area(paid, joint.scores[:, 0]))
        own = area(paid, joint.own_scores[:, 0])
        assert areas[-1] > own - 0.005
        calibrated = joint.probabilities[:, 1]
        assert abs(calibrated.mean() - paid.mean()) < 0.05
        assert np.array_equal(joint.predictions, joint.probabilities.argmax(axis=1).astype(bool))
    if answers == "levels":
        assert areas[2] > own + 0.5 * (area(paid, truth[:, 0]) - own)


def test_where_no_noise_protects_a_pair_levels_do():
    """Bank and shop together hold enough shares to open what is noised; levels are told to the bank alone."""
    allowed = {"bank": 1.0, "bank+shop": 1.0}
    refused(
        PrivacyError, "PR024", JointPrediction(BINARY, to="bank", epsilon=allowed, answers="noise").plan, Roster.of(NEW)
    )
    task = JointPrediction(BINARY, to="bank", epsilon=allowed, answers="auto").plan(Roster.of(NEW))
    assert isinstance(task, QuantisedAnswers)
    assert Statement.of(task.events, task.trust, 1e-5).epsilon("bank+shop") <= 1.0


def test_levels_are_chosen_where_they_tell_more(population_model):
    model, _, roster, _ = population_model
    assert isinstance(JointPrediction(model, to="bank", epsilon=3.0, answers="auto").plan(roster), QuantisedAnswers)
    assert isinstance(JointPrediction(model, to="bank", epsilon=3.0).plan(roster), Scores)
    assert isinstance(JointPrediction(SEVERAL, to="bank", epsilon=3.0, answers="auto").plan(Roster.of(NEW)), Scores)
    # A model that published nothing about parts is asked at cuts that follow from its schemas.
    tasks = {
        epsilon: JointPrediction(BINARY, to="bank", epsilon=epsilon, answers="levels").plan(Roster.of(NEW))
        for epsilon in (0.5, 2.0, 12.0)
    }
    assert Statement.of(tasks[2.0].events, tasks[2.0].trust, 1e-5).epsilon("bank") <= 2.0
    asked = {epsilon: [each.owner for each in task.asked] for epsilon, task in tasks.items()}
    assert len(asked[0.5]) == 1  # with little epsilon only those are asked who matter most
    assert asked[12.0] == ["shop", "clinic"]


def test_levels_are_told_in_a_run_saved_and_read_again(population_model, tmp_path):
    model, _, _, _ = population_model
    rng, schemas = np.random.default_rng(6), model.schemas_ | {"bank": model.schemas_["bank"].without("paid")}
    held = {name: {c: rng.normal(0, 1, 40) for c in schema.columns} for name, schema in schemas.items()}
    people = federation(held, schemas)
    fitted = JointPrediction(model, to="shop", epsilon=3.0, answers="levels").fit(people)
    seen = fitted.privacy_
    assert seen.epsilon("shop") <= 3.0
    assert seen.epsilon("bank") == seen.epsilon("analyst") == 0
    path = fitted.save(tmp_path / "model.json")
    again = Estimator.load(path)
    assert again.joint.table().equals(fitted.joint.table())
    assert np.array_equal(again.joint.deviations, fitted.joint.deviations)
    content, told = json.loads(model.save(tmp_path / "fit.json").read_text()), json.loads(path.read_text())
    shorter = json.loads(json.dumps(content["learned"]["parts"]))
    shorter["bank"]["foretells"]["shop"]["weights"].pop()
    flat = {"bank": {"mean": 0.0, "variance": 1.0, "foretells": {}}}
    damaged = [(content, "parts", each) for each in ({}, flat, {"bank": {"mean": None}}, shorter)]
    for whole, name, value in (*damaged, (told, "deviations", told["learned"]["deviations"][:-1])):
        path.write_text(json.dumps(whole | {"learned": whole["learned"] | {name: value}}))
        refused(StudyError, "ST091", Estimator.load, path)


# --- bounds


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.01, 1.0, 50.0]))
def test_no_row_leaves_the_bounds(seed, scale):
    rng = np.random.default_rng(seed)
    model = Weights(rng.normal(0, scale, (2, 6)), [0.0, 0.0])
    for name, table in federated(30, NEW, seed % 1000).tables().items():
        whole = model.partial(name, table.select(scored_features(model, name))) * 2**16
        part = bound_score_part(model, name, 2**16)
        assert np.all(np.floor(whole) >= np.array(part.low) - 1)
        assert np.all(np.ceil(whole) <= np.array(part.high) + 1)


SURE, SIGNED, UNIT = (
    Schema({"city": category(["Delft", "Utrecht"])}),
    *(Schema({"bmi": number(10, 50, scale=scale, missing="none")}) for scale in ("signed", "unit")),
)


@pytest.mark.parametrize(
    ("schema", "weights", "ends"),
    [
        (SIGNED, [2.0, 5.0], (-2, 5)),  # a missing number adds its own weight and no other
        (SIGNED, [2.0, 1.0], (-2, 2)),
        (SIGNED, [-2.0, -3.0], (-3, 2)),
        (UNIT, [2.0, -1.0], (-1, 2)),
        (UNIT, [-2.0, -3.0], (-3, 0)),
        (SURE, [2.0, 3.0], (2, 3)),  # a category that must be there cannot add nothing
        (SURE.with_clip(0.5), [2.0, 3.0], (0, 3)),
        (SCHEMAS["shop"], [-0.7, 0.4, 2.0], (math.floor(Fraction(-0.7)), 3)),  # 0.4 as a float lies just above
        (SCHEMAS["clinic"], [-1.25, 0.3], (math.floor(Fraction(-1.25) - Fraction(0.3)), 1)),
    ],
)
def test_the_bounds_are_the_tightest_there_are(schema, weights, ends):
    names = ["p.bmi", "p.bmi=missing"] if schema in (SIGNED, UNIT) else [f"p.{name}" for name in schema.encoded_names]
    part = bound_score_part(Weights([weights], [0.0], {"p": schema}, names), "p", 1)
    assert (part.low, part.high) == ((ends[0],), (ends[1],))


# --- refusals


LEVELS = {"exact": False, "epsilon": 1.0, "answers": "levels"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "insurer"}, ("ST533", "bank", "shop", "clinic")),
        ({"to": COORDINATOR}, "ST533"),
        ({"exact": False}, "ST176"),
        ({"epsilon": 1.0}, "ST176"),
        ({"exact": False, "epsilon": {"analyst": 1.0}}, ("ST170", "bank")),
        ({"exact": False, "epsilon": {"shop": 1.0}}, ("ST170", "bank")),
        ({"gamma": 0}, ("ST150", "gamma")),
        ({"rows_at_most": True}, ("ST150", "rows_at_most")),
        ({"model": None}, "ST181"),
        ({"model": PCA(epsilon=1.0)}, ("ST169", "PCA")),
        ({"model": Weights(BINARY.coef_ * np.inf, [0.0])}, "ST182"),
        ({"model": "nothing.json"}, "ST098"),
        ({"answers": "levels"}, "ST178"),
        (LEVELS | {"model": SEVERAL}, "ST179"),
        (LEVELS | {"answers": "often"}, ("ST177", "often")),
        ({"people": {name: NEW[name] for name in ("bank", "shop")}}, ("ST206", "clinic")),
        ({"people": NEW | {"clinic": NEW["clinic"].without("bmi")}}, ("ST207", "bmi", "clinic")),
        ({"people": NEW | {"clinic": numbers(["bmi"], 0, 50, smoker=flag())}}, ("ST208", "clinic")),
    ],
)
def test_bad_parameters_and_people_without_the_models_columns_are_named(changes, message):
    asked = {"model": BINARY, "to": "bank", "exact": True, "people": NEW} | changes
    schemas = asked.pop("people")
    refused(StudyError, message, JointPrediction(**asked).plan, Roster.of(schemas))


def test_a_model_without_scores_and_one_that_changed_after_planning_are_refused(tmp_path, people):
    path = fitted("pca").save(tmp_path / "pca.json")
    refused(StudyError, "ST181", "pca", joint_scores, path, people, to="bank", exact=True)
    predictor = JointPrediction(BINARY, to="bank", exact=True)
    task = replace(predictor.plan(people.roster), model="another")
    refused(
        StudyError,
        "ST180",
        people.run,
        task,
        lambda me, t: predictor.owner(me, t, task),
        lambda me: predictor.coordinator(me, task),
    )


def test_tasks_under_other_weights_are_other_tasks():
    others = (SEVERAL, Weights(np.nextafter(BINARY.coef_, 9), BINARY.intercept_), Weights(BINARY.coef_, [0]))
    tasks = [JointPrediction(model, to="bank", exact=True).plan(Roster.of(NEW)) for model in (BINARY, *others)]
    assert len({json.dumps(task.agreement) for task in tasks}) == 4


# --- what is kept


def test_everybody_else_holds_an_empty_result(tmp_path, people):
    outcomes, asked = {}, JointPrediction(BINARY, to="shop", exact=True)
    task = asked.plan(people.roster)

    def conclude(me, result):
        outcomes[me.name] = JointPrediction(BINARY, to="shop", exact=True).conclude(people.roster, task, result)

    people.run(
        task,
        lambda me, table: conclude(me, asked.owner(me, table, task)),
        lambda me: conclude(me, asked.coordinator(me, task)),
    )
    assert len(outcomes["shop"].ids_) == 50
    for name in ("bank", "clinic", COORDINATOR):
        assert outcomes[name].learned_values() == {}
        assert outcomes[name].scores_ is None
        assert "p0001" not in outcomes[name].save(tmp_path / f"{name}.json").read_text()
        assert Estimator.load(tmp_path / f"{name}.json").ids_ is None


def test_the_ledger_charges_every_question(tmp_path):
    """Questions about the same people add up until a cap is met; the exact answer meets every cap at once."""
    roster = Roster.of(NEW)
    task = JointPrediction(BINARY, to="bank", epsilon=1.0).plan(roster)
    caps = parse_budgets({"party": 1.3}, 1e-5)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve("first", "a" * 64, task.events, roster.trust, caps)
    refused(BudgetError, "BU002", "1.0000", ledger.reserve, "second", "b" * 64, task.events, roster.trust, caps)
    exact, other = JointPrediction(BINARY, to="bank", exact=True).plan(roster), Ledger(tmp_path / "other.sqlite")
    refused(BudgetError, "BU002", other.reserve, "third", "c" * 64, exact.events, roster.trust, caps)
    ledger.reserve("not about shop", "d" * 64, exact.events, roster.trust, parse_budgets({"shop": 0.1}, 1e-5))


# --- with the real models


@pytest.mark.parametrize("name", ["logistic", "laplace", "classes", "linear"])
def test_joint_scores_of_a_regression_are_its_own(name, tmp_path):
    """The shop's rows are clipped."""
    model, new = fitted(name), Federation([Party(n, t, schema=MADE[n], id="id") for n, t in frames(100, 9).items()])
    found = joint_scores(model.save(tmp_path / "model.json"), new, to="bank", exact=True)
    np.testing.assert_allclose(found.scores, model.scores(new), atol=4 / 2**16)
    if name == "linear":
        np.testing.assert_allclose(found.predictions, model.predict(new), atol=0.1)
        return
    assert np.mean(found.predictions == model.predict(new)) > 0.97
    assert found.predictions.dtype == model.predict(new).dtype


# --- a model of the receiver's own


@pytest.fixture(scope="module")
def told(population_model):
    model, tables, roster, _ = population_model
    asked = JointPrediction(model, to="bank", epsilon=3.0, answers="levels")
    return asked.simulate(tables, roster, stream=seeded(10)).joint


def test_beside_the_joint_models_own_part_nothing_changes_and_others_move_a_model_of_ones_own(told):
    """By the odds by which they move the joint model's own part."""
    joint = told
    same = joint.with_own(joint.own_probabilities)
    assert np.allclose(same.probabilities, joint.probabilities)
    assert np.array_equal(same.predictions, same.probabilities[:, 1] > 0.5)
    by_id = joint.with_own(dict(zip(reversed(joint.ids), joint.own_probabilities[::-1, 1], strict=True)))
    assert np.allclose(by_id.probabilities, joint.probabilities)
    own = np.linspace(0.1, 0.9, len(joint.ids))
    odds = [
        p[:, 1] / p[:, 0] for p in (joint.with_own(own).probabilities, joint.probabilities, joint.own_probabilities)
    ]
    assert np.allclose(odds[0], own / (1 - own) * odds[1] / odds[2])
    silent = replace(joint, probabilities=joint.own_probabilities)
    chances = np.linspace(0, 1, len(joint.ids))
    assert np.allclose(silent.with_own(chances).probabilities[:, 1], chances, atol=1e-8)


def test_numbers_of_ones_own_are_moved_by_what_was_told(told):
    ids, statement = ["p1", "p2"], told.privacy_
    scores, own = np.array([[3.0], [5.0]]), np.array([[2.0], [7.0]])
    joint = JointScores(ids, scores, scores[:, 0], statement, own_scores=own, own_predictions=own[:, 0])
    both = joint.with_own({"p2": 20.0, "p1": 10.0})
    assert both.predictions.tolist() == both.scores[:, 0].tolist() == [11.0, 18.0]
    assert both.own_predictions.tolist() == [10.0, 20.0]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ([0.5], ("ST167", "3,000")),
        ([float("nan")] * 3000, "ST167"),
        ([1.5] * 3000, "ST162"),
        ([[0.1, 0.2, 0.7]] * 3000, "ST162"),
        ({"P003000": 0.5}, ("ST166", "2,999", "3,000")),
    ],
)
def test_what_is_no_model_of_ones_own_is_refused(told, own, sentence):
    refused(StudyError, sentence, told.with_own, own)
    refused(StudyError, "ST161", replace(told, own_probabilities=None).with_own, [0.5] * 3000)


def test_the_variance_of_a_part_allows_for_weights_that_noise_made_large():
    """Weights are large where noise made moments small, so these moments alone say too little of the variance."""
    rng = np.random.default_rng(12)
    z = rng.normal(0, 1, 3000)
    held = {f"s{k}": np.exp(z + rng.normal(0, 0.7, 3000)).clip(0, 60) for k in range(3)}
    schemas = {"bank": Schema({"paid": flag()}), "shop": numbers(held, 0, 60)}
    tables = federation({"bank": {"paid": z + rng.logistic(0, 1, 3000) > 0}, "shop": held}, schemas).tables()
    ratios = []
    for seed in range(12):
        model = LogisticRegression(label="bank.paid", epsilon=3.0, method="one-shot")
        model.simulate(tables, Roster.of(schemas), seeded(seed))
        ratios.append(model.partial("shop", tables["shop"]).var() / model.parts_["shop"].variance)
    # The allowance is in proportion to the squared weights, as the variance is, so the ratio is bounded for any noise.
    # Without it a quarter of such fits would say that there is no variance at all.
    assert min(ratios) > 0.1
    assert max(ratios) < 8


# --- what a receiver believes of others' parts: formulas against integrals, and never worse than before


def drawn_people(rows, seed, spread=1.0, follows=0.5):
    """Own scores, what they foretell of the others' part, and that part."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 1, (rows, 1))
    foretold = follows * own
    return own, foretold, foretold + rng.normal(0, spread, (rows, 1))


def believed(foretold, spread=1.0, doubt=PUBLISHED):
    return ScorePosterior(foretold, np.full_like(foretold, spread**2), doubt)


def error(found, truth):
    return float(np.mean(np.square(found - truth)))


@pytest.mark.parametrize("deviation", [0.3, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("rows", [40, 3000])
def test_noisy_sums_are_never_worse_than_own_columns_in_expectation(deviation, rows):
    rng, worse, better = np.random.default_rng(rows), 0.0, 0.0
    for seed in range(8000 // rows + 4):
        own, foretold, truth = drawn_people(rows, seed)
        found = update_by_noisy_sums(believed(foretold), own, truth + rng.normal(0, deviation, truth.shape), deviation)
        worse, better = worse + error(foretold, truth), better + error(found.mean, truth)
    ideal = deviation**2 / (1 + deviation**2)
    assert better <= worse * (1.02 if ideal > 0.98 else 1.0)
    assert better == pytest.approx(worse * ideal, rel=0.12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("rows", [40, 3000])
def test_levels_are_never_worse_than_own_columns_in_expectation(epsilon, rows):
    stream, worse, better, said = seeded(rows), 0.0, 0.0, 0.0
    cuts, odds, turns = np.array([-0.8, 0.8]), odds_of_epsilon(epsilon), 8000 // rows + 4
    for seed in range(turns):
        own, foretold, truth = drawn_people(rows, seed)
        told = randomised_response(np.searchsorted(cuts, truth[:, 0]), 3, odds, stream)
        found = update_by_levels(believed(foretold), own, told, cuts, float(odds))
        worse, better = worse + error(foretold, truth), better + error(found.mean, truth)
        said += float(found.variance.mean())
    assert better <= worse * (1.01 if epsilon < 0.5 else 0.97)
    assert said == pytest.approx(better, rel=0.06)


def test_the_moments_after_a_level_are_those_of_the_integral():
    values = np.linspace(-9, 9, 400_001)
    mean, variance, cuts, odds = 0.3, 0.7**2, np.array([-0.4, 0.9]), 5.0
    law = np.exp(-np.square(values - mean) / (2 * variance))
    for level in range(3):
        weights = law * np.where(np.searchsorted(cuts, values) == level, odds, 1.0)
        middle = float(values @ weights / weights.sum())
        spread = float(np.square(values - middle) @ weights / weights.sum())
        # One person is too little to change what a publication says of everybody.
        found = update_by_levels(
            posterior_of_prior(PartPrior(np.array([mean]), np.array([variance]), 1e-6), 1),
            np.zeros((1, 1)),
            np.array([level]),
            cuts,
            odds,
        )
        assert found.mean[0, 0] == pytest.approx(middle, abs=1e-4)
        assert found.variance[0, 0] == pytest.approx(spread, abs=1e-4)


@pytest.mark.parametrize("how", ["noise", "levels"])
def test_many_people_correct_a_guess(how):
    rng, rows = np.random.default_rng(3), 8000
    own = rng.normal(0, 2, (rows, 1))
    truth = 1.5 + 0.4 * own + rng.normal(0, 0.5, (rows, 1))
    guess = posterior_of_prior(PartPrior(np.zeros(1), np.ones(1), GUESSED), rows)
    if how == "noise":
        found = update_by_noisy_sums(guess, own, truth + rng.normal(0, 2, truth.shape), 2.0)
    else:
        cuts = np.array([-0.7, 0.7])
        told = randomised_response(np.searchsorted(cuts, truth[:, 0]), 3, odds_of_epsilon(2.0), seeded(3))
        found = update_by_levels(guess, own, told, cuts, math.exp(2))
    assert error(found.mean, truth) < 0.35 < 2.0 < error(guess.mean, truth)


def test_nothing_is_learned_of_a_part_that_cannot_vary():
    flat = ScorePosterior(np.full((4, 1), 2.0), np.zeros((4, 1)))
    own = np.arange(4.0)[:, None]
    assert np.array_equal(update_by_levels(flat, own, np.array([0, 1, 0, 1]), np.zeros(1), 3.0).mean, flat.mean)
    assert np.array_equal(update_by_noisy_sums(flat, own, own, 1.0).mean, flat.mean)


def test_a_guess_spreads_columns_evenly():
    columns = {"age": number(0, 9), "rate": number(0, 9, scale="unit"), "car": flag(), "city": category(["A", "B"])}
    weights = {"age": 3.0, "rate": 6.0, "car": -2.0, "city=A": 1.0, "city=B": 5.0}
    found = guess_prior(columns, {name: np.array([value, 0.0]) for name, value in weights.items()}, 2)
    assert found.mean.tolist() == [0 + 3 - 1 + 3, 0]
    assert found.variance == pytest.approx([3 + 3 + 1 + 4, 0])
    assert found.doubt == GUESSED


def test_chances_average_over_what_is_not_known():
    rng = np.random.default_rng(4)
    for score, deviation in ((0.0, 2.0), (1.0, 1.0), (-2.0, 1.5), (3.0, 0.1)):
        drawn = score + deviation * rng.normal(size=200_000)
        found = 1 / (1 + math.exp(-float(flatten_scores(np.array(score), np.array(deviation**2)))))
        assert found == pytest.approx(float(np.mean(1 / (1 + np.exp(-drawn)))), abs=0.015)
