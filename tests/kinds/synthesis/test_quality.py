"""What a synthetic table is worth: distances of marginals, useful models, attacks that find copies, and the report."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats.contingency import association, crosstab

import colonnade
from colonnade.errors import DataError
from colonnade.kinds.synthesis.quality import (
    area_and_deviation,
    attack_membership,
    compare_nearest,
    score_usefulness,
)
from colonnade.kinds.synthesis.table_comparison import (
    MAX_QUANTILE_BINS,
    MAX_SETS,
    column_sets,
    cramers_v,
    make_comparable,
    measure_associations,
    measure_distance,
)
from tests.kinds.tables.releases import histogram
from tests.support.errors import refused

# --- distances, against numbers worked out by hand and by other libraries


def mixed(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    level = draw.integers(0, 4, rows)
    return pa.table(
        {
            "level": [f"l{value}" for value in level],
            "wage": np.round(1000 * draw.gamma(2 + level)),
            "years": level * 3 + draw.integers(0, 5, rows),
            "flag": draw.random(rows) < 0.2 + 0.15 * level,
        }
    )


def test_the_worst_set_is_named_and_the_mean_is_over_all() -> None:
    real = mixed(2000, 1)
    shuffled = real.set_column(3, "flag", pa.array(np.random.default_rng(3).permutation(real["flag"].to_numpy())))
    common, sides = make_comparable(real, shuffled)
    one, two = (measure_distance(common, *sides, order) for order in (1, 2))
    assert (one.mean, one.worst) == (0, 0)
    by_hand = []
    for pair in combinations(range(4), 2):
        counts = [histogram(side.codes, pair, common.sizes) for side in sides]
        by_hand.append(np.abs(counts[0] - counts[1]).sum() / 2 / 2000)
    assert (two.sets, two.mean, two.worst) == (6, pytest.approx(np.mean(by_hand)), pytest.approx(max(by_hand)))
    assert "flag" in two.worst_set
    with_label = measure_distance(common, *sides, 2, label=common.index_of("flag"))
    assert with_label.sets == 3
    assert with_label.mean == pytest.approx(2 * two.mean)  # pairs without the flag did not change


def test_people_held_out_are_the_measure_of_small_and_of_too_many_sets_a_fixed_sample_is_taken() -> None:
    common, sides = make_comparable(mixed(4000, 1), mixed(4000, 2), mixed(4000, 3))
    found = measure_distance(common, sides[0], sides[1], 2, held_out=sides[2])
    assert found.held_out == pytest.approx(found.mean, rel=0.2)
    chosen = column_sets(60, 3)
    assert len(chosen) == len(set(chosen)) == MAX_SETS < math.comb(60, 3)
    assert chosen == column_sets(60, 3)
    assert all(5 in each for each in column_sets(60, 3, 5))
    assert len(column_sets(60, 3, 5)) == math.comb(59, 2)


def test_cramers_v_is_one_for_a_function_nothing_for_independence_and_that_of_scipy() -> None:
    draw = np.random.default_rng(0)
    first = draw.integers(0, 5, 20_000)
    assert cramers_v(np.column_stack([first, (first + 2) % 5]), (5, 5)) == pytest.approx(1)
    assert cramers_v(np.column_stack([first, draw.integers(0, 7, 20_000)]), (5, 7)) < 0.02
    assert cramers_v(np.column_stack([first, np.zeros(20_000, int)]), (5, 3)) == 0
    codes = np.column_stack([first, (first + draw.integers(0, 3, 20_000)) % 6])
    due = association(crosstab(codes[:, 0], codes[:, 1]).count, method="cramer")
    assert cramers_v(codes, (5, 6)) == pytest.approx(due, abs=2e-3)  # its bias is not removed there


def test_numbers_are_compared_by_correlation_also_in_data_frames() -> None:
    real = mixed(3000, 5)
    common, sides = make_comparable(real, mixed(3000, 6))
    found = measure_associations(common, *sides)
    expected = np.corrcoef(real["wage"].to_numpy(), real["years"].to_numpy())[0, 1]
    assert found.real[1, 2] == found.real[2, 1] == pytest.approx(expected)
    assert found.mean_difference < 0.05
    common, sides = make_comparable(real.to_pandas(), real)
    assert np.array_equal(sides[0].codes, sides[1].codes)
    assert common.numeric == (False, True, True, False)


def test_codes_hold_missing_cells_and_values_that_only_one_table_has() -> None:
    real = pa.table({"a": pa.array([1.0, None, 3.0] * 10), "b": pa.array(["x", "y", None] * 10)})
    other = pa.table({"b": pa.array(["z", "y", "y"] * 10), "a": pa.array([1.0, 2.0, 50.0] * 10), "more": [1] * 30})
    common, (first, second) = make_comparable(real, other)
    assert (common.names, common.sizes, common.labels[1]) == (("a", "b"), (3, 4), ("x", "y", "z", "missing"))
    assert first.codes[:3].tolist() == [[0, 0], [2, 1], [1, 3]]
    assert second.codes[:3].tolist() == [[0, 2], [0, 1], [1, 1]]
    assert np.isnan(first.values[1, 0])


def test_numbers_of_many_values_are_cut_at_quantiles_and_given_edges_are_kept() -> None:
    values = np.random.default_rng(1).normal(size=5000)
    spiky = np.where(np.arange(5000) % 2 == 0, 0.0, np.abs(values))
    common, (side,) = make_comparable(pa.table({"x": values, "y": spiky}))
    assert common.sizes == (MAX_QUANTILE_BINS, MAX_QUANTILE_BINS)
    assert np.bincount(side.codes[:, 0]).max() < 300
    assert np.bincount(side.codes[:, 1])[0] == 2500  # the value that many share is alone in its bin
    assert make_comparable(pa.table({"x": values}), edges={"x": [-5, 0, 5]})[0].sizes == (2,)


def test_tables_that_cannot_be_compared_are_refused() -> None:
    ones, names = pa.table({"a": [1] * 20}), [f"a{k}" for k in range(3000)]
    wide = pa.table({"a": names, "b": names})
    common, sides = make_comparable(wide, wide)
    for said, *tables in (
        ("DA092", ones, pa.table({"b": [1] * 20})),
        ("DA096", ones, pa.table({"a": ["x"] * 20})),
        ("DA093", pa.table({"a": [1] * 5}), ones),
        ("DA094", ones, [[1]]),
        ("DA097", pa.table({"a": [[1]] * 20}), pa.table({"a": [[1]] * 20})),
    ):
        refused(DataError, said, make_comparable, *tables)
    refused(DataError, "DA099", "2", measure_distance, common, *sides, 2)


# --- usefulness and attacks


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


REAL, HELD_OUT = people(1000, 1), people(1000, 2)


def test_models_are_useful_if_the_table_has_the_signal() -> None:
    common, sides = make_comparable(REAL, shuffled(REAL, "rich"), HELD_OUT)
    for found in score_usefulness(common, *sides, common.index_of("rich")):
        assert abs(found.synthetic["auc"] - 0.5) < 0.1 < found.real["auc"] - 0.5
        assert 0.5 < found.real["accuracy"] < 1
    few = (table.slice(0, 400) for table in (REAL, people(1000, 3), HELD_OUT))
    common, sides = make_comparable(*few)  # of several classes, and of a number
    by_job = score_usefulness(common, *sides, common.index_of("job"))
    assert all(0.5 < found.synthetic["auc"] < 1 for found in by_job)
    by_wage = score_usefulness(common, *sides, common.index_of("wage"))
    assert [found.model for found in by_wage] == ["gradient boosting", "linear regression"]
    assert all(0 < found.synthetic["r2"] < 1 for found in by_wage)
    nobody = REAL.set_column(4, "rich", pa.array([False] * REAL.num_rows))
    common, sides = make_comparable(REAL, nobody, HELD_OUT)
    poor = 1 - np.mean(HELD_OUT["rich"].to_numpy())
    for found in score_usefulness(common, *sides, common.index_of("rich")):
        assert found.synthetic == {"accuracy": pytest.approx(poor), "auc": 0.5}


def test_attacks_find_copies_also_a_few_among_many_and_nothing_in_other_people() -> None:
    common, sides = make_comparable(REAL, REAL, HELD_OUT)
    for found in attack_membership(common, *sides):
        assert found.auc_interval[0] > 0.8
        assert found.advantage_interval[0] > 0.6
        assert 0.44 < found.baseline < 0.56
    near = compare_nearest(common, *sides)
    assert near.closer_to_real == pytest.approx(1, abs=0.01)
    assert (near.copies, near.copies_held_out) == (1, 0)
    assert near.to_real == 0 < near.to_held_out
    common, sides = make_comparable(REAL, pa.concat_tables([people(500, 5), REAL.slice(0, 500)]), HELD_OUT)
    assert max(found.auc_interval[0] for found in attack_membership(common, *sides)) > 0.55
    common, sides = make_comparable(REAL, people(1000, 4), HELD_OUT)
    for found in attack_membership(common, *sides):
        assert found.auc_interval[0] < 0.5 + 0.02
        assert found.advantage_interval[0] < 0.02
    near = compare_nearest(common, *sides)
    assert near.interval[0] - 0.02 < 0.5 < near.interval[1] + 0.02


def test_the_deviation_of_an_area_is_that_of_repetitions() -> None:
    draw = np.random.default_rng(3)
    found = [area_and_deviation(draw.normal(0.5, 1, 200), draw.normal(0, 1, 150)) for _ in range(400)]
    areas, deviations = np.array(found).T
    assert deviations.mean() == pytest.approx(areas.std(), rel=0.12)
    assert areas.mean() == pytest.approx(0.638, abs=0.01)


def test_the_whole_evaluation_is_plain_and_readable() -> None:
    found = colonnade.evaluate_synthetic(REAL, people(800, 6), held_out=HELD_OUT, label="rich")
    told, text = json.loads(json.dumps(found.to_dict())), str(found)
    assert (told["rows"], told["synthetic_rows"]) == (1000, 800)
    asked = [(each["order"], each["with_label"]) for each in told["distances"]]
    assert asked == [(1, False), (2, False), (3, False), (2, True), (3, True)]
    assert {each["name"] for each in told["attacks"]} == {"density", "distance"}
    assert "800 made-up people beside 1,000 real ones, 1,000 held out" in text
    alone = colonnade.evaluate_synthetic(REAL, people(800, 6))  # without people held out only tables are compared
    assert (alone.usefulness, alone.closeness, alone.attacks) == ((), None, ())


def test_mistakes_are_told_in_one_sentence() -> None:
    refused(DataError, "DA091", "wealth", colonnade.evaluate_synthetic, REAL, REAL, label="wealth")
    common, sides = make_comparable(REAL, REAL, HELD_OUT.slice(0, 100))
    refused(DataError, "DA090", "60", "180", attack_membership, common, *sides)
    ids = REAL.append_column("id", pa.array([f"p{k}" for k in range(REAL.num_rows)]))
    common, sides = make_comparable(ids, ids, ids)
    refused(DataError, "DA104", "50", score_usefulness, common, *sides, common.index_of("id"))


def test_the_score_of_sdmetrics_is_there_if_its_package_is() -> None:
    if find_spec("sdmetrics") is None:
        refused(DataError, "DA102", colonnade.evaluate_synthetic, REAL, REAL, sdmetrics=True)
    else:
        assert colonnade.evaluate_synthetic(REAL, REAL, sdmetrics=True).sdmetrics == pytest.approx(1)
        assert 0.5 < colonnade.evaluate_synthetic(REAL, shuffled(REAL, "job"), sdmetrics=True).sdmetrics < 1
