"""Chances of a logistic regression are as sure as they should be: beside the truth, on made-up and on real people."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from colonnade import Federation, LogisticRegression, Party, Schema, flag, number
from colonnade.models import Roster
from colonnade.testing.seeded import seeded
from research.datasets import load_dataset


@pytest.mark.parametrize("shift", [-1.5, 0.0, 1.5])
def test_chances_are_as_sure_as_they_should_be(shift):
    """Slopes of the recalibration lie between 0.85 and 1.15; the noise is seeded."""
    rng = np.random.default_rng(6)
    columns = rng.uniform(-1, 1, (30_000, 4))
    odds = shift + columns @ [3.0, -2.0, 1.5, 0.0]
    ids = [str(k) for k in range(len(odds))]
    held = {
        "a": pd.DataFrame({"id": ids, "y": rng.random(len(odds)) < 1 / (1 + np.exp(-odds)), "u": columns[:, 0]}),
        "b": pd.DataFrame({"id": ids, "v": columns[:, 1], "w": columns[:, 2], "x": columns[:, 3]}),
    }
    schemas = {
        "a": Schema({"y": flag(), "u": number(-1, 1)}),
        "b": Schema({name: number(-1, 1) for name in "vwx"}),
    }
    people = Federation([Party(name, held[name], schema=schema, id="id") for name, schema in schemas.items()])
    model = LogisticRegression(label="a.y", epsilon=2.0, method="one-shot", rows_at_most=50_000)
    found = model.simulate(people.tables(), people.roster, seeded(2)).assess(people)
    assert 0.85 < found.slope < 1.15
    gaps = [abs(group.probability - group.share) for group in found.reliability]
    assert np.mean(gaps) < 0.035


def assessed(name, data_dir, runs, epsilon):
    """AUC, log-loss and slope for the 20 % of the people that the model has not seen; two parties."""
    made = load_dataset(name, folder=data_dir, parties=2)
    roster, tables = Roster.of(made.schemas), made.tables()
    order = np.random.default_rng(7).permutation(made.rows)
    cut = 4 * made.rows // 5
    seen, new = (
        {party: table.take_rows(np.sort(rows)) for party, table in tables.items()}
        for rows in (order[:cut], order[cut:])
    )
    model = LogisticRegression(label=made.label, method="one-shot", epsilon={"analyst": epsilon})
    task = model.plan(roster)
    found = [model.simulate(seen, roster, seeded(run), task=task).assess(new) for run in range(runs)]
    return np.mean([[each.auc, each.log_loss, each.slope] for each in found], axis=0)


def test_chances_of_real_people_in_brief(data_dir):
    auc, loss, slope = assessed("adult", data_dir, 1, 1.0)
    assert auc > 0.885
    assert loss < 0.345
    assert 0.92 < slope < 1.05  # 0.85 with scores that are taken to be normal as a whole


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize(("name", "least", "most"), [("adult", 0.885, 0.345), ("credit-default", 0.73, 0.465)])
def test_chances_of_real_people(name, least, most, epsilon, data_dir):
    auc, loss, slope = assessed(name, data_dir, 3, epsilon)
    assert auc > least
    assert loss < most
    assert 0.85 < slope < 1.15
