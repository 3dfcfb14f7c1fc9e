from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from colonnade import Observer, Schema, category, flag, number
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds import LogisticRegression
from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.models import Roster
from colonnade.protocols.moments.task import Moments
from colonnade.tables.people import population as made_up
from research.datasets import load_dataset
from tests.support.errors import raises
from tests.support.people import width_of

pd = pytest.importorskip("pandas")

RATE = {"rows": 3000, "rate": 0.05, "epochs": 10}


@pytest.fixture(scope="module")
def population():
    return made_up(3000)


@pytest.fixture(scope="module")
def people(population, aligned):
    return aligned(population.arrow, population.schemas)


@pytest.fixture(scope="module")
def crowd():
    """Enough people that noise matters little."""
    return made_up(10_000)


@pytest.fixture(scope="module")
def model(people, population):
    return LogisticRegression(epsilon=8.0, label=population.label, method="one-shot", rows_at_most=10_000).fit(people)


def majority(model, tables):
    """What predicting the most frequent class for everybody would score."""
    share = model.label_of(tables).mean(axis=0)
    return max(share[0], 1 - share[0]) if len(share) == 1 else share.max()


def flagged(rows=1500, seed=0):
    """Two parties; y is likely where 4 a - 3 c + b is high. The label is a flag, a pair, or one of three."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-1, 1, (3, rows))
    score = 4 * a - 3 * c + b
    yes = rng.random(rows) < 1 / (1 + np.exp(-score))
    three = np.select([score < -1, score < 1], ["low", "middle"], "high")
    ids = [f"p{k}" for k in range(rows)]
    frames = {
        "left": pd.DataFrame({"id": ids, "a": a, "b": b, "y": yes, "pair": np.where(yes, "yes", "no"), "three": three}),
        "right": pd.DataFrame({"id": ids, "c": c}),
    }
    columns = {"a": number(-1, 1), "b": number(-1, 1)}
    labels = {"y": flag(), "pair": category(["no", "yes"]), "three": category(["high", "middle", "low"])}
    schemas = {
        name: {"left": Schema(columns | {name: column}), "right": Schema({"c": number(-1, 1)})}
        for name, column in labels.items()
    }
    return frames, schemas


@pytest.fixture(scope="module")
def flagged_people(aligned):
    """The federation of a label, aligned once."""
    frames, schemas = flagged()
    return cache(lambda label: aligned(frames, schemas[label], "id"))


# --- second moments


def test_the_fit_over_threads_predicts(model, people, population):
    assert model.classes_.tolist() == [False, True]
    assert model.coef_.shape == (1, width_of(population))
    assert model.feature_names_in_[:2] == ["bank.age", "bank.income"]
    assert "bank.default" not in model.feature_names_in_
    assert model.score(people) > majority(model, people.tables()) + 0.01
    coefficients = model.coefficients()
    assert list(coefficients) == ["bank", "shop", "clinic"]
    assert coefficients["shop"]["discounts"] > 0  # as the people were made


def test_probabilities_and_predictions_belong_together(model, people):
    chances, scores = model.predict_proba(people), model.decision_function(people)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(chances[:, 1] / chances[:, 0]), scores, rtol=1e-6)
    assert (model.predict(people) == (chances[:, 1] > 0.5)).all()
    parts = sum(model.partial(name, table) for name, table in people.tables().items())
    np.testing.assert_allclose(parts[:, 0] + model.intercept_[0], scores)


def test_probabilities_are_nearly_as_good_as_those_of_logistic_regression(crowd, stream):
    """The steepness comes from the moments alone: mean log-likelihood beside scikit-learn and beside Taylor's slope."""
    from sklearn import linear_model

    tables = crowd.tables()
    found = LogisticRegression(epsilon=8.0, label=crowd.label, method="one-shot")
    found.simulate(tables, Roster.of(crowd.schemas), stream)
    x = np.hstack([t.without(["default"]).matrix() if n == "bank" else t.matrix() for n, t in tables.items()])
    y = found.label_of(tables)[:, 0].astype(int)
    plain = linear_model.LogisticRegression(max_iter=500).fit(x, y)

    def loss(chances):
        return -np.mean(np.log(chances[np.arange(len(y)), y]))

    best, ours = loss(plain.predict_proba(x)), loss(found.predict_proba(tables))
    scores = found.decision_function(tables)
    steep = 1 / (1 + np.exp(-scores / np.abs(scores).max()))
    assert ours < best + 0.03
    assert ours < loss(np.c_[1 - steep, steep])
    assert found.score(tables) > plain.score(x, y) - 0.01


def test_more_epsilon_is_more_accurate(crowd, stream):
    tables, roster = crowd.tables(), Roster.of(crowd.schemas)
    truth = LogisticRegression(epsilon=20.0, label=crowd.label, method="one-shot").simulate(tables, roster, stream)
    best = truth.decision_function(tables)
    errors = []
    for epsilon in (0.05, 0.5, 5.0):
        found = LogisticRegression(epsilon=epsilon, label=crowd.label, method="one-shot")
        found.simulate(tables, roster, stream)
        errors.append(1 - np.corrcoef(found.decision_function(tables), best)[0, 1])
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05


def test_the_functional_mechanism_is_pure(people, population):
    found = LogisticRegression(epsilon=20.0, label=population.label, method="functional", rows_at_most=10_000)
    found.fit(people)
    for observer in (Observer.analyst(), Observer.coordinator(), Observer.party("shop")):
        assert found.privacy_.epsilon(observer, 1e-30) <= 20.0
    assert found.score(people) > majority(found, people.tables())


@pytest.mark.parametrize("label", ["pair", "three"])
def test_a_category_is_predicted_by_its_values(label, flagged_people):
    people = flagged_people(label)
    found = LogisticRegression(epsilon=20.0, label=f"left.{label}", method="one-shot", rows_at_most=10_000).fit(people)
    assert found.classes_.tolist() == list(people.roster.schemas["left"].columns[label].values)
    assert found.coef_.shape == ((1, 3) if label == "pair" else (3, 3))
    assert set(found.predict(people)) <= set(found.classes_)
    assert found.score(people) > majority(found, people.tables()) + 0.15
    chances = found.predict_proba(people)
    assert chances.shape == (1500, len(found.classes_))
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (found.classes_[chances.argmax(axis=1)] == found.predict(people)).all()
    if label == "three":
        assert set(found.coefficients()["right"]["c"]) == {"high", "middle", "low"}
        assert found.decision_function(people).shape == (1500, 3)


def test_several_classes_of_made_up_people(crowd, stream):
    """What people do for a living, one against the rest, from one release."""
    found = LogisticRegression(epsilon=2.0, label="bank.work", method="one-shot")
    found.simulate(crowd.tables(), Roster.of(crowd.schemas), stream)
    fresh = made_up(2000).tables()
    assert found.score(fresh) > majority(found, fresh) + 0.03


def test_every_party_may_name_its_own_epsilon(people, population):
    named = {"bank": 2.0, "shop": 4.0, "clinic": 1.0}
    found = LogisticRegression(epsilon_by_party=named, label=population.label, rows_at_most=10_000)
    found.fit(people)
    for party, epsilon in named.items():
        assert found.protection_[party] <= epsilon
    assert found.method_ in ("one-shot", "functional")


def test_without_an_intercept(flagged_people):
    people = flagged_people("y")
    found = LogisticRegression(epsilon=20.0, label="left.y", intercept=False, method="one-shot", rows_at_most=10_000)
    found.fit(people)
    assert found.intercept_.tolist() == [0.0]
    assert found.coef_[0, 0] > found.coef_[0, 1] > 0 > found.coef_[0, 2]


# --- gradients


@pytest.mark.parametrize(
    "settings", [{}, {"sampling": "disjoint", "noise": "discrete-gaussian"}, {"expansion": 3}], ids=str
)
def test_gradients_over_threads(settings, flagged_people):
    people = flagged_people("y")
    found = LogisticRegression(
        epsilon=20.0, label="left.y", method="sqm", rows=1500, rate=0.1, epochs=5, rows_at_most=4000, **settings
    ).fit(people)
    assert found.method_ == "sqm"
    assert found.coef_[0, 0] > found.coef_[0, 1] > 0 > found.coef_[0, 2]
    assert found.score(people) > 0.78  # scikit-learn without noise: 0.83
    assert found.privacy_.epsilon("left") <= 20.0
    assert found.count_ is None
    assert set(found.protection_) == {"left", "right"}


def test_gradients_of_several_classes(flagged_people):
    people = flagged_people("three")
    found = LogisticRegression(
        epsilon=20.0, label="left.three", method="sqm", rows=1500, rate=0.1, epochs=10, rows_at_most=4000
    ).fit(people)
    assert found.coef_.shape == (3, 3)
    assert found.score(people) > majority(found, people.tables()) + 0.15


def test_a_label_that_is_all_its_party_holds(aligned):
    frames, schemas = flagged()
    frames["court"] = frames["left"][["id", "y"]]
    parts = {
        "left": schemas["y"]["left"].without(["y"]),
        "right": schemas["y"]["right"],
        "court": Schema({"y": flag()}),
    }
    people = aligned(frames, parts, "id")
    settings = {"method": "sqm", "rows": 1500, "rate": 0.1, "epochs": 3}
    found = LogisticRegression(epsilon=20.0, label="court.y", rows_at_most=4000, **settings).fit(people)
    assert found.score(people) > 0.75


def test_simulated_gradients_are_like_those_of_the_protocol(flagged_people, stream):
    people = flagged_people("y")
    found = LogisticRegression(epsilon=20.0, label="left.y", method="sqm", rows=1500, rate=0.1, epochs=10)
    fitted = found.fit(people).decision_function(people)
    drawn = found.simulate(people.tables(), people.roster, stream).decision_function(people)
    assert np.corrcoef(fitted, drawn)[0, 1] > 0.98
    assert np.std(drawn) == pytest.approx(np.std(fitted), rel=0.2)


def test_the_parameters_of_batches():
    roster = Roster.of(flagged(50)[1]["y"])
    poisson = LogisticRegression(epsilon=5.0, label="left.y", method="sqm", **RATE).plan(roster)
    assert isinstance(poisson, Gradients)
    assert (poisson.rows, poisson.batch, poisson.rounds) == (3000, 150, 200)
    assert poisson.norm_squared <= (1.02 * poisson.gamma) ** 2
    fixed = LogisticRegression(epsilon=5.0, label="left.y", method="sqm", sampling="disjoint", **RATE).plan(roster)
    assert (fixed.epochs, fixed.rounds) == (10, 200)
    cubic = LogisticRegression(epsilon=5.0, label="left.y", method="sqm", expansion=3, **RATE).plan(roster)
    assert (cubic.weight_bound, cubic.gamma) == (4.0, 128)
    assert isinstance(LogisticRegression(epsilon=1.0, label="left.y").plan(roster), Moments)


@pytest.mark.parametrize("sampling", ["poisson", "disjoint"])
@pytest.mark.parametrize(("rows", "rate"), [(10, 0.001), (30, 0.05), (999, 0.0035), (7, 1.0), (10, 0.6)])
def test_rounds_keep_the_epochs_whatever_the_batch_is_rounded_to(sampling, rows, rate):
    roster = Roster.of(flagged(20)[1]["y"])
    settings = {"method": "sqm", "rows": rows, "rate": rate, "epochs": 4, "sampling": sampling}
    task = LogisticRegression(epsilon=8.0, label="left.y", **settings).plan(roster)
    assert task.batch == max(1, round(rate * rows))
    if sampling == "poisson":
        assert abs(task.rounds * task.batch / rows - 4) <= task.batch / rows / 2
    else:
        assert (task.rounds, task.epochs) == (4 * task.batches, 4)


# --- whatever the method


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "ST187"),
        ({"label": "left.z"}, ("ST189", "z")),
        ({"label": "left.a"}, "ST204"),
        ({"label": 3}, "ST147"),
        ({"epsilon": None, "epsilon_by_party": [1, 2]}, "ST184"),
        ({"method": "sqm", "rows": 10_000_000, "rate": 1e-6}, ("ST203", "10,000,000")),
        (
            {"method": "sqm", "rows": 100_000, "rate": 1e-5, "epochs": 11, "sampling": "disjoint"},
            ("ST203", "1,100,000"),
        ),
        ({"label": "left.unknown"}, "ST191"),
        ({"method": "magic"}, "ST196"),
        ({"method": "sqm"}, "ST197"),
        ({"method": "sqm", "rows": 0}, ("ST150", "rows")),
        ({"method": "sqm", "rows": 10, "epochs": 0}, ("ST150", "epochs")),
        ({"method": "sqm", "rows": 10, "rate": 2.0}, "ST202"),
        ({"method": "sqm", "rows": 10, "rate": -1.0}, ("ST201", "rate")),
        ({"method": "sqm", "rows": 10, "learning_rate": "fast"}, ("ST201", "learning_rate")),
        ({"method": "sqm", "rows": 10, "expansion": 2}, "ST199"),
        ({"method": "sqm", "rows": 10, "sampling": "full"}, "ST200"),
        ({"method": "sqm", "rows": 10, "intercept": False}, "ST198"),
        ({"method": "sqm", "rows": 10, "epsilon": None, "epsilon_by_party": {"left": 1.0}}, "ST198"),
        ({"method": "sqm", "rows": 10, "gamma": 1}, ("ST150", "gamma")),
        ({"noise": "discrete-laplace"}, ("ST185", "functional")),
        ({"epsilon": None}, "ST183"),
    ],
)
def test_bad_parameters_are_named(changes, message):
    left = Schema({"a": number(-1, 1), "y": flag(), "unknown": category(["u", "v"], missing="none")})
    roster = Roster.of({"left": left, "right": Schema({"c": number(-1, 1)})})
    with raises(StudyError, message):
        LogisticRegression(**{"epsilon": 1.0, "label": "left.y"} | changes).plan(roster)


def test_bad_budgets_are_named(people, population):
    with raises(PrivacyError, "PR061", "insurer"):
        LogisticRegression(epsilon={"insurer": 1.0}, label=population.label).plan(people.roster)
    with raises(PrivacyError, "PR065"):
        LogisticRegression(epsilon=0.0, label=population.label).plan(people.roster)


def test_scores_of_arrays_need_their_labels(model):
    x = np.zeros((4, len(model.feature_names_in_)))
    with raises(DataError, "DA079"):
        model.score(x, encoded=True)
    assert model.score(x, y=np.zeros(4, dtype=bool), encoded=True) in (0.0, 1.0)


@pytest.mark.parametrize("method", ["one-shot", "sqm"])
def test_save_and_load(tmp_path, method, aligned):
    frames, schemas = flagged(500)
    people = aligned(frames, schemas["three"], "id")
    found = LogisticRegression(epsilon=20.0, label="left.three", method=method, rows=500, rate=0.2, epochs=2).fit(
        people
    )
    path = found.save(tmp_path / "model.json")
    again = LogisticRegression.load(path)
    np.testing.assert_array_equal(again.predict_proba(people), found.predict_proba(people))
    assert again.classes_.tolist() == found.classes_.tolist()
    assert again.method_ == method
    assert again.get_params() == found.get_params()
    content = json.loads(path.read_text())
    content["learned"]["coef"] = content["learned"]["coef"][:2]
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        LogisticRegression.load(path)


# --- real data


def accuracy(name, data_dir, runs, stream, **settings):
    """Mean accuracy over random 80/20 splits, four parties, delta 1e-5, the analyst's epsilon."""
    made = load_dataset(name, folder=data_dir, parties=4)
    roster, tables = Roster.of(made.schemas), made.tables()
    model = LogisticRegression(label=made.label, **settings)
    task, draw, found = model.plan(roster), np.random.default_rng(7), []
    for _ in range(runs):
        order = draw.permutation(made.rows)
        cut = 4 * made.rows // 5
        seen = {party: table.take_rows(np.sort(order[:cut])) for party, table in tables.items()}
        new = {party: table.take_rows(np.sort(order[cut:])) for party, table in tables.items()}
        found.append(model.simulate(seen, roster, stream, task=task).score(new))
    return float(np.mean(found))


@pytest.mark.parametrize(("name", "least"), [("dutch-census", 0.826), ("adult", 0.838)])
def test_real_people_in_brief(name, least, data_dir, stream):
    assert accuracy(name, data_dir, 1, stream, epsilon={"analyst": 1.0}) > least - 0.005


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon", "least"),
    [("adult", 0.1, 0.815), ("adult", 1.0, 0.83), ("dutch-census", 0.1, 0.82), ("dutch-census", 1.0, 0.828)],
)
def test_real_people(name, epsilon, least, data_dir, stream):
    assert accuracy(name, data_dir, 20, stream, epsilon={"analyst": epsilon}) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon", "published"),
    [
        ("adult", 0.1, 0.6412),
        ("adult", 1.0, 0.7315),
        ("adult", 10.0, 0.8132),
        ("dutch-census", 0.1, 0.5783),
        ("dutch-census", 1.0, 0.7166),
        ("dutch-census", 10.0, 0.8105),
    ],
)
def test_pure_epsilon_on_real_people(name, epsilon, published, data_dir, stream):
    """The functional mechanism, beside the accuracy that its authors report."""
    found = accuracy(name, data_dir, 20, stream, epsilon={"analyst": epsilon}, method="functional")
    assert found > published
