from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import Ledger, Schema, Statement, category, flag, number, read_table
from colonnade.errors import BudgetError, PrivacyError, StudyError
from colonnade.kinds import PCA
from colonnade.kinds.prediction.levels.task import Levels
from colonnade.kinds.prediction.model import JointPrediction, Scorer, features, joint_scores, part_of
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.kinds.regression.linear import LinearRegression
from colonnade.kinds.regression.logistic import LogisticRegression
from colonnade.models import Estimator, Roster
from colonnade.models.predicted import JointScores
from colonnade.privacy import parse_budgets
from colonnade.protocols.roles import COORDINATOR
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

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


def frames(rows, seed=0):
    rng = np.random.default_rng(seed)
    ids = [f"p{i:04d}" for i in range(rows)]
    tables = {
        "bank": pd.DataFrame({"id": ids, "age": rng.uniform(18, 90, rows), "default": rng.random(rows) < 0.5}),
        "shop": pd.DataFrame(
            {"id": ids, "city": rng.choice(["Delft", "Utrecht", None], rows), "visits": rng.integers(0, 60, rows)}
        ),
        "clinic": pd.DataFrame({"id": ids, "smoker": rng.random(rows) < 0.3, "bmi": rng.uniform(12, 48, rows)}),
    }
    return {name: table.sample(frac=1, random_state=seed + k) for k, (name, table) in enumerate(tables.items())}


@pytest.fixture(scope="module")
def federation(aligned):
    def make(rows=50, schemas=NEW, seed=0, mode="helper"):
        return aligned(frames(rows, seed), schemas, "id", mode=mode, seed=seed)

    return make


@pytest.fixture(scope="module")
def people(federation):
    return federation(mode="dh")


def in_the_clear(model, people, parties=None):
    tables = people.tables()
    parts = [model.partial(name, tables[name].select(features(model, name))) for name in parties or tables]
    return sum(parts) + model.intercept_


@pytest.fixture(scope="module")
def binary():
    return Weights([[1.5, -0.7, 0.4, 2.0, -1.25, 0.3]], [0.2])


@pytest.fixture(scope="module")
def several():
    return Weights(np.random.default_rng(1).normal(0, 1, (3, 6)), [0.1, 0.0, -0.4])


@pytest.mark.parametrize("to", ["bank", "shop", "clinic"])
def test_exact_scores_are_those_of_the_model(several, to, people):
    found = joint_scores(several, people, to=to, exact=True)
    want = in_the_clear(several, people)
    np.testing.assert_allclose(found.scores, want, atol=2 / 2**16)
    assert sorted(found.ids) == [f"p{i:04d}" for i in range(50)]
    assert found.ids == people.tables()[to].own_ids != people.tables()[to].ids
    assert np.array_equal(found.predictions, several.answers(found.scores))
    assert np.mean(found.predictions == several.answers(want)) > 0.99
    assert math.isinf(found.privacy_.epsilon(to))
    assert found.privacy_.epsilon("analyst") == 0


def test_the_label_may_be_there_and_is_not_looked_at(binary, people, federation):
    with_label = joint_scores(binary, federation(schemas=SCHEMAS), to="shop", exact=True)
    without = joint_scores(binary, people, to="shop", exact=True)
    assert with_label.ids != without.ids  # the order is drawn anew
    by_id = [dict(zip(found.ids, found.scores[:, 0], strict=True)) for found in (with_label, without)]
    assert by_id[0] == by_id[1]


def test_two_parties_and_the_coordinators_seat(federation):
    pair = {name: NEW[name] for name in ("bank", "shop")}
    model = Weights([[1.0, 2.0, 3.0, -1.0]], [0.0], pair, NAMES[:4])
    people = federation(schemas=pair)
    assert people.roster.trust.committee == ("bank", "shop", COORDINATOR)
    found = joint_scores(model, people, to="bank", exact=True)
    np.testing.assert_allclose(found.scores, in_the_clear(model, people), atol=1 / 2**16)


def test_noise_is_as_large_as_it_says_and_costs_what_was_allowed(binary, federation):
    people = federation(rows=20_000)
    fitted = JointPrediction(binary, to="bank", epsilon=40.0).fit(people)
    task = fitted.plan(people.roster)
    assert 39.9 < fitted.privacy_.epsilon("bank") <= 40.0
    for other in ("analyst", "coordinator", "shop", "clinic"):
        assert fitted.privacy_.epsilon(other) == 0
    assert math.isinf(fitted.privacy_.epsilon("bank+shop"))
    assert task.noise_std > 0.3
    wrong, alone = (found - in_the_clear(binary, people) for found in (fitted.scores_, fitted.joint.own_scores))
    assert np.std(wrong) < min(task.noise_std, np.std(alone))
    # Both rest on how 20,000 people differ, which is seen through noise of about their deviation: the two differ by a
    # hundredth.
    assert np.std(wrong) == pytest.approx(float(fitted.joint.deviations.mean()), rel=0.08)
    assert "joint-prediction" in str(fitted.privacy_)


def test_the_statement_names_the_reason_for_infinity(binary, people):
    text = str(joint_scores(binary, people, to="bank", exact=True).privacy_)
    said = (
        "bank receives the exact score of every person, hence exactly what the columns of shop, clinic add up to in it"
    )
    assert said in " ".join(text.split())
    assert [line.split()[-4] for line in text.splitlines() if line.startswith("bank ")] == ["inf"]


def test_more_accomplices_mean_more_noise():
    schemas = {name: Schema({"x": number(-1, 1)}) for name in "abcde"}
    model = Weights([[1.0] * 5], [0.0], schemas, [f"{name}.x" for name in schemas])
    roster = Roster.of(schemas)
    alone = JointPrediction(model, to="a", epsilon={"a": 1.0}).plan(roster)
    pairs = JointPrediction(model, to="a", epsilon=1.0).plan(roster)
    assert pairs.noise / alone.noise == pytest.approx(4 / 3, rel=1e-3)
    assert Statement.of(pairs.events, roster.trust, 1e-5).epsilon("a+b") <= 1.0


# --- levels, and what stands beside scores


@pytest.fixture(scope="module")
def population_model():
    """A regression of two parties' columns, of which both matter, and new people with what is true of them."""
    rng = np.random.default_rng(5)
    rows, schemas = (
        6000,
        {
            "bank": Schema({**{f"b{k}": number(-3, 3) for k in range(3)}, "paid": flag()}),
            "shop": Schema({f"s{k}": number(-3, 3) for k in range(3)}),
        },
    )
    bank = rng.normal(0, 1, (rows, 3))
    shop = 0.5 * bank + rng.normal(0, 0.8, (rows, 3))
    paid = rng.random(rows) < 1 / (1 + np.exp(-(bank[:, 0] - 0.5 + 1.5 * shop[:, 0] - shop[:, 1])))
    ids = [f"p{i:05d}" for i in range(rows)]
    tables = {
        "bank": pd.DataFrame({"id": ids, **{f"b{k}": bank[:, k] for k in range(3)}, "paid": paid}),
        "shop": pd.DataFrame({"id": ids, **{f"s{k}": shop[:, k] for k in range(3)}}),
    }

    def read(part):
        return {name: read_table(table[part], schemas[name], id="id") for name, table in tables.items()}

    known, new = slice(0, 3000), slice(3000, None)
    fitted = LogisticRegression(label="bank.paid", epsilon=4.0, method="one-shot")
    model = fitted.simulate(read(known), Roster.of(schemas), seeded(5))
    return model, read(new), Roster.of(schemas), paid[new]


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
        assert asked.joint.own_scores is not None


def test_where_no_noise_protects_a_pair_levels_do(binary):
    """Bank and shop together hold enough shares to open what is noised; levels are told to the bank alone."""
    allowed = {"bank": 1.0, "bank+shop": 1.0}
    with raises(PrivacyError, "PR024"):
        JointPrediction(binary, to="bank", epsilon=allowed, answers="noise").plan(Roster.of(NEW))
    task = JointPrediction(binary, to="bank", epsilon=allowed, answers="auto").plan(Roster.of(NEW))
    assert isinstance(task, Levels)
    assert Statement.of(task.events, task.trust, 1e-5).epsilon("bank+shop") <= 1.0


def test_levels_are_chosen_where_they_tell_more(population_model, several, binary):
    model, _, roster, _ = population_model
    assert isinstance(JointPrediction(model, to="bank", epsilon=3.0, answers="auto").plan(roster), Levels)
    assert isinstance(JointPrediction(model, to="bank", epsilon=3.0).plan(roster), Scores)
    assert isinstance(JointPrediction(several, to="bank", epsilon=3.0, answers="auto").plan(Roster.of(NEW)), Scores)
    with raises(StudyError, "ST179"):
        JointPrediction(several, to="bank", epsilon=3.0, answers="levels").plan(Roster.of(NEW))
    with raises(StudyError, "ST178"):
        JointPrediction(binary, to="bank", exact=True, answers="levels").plan(Roster.of(NEW))
    with raises(StudyError, "ST177", "often"):
        JointPrediction(binary, to="bank", epsilon=1.0, answers="often").plan(Roster.of(NEW))
    # A model that published nothing about parts is asked at cuts that follow from its schemas.
    task = JointPrediction(binary, to="bank", epsilon=2.0, answers="levels").plan(Roster.of(NEW))
    assert {each.owner for each in task.asked} <= {"shop", "clinic"}
    assert Statement.of(task.events, task.trust, 1e-5).epsilon("bank") <= 2.0


def test_with_little_epsilon_only_those_are_asked_who_matter_most(binary):
    def asked(epsilon):
        task = JointPrediction(binary, to="bank", epsilon=epsilon, answers="levels").plan(Roster.of(NEW))
        return [each.owner for each in task.asked]

    assert len(asked(0.5)) == 1
    assert asked(12.0) == ["shop", "clinic"]


def test_cuts_follow_from_the_model_alone(population_model):
    model, tables, roster, _ = population_model
    one = JointPrediction(model, to="bank", epsilon=3.0, answers="levels")
    task = one.plan(roster)
    law = model.parts_["shop"]
    assert np.allclose(
        np.array(task.asked[0].cuts) / 2**16,
        law.mean + math.sqrt(law.variance) * np.array([-0.474, 0.474]),
        atol=0.1 * math.sqrt(law.variance),
    )
    found = one.simulate(tables, roster, seeded(1))
    assert found.plan(roster) == task


def test_levels_are_told_in_a_run_saved_and_read_again(population_model, tmp_path, aligned):
    model, _, _, _ = population_model
    rng, rows = np.random.default_rng(6), 40
    ids = [f"n{i:02d}" for i in range(rows)]
    schemas = {"bank": model.schemas_["bank"].without("paid"), "shop": model.schemas_["shop"]}
    frames = {
        name: pd.DataFrame({"id": ids, **{c: rng.normal(0, 1, rows) for c in schema.columns}})
        for name, schema in schemas.items()
    }
    people = aligned(frames, schemas, "id")
    found = joint_scores(model, people, to="shop", epsilon=3.0)
    assert found.privacy_.epsilon("shop") <= 3.0
    assert found.privacy_.epsilon("bank") == found.privacy_.epsilon("analyst") == 0
    assert "levels-of-scores" in str(found.privacy_)
    fitted = JointPrediction(model, to="shop", epsilon=3.0, answers="levels").fit(people)
    again = Estimator.load(fitted.save(tmp_path / "model.json"))
    assert again.get_params()["answers"] == "levels"
    for name in (
        "scores",
        "predictions",
        "probabilities",
        "own_scores",
        "own_predictions",
        "own_probabilities",
        "deviations",
    ):
        assert np.array_equal(getattr(again.joint, name), getattr(fitted.joint, name)), name
    assert again.joint.classes == [False, True]
    assert "answers" not in JointPrediction(model, to="shop", epsilon=3.0).get_params()
    kept = Estimator.load(model.save(tmp_path / "fit.json"))
    assert kept.parts_["bank"].foretells["shop"].offset == model.parts_["bank"].foretells["shop"].offset
    for damage in ({}, {"bank": {"mean": 0.0, "variance": 1.0, "foretells": {}}}, {"bank": {"mean": None}}):
        content = json.loads((tmp_path / "fit.json").read_text())
        content["learned"]["parts"] = damage
        (tmp_path / "damaged.json").write_text(json.dumps(content))
        with raises(StudyError, "ST091"):
            Estimator.load(tmp_path / "damaged.json")
    content = json.loads((tmp_path / "fit.json").read_text())
    content["learned"]["parts"]["bank"]["foretells"]["shop"]["weights"].pop()
    (tmp_path / "damaged.json").write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Estimator.load(tmp_path / "damaged.json")
    content = json.loads((tmp_path / "model.json").read_text())
    content["learned"]["deviations"] = content["learned"]["deviations"][:-1]
    (tmp_path / "model.json").write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Estimator.load(tmp_path / "model.json")


# --- bounds


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([0.01, 1.0, 50.0]))
def test_no_row_leaves_the_bounds(seed, scale):
    rng = np.random.default_rng(seed)
    model = Weights(rng.normal(0, scale, (2, 6)), [0.0, 0.0])
    tables = frames(30, seed % 1000)
    for name in NEW:
        table = read_table(tables[name], NEW[name], id="id")
        whole = model.partial(name, table.select(features(model, name))) * 2**16
        part = part_of(model, name, 2**16)
        assert np.all(np.floor(whole) >= np.array(part.low) - 1)
        assert np.all(np.ceil(whole) <= np.array(part.high) + 1)


def test_the_bounds_are_the_tightest_there_are(binary):
    grid = {name: part_of(binary, name, 100) for name in SCHEMAS}
    assert (grid["bank"].low, grid["bank"].high) == ((-150,), (150,))
    # -0.7 or 0.4 or nothing, and 0 to 2; 0.4 as a float lies just above.
    assert (grid["shop"].low, grid["shop"].high) == ((math.floor(Fraction(-0.7) * 100),), (241,))
    assert (grid["clinic"].low, grid["clinic"].high) == ((math.floor(100 * (Fraction(-1.25) - Fraction(0.3))),), (30,))


@pytest.mark.parametrize(
    ("scale", "weights", "ends"),
    [
        ("signed", [2.0, 5.0], (-2, 5)),
        ("signed", [2.0, 1.0], (-2, 2)),
        ("signed", [-2.0, -3.0], (-3, 2)),
        ("unit", [2.0, -1.0], (-1, 2)),
        ("unit", [-2.0, -3.0], (-3, 0)),
    ],
)
def test_a_missing_number_adds_its_own_weight_and_no_other(scale, weights, ends):
    schema = Schema({"bmi": number(10, 50, scale=scale, missing="none")})
    model = Weights([weights], [0.0], {"clinic": schema}, ["clinic.bmi", "clinic.bmi=missing"])
    part = part_of(model, "clinic", 1)
    assert (part.low, part.high) == ((ends[0],), (ends[1],))


def test_a_category_that_must_be_there_cannot_add_nothing():
    schema = Schema({"city": category(["Delft", "Utrecht"])})
    model = Weights([[2.0, 3.0]], [0.0], {"shop": schema}, ["shop.city=Delft", "shop.city=Utrecht"])
    assert (part_of(model, "shop", 1).low, part_of(model, "shop", 1).high) == ((2,), (3,))
    clipped = Weights([[2.0, 3.0]], [0.0], {"shop": schema.with_clip(0.5)}, model.feature_names_in_)
    assert (part_of(clipped, "shop", 1).low, part_of(clipped, "shop", 1).high) == ((0,), (3,))


def test_a_party_without_weights_takes_part_and_adds_nothing(binary, aligned):
    more = NEW | {"insurer": Schema({"policy": flag()})}
    tables = frames(20) | {"insurer": pd.DataFrame({"id": [f"p{i:04d}" for i in range(20)], "policy": [True] * 20})}
    people = aligned(tables, more, "id")
    found = joint_scores(binary, people, to="insurer", exact=True)
    want = in_the_clear(binary, people, NEW)
    np.testing.assert_allclose(found.scores, want, atol=2 / 2**16)


# --- refusals


@pytest.mark.parametrize("given", [{}, {"epsilon": 1.0, "exact": True}])
def test_one_of_two_prices_must_be_chosen(binary, given, people):
    with raises(StudyError, "ST176") as caught:
        joint_scores(binary, people, to="bank", **given)
    assert "epsilon adds noise to each score until bank learns at most that much" in str(caught.value)
    assert "lets bank learn the exact scores, which no epsilon bounds" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "insurer"}, ("ST533", "bank", "shop", "clinic")),
        ({"to": COORDINATOR}, "ST533"),
        ({"exact": False, "epsilon": {"analyst": 1.0}}, ("ST170", "bank")),
        ({"exact": False, "epsilon": {"shop": 1.0}}, ("ST170", "bank")),
        ({"gamma": 0}, ("ST150", "gamma")),
        ({"rows_at_most": True}, ("ST150", "rows_at_most")),
        ({"model": None}, "ST181"),
        ({"model": PCA(epsilon=1.0)}, ("ST169", "PCA")),
    ],
)
def test_bad_parameters_are_named(binary, changes, message):
    with raises(StudyError, message):
        JointPrediction(**{"model": binary, "to": "bank", "exact": True} | changes).plan(Roster.of(NEW))


def test_people_must_have_the_models_columns(binary):
    def plan(schemas):
        return JointPrediction(binary, to="bank", exact=True).plan(Roster.of(schemas))

    with raises(StudyError, "ST206", "clinic"):
        plan({name: NEW[name] for name in ("bank", "shop")})
    with raises(StudyError, "ST207", "bmi", "clinic"):
        plan(NEW | {"clinic": NEW["clinic"].without("bmi")})
    with raises(StudyError, "ST208", "clinic"):
        plan(NEW | {"clinic": Schema({"smoker": flag(), "bmi": number(0, 50, missing="middle")})})


def test_models_know_who_receives_their_result_and_that_there_is_none_yet():
    asked, everybody = JointPrediction(to="bank", exact=True), [PCA(epsilon=1.0), LinearRegression(epsilon=1.0)]
    assert asked.recipient == "bank"
    for model in (asked, *everybody):
        assert not model.fitted
        with raises(StudyError, "ST073"):
            model.summary()
    assert all(model.recipient is None for model in everybody)


def test_a_model_without_scores_is_refused(tmp_path, federation):
    people = federation(schemas=SCHEMAS)
    path = PCA(n_components=1, epsilon=5.0, rows_at_most=1000).fit(people).save(tmp_path / "pca.json")
    with raises(StudyError, "ST181", "pca"):
        joint_scores(path, people, to="bank", exact=True)
    with raises(StudyError, "ST098"):
        joint_scores(tmp_path / "nothing.json", people, to="bank", exact=True)


def test_weights_that_are_no_numbers_are_refused(binary, people):
    with raises(StudyError, "ST182"):
        joint_scores(Weights(binary.coef_ * np.inf, [0.0]), people, to="bank", exact=True)


def test_a_model_that_changed_after_planning_is_refused(binary, people):
    predictor = JointPrediction(binary, to="bank", exact=True)
    task = replace(predictor.plan(people.roster), model="another")
    with raises(StudyError, "ST180"):
        people.run(task, lambda me, t: predictor.owner(me, t, task), lambda me: predictor.coordinator(me, task))


def test_tasks_under_other_weights_are_other_tasks(binary, several):
    roster = Roster.of(NEW)
    found = {
        json.dumps(JointPrediction(model, to="bank", exact=True).plan(roster).agreement)
        for model in (
            binary,
            several,
            Weights(np.nextafter(binary.coef_, 9), binary.intercept_),
            Weights(binary.coef_, [0]),
        )
    }
    assert len(found) == 4


# --- what is kept


def test_everybody_else_holds_an_empty_result(binary, tmp_path, people):
    outcomes = {}

    def owner(me, table):
        mine = JointPrediction(binary, to="shop", exact=True)
        task = mine.plan(people.roster)
        outcomes[me.name] = mine.conclude(people.roster, task, mine.owner(me, table, task))

    def coordinator(me):
        mine = JointPrediction(binary, to="shop", exact=True)
        task = mine.plan(people.roster)
        outcomes[me.name] = mine.conclude(people.roster, task, mine.coordinator(me, task))

    people.run(JointPrediction(binary, to="shop", exact=True).plan(people.roster), owner, coordinator)
    assert len(outcomes["shop"].ids_) == 50
    for name in ("bank", "clinic", COORDINATOR):
        assert outcomes[name].learned() == {}
        assert outcomes[name].scores_ is None
        text = outcomes[name].save(tmp_path / f"{name}.json").read_text()
        assert "p0001" not in text
        assert Estimator.load(tmp_path / f"{name}.json").ids_ is None


@pytest.mark.parametrize("kind", ["binary", "several"])
def test_save_and_load(kind, request, tmp_path, people):
    model = request.getfixturevalue(kind)
    fitted = JointPrediction(model, to="clinic", epsilon=5.0).fit(people)
    again = Estimator.load(fitted.save(tmp_path / "model.json"))
    assert isinstance(again, JointPrediction)
    assert again.ids_ == fitted.ids_
    assert np.array_equal(again.scores_, fitted.scores_)
    assert np.array_equal(again.predictions_, fitted.predictions_)
    assert again.predictions_.dtype == fitted.predictions_.dtype
    assert str(again.privacy_) == str(fitted.privacy_)


def test_the_ledger_charges_every_question(binary, tmp_path):
    """Questions about the same people add up until a cap is met; the exact answer meets every cap at once."""
    roster = Roster.of(NEW)
    task = JointPrediction(binary, to="bank", epsilon=1.0).plan(roster)
    caps = parse_budgets({"party": 1.3}, 1e-5)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve("first", "a" * 64, task.events, roster.trust, caps)
    with raises(BudgetError, "BU002", "1.0000"):
        ledger.reserve("second", "b" * 64, task.events, roster.trust, caps)
    exact = JointPrediction(binary, to="bank", exact=True).plan(roster)
    with raises(BudgetError, "BU002"):
        Ledger(tmp_path / "other.sqlite").reserve("third", "c" * 64, exact.events, roster.trust, caps)
    ledger.reserve("not about shop", "d" * 64, exact.events, roster.trust, parse_budgets({"shop": 0.1}, 1e-5))


def test_a_simulation_is_what_the_protocol_gives(binary, stream, people):
    simulated = JointPrediction(binary, to="bank", exact=True).simulate(people.tables(), people.roster, stream)
    assert np.array_equal(simulated.scores_, joint_scores(binary, people, to="bank", exact=True).scores)


def test_the_stand_in_is_what_is_asked_for(binary):
    assert isinstance(binary, Scorer)
    assert not isinstance(PCA(epsilon=1.0), Scorer)


# --- with the real models


@pytest.mark.parametrize("method", ["one-shot", "functional"])
@pytest.mark.parametrize("clip", [None, 0.8])
def test_joint_scores_of_a_logistic_regression_are_its_own(method, clip, tmp_path, federation, aligned):
    schemas = {name: schema.with_clip(clip) for name, schema in SCHEMAS.items()}
    known = frames(400, seed=3)
    known["bank"]["default"] = known["bank"]["age"] > 50
    model = LogisticRegression(epsilon=50.0, label="bank.default", method=method, rows_at_most=1000)
    model.fit(aligned(known, schemas, "id"))
    new = federation(schemas={name: schema.with_clip(clip) for name, schema in NEW.items()}, seed=9)
    found = joint_scores(model.save(tmp_path / "model.json"), new, to="clinic", exact=True)
    np.testing.assert_allclose(found.scores, model.scores(new), atol=2 / 2**16)
    assert np.mean(found.predictions == model.predict(new)) > 0.97
    assert found.predictions.dtype == model.predict(new).dtype


def test_joint_scores_of_several_classes_and_of_numbers(aligned):
    schemas = SCHEMAS | {"shop": SCHEMAS["shop"].without("city"), "bank": SCHEMAS["bank"]}
    schemas["clinic"] = Schema({**SCHEMAS["clinic"].columns, "ward": category(["a", "b", "c"])})
    tables = frames(300, seed=4)
    tables["clinic"]["ward"] = np.random.default_rng(0).choice(["a", "b", "c"], 300)
    people = aligned(tables, schemas, "id")
    wards = LogisticRegression(epsilon=20.0, label="clinic.ward", method="one-shot", rows_at_most=1000).fit(people)
    found = joint_scores(wards, people, to="bank", exact=True)
    assert found.scores.shape == (300, 3)
    np.testing.assert_allclose(found.scores, wards.scores(people), atol=2 / 2**16)
    assert set(found.predictions) <= {"a", "b", "c"}
    ages = LinearRegression(epsilon=20.0, label="bank.age", rows_at_most=1000).fit(people)
    found = joint_scores(ages, people, to="shop", exact=True)
    np.testing.assert_allclose(found.predictions, ages.predict(people), atol=0.1)


# --- a model of the receiver's own


@pytest.fixture(scope="module")
def bent():
    """Two parties' people whose label follows one of the bank's columns by its square, which no regression sees."""
    rng = np.random.default_rng(8)
    rows = 8000
    b, s = rng.uniform(-3, 3, rows), rng.normal(0, 1, rows).clip(-3, 3)
    chance = 1 / (1 + np.exp(-(np.square(b) - 3 + 1.5 * s)))
    paid, ids = rng.random(rows) < chance, [f"p{i:05d}" for i in range(rows)]
    schemas = {"bank": Schema({"b": number(-3, 3), "paid": flag()}), "shop": Schema({"s": number(-3, 3)})}
    frames = {"bank": pd.DataFrame({"id": ids, "b": b, "paid": paid}), "shop": pd.DataFrame({"id": ids, "s": s})}

    def read(part):
        return {name: read_table(frame[part], schemas[name], id="id") for name, frame in frames.items()}

    known, new = slice(0, 4000), slice(4000, None)
    model = LogisticRegression(label="bank.paid", epsilon=4.0, method="one-shot")
    model.simulate(read(known), Roster.of(schemas), seeded(9))
    asked = JointPrediction(model, to="bank", epsilon=3.0, answers="levels")
    joint = asked.simulate(read(new), Roster.of(schemas), stream=seeded(10)).joint
    edges = np.linspace(-3, 3, 13)
    places = np.digitize(b, edges[1:-1])
    shares = np.array([paid[known][places[known] == k].mean() for k in range(12)])
    return joint, shares[places[new]], paid[new]


def test_a_model_of_ones_own_and_what_others_told_are_better_than_either(bent):
    joint, own, paid = bent
    both = joint.with_own(own)
    areas = [area(paid, each) for each in (both.probabilities[:, 1], own, joint.scores[:, 0])]
    assert areas[0] > areas[1] + 0.03 > areas[2] + 0.1
    losses = [-np.mean(np.log(np.where(paid, p, 1 - p))) for p in (both.probabilities[:, 1], own)]
    assert losses[0] < losses[1] - 0.03
    assert np.array_equal(both.predictions, both.probabilities[:, 1] > 0.5)
    assert np.allclose(both.scores[:, 0], np.log(both.probabilities[:, 1] / both.probabilities[:, 0]))
    assert np.allclose(both.own_probabilities[:, 1], own)
    assert both.deviations is None
    assert both.privacy_ is joint.privacy_
    by_id = joint.with_own(dict(zip(reversed(joint.ids), own[::-1], strict=True)))
    assert np.array_equal(by_id.probabilities, both.probabilities)
    assert both.table().column_names == [
        *("id", "prediction", "probability_false", "probability_true", "score"),
        *("own_prediction", "own_probability_false", "own_probability_true", "own_score"),
    ]


def test_beside_the_joint_models_own_part_nothing_changes(bent):
    joint, _, _ = bent
    same = joint.with_own(joint.own_probabilities)
    assert np.allclose(same.probabilities, joint.probabilities)
    silent = replace(joint, probabilities=joint.own_probabilities)
    chances = np.linspace(0, 1, len(joint.ids))
    assert np.allclose(silent.with_own(chances).probabilities[:, 1], chances, atol=1e-8)


def test_numbers_of_ones_own_are_moved_by_what_was_told(bent):
    ids, statement = ["p1", "p2"], bent[0].privacy_
    told, own = np.array([[3.0], [5.0]]), np.array([[2.0], [7.0]])
    joint = JointScores(ids, told, told[:, 0], statement, own_scores=own, own_predictions=own[:, 0])
    both = joint.with_own({"p2": 20.0, "p1": 10.0})
    assert both.predictions.tolist() == both.scores[:, 0].tolist() == [11.0, 18.0]
    assert both.own_predictions.tolist() == [10.0, 20.0]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ([0.5], ("ST167", "4,000")),
        ([float("nan")] * 4000, "ST167"),
        ([1.5] * 4000, "ST162"),
        ([[0.1, 0.2, 0.7]] * 4000, "ST162"),
        ({"p04000": 0.5}, ("ST166", "3,999", "4,000")),
    ],
)
def test_what_is_no_model_of_ones_own_is_refused(bent, own, sentence):
    with raises(StudyError, sentence):
        bent[0].with_own(own)
    earlier = replace(bent[0], own_probabilities=None)
    with raises(StudyError, "ST161"):
        earlier.with_own([0.5] * 4000)


def test_the_variance_of_a_part_allows_for_weights_that_noise_made_large():
    """Weights are large where noise made moments small, so these moments alone say too little of the variance."""
    rng, rows = np.random.default_rng(12), 3000
    z, ids = rng.normal(0, 1, rows), [f"p{i:05d}" for i in range(rows)]
    schemas = {"bank": Schema({"paid": flag()}), "shop": Schema({f"s{k}": number(0, 60) for k in range(3)})}
    frames = {
        "bank": pd.DataFrame({"id": ids, "paid": z + rng.logistic(0, 1, rows) > 0}),
        "shop": pd.DataFrame(
            {"id": ids, **{f"s{k}": np.exp(z + rng.normal(0, 0.7, rows)).clip(0, 60) for k in range(3)}}
        ),
    }
    tables = {name: read_table(frame, schemas[name], id="id") for name, frame in frames.items()}
    ratios = []
    for seed in range(12):
        model = LogisticRegression(label="bank.paid", epsilon=3.0, method="one-shot")
        model.simulate(tables, Roster.of(schemas), seeded(seed))
        ratios.append(model.partial("shop", tables["shop"]).var() / model.parts_["shop"].variance)
    # The allowance is in proportion to the squared weights, as the variance is, so the ratio is bounded for any noise.
    # Without it a quarter of such fits would say that there is no variance at all.
    assert min(ratios) > 0.1
    assert max(ratios) < 8
