"""Kinds that are sums over people say by which programs, and all others why they are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.pca.model import PCA
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.model import PolynomialSum
from colonnade.kinds.regression.linear import LinearRegression
from colonnade.kinds.regression.logistic import LogisticRegression
from colonnade.kinds.synthesis.model import Synthesizer
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.models.federation import Roster
from colonnade.protocols.lanes.lane import why_not
from colonnade.protocols.moments import programs as moments
from colonnade.tables import Schema, flag, number, read_table
from tests.support.errors import raises

SCHEMAS = {
    "bank": Schema({"income": number(0, 10), "ill": flag()}),
    "shop": Schema({"spend": number(0, 5)}),
    "clinic": Schema({"bmi": number(10, 40)}),
}
ROSTER = Roster.of(SCHEMAS)
SUMS = {
    "pca": (PCA(n_components=2, epsilon=1.0), moments),
    "linear": (LinearRegression(label="bank.income", epsilon=1.0), moments),
    "functional": (LogisticRegression(label="bank.ill", epsilon=1.0, method="functional"), moments),
    "polynomial": (PolynomialSum(["bank.income * shop.spend"], epsilon=1.0), polynomial),
    "synthetic": (Synthesizer(epsilon=1.0, bins=3), marginals),
}
OTHERS = {
    "directions": (PCA(n_components=2, epsilon=1.0, method="power"), "in rounds"),
    "gradients": (LogisticRegression(label="bank.ill", epsilon=1.0, method="sqm", rows=1000), "in rounds"),
    "two stages": (Synthesizer(epsilon=1.0, bins=8, even_bins=4), "twice"),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_has_programs_and_rows_that_are_added_up(name):
    model, programs = SUMS[name]
    task = model.plan(ROSTER)
    assert model.additive(task) is programs
    assert why_not(task) is None
    frame = pa.table({"person_id": ["b", "a"], "income": [1.0, 2.0], "ill": [True, False]})
    rows = model.summands("bank", read_table(frame, SCHEMAS["bank"]), task)
    assert list(rows.ids) == ["a", "b"]
    found = np.vstack(list(rows.blocks(1)))
    assert len(found) == 2
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("name", OTHERS)
def test_others_say_why_not(name):
    model, why = OTHERS[name]
    task = model.plan(ROSTER)
    assert model.additive(task) is None
    assert why in why_not(task)


def test_only_sums_have_rows_to_add_up():
    model, _ = OTHERS["gradients"]
    with raises(StudyError, "ST060"):
        model.summands("bank", None, model.plan(ROSTER))
