from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.multiclass import OneVsRestClassifier

from colonnade import Schema, flag, number
from colonnade.errors import StudyError
from colonnade.kinds import LinearRegression, LogisticRegression
from colonnade.models import Roster
from colonnade.models.saved import finite
from colonnade.tables import read_table
from colonnade.tables.people import population as made_up
from tests.support.errors import raises

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def made():
    return made_up(2000)


def simulated(model, made, stream):
    return model.simulate(made.tables(), Roster.of(made.schemas), stream)


def encoded(model, made):
    parts = []
    for party, schema in made.schemas.items():
        names = [name for name in schema.names if f"{party}.{name}" != model.label]
        parts.append(made.table(party).select(names).matrix())
    return pd.DataFrame(np.hstack(parts), columns=model.feature_names_in_)


def test_two_classes_become_a_logistic_regression(made, stream):
    model = simulated(LogisticRegression(epsilon=5.0, label=made.label), made, stream)
    plain, x = model.to_sklearn(), encoded(model, made)
    assert isinstance(plain, linear_model.LogisticRegression)
    np.testing.assert_array_equal(plain.predict(x), model.predict(x, encoded=True))
    np.testing.assert_array_equal(plain.predict(x), model.predict(made.tables()))
    np.testing.assert_allclose(plain.predict_proba(x), model.predict_proba(x, encoded=True), atol=1e-12)
    np.testing.assert_allclose(plain.decision_function(x), model.decision_function(x, encoded=True))
    assert plain.score(x, made.table("bank").column("default")[:, 0] > 0.5) == model.score(made.tables())
    assert plain.n_features_in_ == x.shape[1]
    assert plain.feature_names_in_[0] == "bank.age"
    assert clone(plain).get_params() == plain.get_params()


def test_several_classes_become_one_against_the_rest(made, stream):
    model = simulated(LogisticRegression(epsilon=5.0, label="bank.work", method="one-shot"), made, stream)
    plain, x = model.to_sklearn(), encoded(model, made)
    assert isinstance(plain, OneVsRestClassifier)
    np.testing.assert_array_equal(plain.predict(x), model.predict(x, encoded=True))
    np.testing.assert_allclose(plain.predict_proba(x), model.predict_proba(x, encoded=True), atol=1e-12)
    np.testing.assert_allclose(plain.decision_function(x), model.decision_function(x, encoded=True))
    assert plain.classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize(("ridge", "kind"), [("auto", linear_model.Ridge), (0.0, linear_model.LinearRegression)])
def test_numbers_become_a_linear_regression(made, stream, ridge, kind):
    model = simulated(LinearRegression(epsilon=5.0, label="clinic.systolic", ridge=ridge), made, stream)
    plain, x = model.to_sklearn(), encoded(model, made)
    assert isinstance(plain, kind)
    np.testing.assert_allclose(plain.predict(x), model.predict(x, encoded=True))


def test_a_logarithmic_label_is_transformed_back(made, stream):
    model = simulated(LinearRegression(epsilon=5.0, label="bank.balance"), made, stream)
    plain, x = model.to_sklearn(), encoded(model, made)
    assert isinstance(plain, TransformedTargetRegressor)
    np.testing.assert_allclose(plain.predict(x), model.predict(x, encoded=True))
    np.testing.assert_allclose(plain.predict(x), model.predict(made.tables()))


def test_json_is_enough_to_score_a_person_by_hand(made, stream):
    model = simulated(LogisticRegression(epsilon=5.0, label=made.label), made, stream)
    told = json.loads(json.dumps(model.to_json(), allow_nan=False))
    assert told["label"] == "bank.default"
    assert told["classes"] == [False, True]
    people = {party: made.arrow[party].slice(0, 1).to_pylist()[0] for party in made.parties}
    score = told["intercept"][0]
    for party, columns in told["columns"].items():
        for name, rule in columns.items():
            if f"{party}.{name}" != told["label"]:
                score += by_hand(rule, people[party][name], name, told["coefficients"][party])
    assert score == pytest.approx(model.decision_function(made.tables())[0])
    assert told["privacy"] == json.loads(json.dumps(model.privacy_.to_dict()))
    assert set(told["protection"]) == set(made.parties)


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


def test_row_clips_are_told(stream):
    schemas = {"left": Schema({"a": number(0, 1), "y": flag()}, clip=0.5), "right": Schema({"b": number(0, 1)})}
    model = LogisticRegression(epsilon=5.0, label="left.y", method="one-shot")
    made = made_up(50)
    tables = {
        "left": made.arrow["shop"].select(["person_id", "online"]).rename_columns(["person_id", "a"]),
        "right": made.arrow["shop"].select(["person_id", "sweets"]).rename_columns(["person_id", "b"]),
    }
    tables["left"] = tables["left"].append_column("y", made.arrow["bank"]["default"])
    read = {party: read_table(table, schemas[party]) for party, table in tables.items()}
    model.simulate(read, Roster.of(schemas), stream)
    assert model.to_json()["row_clips"] == {"left": 0.5}


def test_what_is_not_fitted_cannot_be_exported():
    for model in (LinearRegression(epsilon=1.0), LogisticRegression(epsilon=1.0)):
        with raises(StudyError, "ST073"):
            model.to_sklearn()
        with raises(StudyError, "ST073"):
            model.to_json()
    assert finite(float("inf")) is None
