"""New people as callers pass them: frames are raw, matrices say that they are encoded, rows are matched by ids.

And what is said of them: predictions by a threshold, and assessments where labels are known.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

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
from tests.support.errors import raises
from tests.support.federations import federation, numbers
from tests.support.models import MODELS, ROWS, SCHEMAS, fitted, frames, simulated, together

every_kind = pytest.mark.parametrize("name", ["logistic", "linear", "glm", "split", "pca"])
classifiers = pytest.mark.parametrize("name", ["logistic", "glm", "split"])


def said(model, X, **given):
    """What a model says of people: scores, of components or of a label."""
    return model.transform(X, **given) if isinstance(model, PCA) else model.scores(X, **given)


@every_kind
def test_one_frame_and_one_arrow_table_of_all_columns_are_raw(name):
    model, renamed = (
        fitted(name),
        [frame.drop(columns="id").add_prefix(f"{party}.") for party, frame in frames().items()],
    )
    joint = pd.concat(renamed, axis=1)
    plain = joint.rename(columns={column: column.split(".")[1] for column in joint if not column.endswith(".age")})
    expected = said(model, frames(), id="id")
    for given in (joint, pa.table(joint), plain):
        np.testing.assert_allclose(said(model, given), expected)


def test_a_raw_frame_with_the_names_of_encoded_columns_is_not_taken_for_an_encoded_one():
    rng = np.random.default_rng(4)
    u, v = rng.uniform(0, 1000, 2000), rng.uniform(-5, 300, 2000)
    y = 3 * (u - 500) / 500 - 2 * (v - 147) / 152 + rng.logistic(size=2000) > 0
    schemas = {"a": Schema({"y": flag(), "u": number(0, 1000)}), "b": numbers("v", -5, 300)}
    people = federation({"a": {"y": y, "u": u}, "b": {"v": v}}, schemas)
    model = simulated(LogisticRegression(label="a.y", epsilon=30.0, method="one-shot", rows_at_most=5000), people)
    raw = pd.DataFrame({"a.u": u, "b.v": v})
    assert list(raw.columns) == model.feature_names_in_
    expected = model.score(people)
    assert expected > 0.75
    assert model.score(raw, y) == pytest.approx(expected)
    assert model.score(raw, y, encoded=True) < 0.6  # what was silently computed before


@every_kind
def test_rows_are_matched_by_ids_in_the_order_of_the_first_table(name):
    model, held = fitted(name), frames()
    expected = said(model, held, id="id")
    order = np.random.default_rng(2).permutation(ROWS)
    shop = held["shop"].iloc[order]
    mixed = held | {"shop": shop}
    np.testing.assert_allclose(said(model, mixed, id="id"), expected)
    np.testing.assert_allclose(said(model, {"shop": shop} | held | {"shop": shop}, id="id"), expected[order])
    read = {party: read_table(mixed[party], SCHEMAS[party], id="id") for party in SCHEMAS}
    np.testing.assert_allclose(said(model, read), expected)
    otherwise, ids = held | {"shop": shop.rename(columns={"id": "customer"})}, dict.fromkeys(SCHEMAS, "id")
    np.testing.assert_allclose(said(model, otherwise, id=ids | {"shop": "customer"}), expected)


@every_kind
def test_tables_that_do_not_say_who_their_rows_are_or_hold_others_are_refused(name):
    """With counts, and without ids."""
    model, held = fitted(name), frames()
    numbered = {party: read_table(held[party], SCHEMAS[party], id=None) for party in SCHEMAS}
    for given in (held, numbered, held | {"shop": read_table(held["shop"], SCHEMAS["shop"], id="id")}):
        with raises(DataError, "DA063"):
            said(model, given)
    expected = said(model, held, id="id")
    np.testing.assert_allclose(said(model, held, same_order=True), expected)
    np.testing.assert_allclose(said(model, numbered, same_order=True), expected)
    shop = held["shop"]
    for wrong, sentence in (
        (shop.iloc[3:], ("DA065", "bank", "shop", "600", "597")),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", "somebody")), ("DA065", "600", "599")),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", "p6")), "DA175"),
        (shop.assign(id=shop["id"].where(shop["id"] != "p5", None)), "DA170"),
    ):
        with raises(DataError, sentence) as found:
            said(model, held | {"shop": wrong}, id="id")
        assert "p5" not in str(found.value)
        assert "somebody" not in str(found.value)


def test_columns_that_could_be_two_parties_or_nobodys_are_named():
    model = fitted("logistic")
    joint = pd.concat([frame.drop(columns=["id"]) for frame in frames().values()], axis=1)
    with raises(DataError, "DA068", "'age'", "bank.age", "shop.age"):
        model.predict(joint.loc[:, ~joint.columns.duplicated()])
    lacking = joint.drop(columns=["age", "income", "visits"]).assign(**{"bank.age": 20.0, "shop.age": 20.0})
    with raises(DataError, "DA069", "'bank.income', 'shop.visits'"):
        model.predict(lacking)
    matrix = pd.DataFrame(np.zeros((3, model.n_features_in_)), columns=model.feature_names_in_)
    with raises(DataError, "DA069", "shop.plan"):
        model.predict(matrix)
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
    expected = model.score(apart)
    assert expected > 0.75
    mixed = held | {"court": held["court"].sample(frac=1, random_state=3)}
    assert model.score(mixed, id="id") == expected
    assert model.assess(mixed, id="id").auc == pytest.approx(model.assess(apart).auc)
    with raises(DataError, "DA063"):
        model.score(mixed)
    with raises(DataError, "DA061", "court"):
        model.score({"bank": held["bank"], "shop": held["shop"]}, id="id")


def test_predictions_are_a_table_with_the_people_they_are_about():
    order, model = np.random.default_rng(5).permutation(ROWS), fitted("logistic")
    mixed = frames() | {"bank": frames()["bank"].iloc[order]}
    found = model.predictions(mixed, id="id")
    assert found.column_names == ["id", "prediction", "probability_false", "probability_true"]
    assert found["id"].to_pylist() == mixed["bank"]["id"].tolist()
    np.testing.assert_array_equal(found["probability_true"], model.predict_proba(mixed, id="id")[:, 1])
    np.testing.assert_array_equal(found["prediction"], model.predict(mixed, id="id"))
    assert fitted("linear").predictions(mixed, id="id").column_names == ["id", "prediction"]
    assert fitted("glm").predictions(together())["id"].to_pylist() == sorted(frames()["bank"]["id"])
    assert fitted("split").predictions(mixed, same_order=True).column_names[0] == "prediction"
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
    again = Estimator.load(model.save(tmp_path / "model.json"))
    assert again.threshold_ == model.threshold_
    np.testing.assert_array_equal(again.predict(people), model.predict(people))


def test_of_several_classes_a_balanced_threshold_prefers_rare_ones():
    rng = np.random.default_rng(3)
    class_of = np.where(rng.random(900) < 0.8, "a", np.where(rng.random(900) < 0.5, "b", "c"))
    x = np.select([class_of == "b", class_of == "c"], [0.5, -0.5], 0.0) + rng.normal(0, 0.4, 900)
    schemas = {"p": Schema({"y": category(["a", "b", "c"])}), "q": numbers("x")}
    people = federation({"p": {"y": class_of}, "q": {"x": np.clip(x, -1, 1)}}, schemas)
    asked = {"label": "p.y", "epsilon": 50.0, "method": "one-shot", "rows_at_most": 1000}
    usual, balanced = (simulated(LogisticRegression(threshold=t, **asked), people) for t in (0.5, "balanced"))
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
    ("make", "given", "sentence"),
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
def test_thresholds_that_cannot_be_are_refused_before_anything_is_spent(make, given, sentence):
    with raises(StudyError, sentence):
        make(label="clinic.ill", epsilon=1.0, **given).plan(together().roster)


def test_scores_of_new_people_follow_the_threshold_of_their_model():
    model = fitted("threshold")
    found = simulated(JointPrediction(model, to="bank", exact=True)).joint
    np.testing.assert_array_equal(found.predictions, model.chances(found.scores)[:, 1] > 0.3)
    assert found.predictions.sum() > model.answers(found.scores, 0.5).sum()


def test_a_study_with_the_usual_threshold_is_the_study_without_one(tmp_path):
    folder = Path(__file__).parents[1] / "fixtures" / "studies"
    shutil.copytree(folder, tmp_path / "studies")
    text = (folder / "logistic-one-shot.toml").read_text(encoding="utf-8")
    path, digests = tmp_path / "studies" / "changed.toml", {}
    for threshold in ("", "threshold = 0.5", "threshold = 0.3", 'threshold = "balanced"'):
        path.write_text(text.replace("[task]\n", f"[task]\n{threshold}\n"), encoding="utf-8")
        digests[threshold] = Study.load(path).digest
    assert digests[""] == digests["threshold = 0.5"] == Study.load(folder / "logistic-one-shot.toml").digest
    assert len(set(digests.values())) == 3
    path.write_text(text.replace("[task]\n", "[task]\nthreshold = 1.5\n"), encoding="utf-8")
    with raises(StudyError, "ST174"):
        Study.load(path)


# --- assessments


@classifiers
def test_chances_are_assessed_where_labels_are_known(name):
    model, people, truth = fitted(name), together(), frames()["clinic"]["ill"].to_numpy()
    by = {"exact": True} if name == "glm" else {}  # without it a question is played, with fresh noise each time
    found = model.assess(people, **by)
    assert found.count == ROWS
    assert found.auc > 0.8
    assert found.at(0.5).accuracy == pytest.approx(model.score(people, **by))
    passed = model.assess(frames(), truth, id="id", **by)
    assert (passed.auc, passed.slope) == pytest.approx((found.auc, found.slope))
    against = model.assess(frames(), id="id", of=False, **by)
    assert (against.auc, against.prevalence) == pytest.approx((found.auc, 1 - found.prevalence))


def test_numbers_have_no_chances_to_assess():
    people = together()
    with raises(StudyError, "ST173"):
        fitted("released numbers").assess(people)
    with raises(StudyError, "ST110"):
        fitted("released numbers").predict(people, 0.3)
    with raises(StudyError, "ST066"):
        LinearRegression(epsilon=1.0).assess(people)
