"""One population with every sort of column, and a model of each kind fitted to it once, for tests that only read."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from colonnade import (
    GLM,
    PCA,
    Federation,
    JointPrediction,
    LinearRegression,
    LogisticRegression,
    Party,
    PolynomialSum,
    Schema,
    SplitClassifier,
    SplitRegressor,
    SplitScores,
    Synthesizer,
    category,
    date,
    flag,
    number,
)
from colonnade.kinds import KeptScores
from colonnade.testing import seeded

ROWS = 600
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
            "age": number(18, 90),
        },
        clip=1.5,
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
PRODUCT = "bank.age * shop.visits"
_BROAD: dict[str, Any] = {"epsilon": 30.0, "rows_at_most": 1000}
MODELS = {
    "pca": PCA(3, **_BROAD),
    "linear": LinearRegression(label="clinic.weight", **_BROAD),
    "logarithmic": LinearRegression(label="clinic.stays", **_BROAD),
    "logistic": LogisticRegression(label="clinic.ill", method="one-shot", **_BROAD),
    "threshold": LogisticRegression(label="clinic.ill", method="one-shot", threshold=0.3, **_BROAD),
    "laplace": LogisticRegression(label="clinic.ill", method="functional", **_BROAD),
    "classes": LogisticRegression(label="clinic.stage", **_BROAD),
    "balanced": LogisticRegression(label="clinic.stage", threshold="balanced", **_BROAD),
    "glm": GLM(label="clinic.ill", epsilon=dict.fromkeys(SCHEMAS, 30.0)),
    "glm counts": GLM(family="poisson", label="shop.visits", epsilon=30.0, family_options={"clip": 5.0}),
    "released": GLM(label="clinic.ill", epsilon=30.0, release=True),
    "released counts": GLM(family="poisson", label="shop.visits", epsilon=30.0, release=True),
    "released numbers": GLM(family="linear", label="clinic.stays", epsilon=30.0, release=True),
    "released margins": GLM(family="svm", label="clinic.ill", epsilon=30.0, release=True),
    "polynomial": PolynomialSum(PRODUCT, **_BROAD),
    "polynomials": PolynomialSum(["1", {"bank.age^2": 0.5}, PRODUCT], epsilon={"analyst": 9.0, "party": 9.0}),
    "synthetic": Synthesizer("clinic.ill", focus=[("clinic.weight", "bank.age")], bins=3, components=4, **_BROAD),
    "split": SplitClassifier(label="clinic.ill", width=8, encoders={"bank": {"width": 3}}, **_BROAD),
    "split numbers": SplitRegressor(label="clinic.weight", width=4, epsilon=30.0),
    "embeddings": SplitRegressor(label="clinic.weight", head="embeddings", width=4, epsilon=30.0),
}
"""Not fitted; some have parameters that are objects."""
QUESTIONS = ("prediction", "kept scores", "split scores")


@cache
def frames(rows: int = ROWS, seed: int = 5) -> dict[str, pd.DataFrame]:
    """Every party's rows with an id, in the same order; whether somebody is ill hangs on columns of all parties."""
    draw = np.random.default_rng(seed)
    days = pd.to_datetime("2000-01-01") + pd.to_timedelta(draw.integers(0, 9000, rows), unit="D")
    age, weight, visits = draw.uniform(18, 90, rows), draw.uniform(30, 170, rows), draw.integers(0, 51, rows)
    odds = 5 * (age - 54) / 36 + 4 * (visits - 25) / 25 + 3 * (weight - 100) / 60
    held = {
        "bank": {
            "income": draw.lognormal(10, 1, rows),
            "age": age,
            "score": draw.normal(0, 2, rows),
            "debt": draw.uniform(-10, 120, rows),
            "joined": days.strftime("%Y-%m-%d"),
        },
        "shop": {
            "region": draw.choice(["north", "south", "NA"], rows),
            "plan": draw.choice(["a", "b"], rows),
            "member": draw.choice([True, False], rows),
            "visits": visits.astype(float),
            "age": age,
        },
        "clinic": {
            "ill": draw.random(rows) < 1 / (1 + np.exp(-odds)),
            "weight": weight,
            "stage": np.select([odds < -3, odds < 3], ["one", "two"], "three"),
            "stays": draw.uniform(0, 30, rows),
        },
    }
    ids = [f"p{place}" for place in range(rows)]
    return {name: pd.DataFrame({"id": ids, **columns}) for name, columns in held.items()}


@cache
def together(dates: bool = True, **how: Any) -> Federation:
    """All of them in a federation; without dates for those kinds that cannot have months and weekdays."""
    schemas = SCHEMAS if dates else SCHEMAS | {"bank": SCHEMAS["bank"].without(["joined"])}
    return Federation([Party(name, frames()[name], schema=schema, id="id") for name, schema in schemas.items()], **how)


def simulated(model: Any, people: Federation | None = None) -> Any:
    """The model as a fit would leave it: the same integers and law of noise, which is the same each time."""
    group = people or together(dates=not isinstance(model, Synthesizer))
    return model.simulate(group.tables(), group.roster, seeded(1))


@cache
def fitted(name: str) -> Any:
    """A model of ``MODELS`` or one of ``QUESTIONS``, to be read and never changed."""
    if name == "prediction":
        return simulated(JointPrediction(fitted("logistic"), to="bank", epsilon=5.0))
    if name == "kept scores":
        return simulated(KeptScores(fitted("glm"), epsilon=5.0, rows_at_most=ROWS))
    if name == "split scores":
        return simulated(SplitScores(fitted("split"), epsilon=5.0))
    return simulated(clone(MODELS[name]))
