from __future__ import annotations

import numpy as np
import pytest

from colonnade import Schema, flag, number
from colonnade.kinds import LogisticRegression
from colonnade.kinds.regression.forecast import LEARNABLE
from colonnade.models import Roster
from colonnade.tables.people import population as made_up
from research.datasets import load_dataset


def roster_of(columns):
    left = {f"a{k}": number(-1, 1) for k in range(columns // 2)} | {"y": flag()}
    return Roster.of({"left": Schema(left), "right": Schema({f"b{k}": number(-1, 1) for k in range(columns // 2)})})


def forecasts(columns=20, **settings):
    model = LogisticRegression(**{"epsilon": 1.0, "label": "left.y", "rate": 0.1, "epochs": 20} | settings)
    return {each.method: each for each in model.forecast(roster_of(columns))}


def test_auto_takes_the_first_of_the_forecast():
    model = LogisticRegression(epsilon=1.0, label="left.y", rows=10_000)
    task = model.plan(roster_of(20))
    assert model.forecast_[0].method == "one-shot"
    assert {each.method for each in model.forecast_} == {"one-shot", "sqm", "functional"}
    assert task == model.forecast_[0].task
    errors = [each.error for each in model.forecast_]
    assert errors == sorted(errors)
    assert str(model.forecast_[0]).startswith("one-shot: expected error 0.")


def test_laplace_noise_is_better_for_very_few_columns_only():
    """Its sensitivity grows with the square of the number of columns, the others' with the number."""
    assert forecasts(2)["functional"].error < forecasts(2)["one-shot"].error
    assert forecasts(20)["functional"].error > 3 * forecasts(20)["one-shot"].error


def test_without_rows_gradients_are_left_out():
    found = forecasts()
    assert set(found) == {"one-shot", "functional"}
    assert "/ rows" in str(found["one-shot"])
    assert found["one-shot"].error / 5000 == pytest.approx(forecasts(rows=5000)["one-shot"].error)
    assert set(forecasts(epsilon=None, epsilon_by_party={"left": 1.0, "right": 1.0}, rows=50)) == set(found)
    assert set(forecasts(intercept=False, rows=50)) == set(found)


def test_errors_shrink_with_rows_and_budget_and_grow_with_columns():
    one, more = forecasts(rows=10_000, epsilon=4.0), forecasts(rows=40_000, epsilon=4.0)
    poorer, wider = forecasts(rows=10_000, epsilon=2.0), forecasts(40, rows=10_000, epsilon=4.0)
    for name in one:
        assert more[name].error < one[name].error < min(poorer[name].error, wider[name].error)


def test_too_few_steps_are_part_of_the_error():
    hasty = forecasts(rows=10**6, epochs=1, rate=0.5)["sqm"].error
    assert hasty == pytest.approx(LEARNABLE, rel=0.1)
    assert forecasts(rows=10**6)["sqm"].error < 0.1


def test_the_order_is_that_of_the_errors_on_made_up_people(stream):
    """Whatever is forecast to be far better is better: its scores agree more with those without noise."""
    made = made_up(5_000)
    roster, tables = Roster.of(made.schemas), made.tables()
    settings = {"label": made.label, "rows": made.rows, "rate": 0.1, "epochs": 10}
    exact = LogisticRegression(epsilon=20.0, method="one-shot", **settings).simulate(tables, roster, stream)
    best = exact.decision_function(tables)
    expected = LogisticRegression(epsilon=1.0, **settings).forecast(roster)
    found = {}
    for each in expected:
        model = LogisticRegression(epsilon=1.0, method=each.method, **settings)
        draws = [model.simulate(tables, roster, stream, task=each.task).decision_function(tables) for _ in range(2)]
        found[each.method] = float(np.mean([np.corrcoef(scores, best)[0, 1] for scores in draws]))
    for better in expected:
        for worse in expected:
            if better.error < 0.5 * worse.error:
                assert found[better.method] > found[worse.method]
    assert expected[0].method == max(found, key=found.__getitem__)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "dutch-census"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_order_is_that_of_the_accuracies_on_real_people(name, epsilon, data_dir, stream):
    train = load_dataset(name, folder=data_dir, parties=4, split="train")
    test = load_dataset(name, folder=data_dir, parties=4, split="test").tables()
    roster, tables = Roster.of(train.schemas), train.tables()
    model = LogisticRegression(epsilon={"analyst": epsilon}, label=train.label, rows=train.rows)
    expected, found = model.forecast(roster), {}
    for each in expected:
        draws = [model.simulate(tables, roster, stream, task=each.task).score(test) for _ in range(5)]
        found[each.method] = float(np.mean(draws))
    assert expected[0].method == max(found, key=found.__getitem__)
