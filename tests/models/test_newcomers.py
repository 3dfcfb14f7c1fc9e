"""New people as callers pass them: frames are raw, matrices say that they are encoded, rows are matched by ids.

And what is said of them: predictions by a threshold, and assessments where labels are known.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import linear_model
from sklearn.base import clone
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score, roc_auc_score

from colonnade import (
    GLM,
    PCA,
    Federation,
    JointPrediction,
    Key,
    KeyColumn,
    LinearRegression,
    LogisticRegression,
    Party,
    Schema,
    SplitClassifier,
    Synthesizer,
    category,
    date,
    flag,
    joint_scores,
    number,
    read_table,
)
from colonnade.errors import DataError, StudyError
from colonnade.models import Roster
from colonnade.models.assessment import assess_chances
from colonnade.models.base import Estimator
from colonnade.models.planner import SampleSizeForecast
from colonnade.report.page import write_assessment
from colonnade.tables import population
from colonnade.testing import seeded
from tests.support.errors import raises
from tests.support.federations import federation, numbers
from tests.support.models import MODELS, ROWS, SCHEMAS, fitted, frames, simulated, together

every_kind = pytest.mark.parametrize("name", ["logistic", "glm", "split", "pca"])
by_scores_or_components = pytest.mark.parametrize("name", ["linear", "pca"])
classifiers = pytest.mark.parametrize("name", ["logistic", "glm", "split"])


def said(model, X, **passed):
    """What a model says of people: scores, of components or of a label."""
    return model.transform(X, **passed) if isinstance(model, PCA) else model.scores(X, **passed)


@every_kind
def test_one_frame_and_one_arrow_table_of_all_columns_are_raw(name):
    renamed = [frame.drop(columns="id").add_prefix(f"{party}.") for party, frame in frames().items()]
    joint = pd.concat(renamed, axis=1)
    plain = joint.rename(columns={column: column.split(".")[1] for column in joint if not column.endswith(".age")})
    for passed in (joint, pa.table(joint), plain):
        np.testing.assert_allclose(said(fitted(name), passed), said(fitted(name), frames(), id="id"))


def test_a_raw_frame_with_the_names_of_encoded_columns_is_not_taken_for_an_encoded_one():
    rng = np.random.default_rng(4)
    u, v = rng.uniform(0, 1000, 2000), rng.uniform(-5, 300, 2000)
    y = 3 * (u - 500) / 500 - 2 * (v - 147) / 152 + rng.logistic(size=2000) > 0
    schemas = {"a": numbers("u", 0, 1000, y=flag()), "b": numbers("v", -5, 300)}
    people = federation({"a": {"y": y, "u": u}, "b": {"v": v}}, schemas)
    model = simulated(LogisticRegression(label="a.y", epsilon=30.0, method="one-shot", rows_at_most=5000), people)
    raw = pd.DataFrame({"a.u": u, "b.v": v})
    assert list(raw.columns) == model.feature_names_in_
    assert 0.75 < model.score(raw, y) == pytest.approx(model.score(people))
    assert model.score(raw, y, encoded=True) < 0.6  # what was silently computed before


@by_scores_or_components
def test_rows_are_matched_by_ids_in_the_order_of_the_first_table(name):
    model, held = fitted(name), frames()
    expected = said(model, held, id="id")
    order = np.random.default_rng(2).permutation(ROWS)
    shop = held["shop"].iloc[order]
    mixed, otherwise = held | {"shop": shop}, held | {"shop": shop.rename(columns={"id": "customer"})}
    ids = dict.fromkeys(SCHEMAS, "id") | {"shop": "customer"}
    read = {party: read_table(mixed[party], SCHEMAS[party], id="id") for party in SCHEMAS}
    for passed, how in ((mixed, {"id": "id"}), (read, {}), (otherwise, {"id": ids})):
        np.testing.assert_allclose(said(model, passed, **how), expected)
    np.testing.assert_allclose(said(model, {"shop": shop} | held | {"shop": shop}, id="id"), expected[order])


@by_scores_or_components
def test_tables_that_do_not_say_who_their_rows_are_or_hold_others_are_refused(name):
    """With counts, and without ids."""
    model, held = fitted(name), frames()
    numbered = {party: read_table(held[party], SCHEMAS[party], id=None) for party in SCHEMAS}
    for passed in (held, numbered, held | {"shop": read_table(held["shop"], SCHEMAS["shop"], id="id")}):
        with raises(DataError, "DA063"):
            said(model, passed)
    for passed in (held, numbered):
        np.testing.assert_allclose(said(model, passed, same_order=True), said(model, held, id="id"))
    shop = held["shop"]
    for wrong, sentence in (
        (shop.iloc[3:], ("DA065", "bank", "shop", "600", "597")),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", "somebody")), ("DA065", "600", "599")),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", "p6")), "DA175"),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", None)), "DA170"),
    ):
        with raises(DataError, sentence) as found:
            said(model, held | {"shop": wrong}, id="id")
        assert not any(name in str(found.value) for name in ("p5", "somebody"))


def test_columns_that_could_be_two_parties_or_nobodys_are_named():
    model = fitted("logistic")
    joint = pd.concat([frame.drop(columns=["id"]) for frame in frames().values()], axis=1)
    lacking = joint.drop(columns=["age", "income", "visits"]).assign(**{"bank.age": 20.0, "shop.age": 20.0})
    matrix = pd.DataFrame(np.zeros((3, model.n_features_in_)), columns=model.feature_names_in_)
    for passed, sentence in (
        (joint.loc[:, ~joint.columns.duplicated()], ("DA068", "'age'", "bank.age", "shop.age")),
        (lacking, ("DA069", "'bank.income', 'shop.visits'")),
        (matrix, ("DA069", "shop.plan")),
    ):
        with raises(DataError, sentence):
            model.predict(passed)
    assert len(model.predict(matrix, encoded=True)) == 3
    with raises(DataError, "DA060"):
        fitted("split").predict(np.zeros((2, 4)), encoded=True)
    with pytest.raises(TypeError, match="unknown"):
        model.predict(np.zeros((2, 4)), unknown=True)


def test_a_label_is_matched_with_the_people_whom_it_belongs_to():
    held = {"court": frames()["clinic"][["id", "ill"]], "bank": frames()["bank"], "shop": frames()["shop"]}
    schemas = {"court": Schema({"ill": flag()}), "bank": SCHEMAS["bank"], "shop": SCHEMAS["shop"]}
    apart = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
    model = simulated(LogisticRegression(label="court.ill", epsilon=30.0, method="one-shot", rows_at_most=1000), apart)
    mixed = held | {"court": held["court"].sample(frac=1, random_state=3)}
    assert 0.75 < model.score(mixed, id="id") == model.score(apart)
    assert model.assess(mixed, id="id").auc == pytest.approx(model.assess(apart).auc)
    lacking = {"bank": held["bank"], "shop": held["shop"]}
    for passed, how, sentence in ((mixed, {}, "DA063"), (lacking, {"id": "id"}, ("DA061", "court"))):
        with raises(DataError, sentence):
            model.score(passed, **how)


def test_predictions_are_a_table_with_the_people_they_are_about():
    model, mixed = fitted("logistic"), frames() | {"bank": frames()["bank"].sample(frac=1, random_state=5)}
    found = model.predictions(mixed, id="id")
    assert found.column_names == ["id", "prediction", "probability_false", "probability_true"]
    assert found["id"].to_pylist() == mixed["bank"]["id"].tolist()
    np.testing.assert_array_equal(found["probability_true"], model.predict_proba(mixed, id="id")[:, 1])
    np.testing.assert_array_equal(found["prediction"], model.predict(mixed, id="id"))
    assert fitted("linear").predictions(mixed, same_order=True).column_names == ["prediction"]
    with raises(StudyError, "ST172"):
        fitted("linear").predictions(mixed, 0.3, id="id")


# --- thresholds


@classifiers
def test_a_threshold_changes_who_is_predicted_and_no_chance(name, tmp_path):
    model, people = fitted(name), together()
    chances = model.predict_proba(people)[:, 1]
    assert model.threshold_ == 0.5
    for threshold in (0.2, 0.5, 0.9):
        np.testing.assert_array_equal(model.predict(people, threshold), chances > threshold)
    np.testing.assert_array_equal(model.answers(model.scores(people), 0.3), chances > 0.3)
    strict = simulated(clone(MODELS[name]).set_params(threshold=0.8))
    np.testing.assert_array_equal(strict.predict(people), strict.predict_proba(people)[:, 1] > 0.8)
    again = Estimator.load(strict.save(tmp_path / "model.json"))
    assert again.get_params()["threshold"] == again.threshold_ == strict.threshold_ == 0.8


def test_a_balanced_threshold_is_the_released_share_of_the_label(tmp_path):
    share, people = float(frames()["clinic"]["ill"].mean()), together()
    model = simulated(clone(MODELS["logistic"]).set_params(threshold="balanced"))
    assert model.threshold_ == pytest.approx(share, abs=0.02)
    assert model.threshold_ != share  # the noisy one
    np.testing.assert_array_equal(model.predict(people), model.predict_proba(people)[:, 1] > model.threshold_)
    assert Estimator.load(model.save(tmp_path / "model.json")).threshold_ == model.threshold_


def test_of_several_classes_a_balanced_threshold_prefers_rare_ones():
    usual, balanced, people = fitted("classes"), fitted("balanced"), together()
    assert balanced.shares_.sum() == pytest.approx(1)
    often = usual.classes_[balanced.shares_.argmax()]
    assert np.mean(balanced.predict(people) == often) < np.mean(usual.predict(people) == often)
    with raises(StudyError, "ST175", "3"):
        usual.predict(people, 0.3)
    assert usual.assess(people, of="two").auc > 0.5
    for of, sentence in ((None, ("DA082", "3", "three")), ("nine", ("DA083", "'one', 'two', 'three'"))):
        with raises(DataError, sentence):
            usual.assess(people, of=of)


@pytest.mark.parametrize(
    ("make", "passed", "sentence"),
    [
        (LogisticRegression, {"threshold": 1.5}, "ST174"),
        (LogisticRegression, {"threshold": True}, "ST174"),
        (LogisticRegression, {"threshold": "share"}, "ST174"),
        (LogisticRegression, {"threshold": "balanced", "intercept": False}, "ST171"),
        (LogisticRegression, {"threshold": "balanced", "method": "sqm", "rows": 900}, "ST171"),
        (GLM, {"threshold": "balanced", "rows": 900}, "ST171"),
        (SplitClassifier, {"threshold": "balanced"}, "ST171"),
    ],
)
def test_thresholds_that_cannot_be_are_refused_before_anything_is_spent(make, passed, sentence):
    with raises(StudyError, sentence):
        make(label="clinic.ill", epsilon=1.0, **passed).plan(together().roster)


def test_scores_of_new_people_follow_the_threshold_of_their_model():
    model = fitted("threshold")
    found = simulated(JointPrediction(model, to="bank", exact=True)).joint
    np.testing.assert_array_equal(found.predictions, model.chances(found.scores)[:, 1] > 0.3)
    assert found.predictions.sum() > model.answers(found.scores, 0.5).sum()


# --- assessments


@classifiers
def test_chances_are_assessed_where_labels_are_known(name):
    model, people, truth = fitted(name), together(), frames()["clinic"]["ill"].to_numpy()
    by = {"exact": True} if name == "glm" else {}  # without it a question is played, with fresh noise each time
    found = model.assess(people, **by)
    assert found.auc > 0.8
    assert found.at(0.5).accuracy == pytest.approx(model.score(people, **by))
    passed = model.assess(frames(), truth, id="id", **by)
    assert (passed.auc, passed.slope) == pytest.approx((found.auc, found.slope))
    against = model.assess(frames(), id="id", of=False, **by)
    assert (against.auc, against.prevalence) == pytest.approx((found.auc, 1 - found.prevalence))


def test_numbers_have_no_chances_to_assess():
    numbers, people = fitted("released numbers"), together()
    for ask, passed, sentence in (
        (numbers.assess, (people,), "ST173"),
        (numbers.predict, (people, 0.3), "ST110"),
        (LinearRegression(epsilon=1.0).assess, (people,), "ST066"),
    ):
        with raises(StudyError, sentence):
            ask(*passed)


# --- own files: semicolons, decimal commas, Latin-1 and UTF-16, dates, names as keys


PEOPLE = 1200
BANK = Schema(
    {
        "eröffnet": date("2015-01-01", "2024-12-31", parts=["days", "month", "weekday"], format="%d.%m.%Y"),
        "einkommen": number(0, 100, unit="tausend Euro"),
        "betrag": number(0, 100),
    },
    separator=";",
    encoding="latin-1",
    decimal=",",
)
SHOP = Schema({"Ort": category(["Köln", "Zürich"]), "seit": date("2020-01-01", "2023-12-31", missing="none")})


def comma(value: float) -> str:
    return f"{value:.2f}".replace(".", ",")


def files(folder: Path, seed: int, people: int = PEOPLE) -> tuple[Path, Path]:
    """The bank's file in Latin-1 and the shop's in UTF-16, each in its own order; the amount hangs on both."""
    drawn = np.random.default_rng(seed)
    opened = [datetime.date(2015, 1, 1) + datetime.timedelta(days=int(day)) for day in drawn.integers(0, 3653, people)]
    income, city = drawn.uniform(10, 90, people), drawn.integers(0, 2, people)
    age = np.array([(day - datetime.date(2015, 1, 1)).days / 3652 for day in opened])
    amount = np.clip(40 * age + 0.3 * income + 15 * city + drawn.normal(0, 2, people), 0, 100)
    names = [f"Jörg Größe-{number}" for number in range(people)]
    bank = [
        f"{name};{day:%d.%m.%Y};{comma(earned)};{comma(spent)}\r\n"
        for name, day, earned, spent in zip(names, opened, income, amount, strict=True)
    ]
    shop = [
        f"{name},{('Köln', 'Zürich')[lives]},{'' if place % 9 == 0 else f'202{place % 4}-0{1 + place % 9}-15'}\n"
        for place, (name, lives) in enumerate(zip(names, city.tolist(), strict=True))
    ]
    one, other = folder / f"bank{seed}.csv", folder / f"shop{seed}.csv"
    one.write_bytes(("Name;eröffnet;einkommen;betrag\r\n" + "".join(bank)).encode("latin-1"))
    other.write_bytes(("client,Ort,seit\n" + "".join(reversed(shop))).encode("utf-16"))
    return one, other


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    bank, shop = files(tmp_path_factory.mktemp("files"), 1)
    parties = [
        Party("bank", bank, schema=BANK, keys={"name": "Name"}),
        Party("shop", shop, schema=SHOP, keys={"name": KeyColumn("client")}, encoding="utf-16"),
    ]
    return Federation(parties).align(on=Key("name"))


@pytest.fixture(scope="module")
def model(people: Federation) -> LinearRegression:
    return LinearRegression(label="bank.betrag", epsilon=20.0, delta=1e-6).fit(people)


def test_from_files_to_predictions_with_dates(tmp_path: Path, people: Federation, model: LinearRegression) -> None:
    assert people.common_rows() == PEOPLE
    weights = model.coefficients()["bank"]
    assert weights["eröffnet.days"] == pytest.approx(20, abs=3)  # half of the range of 40
    assert abs(weights["eröffnet.month=May"]) < 15
    bank, shop = files(tmp_path, 2, 50)
    loaded = LinearRegression.load(model.save(tmp_path / "model.json"))
    assert loaded.schemas_["bank"].text == BANK.text
    new = {"bank": bank, "shop": read_table(shop, SHOP, id="client", encoding="utf-16")}
    predicted = loaded.predict(new, id={"bank": "Name", "shop": "client"})  # in the order of the bank's file
    truth = read_table(bank, BANK.select(["betrag"]), id="Name")
    assert np.abs(predicted - 50 * (truth.matrix()[:, 0] + 1)).mean() < 5
    assert '"as": "month"' in json.dumps(model.to_json(), ensure_ascii=False)


def test_one_frame_of_all_columns_may_hold_dates_and_joint_scores_hold_them_to_their_bounds(
    people: Federation, model: LinearRegression
) -> None:
    frame = pd.DataFrame(
        {
            "eröffnet": pd.to_datetime(["2016-02-01", "2024-12-31"]),
            "einkommen": ["12,5", "40"],
            "Ort": ["Köln", "Zürich"],
            "seit": [datetime.date(2020, 5, 1), None],
        }
    )
    early, late = model.predict(frame)
    assert late - early > 20
    with raises(DataError, "DA069", "bank.eröffnet"):
        model.predict(frame.rename(columns={"eröffnet": "opened"}))
    exact = joint_scores(model, people, to="bank", exact=True)
    assert np.asarray(exact.scores).reshape(-1) == pytest.approx(model.predict(people), abs=0.1)


def test_made_up_people_and_components_have_dates(tmp_path: Path, people: Federation) -> None:
    with raises(StudyError, "ST368"):
        Synthesizer(epsilon=20.0, delta=1e-6).fit(people)
    found = simulated(PCA(n_components=2, epsilon=20.0, delta=1e-6), people)
    assert "bank.eröffnet.month=January" in found.feature_names_in_
    bank, shop = files(tmp_path, 1)
    parties = [
        Party("bank", bank, schema=BANK.select(["eröffnet.days", "betrag"]), id="Name"),
        Party("shop", shop, schema=SHOP, id="client", encoding="utf-16"),
    ]
    made = simulated(Synthesizer(epsilon=20.0, delta=1e-6, size=200, components=8), Federation(parties))
    table = made.sample(200)
    assert table["eröffnet.days"].type == pa.date32()
    assert table["seit"].null_count > 0
    assert min(table["seit"].drop_null().to_pylist()) >= datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("bank.eröffnet.days", ("ST193", "'eröffnet.month', 'eröffnet.weekday'")),
        ("bank.eröffnet", ("ST189", "bank.eröffnet.days")),
        ("bank.Betrag", ("ST189", "bank.betrag")),
        ("Bank.betrag", ("ST188", "bank")),
        ("bank.betrg", ("ST189", "bank.betrag")),
        ("shop.betrag", ("ST189", "bank.betrag")),
    ],
)
def test_a_label_that_is_nearly_right(tmp_path: Path, label: str, said: str) -> None:
    bank, shop = files(tmp_path, 1, 5)
    people = Federation([Party("bank", bank, schema=BANK, id="Name"), Party("shop", shop, schema=SHOP, id="client")])
    with raises(StudyError, said):
        LinearRegression(label=label, epsilon=1.0, delta=1e-6).fit(people)


# --- what is said of probabilities whose labels are known, and beforehand of what noise will do


def made_up():
    """Labels, and probabilities that are three times as sure as they should be."""
    rng = np.random.default_rng(1)
    odds = rng.normal(-1, 1.5, 4000)
    return rng.random(4000) < 1 / (1 + np.exp(-odds / 3)), 1 / (1 + np.exp(-np.round(odds, 2)))


def test_scikit_learn_finds_the_same():
    truth, chance = made_up()
    found = assess_chances(truth, chance)
    theirs = [of(truth, chance) for of in (roc_auc_score, log_loss, brier_score_loss)]
    assert (found.auc, found.log_loss, found.brier) == pytest.approx(theirs, abs=1e-12)
    odds = np.log(chance / (1 - chance))[:, None]
    line = linear_model.LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(odds, truth)
    assert (found.slope, found.intercept) == pytest.approx((line.coef_[0, 0], line.intercept_[0]), abs=1e-4)
    at = found.at(0.3)
    theirs = [of(truth, chance > 0.3) for of in (precision_score, recall_score)]
    assert (at.precision, at.recall) == pytest.approx(theirs)
    assert at.accuracy == pytest.approx(np.mean(truth == (chance > 0.3)))
    assert at.balanced_accuracy == pytest.approx((at.recall + at.specificity) / 2)


def test_groups_hold_everybody_once_and_their_means_add_up():
    truth, chance = made_up()
    groups = assess_chances(truth, chance).reliability
    counts, said = np.array([each.count for each in groups]), [each.probability for each in groups]
    assert counts.sum() == len(truth)
    assert counts @ [each.share for each in groups] == pytest.approx(truth.sum())
    assert counts @ said == pytest.approx(chance.sum())
    assert said == sorted(said)
    curve = assess_chances(truth, chance + np.arange(len(truth)) * 1e-9).roc
    assert len(curve) <= 201  # thinned, and its ends stay
    assert (curve[0], curve[-1]) == ((0.0, 0.0), (1.0, 1.0))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_labels_are_assessed_or_said_why_not(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("assessed")
    truth, chance = (np.array(column) for column in zip(*pairs, strict=True))
    found = assess_chances(truth, chance)
    pairs_of = [(a > b) + (a == b) / 2 for a in chance[truth] for b in chance[~truth]]
    assert found.auc == (pytest.approx(np.mean(pairs_of)) if pairs_of else None)
    assert (found.auc is None) == (truth.all() or not truth.any())
    assert (found.slope is None) == (found.lacking is not None)
    if found.slope is not None:  # the score of the likelihood is zero there
        odds = np.log(np.clip(chance, 1e-12, 1 - 1e-12) / (1 - np.clip(chance, 1e-12, 1 - 1e-12)))
        left = truth - 1 / (1 + np.exp(-(found.intercept + found.slope * odds)))
        assert abs(left.mean()) < 1e-6
        assert abs((left * odds).mean()) < 1e-5
    json.dumps(found.to_dict(), allow_nan=False)
    assert 0 <= found.at(0.5).accuracy <= 1
    page = write_assessment(folder / "assessment.html", "model", found).read_text(encoding="utf-8")
    assert page.count("<figure>") == 2 - (found.auc is None)
    assert ("no curve" in page) == (found.auc is None)


@pytest.mark.parametrize(
    ("truth", "chance", "said"),
    [
        ([], [], "DA052"),
        ([True], [0.1, 0.2], "DA051"),
        (["yes"], [0.1], "DA053"),
        ([2], [0.1], "DA053"),
        ([True], [1.2], "DA054"),
        ([True], [np.nan], "DA054"),
    ],
)
def test_what_cannot_be_assessed_is_refused(truth, chance, said):
    with raises(DataError, said):
        assess_chances(truth, chance)
    with raises(DataError, "DA050"):  # a threshold is a probability
        assess_chances([True, False], [0.2, 0.7]).at(1.5)


# --- forecasts follow from public numbers, and are about what noise really does


CROWD = population(600)
ROSTER = Roster.of(CROWD.feature_schemas)
TABLES = {name: CROWD.table(name).select(ROSTER.schemas[name].names).sorted_by_id() for name in CROWD.parties}
LABEL = "bank.mortgage"


def forecast(model, rows=600):
    task = model.plan(ROSTER)
    return task, model.outlook(ROSTER, task, rows)


def test_an_error_that_falls_with_the_number_of_people():
    few, enough, unknown = (SampleSizeForecast.falling("a number", 0.1, 417.3, rows) for rows in (1000, 5000, None))
    assert (few.error, few.people, few.too_few) == (0.4173, 4200, True)
    assert few.forecast == "FORECAST for 1,000 people: noise moves a number by about 0.42; 0.1 takes about 4,200 people"
    assert few.warning.endswith("it takes about 4,200 people, or about 4.2 times the epsilon")
    assert (enough.too_few, enough.warning) == (False, None)
    assert (unknown.error, unknown.too_few, unknown.warning) == (None, False, None)
    assert SampleSizeForecast.falling("a number", 0.1, 0.001, None).people == 1
    assert "many more people" in SampleSizeForecast("it", 0.5, 10, 0.9, None).warning


@pytest.mark.parametrize("method", ["moments", "power"])
def test_components(method):
    model = PCA(2, epsilon=1.0, delta=1e-5, method=method)
    task, found = forecast(model)
    half, _ = forecast(PCA(2, epsilon=0.5, delta=1e-5, method=method))
    assert found.people == model.outlook(ROSTER, task, None).people
    assert model.outlook(ROSTER, task, 1200).error == pytest.approx(found.error / 2)
    assert model.outlook(ROSTER, half, 600).error == pytest.approx(2 * found.error, rel=0.25)
    if method == "moments":
        exact = np.hstack([table.matrix() for table in TABLES.values()])
        noisy = model.simulate_result(TABLES, task, seeded(11)).second_moments - exact.T @ exact
        share = sum(block.clip**2 for block in task.blocks) / (2 * len(task.names))
        # The largest eigenvalue of so many columns is within a few percent of its limit; the draw is always the same.
        assert np.abs(np.linalg.eigvalsh(noisy)).max() / 600 / share == pytest.approx(found.error, rel=0.2)


def test_noise_moves_marginals_as_far_as_said():
    model = Synthesizer(epsilon=1.0, delta=1e-5)
    task, found = forecast(model)
    clear, _ = forecast(Synthesizer(epsilon=50.0, delta=1e-5))

    def cells(planned):
        return [
            each.values
            for each in model.simulate_result(TABLES, planned, seeded(12)).residuals()
            if len(each.columns) == 2
        ]

    off = [np.abs(noisy - exact).sum() / 2 / 600 for noisy, exact in zip(cells(task), cells(clear), strict=True)]
    assert np.mean(off) == pytest.approx(found.error, rel=0.1)  # exact answers have a fiftieth of the noise


def test_noise_moves_probabilities_about_as_far_as_said():
    encoded = np.hstack([table.matrix() for table in TABLES.values()])
    names = [f"{party}.{name}" for party, table in TABLES.items() for name in table.schema.encoded_names]

    def fitted(epsilon):
        model = LogisticRegression(label=LABEL, epsilon=epsilon, delta=1e-5, method="one-shot")
        task, found = forecast(model)
        model.conclude(ROSTER, task, model.simulate_result(TABLES, task, seeded(13)))
        columns = [names.index(name) for name in model.feature_names_in_]
        return 1 / (1 + np.exp(-(encoded[:, columns] @ model.coef_[0] + model.intercept_[0]))), found.error

    clear, _ = fitted(60.0)
    noisy, expected = fitted(10.0)
    moved = float(np.sqrt(np.mean((noisy - clear) ** 2)))
    assert expected / 4 < moved < 4 * expected  # rough, as the page says


def test_every_kind_with_a_figure_has_one_that_needs_no_data():
    for model in (
        LinearRegression(label="bank.age", epsilon=1.0, delta=1e-5),
        LogisticRegression(label=LABEL, epsilon=1.0, delta=1e-5, method="sqm", rows=600, epochs=1, sampling="disjoint"),
        SplitClassifier(label=LABEL, epsilon=1.0, delta=1e-5),
        GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600),
    ):
        found = forecast(model)[1]
        assert (found.rows, found.too_few) == (600, True)
        assert found.people > 600
    exchanged = GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600, weight_bound=1.0)
    assert forecast(exchanged)[1] is None  # nothing was guessed of the signal
