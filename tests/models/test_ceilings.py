"""More epsilon than can be certified is said: a warning at the fit, and a line of the statement."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

from colonnade import PCA, Federation, LogisticRegression, Party, Schema, flag, joint_scores, number

SCHEMAS = {"bank": Schema({"age": number(0, 1), "y": flag()}), "shop": Schema({"visits": number(0, 1)})}


@pytest.fixture(scope="module")
def people():
    rng, ids = np.random.default_rng(3), [f"p{k}" for k in range(300)]
    age, visits = rng.random(300), rng.random(300)
    bank = pa.table({"id": ids, "age": age, "y": age + visits > 1})
    shop = pa.table({"id": ids, "visits": visits})
    held = {"bank": bank, "shop": shop}
    return Federation([Party(name, held[name], schema=schema, id="id") for name, schema in SCHEMAS.items()])


def test_a_fit_above_the_ceiling_says_so(people):
    with pytest.warns(UserWarning, match=r"is used of 200 allowed: no epsilon above .* can be certified"):
        model = PCA(1, epsilon=200.0, rows_at_most=1000).fit(people)
    line = next(each for each in model.privacy_.assumptions if "of 200 allowed" in each)
    assert line in str(model.privacy_)


def test_below_it_nothing_is_said(people):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = PCA(1, epsilon=30.0, rows_at_most=1000).fit(people)
    assert "allowed" not in str(model.privacy_)


def test_levels_that_cannot_be_told_more_exactly(people):
    model = LogisticRegression(label="bank.y", epsilon=10.0, rows_at_most=1000).fit(people)
    with pytest.warns(UserWarning, match="of 200 allowed: randomised response answers with epsilon 20 at most"):
        joint_scores(model, people, to="bank", epsilon=200.0, answers="levels")
