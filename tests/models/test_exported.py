"""Models outside of Colonnade: what ONNX, scikit-learn and plain JSON say of people is what the model says."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.multiclass import OneVsRestClassifier

from colonnade import GLM, LinearRegression, LogisticRegression
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import Roster
from colonnade.models.onnx_export import OnnxGraph, encode_columns
from colonnade.models.sklearn_export import RawEncoder
from colonnade.tables import Schema, date, population
from tests.support.errors import raises
from tests.support.models import SCHEMAS, fitted, frames, simulated

onnxruntime = pytest.importorskip("onnxruntime")


def gaps(rows, seed):
    """New people with missing cells where the schema has a rule for them."""
    found = {name: frame.copy() for name, frame in frames(rows, seed).items()}
    for column in ("income", "age", "score", "debt"):
        found["bank"].loc[::7, column] = np.nan
    found["bank"].loc[::5, "joined"] = None
    found["shop"].loc[::4, "region"] = ""
    found["shop"].loc[::6, "plan"] = None
    found["shop"]["member"] = found["shop"]["member"].astype(object)
    found["shop"].loc[::9, "member"] = None
    return found


def joined(people):
    """One table with all parties' columns."""
    return pd.concat([frame.drop(columns="id").add_prefix(f"{name}.") for name, frame in people.items()], axis=1)


def asked(path, people):
    """What an ONNX session says of raw rows."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given, held = {}, joined(people)
    for name in (each.name for each in session.get_inputs()):
        values = held[name]
        if name == "bank.joined":
            days = pd.to_datetime(values).to_numpy().astype("M8[D]")
            cells = np.where(np.isnat(days), np.nan, days.astype(np.int64).astype(float))
        elif name in ("shop.region", "shop.plan", "clinic.stage"):
            cells = values.fillna("").to_numpy().astype(object)
        else:
            cells = values.astype(float).to_numpy()
        given[name] = cells.reshape(-1, 1)
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, given), strict=True))


# --- raw rows


@pytest.mark.parametrize("name", ["logistic", "threshold", "classes", "balanced", "laplace", "released"])
def test_chances_of_raw_rows_are_those_of_the_model(name, tmp_path):
    model, people = fitted(name), gaps(300, 8)
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)
    chances = model.predict_proba(people, id="id")
    assert told["probabilities"] == pytest.approx(chances, abs=1e-12)
    assert np.array_equal(told["label"], model.predict(people, id="id"))
    pipeline = pickle.loads(pickle.dumps(model.to_pipeline()))  # noqa: S301 - just written
    if len(model.classes_) == 2:
        assert pipeline.predict_proba(joined(people)) == pytest.approx(chances, abs=1e-12)
    again = pipeline.named_steps["encode"].matrix(people) @ model.coef_.T + model.intercept_
    assert again == pytest.approx(model.scores(people, id="id"), abs=1e-12)


@pytest.mark.parametrize("name", ["linear", "logarithmic", "released counts", "released numbers"])
def test_numbers_of_raw_rows_are_those_of_the_model(name, tmp_path):
    model, people = fitted(name), gaps(300, 9)
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)
    assert told["prediction"] == pytest.approx(model.predict(people, id="id"), rel=1e-12, abs=1e-9)
    if not isinstance(model, GLM):
        assert model.to_pipeline().predict(joined(people)) == pytest.approx(told["prediction"], rel=1e-9)


def test_scores_of_components_are_those_of_the_model(tmp_path):
    people = gaps(200, 10)
    told = asked(fitted("pca").to_onnx(tmp_path / "model.onnx"), people)
    assert told["scores"] == pytest.approx(fitted("pca").transform(people, id="id"), abs=1e-12)


def test_cells_that_no_schema_has_a_place_for_are_mapped_as_in_a_study(tmp_path):
    model, people = fitted("logistic"), {name: frame.copy() for name, frame in frames(60, 11).items()}
    people["bank"].loc[::3, "income"] = np.inf
    people["shop"].loc[::2, "region"] = "<b>elsewhere</b>"
    people["shop"].loc[::4, "plan"] = "z"
    people["clinic"].loc[::5, "stage"] = "nine"
    people["clinic"].loc[::6, "weight"] = np.nan
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)["probabilities"]
    assert model.to_pipeline().predict_proba(joined(people)) == pytest.approx(told, abs=1e-12)
    for strict, given, how in (
        (model.to_pipeline(misfits="refuse"), joined(people), {}),
        (model, people, {"id": "id"}),
    ):
        with raises(DataError, "DA194"):
            strict.predict_proba(given, **how)


def test_every_day_has_its_month_and_weekday(tmp_path):
    schema = Schema({"day": date("1950-01-01", "2050-12-31", parts=["month", "weekday"])})
    graph, path, days = OnnxGraph(), tmp_path / "days.onnx", np.arange(-7305, 29585)
    graph.output(encode_columns(graph, "p", schema), "encoded", ["rows", 19])
    path.write_bytes(graph.pack("days", {}))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (told,) = session.run(None, {"p.day": days.astype(float).reshape(-1, 1)})
    frame = pd.DataFrame({"p.day": days.astype("M8[D]").astype(str)})
    assert np.array_equal(told, RawEncoder({"p": schema}, norm=None).matrix(frame))


def test_the_command_writes_what_the_model_writes(tmp_path, colonnade):
    model, out, people = fitted("logistic"), tmp_path / "model.onnx", frames(20, 12)
    saved = model.save(tmp_path / "model.json")
    colonnade("export", saved, "--out", out)
    assert asked(out, people)["probabilities"] == pytest.approx(model.predict_proba(people, id="id"), abs=1e-12)
    colonnade("export", saved, "--to", "json", "--out", tmp_path / "told.json")
    assert "how_to_score" in (tmp_path / "told.json").read_text()
    assert "--force" in colonnade("export", saved, "--out", out, code=StorageError.exit_code)
    assert "pmml" in colonnade("export", saved, "--to", "pmml", "--out", "x", code=StudyError.exit_code)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: fitted("glm").to_onnx(path), "ST148"),
        (lambda path: fitted("released margins").to_onnx(path), ("ST076", "svm")),
        (lambda path: LinearRegression(epsilon=1.0).to_sklearn(), "ST073"),
        (lambda path: LogisticRegression(epsilon=1.0).to_json(), "ST073"),
    ],
)
def test_what_cannot_be_exported_says_so(make, said, tmp_path):
    with raises(StudyError, said):
        make(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# --- encoded rows


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("logistic", linear_model.LogisticRegression),
        ("classes", OneVsRestClassifier),
        ("linear", linear_model.Ridge),
        ("without a ridge", linear_model.LinearRegression),
        ("logarithmic", TransformedTargetRegressor),
    ],
)
def test_scikit_learn_has_a_model_that_says_the_same(name, kind):
    plainly = LinearRegression(epsilon=30.0, label="clinic.weight", ridge=0.0, rows_at_most=1000)
    model = simulated(plainly) if name == "without a ridge" else fitted(name)
    plain, people = model.to_sklearn(), frames()
    x = pd.DataFrame(model.to_pipeline().named_steps["encode"].matrix(people), columns=model.feature_names_in_)
    assert isinstance(plain, kind)
    same = np.testing.assert_array_equal if name in ("logistic", "classes") else np.testing.assert_allclose
    same(plain.predict(x), model.predict(x, encoded=True))
    same(plain.predict(x), model.predict(people, id="id"))
    if name in ("logistic", "classes"):
        np.testing.assert_allclose(plain.predict_proba(x), model.predict_proba(x, encoded=True), atol=1e-12)
        np.testing.assert_allclose(plain.decision_function(x), model.decision_function(x, encoded=True))
        assert plain.score(x, people["clinic"][model.label.split(".")[1]]) == model.score(people, id="id")
    if name == "logistic":
        assert plain.feature_names_in_.tolist() == model.feature_names_in_
        assert clone(plain).get_params() == plain.get_params()


def by_hand(rule, value, name, weights):
    """What one column adds to a score, by the rules that the JSON states."""
    if rule["type"] == "category":
        return weights[f"{name}={value}"]
    if rule["type"] == "flag":
        return weights[name] * bool(value)
    bend = np.log1p if rule.get("transform") == "log1p" else float
    low, high = bend(rule["low"]), bend(rule["high"])
    share = min(max((bend(value) - low) / (high - low), 0.0), 1.0)
    return weights[name] * (share if rule.get("scale") == "unit" else 2 * share - 1)


def test_json_is_enough_to_score_a_person_by_hand(stream):
    made = population(500)
    model = LogisticRegression(epsilon=5.0, label=made.label)
    model.simulate(made.tables(), Roster.of(made.schemas), stream)
    told = json.loads(json.dumps(model.to_json(), allow_nan=False))
    assert (told["label"], told["classes"]) == ("bank.default", [False, True])
    score = told["intercept"][0]
    for party, columns in told["columns"].items():
        person = made.arrow[party].slice(0, 1).to_pylist()[0]
        for name, rule in columns.items():
            if f"{party}.{name}" != told["label"]:
                score += by_hand(rule, person[name], name, told["coefficients"][party])
    assert score == pytest.approx(model.decision_function(made.tables())[0])
    assert set(told["protection"]) == set(made.parties)
    assert fitted("logistic").to_json()["row_clips"] == {"shop": SCHEMAS["shop"].clip}
