"""What a synthetic table is worth: useful models, attacks that find copies and nothing else, and the whole report."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import colonnade
from colonnade.errors import DataError
from colonnade.kinds.synthesis.attack import advantage_at_most, area_and_deviation, attacks, closeness
from colonnade.kinds.synthesis.comparable import comparable
from colonnade.kinds.synthesis.usefulness import usefulness
from tests.support.errors import raises


def people(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age, job = draw.integers(18, 90, rows), draw.integers(0, 8, rows)
    wage = np.exp(draw.normal(7 + job / 4, 0.6, rows)).round(2)
    height = draw.normal(170, 9, rows)
    rich = draw.random(rows) < 1 / (1 + np.exp(4 - job / 2 - age / 40 - wage / 4000))
    return pa.table(
        {
            "age": age,
            "job": pa.array([f"j{k}" for k in job]).dictionary_encode(),
            "wage": pa.array(wage, mask=draw.random(rows) < 0.05),
            "height": height,
            "rich": rich,
        }
    )


def shuffled(table: pa.Table, name: str) -> pa.Table:
    cells = table[name].combine_chunks().take(pa.array(np.random.default_rng(9).permutation(table.num_rows)))
    return table.set_column(table.column_names.index(name), name, cells)


@pytest.fixture(scope="module")
def real() -> pa.Table:
    return people(1500, 1)


@pytest.fixture(scope="module")
def held_out() -> pa.Table:
    return people(1500, 2)


def test_models_trained_on_a_table_without_the_signal_are_useless(real: pa.Table, held_out: pa.Table) -> None:
    common, sides = comparable(real, shuffled(real, "rich"), held_out)
    for found in usefulness(common, *sides, common.place("rich")):
        assert abs(found.synthetic["auc"] - 0.5) < 0.1 < found.real["auc"] - 0.5
        assert 0.5 < found.real["accuracy"] < 1


def test_models_trained_on_other_people_are_as_good(real: pa.Table, held_out: pa.Table) -> None:
    common, sides = comparable(real, people(1500, 3), held_out)
    boosting, logistic = usefulness(common, *sides, common.place("rich"))
    assert (boosting.model, logistic.model) == ("gradient boosting", "logistic regression")
    assert abs(boosting.synthetic["auc"] - boosting.real["auc"]) < 0.05
    assert abs(logistic.synthetic["auc"] - logistic.real["auc"]) < 0.05


def test_several_classes_numbers_and_a_constant_label(real: pa.Table, held_out: pa.Table) -> None:
    common, sides = comparable(real, people(1500, 3), held_out)
    by_job = usefulness(common, *sides, common.place("job"))
    assert all(0.5 < found.synthetic["auc"] < 1 for found in by_job)
    by_wage = usefulness(common, *sides, common.place("wage"))
    assert [found.model for found in by_wage] == ["gradient boosting", "linear regression"]
    assert all(0 < found.synthetic["r2"] < 1 for found in by_wage)
    nobody = real.set_column(4, "rich", pa.array([False] * real.num_rows))
    common, sides = comparable(real, nobody, held_out)
    poor = 1 - np.mean(held_out["rich"].to_numpy())
    for found in usefulness(common, *sides, common.place("rich")):
        assert found.synthetic == {"accuracy": pytest.approx(poor), "auc": 0.5}


def test_attacks_find_copies(real: pa.Table, held_out: pa.Table) -> None:
    common, sides = comparable(real, real, held_out)
    for found in attacks(common, *sides):
        assert found.auc_interval[0] > 0.8
        assert found.advantage_interval[0] > 0.6
        assert 0.44 < found.baseline < 0.56
        assert found.roc[0][0] == 0
        assert found.roc[-1] == (1, 1)
    near = closeness(common, *sides)
    assert near.closer_to_real == pytest.approx(1, abs=0.01)
    assert near.copies == 1
    assert near.copies_held_out == 0
    assert near.to_real == 0 < near.to_held_out


def test_attacks_find_nothing_in_other_people(real: pa.Table, held_out: pa.Table) -> None:
    common, sides = comparable(real, people(1500, 4), held_out)
    for found in attacks(common, *sides):
        assert found.auc_interval[0] < 0.5 + 0.02
        assert found.advantage_interval[0] < 0.02
    near = closeness(common, *sides)
    assert near.interval[0] - 0.02 < 0.5 < near.interval[1] + 0.02


def test_a_few_copies_among_many_are_found_too(real: pa.Table, held_out: pa.Table) -> None:
    leaky = pa.concat_tables([people(1000, 5), real.slice(0, 500)])
    common, sides = comparable(real, leaky, held_out)
    assert max(found.auc_interval[0] for found in attacks(common, *sides)) > 0.55


def test_the_deviation_of_an_area_is_that_of_repetitions() -> None:
    draw = np.random.default_rng(3)
    found = [area_and_deviation(draw.normal(0.5, 1, 200), draw.normal(0, 1, 150)) for _ in range(400)]
    areas, deviations = np.array(found).T
    assert deviations.mean() == pytest.approx(areas.std(), rel=0.12)
    assert areas.mean() == pytest.approx(0.638, abs=0.01)


def test_the_largest_advantage_is_that_of_randomised_response() -> None:
    assert advantage_at_most(math.log(3), 0) == pytest.approx(0.75 - 0.25)
    assert advantage_at_most(0, 0.1) == pytest.approx(0.1)
    assert advantage_at_most(1000, 0) == 1
    with raises(DataError, "DA089"):
        advantage_at_most(-1, 0)


def test_the_whole_evaluation_is_plain_and_readable(real: pa.Table, held_out: pa.Table) -> None:
    found = colonnade.evaluate_synthetic(real, people(800, 6), held_out=held_out, label="rich")
    told = json.loads(json.dumps(found.to_dict()))
    assert told["rows"] == 1500
    assert told["synthetic_rows"] == 800
    assert [(each["order"], each["with_label"]) for each in told["distances"]] == [
        (1, False),
        (2, False),
        (3, False),
        (2, True),
        (3, True),
    ]
    assert np.array(told["associations"]["real"]).shape == (5, 5)
    assert {each["name"] for each in told["attacks"]} == {"density", "distance"}
    assert sum(told["columns"][1]["synthetic"]) == pytest.approx(1)
    text = str(found)
    assert "800 made-up people beside 1,500 real ones, 1,500 held out" in text
    assert "'rich' predicted for people held out" in text
    assert "attack by density" in text


def test_without_people_held_out_only_tables_are_compared(real: pa.Table) -> None:
    found = colonnade.evaluate_synthetic(real, people(800, 6))
    assert found.usefulness == ()
    assert found.closeness is None
    assert found.attacks == ()
    assert "does the table give away" not in str(found)


def test_mistakes_are_told_in_one_sentence(real: pa.Table, held_out: pa.Table) -> None:
    with raises(DataError, "DA091", "wealth"):
        colonnade.evaluate_synthetic(real, real, label="wealth")
    common, sides = comparable(real, real, held_out.slice(0, 100))
    with raises(DataError, "DA090", "60", "180"):
        attacks(common, *sides)
    ids = real.append_column("id", pa.array([f"p{k}" for k in range(real.num_rows)]))
    common, sides = comparable(ids, ids, ids)
    with raises(DataError, "DA104", "50"):
        usefulness(common, *sides, common.place("id"))


def test_the_score_of_sdmetrics_is_there_if_its_package_is(real: pa.Table) -> None:
    try:
        import sdmetrics  # noqa: F401
    except ImportError:
        with raises(DataError, "DA102"):
            colonnade.evaluate_synthetic(real, real, sdmetrics=True)
    else:
        assert colonnade.evaluate_synthetic(real, real, sdmetrics=True).sdmetrics == pytest.approx(1)
        worse = colonnade.evaluate_synthetic(real, shuffled(real, "job"), sdmetrics=True).sdmetrics
        assert worse is not None
        assert 0.5 < worse < 1
