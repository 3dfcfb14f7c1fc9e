"""Models with the encoder inside: what ONNX and scikit-learn say of raw rows is what the model says."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import colonnade as co
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models.onnx_graph import Graph, encoded
from colonnade.models.raw_encoder import RawEncoder
from colonnade.tables import Schema, category, date, flag, number
from tests.support.errors import raises

onnxruntime = pytest.importorskip("onnxruntime")

ROWS = 400
SCHEMAS = {
    "bank": Schema(
        {
            "income": number(0, 200_000, transform="log1p", missing="middle"),
            "age": number(18, 90, whole=True, missing="low"),
            "score": number(-3, 3, scale="unit", missing=1.5),
            "debt": number(0, 100, missing="none"),
            "joined": date("2000-01-01", "2025-12-31", parts=["days", "month", "weekday"], missing="none"),
        }
    ),
    "shop": Schema(
        {
            "region": category(["north", "south", "NA"], missing="south"),
            "plan": category(["a", "b"], missing="none"),
            "member": flag(missing=True),
            "visits": number(0, 50),
        },
        clip=1.1,
    ),
    "clinic": Schema(
        {
            "ill": flag(),
            "weight": number(40, 160),
            "stage": category(["one", "two", "three"]),
            "stays": number(0, 30, transform="log1p"),
        }
    ),
}


def made_up(rows=ROWS, seed=5):
    draw = np.random.default_rng(seed)
    days = pd.to_datetime("2000-01-01") + pd.to_timedelta(draw.integers(0, 9000, rows), unit="D")
    income, weight = draw.lognormal(10, 1, rows), draw.uniform(30, 170, rows)
    frames = {
        "bank": pd.DataFrame(
            {
                "income": income,
                "age": draw.uniform(10, 100, rows).round(1),
                "score": draw.normal(0, 2, rows),
                "debt": draw.uniform(-10, 120, rows),
                "joined": days.strftime("%Y-%m-%d"),
            }
        ),
        "shop": pd.DataFrame(
            {
                "region": draw.choice(["north", "south", "NA"], rows),
                "plan": draw.choice(["a", "b"], rows),
                "member": draw.choice([True, False], rows),
                "visits": draw.integers(0, 51, rows).astype(float),
            }
        ),
        "clinic": pd.DataFrame(
            {
                "ill": weight + draw.normal(0, 20, rows) > 100,
                "weight": weight,
                "stage": draw.choice(["one", "two", "three"], rows),
                "stays": draw.uniform(0, 30, rows),
            }
        ),
    }
    return {name: frame.assign(id=[f"p{i}" for i in range(rows)]) for name, frame in frames.items()}


@pytest.fixture(scope="module")
def federation():
    tables = made_up()
    return co.Federation([co.Party(name, tables[name], schema=SCHEMAS[name], id="id") for name in SCHEMAS])


def gaps(frames):
    """The same rows with missing cells where the schema has a rule for them."""
    found = {name: frame.copy() for name, frame in frames.items()}
    for column in ("income", "age", "score", "debt"):
        found["bank"].loc[::7, column] = np.nan
    found["bank"].loc[::5, "joined"] = None
    found["shop"].loc[::4, "region"] = ""
    found["shop"].loc[::6, "plan"] = None
    found["shop"]["member"] = found["shop"]["member"].astype(object)
    found["shop"].loc[::9, "member"] = None
    return found


def joined(frames):
    """One table with all parties' columns."""
    return pd.concat([frame.drop(columns="id").add_prefix(f"{name}.") for name, frame in frames.items()], axis=1)


def fed(frames):
    """The inputs of an ONNX session."""
    found = {}
    for name, values in joined(frames).items():
        if name == "bank.joined":
            days = pd.to_datetime(values).to_numpy().astype("M8[D]")
            cells = np.where(np.isnat(days), np.nan, days.astype(np.int64).astype(float))
        elif name in ("shop.region", "shop.plan", "clinic.stage"):
            cells = values.fillna("").to_numpy().astype(object)
        else:
            cells = values.astype(float).to_numpy()
        found[name] = cells.reshape(-1, 1)
    return found


def asked(path, frames):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    given = {name: cells for name, cells in fed(frames).items() if name in wanted}
    assert set(given) == wanted
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, given), strict=True))


CHANCES = {
    "two classes": lambda: co.LogisticRegression(label="clinic.ill", epsilon=20, delta=1e-6),
    "a threshold": lambda: co.LogisticRegression(label="clinic.ill", epsilon=20, delta=1e-6, threshold=0.3),
    "three classes": lambda: co.LogisticRegression(label="clinic.stage", epsilon=20, delta=1e-6),
    "beside shares": lambda: co.LogisticRegression(label="clinic.stage", epsilon=20, delta=1e-6, threshold="balanced"),
    "with laplace noise": lambda: co.LogisticRegression(label="clinic.ill", epsilon=20, method="functional"),
    "messages": lambda: co.GLM(label="clinic.ill", family="logistic", epsilon=20, delta=1e-6, release=True),
}
NUMBERS = {
    "linear": lambda: co.LinearRegression(label="clinic.weight", epsilon=20, delta=1e-6),
    "logarithmic": lambda: co.LinearRegression(label="clinic.stays", epsilon=20, delta=1e-6),
    "counts": lambda: co.GLM(label="shop.visits", family="poisson", epsilon=20, delta=1e-6, release=True),
    "linear by messages": lambda: co.GLM(label="clinic.stays", family="linear", epsilon=20, delta=1e-6, release=True),
}


@pytest.mark.parametrize("name", CHANCES)
def test_chances_of_raw_rows_are_those_of_the_model(name, federation, tmp_path):
    model = CHANCES[name]().fit(federation)
    people = gaps(made_up(300, 8))
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)
    chances = model.predict_proba(people, id="id")
    assert told["probabilities"] == pytest.approx(chances, abs=1e-12)
    assert np.array_equal(told["label"], model.predict(people, id="id"))
    pipeline = pickle.loads(pickle.dumps(model.to_pipeline()))  # noqa: S301 - just written
    if len(model.classes_) == 2:
        assert pipeline.predict_proba(joined(people)) == pytest.approx(chances, abs=1e-12)
    again = pipeline.named_steps["encode"].matrix(people) @ model.coef_.T + model.intercept_
    assert again == pytest.approx(model.scores(people, id="id"), abs=1e-12)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_raw_rows_are_those_of_the_model(name, federation, tmp_path):
    model = NUMBERS[name]().fit(federation)
    people = gaps(made_up(300, 9))
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)
    assert told["prediction"] == pytest.approx(model.predict(people, id="id"), rel=1e-12, abs=1e-9)
    if not isinstance(model, co.GLM):
        assert model.to_pipeline().predict(joined(people)) == pytest.approx(told["prediction"], rel=1e-9)


def test_scores_of_components_are_those_of_the_model(federation, tmp_path):
    model = co.PCA(3, epsilon=20, delta=1e-6).fit(federation)
    people = gaps(made_up(200, 10))
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)
    assert told["scores"] == pytest.approx(model.transform(people, id="id"), abs=1e-12)


def test_cells_that_no_schema_has_a_place_for_are_mapped_as_in_a_study(federation, tmp_path):
    model = CHANCES["two classes"]().fit(federation)
    people = made_up(60, 11)
    people["bank"].loc[::3, "income"] = np.inf
    people["shop"].loc[::2, "region"] = "<b>elsewhere</b>"
    people["shop"].loc[::4, "plan"] = "z"
    people["clinic"].loc[::5, "stage"] = "nine"
    people["clinic"].loc[::6, "weight"] = np.nan
    told = asked(model.to_onnx(tmp_path / "model.onnx"), people)["probabilities"]
    assert model.to_pipeline().predict_proba(joined(people)) == pytest.approx(told, abs=1e-12)
    with raises(DataError, "DA194"):
        model.to_pipeline(misfits="refuse").predict_proba(joined(people))
    with raises(DataError, "DA194"):
        model.predict_proba(people, id="id")


def test_every_day_has_its_month_and_weekday(tmp_path):
    schema = Schema({"day": date("1950-01-01", "2050-12-31", parts=["month", "weekday"])})
    graph = Graph()
    found = encoded(graph, "p", schema)
    graph.output(found, "encoded", ["rows", 19])
    path = tmp_path / "days.onnx"
    path.write_bytes(graph.packed("days", {}))
    days = np.arange(-7305, 29585)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (told,) = session.run(None, {"p.day": days.astype(float).reshape(-1, 1)})
    frame = pd.DataFrame({"day": days.astype("M8[D]").astype(str)})
    assert np.array_equal(told, RawEncoder({"p": schema}, norm=None).matrix(frame.add_prefix("p.")))


def test_what_cannot_be_exported_says_so(federation, tmp_path):
    kept = co.GLM(label="clinic.ill", family="logistic", epsilon=20, delta=1e-6).fit(federation)
    with raises(StudyError, "ST148"):
        kept.to_onnx(tmp_path / "kept.onnx")
    margins = co.GLM(label="clinic.ill", family="svm", epsilon=20, delta=1e-6, release=True).fit(federation)
    with raises(StudyError, "ST076", "svm"):
        margins.to_onnx(tmp_path / "svm.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_what_the_model_writes(federation, tmp_path):
    from typer.testing import CliRunner

    from colonnade.cli.app import app

    model = CHANCES["two classes"]().fit(federation)
    saved, out = model.save(tmp_path / "model.json"), tmp_path / "model.onnx"
    assert CliRunner().invoke(app, ["export", str(saved), "--out", str(out)]).exit_code == 0
    people = made_up(20, 12)
    assert asked(out, people)["probabilities"] == pytest.approx(model.predict_proba(people, id="id"), abs=1e-12)
    told = tmp_path / "told.json"
    assert CliRunner().invoke(app, ["export", str(saved), "--to", "json", "--out", str(told)]).exit_code == 0
    assert "how_to_score" in told.read_text()
    with raises(StorageError, "SO008", "--force"):
        CliRunner().invoke(app, ["export", str(saved), "--out", str(out)], catch_exceptions=False)
    with raises(StudyError, "ST032", "onnx", "json"):
        CliRunner().invoke(app, ["export", str(saved), "--to", "pmml", "--out", "x"], catch_exceptions=False)
