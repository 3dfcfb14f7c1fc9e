"""New people as callers pass them: frames are raw, matrices say that they are encoded, rows are matched by ids."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colonnade import (
    GLM,
    PCA,
    Federation,
    JointPrediction,
    LinearRegression,
    LogisticRegression,
    Party,
    Schema,
    SplitClassifier,
    Study,
    category,
    flag,
    number,
    read_table,
)
from colonnade.errors import DataError, StudyError
from colonnade.models.base import Estimator
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

SCHEMAS = {
    "bank": Schema({"age": number(18, 90), "y": flag(), "income": number(0, 100_000)}),
    "shop": Schema({"visits": number(0, 40), "tier": category(["none", "gold"]), "age": number(18, 90)}),
}
ROWS = 900


def made_up(rows=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    age, income, visits = rng.uniform(18, 90, rows), rng.uniform(0, 100_000, rows), rng.uniform(0, 40, rows)
    gold = rng.random(rows) < 0.4
    odds = 4 * (age - 54) / 36 + 3 * (visits - 20) / 20 + gold - 0.5
    ids = [f"p{k}" for k in range(rows)]
    y = rng.random(rows) < 1 / (1 + np.exp(-odds))
    tier = np.where(gold, "gold", "none")
    return {
        "bank": pd.DataFrame({"id": ids, "age": age, "y": y, "income": income}),
        "shop": pd.DataFrame({"id": ids, "visits": visits, "tier": tier, "age": age}),
    }


@pytest.fixture(scope="module")
def frames():
    return made_up()


@pytest.fixture(scope="module")
def people(frames):
    return Federation([Party(name, frames[name], schema=schema, id="id") for name, schema in SCHEMAS.items()])


def unfitted():
    common = {"epsilon": 30.0, "rows_at_most": 1000}
    return {
        "logistic": LogisticRegression(label="bank.y", method="one-shot", **common),
        "linear": LinearRegression(label="bank.income", **common),
        "glm": GLM(label="bank.y", epsilon=30.0),
        "split": SplitClassifier(label="bank.y", width=8, **common),
        "pca": PCA(2, **common),
    }


@pytest.fixture(scope="module")
def models(people):
    return {name: fitted(model, people) for name, model in unfitted().items()}


def fitted(model, people):
    """The model as a fit would leave it, with noise that is the same each time."""
    return model.simulate(people.tables(), people.roster, seeded(1))


def said(model, X, **given):
    """What a model says of people: scores, of components or of a label."""
    return model.transform(X, **given) if isinstance(model, PCA) else model.scores(X, **given)


NAMES = list(unfitted())


@pytest.mark.parametrize("name", NAMES)
def test_one_frame_and_one_arrow_table_of_all_columns_are_raw(models, people, frames, name):
    model = models[name]
    renamed = {party: frame.drop(columns="id").add_prefix(f"{party}.") for party, frame in frames.items()}
    joint = pd.concat(renamed.values(), axis=1)
    expected = said(model, frames, id="id")
    np.testing.assert_allclose(said(model, joint), expected)
    np.testing.assert_allclose(said(model, pa.table(joint)), expected)
    plain = joint.rename(columns={name: name.split(".")[1] for name in joint if not name.endswith(".age")})
    np.testing.assert_allclose(said(model, plain), expected)


def test_a_raw_frame_with_the_names_of_encoded_columns_is_not_taken_for_an_encoded_one():
    schemas = {"a": Schema({"y": flag(), "u": number(0, 1000)}), "b": Schema({"v": number(-5, 300)})}
    rng = np.random.default_rng(4)
    u, v = rng.uniform(0, 1000, 2000), rng.uniform(-5, 300, 2000)
    y = 3 * (u - 500) / 500 - 2 * (v - 147) / 152 + rng.logistic(size=2000) > 0
    ids = [str(k) for k in range(2000)]
    held = {"a": pd.DataFrame({"id": ids, "y": y, "u": u}), "b": pd.DataFrame({"id": ids, "v": v})}
    people = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
    model = fitted(LogisticRegression(label="a.y", epsilon=30.0, method="one-shot", rows_at_most=5000), people)
    raw = pd.DataFrame({"a.u": u, "b.v": v})
    assert list(raw.columns) == model.feature_names_in_
    expected = model.score(held, id="id")
    assert expected > 0.75
    assert model.score(raw, y) == pytest.approx(expected)
    assert model.score(raw, y, encoded=True) < 0.6  # what was silently computed before


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_matched_by_ids_in_the_order_of_the_first_table(models, frames, name):
    model = models[name]
    expected = said(model, frames, id="id")
    order = np.random.default_rng(2).permutation(ROWS)
    mixed = {"bank": frames["bank"], "shop": frames["shop"].iloc[order]}
    np.testing.assert_allclose(said(model, mixed, id="id"), expected)
    first = {"shop": frames["shop"].iloc[order], "bank": frames["bank"]}
    np.testing.assert_allclose(said(model, first, id="id"), expected[order])
    read = {party: read_table(mixed[party], SCHEMAS[party], id="id") for party in SCHEMAS}
    np.testing.assert_allclose(said(model, read), expected)
    otherwise = {"bank": frames["bank"], "shop": frames["shop"].iloc[order].rename(columns={"id": "customer"})}
    np.testing.assert_allclose(said(model, otherwise, id={"bank": "id", "shop": "customer"}), expected)


@pytest.mark.parametrize("name", NAMES)
def test_tables_that_do_not_say_who_their_rows_are_are_refused(models, frames, name):
    model = models[name]
    numbered = {party: read_table(frames[party], SCHEMAS[party], id=None) for party in SCHEMAS}
    for given in (
        frames,
        numbered,
        {"bank": frames["bank"], "shop": read_table(frames["shop"], SCHEMAS["shop"], id="id")},
    ):
        with raises(DataError, "DA063"):
            said(model, given)
    expected = said(model, frames, id="id")
    np.testing.assert_allclose(said(model, frames, same_order=True), expected)
    np.testing.assert_allclose(said(model, numbered, same_order=True), expected)


@pytest.mark.parametrize("name", NAMES)
def test_other_people_and_repeated_or_missing_ids_are_refused_with_counts_and_without_ids(models, frames, name):
    model = models[name]
    shop = frames["shop"]
    wrong = {
        ("DA065", "bank", "shop", "900", "897"): shop.iloc[3:],
        ("DA065", "900", "899"): shop.assign(id=shop["id"].where(shop["id"] != "p5", "somebody")),
        "DA175": shop.assign(id=shop["id"].where(shop["id"] != "p5", "p6")),
        "DA170": shop.assign(id=shop["id"].where(shop["id"] != "p5", None)),
    }
    for sentence, held in wrong.items():
        with raises(DataError, sentence) as found:
            said(model, {"bank": frames["bank"], "shop": held}, id="id")
        assert "p5" not in str(found.value)
        assert "somebody" not in str(found.value)


def test_columns_that_could_be_two_parties_or_nobodys_are_named(models, frames):
    joint = pd.concat([frames["bank"], frames["shop"].drop(columns=["id", "age"])], axis=1)
    with raises(DataError, "DA068", "'age'", "bank.age", "shop.age"):
        models["logistic"].predict(joint)
    with raises(DataError, "DA069", "'bank.income', 'shop.visits'"):
        models["logistic"].predict(joint[["tier"]].assign(**{"bank.age": 20.0, "shop.age": 20.0}))
    model = models["logistic"]
    matrix = pd.DataFrame(np.zeros((3, model.n_features_in_)), columns=model.feature_names_in_)
    with raises(DataError, "DA069", "shop.tier"):
        model.predict(matrix)
    assert len(model.predict(matrix, encoded=True)) == 3


def test_a_label_is_matched_with_the_people_whom_it_belongs_to(people, frames):
    schemas = {"court": Schema({"y": flag()}), "bank": SCHEMAS["bank"].without(["y"]), "shop": SCHEMAS["shop"]}
    held = {"court": frames["bank"][["id", "y"]], "bank": frames["bank"], "shop": frames["shop"]}
    apart = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
    model = fitted(LogisticRegression(label="court.y", epsilon=30.0, method="one-shot", rows_at_most=1000), apart)
    expected = model.score(apart)
    assert expected > 0.75
    mixed = {**held, "court": held["court"].sample(frac=1, random_state=3)}
    assert model.score(mixed, id="id") == expected
    assert model.assess(mixed, id="id").auc == pytest.approx(model.assess(apart).auc)
    with raises(DataError, "DA063"):
        model.score(mixed)
    with raises(DataError, "DA061", "court"):
        model.score({"bank": held["bank"], "shop": held["shop"]}, id="id")


def test_predictions_are_a_table_with_the_people_they_are_about(models, people, frames):
    order = np.random.default_rng(5).permutation(ROWS)
    mixed = {"bank": frames["bank"].iloc[order], "shop": frames["shop"]}
    found = models["logistic"].predictions(mixed, id="id")
    assert found.column_names == ["id", "prediction", "probability_false", "probability_true"]
    assert found["id"].to_pylist() == mixed["bank"]["id"].tolist()
    chances = models["logistic"].predict_proba(mixed, id="id")
    np.testing.assert_array_equal(found["probability_true"], chances[:, 1])
    np.testing.assert_array_equal(found["prediction"], models["logistic"].predict(mixed, id="id"))
    assert models["linear"].predictions(mixed, id="id").column_names == ["id", "prediction"]
    assert models["glm"].predictions(people)["id"].to_pylist() == sorted(frames["bank"]["id"])
    assert models["split"].predictions(mixed, same_order=True).column_names[0] == "prediction"
    with raises(StudyError, "ST172"):
        models["linear"].predictions(mixed, 0.3, id="id")


def test_a_split_model_takes_no_encoded_matrix(models):
    with raises(DataError, "DA060"):
        models["split"].predict(np.zeros((2, 4)), encoded=True)
    with pytest.raises(TypeError, match="unknown"):
        models["logistic"].predict(np.zeros((2, 4)), unknown=True)


# --- thresholds


@pytest.mark.parametrize("name", ["logistic", "glm", "split"])
def test_a_threshold_changes_who_is_predicted_and_no_chance(people, models, name, tmp_path):
    model = models[name]
    chances = model.predict_proba(people)[:, 1]
    assert model.threshold_ == 0.5
    for threshold in (0.2, 0.5, 0.9):
        np.testing.assert_array_equal(model.predict(people, threshold), chances > threshold)
    strict = fitted(unfitted()[name].set_params(threshold=0.8), people)
    assert strict.threshold_ == 0.8
    np.testing.assert_array_equal(strict.predict(people), strict.predict_proba(people)[:, 1] > 0.8)
    again = Estimator.load(strict.save(tmp_path / "model.json"))
    assert again.get_params()["threshold"] == again.threshold_ == 0.8
    scores = model.scores(people)
    np.testing.assert_array_equal(model.answers(scores, 0.3), chances > 0.3)


def test_a_balanced_threshold_is_the_released_share_of_the_label(people, frames, tmp_path):
    share = float(frames["bank"]["y"].mean())
    model = fitted(unfitted()["logistic"].set_params(threshold="balanced"), people)
    assert model.threshold_ == pytest.approx(share, abs=0.02)
    assert model.threshold_ != share  # the noisy one
    np.testing.assert_array_equal(model.predict(people), model.predict_proba(people)[:, 1] > model.threshold_)
    again = Estimator.load(model.save(tmp_path / "model.json"))
    assert again.threshold_ == model.threshold_
    np.testing.assert_array_equal(again.predict(people), model.predict(people))


def test_of_several_classes_a_balanced_threshold_prefers_rare_ones(frames):
    rng = np.random.default_rng(3)
    class_of = np.where(rng.random(ROWS) < 0.8, "a", np.where(rng.random(ROWS) < 0.5, "b", "c"))
    shift = {"a": 0.0, "b": 0.5, "c": -0.5}
    ids = [str(k) for k in range(ROWS)]
    x = np.clip([shift[one] for one in class_of] + rng.normal(0, 0.4, ROWS), -1, 1)
    schemas = {"p": Schema({"y": category(["a", "b", "c"])}), "q": Schema({"x": number(-1, 1)})}
    held = {"p": pd.DataFrame({"id": ids, "y": class_of}), "q": pd.DataFrame({"id": ids, "x": x})}
    people = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
    usual, balanced = (
        fitted(LogisticRegression(label="p.y", epsilon=50.0, method="one-shot", rows_at_most=1000, threshold=t), people)
        for t in (0.5, "balanced")
    )
    assert balanced.shares_.sum() == pytest.approx(1)
    assert np.mean(balanced.predict(people) == "a") < np.mean(usual.predict(people) == "a") - 0.1
    with raises(StudyError, "ST175", "3"):
        usual.predict(people, 0.3)
    with raises(DataError, "DA082", "3", "c"):
        usual.assess(people)
    assert usual.assess(people, of="b").auc > 0.7
    with raises(DataError, "DA083", "'a', 'b', 'c'"):
        usual.assess(people, of="d")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LogisticRegression(label="bank.y", epsilon=1.0, threshold=1.5), "ST174"),
        (lambda: LogisticRegression(label="bank.y", epsilon=1.0, threshold=True), "ST174"),
        (lambda: LogisticRegression(label="bank.y", epsilon=1.0, threshold="share"), "ST174"),
        (lambda: LogisticRegression(label="bank.y", epsilon=1.0, intercept=False, threshold="balanced"), "ST171"),
        (
            lambda: LogisticRegression(label="bank.y", epsilon=1.0, method="sqm", rows=900, threshold="balanced"),
            "ST171",
        ),
        (lambda: GLM(label="bank.y", rows=900, threshold="balanced"), "ST171"),
        (lambda: SplitClassifier(label="bank.y", epsilon=1.0, threshold="balanced"), "ST171"),
    ],
)
def test_thresholds_that_cannot_be_are_refused_before_anything_is_spent(people, make, sentence):
    with raises(StudyError, sentence):
        make().plan(people.roster)


def test_scores_of_new_people_follow_the_threshold_of_their_model(people):
    model = fitted(unfitted()["logistic"].set_params(threshold=0.8), people)
    found = JointPrediction(model, to="bank", exact=True).simulate(people.tables(), people.roster, seeded(3)).joint
    np.testing.assert_array_equal(found.predictions, model.chances(found.scores)[:, 1] > 0.8)
    assert found.predictions.sum() < model.answers(found.scores, 0.5).sum()


def test_a_study_with_the_usual_threshold_is_the_study_without_one(tmp_path):
    folder = Path(__file__).parents[1] / "fixtures" / "studies"
    shutil.copytree(folder, tmp_path / "studies")
    text = (folder / "logistic-one-shot.toml").read_text(encoding="utf-8")
    digests = {}
    for threshold in ("", "threshold = 0.5", "threshold = 0.3", 'threshold = "balanced"'):
        path = tmp_path / "studies" / "changed.toml"
        path.write_text(text.replace("[task]\n", f"[task]\n{threshold}\n"), encoding="utf-8")
        digests[threshold] = Study.load(path).digest
    assert digests[""] == digests["threshold = 0.5"] == Study.load(folder / "logistic-one-shot.toml").digest
    assert len(set(digests.values())) == 3
    path.write_text(text.replace("[task]\n", "[task]\nthreshold = 1.5\n"), encoding="utf-8")
    with raises(StudyError, "ST174"):
        Study.load(path)


# --- assessments


@pytest.mark.parametrize("name", ["logistic", "glm", "split"])
def test_chances_are_assessed_where_labels_are_known(models, people, frames, name):
    model = models[name]
    by = {"exact": True} if name == "glm" else {}  # without it a question is played, with fresh noise each time
    found = model.assess(people, **by)
    assert found.count == ROWS
    assert found.auc > 0.8
    assert found.at(0.5).accuracy == pytest.approx(model.score(people, **by))
    passed = model.assess(frames, frames["bank"]["y"].to_numpy(), id="id", **by)
    assert (passed.auc, passed.slope) == pytest.approx((found.auc, found.slope))
    against = model.assess(frames, id="id", of=False, **by)
    assert against.auc == pytest.approx(found.auc)
    assert against.prevalence == pytest.approx(1 - found.prevalence)


def test_numbers_have_no_chances_to_assess(people):
    model = fitted(GLM(family="linear", label="bank.income", epsilon=30.0), people)
    with raises(StudyError, "ST173"):
        model.assess(people)
    with raises(StudyError, "ST110"):
        model.predict(people, 0.3)
    with raises(StudyError, "ST066"):
        LinearRegression(epsilon=1.0).assess(people)
