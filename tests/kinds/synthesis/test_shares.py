"""Shares and means come with deviations that cover; the noise is seeded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Schema, Synthesizer, category, flag, number
from colonnade.kinds.synthesis.population import Population
from colonnade.kinds.synthesis.shares import means, shares
from colonnade.kinds.synthesis.tree import fit_tree
from colonnade.kinds.tables.layout import Layout
from colonnade.kinds.tables.release import Release
from colonnade.models.federation import Roster
from colonnade.tables import read_table
from colonnade.testing.seeded import seeded

ROWS, RUNS = 400, 80
SCHEMAS = {
    "bank": Schema({"age": number(0, 100, missing="none"), "work": category(["a", "b", "c", "d"])}),
    "clinic": Schema({"smoker": flag(), "bmi": number(10, 50)}),
}


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(2)
    columns = {
        "bank": {
            "age": [None if k % 9 == 0 else rng.uniform(20, 90) for k in range(ROWS)],
            "work": rng.choice(["a", "b", "b", "c"], ROWS),
        },
        "clinic": {"smoker": rng.random(ROWS) < 0.3, "bmi": rng.normal(26, 4, ROWS).clip(10, 50)},
    }
    ids = [f"p{k}" for k in range(ROWS)]
    return {party: read_table(pa.table({"id": ids, **own}), SCHEMAS[party], id="id") for party, own in columns.items()}


def test_shares_and_means_are_covered(tables):
    model = Synthesizer(epsilon=1.0, bins=6, model="tree", rows_at_most=1000)
    task = model.plan(Roster.of(SCHEMAS))
    layout = Layout.of(SCHEMAS, 6)
    codes = np.hstack([layout.codes(party, tables[party]) for party in SCHEMAS])
    places = {name: column for column, name in enumerate(layout.names)}
    covered, covered_means, fitted = [], [], None
    for k in range(RUNS):
        release = Release.of(model.simulated(tables, task, seeded(k)))
        fitted = fitted or fit_tree(layout.sizes, release.count, release.parts)
        people = Population(layout, release, fitted, ())
        for name, found in shares(people).items():
            true = np.bincount(codes[:, places[name]], minlength=len(found)) / ROWS
            covered += [each.low <= share <= each.high for each, share in zip(found.values(), true, strict=True)]
        for name, mean in means(people).items():
            middles = np.add(*layout.columns[places[name]].bins.extremes) / 2
            there = codes[:, places[name]][codes[:, places[name]] < len(middles)]  # not missing
            covered_means.append(mean.low <= middles[there].mean() <= mean.high)
    assert 0.90 < np.mean(covered) < 0.99
    assert 0.90 < np.mean(covered_means) < 0.99


def test_a_model_has_them_and_its_card_too(tables):
    roster = Roster.of(SCHEMAS)
    model = Synthesizer(epsilon=4.0, bins=6, model="tree", rows_at_most=1000).simulate(tables, roster, seeded(1))
    found = model.marginals()
    assert list(found) == ["bank.age", "bank.work", "clinic.smoker", "clinic.bmi"]
    assert list(found["bank.work"]) == ["a", "b", "c", "d"]
    assert found["bank.work"]["b"].clear
    assert sum(found["bank.work"].values()) == pytest.approx(1)
    released = model.marginal("bank.work")
    np.testing.assert_allclose(list(found["bank.work"].values()), released.counts / model.count_)
    mean = model.means()["bank.age"]
    layout = Layout.of(SCHEMAS, 6)
    middles = np.add(*layout.columns[0].bins.extremes) / 2
    ages = layout.codes("bank", tables["bank"])[:, 0]
    assert abs(mean - middles[ages[ages < len(middles)]].mean()) < 6 * mean.deviation < 10
    assert set(model.means()) == {"bank.age", "clinic.bmi"}
    assert f"| `bank.age` | {mean:.4g} ± {2 * mean.deviation:.2g} |" in model.published()["card.md"].decode()


def test_a_mixture_that_was_learned_in_rounds_has_no_error_bars(tables):
    model = Synthesizer(epsilon=8.0, method="mixture", bins=6, rows=ROWS, components=2, iterations=2, rows_at_most=1000)
    model.simulate(tables, Roster.of(SCHEMAS), seeded(1))
    assert all(each.deviation is None for own in model.marginals().values() for each in own.values())
    assert all(each.deviation is None for each in model.means().values())
