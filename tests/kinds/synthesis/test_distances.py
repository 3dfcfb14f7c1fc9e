"""Distances of marginals and associations, against numbers worked out by hand and by other libraries."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import DataError
from colonnade.kinds.synthesis.comparable import BINS, comparable
from colonnade.kinds.synthesis.distances import (
    MOST_SETS,
    associations,
    column_sets,
    cramers_v,
    distance,
    total_variation,
)
from tests.support.errors import raises


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


def mixed(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    level = draw.integers(0, 4, rows)
    return table(
        level=[f"l{value}" for value in level],
        wage=np.round(1000 * draw.gamma(2 + level)),
        years=level * 3 + draw.integers(0, 5, rows),
        flag=draw.random(rows) < 0.2 + 0.15 * level,
    )


def test_total_variation_is_half_the_sum_of_differences() -> None:
    real, other = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([[0, 0], [0, 0], [0, 1], [1, 1]])
    assert total_variation(real, other, (0,), (2, 2)) == pytest.approx(0.25)
    assert total_variation(real, other, (0, 1), (2, 2)) == pytest.approx(0.25)
    assert total_variation(real, real, (0, 1), (2, 2)) == 0


def test_the_worst_set_is_named_and_the_mean_is_over_all() -> None:
    real = mixed(2000, 1)
    shuffled = real.set_column(3, "flag", pa.array(np.random.default_rng(3).permutation(real["flag"].to_numpy())))
    common, sides = comparable(real, shuffled)
    one = distance(common, *sides, 1)
    two = distance(common, *sides, 2)
    assert (one.mean, one.worst) == (0, 0)
    by_hand = {
        pair: total_variation(sides[0].codes, sides[1].codes, pair, common.sizes) for pair in combinations(range(4), 2)
    }
    assert two.sets == 6
    assert two.mean == pytest.approx(np.mean(list(by_hand.values())))
    assert two.worst == max(by_hand.values())
    assert "flag" in two.worst_set
    with_label = distance(common, *sides, 2, label=common.place("flag"))
    assert with_label.sets == 3
    assert with_label.mean == pytest.approx(2 * two.mean)  # pairs without the flag did not change


def test_people_held_out_are_the_measure_of_small() -> None:
    common, sides = comparable(mixed(4000, 1), mixed(4000, 2), mixed(4000, 3))
    found = distance(common, sides[0], sides[1], 2, held_out=sides[2])
    assert found.held_out == pytest.approx(found.mean, rel=0.2)


def test_of_too_many_sets_a_fixed_sample_is_taken() -> None:
    chosen = column_sets(60, 3)
    assert len(chosen) == len(set(chosen)) == MOST_SETS < math.comb(60, 3)
    assert chosen == column_sets(60, 3)
    assert all(5 in each for each in column_sets(60, 3, 5))
    assert len(column_sets(60, 3, 5)) == math.comb(59, 2)


def test_cramers_v_is_one_for_a_function_and_nothing_for_independence() -> None:
    draw = np.random.default_rng(0)
    first = draw.integers(0, 5, 20_000)
    assert cramers_v(np.column_stack([first, (first + 2) % 5]), (5, 5)) == pytest.approx(1)
    assert cramers_v(np.column_stack([first, draw.integers(0, 7, 20_000)]), (5, 7)) < 0.02
    assert cramers_v(np.column_stack([first, np.zeros(20_000, int)]), (5, 3)) == 0


def test_cramers_v_agrees_with_scipy_before_its_bias_is_removed() -> None:
    from scipy.stats.contingency import association, crosstab

    draw = np.random.default_rng(4)
    first = draw.integers(0, 4, 50_000)
    codes = np.column_stack([first, (first + draw.integers(0, 3, 50_000)) % 6])
    counts = crosstab(codes[:, 0], codes[:, 1]).count
    assert cramers_v(codes, (4, 6)) == pytest.approx(association(counts, method="cramer"), abs=2e-3)


def test_numbers_are_compared_by_correlation() -> None:
    real = mixed(3000, 5)
    common, sides = comparable(real, mixed(3000, 6))
    found = associations(common, *sides)
    expected = np.corrcoef(real["wage"].to_numpy(), real["years"].to_numpy())[0, 1]
    assert found.real[1, 2] == pytest.approx(expected)
    assert found.mean_difference < 0.05
    assert found.worst_difference >= found.mean_difference
    assert np.array_equal(found.real, found.real.T)


def test_codes_hold_missing_cells_and_values_that_only_one_table_has() -> None:
    real = table(a=pa.array([1.0, None, 3.0] * 10), b=pa.array(["x", "y", None] * 10))
    other = table(b=pa.array(["z", "y", "y"] * 10), a=pa.array([1.0, 2.0, 50.0] * 10), more=[1] * 30)
    common, (first, second) = comparable(real, other)
    assert common.names == ("a", "b")
    assert common.sizes == (3, 4)
    assert common.labels[1] == ("x", "y", "z", "missing")
    assert first.codes[:3].tolist() == [[0, 0], [2, 1], [1, 3]]
    assert second.codes[:3].tolist() == [[0, 2], [0, 1], [1, 1]]
    assert np.isnan(first.values[1, 0])


def test_numbers_of_many_values_are_cut_at_quantiles_and_given_edges_are_kept() -> None:
    values = np.random.default_rng(1).normal(size=5000)
    common, (side,) = comparable(table(x=values))
    assert common.sizes == (BINS,)
    assert np.bincount(side.codes[:, 0]).max() < 300
    spiky = np.where(np.arange(5000) % 2 == 0, 0.0, np.abs(values))
    common, (side,) = comparable(table(x=spiky))
    assert common.sizes[0] == BINS
    assert np.bincount(side.codes[:, 0])[0] == 2500  # the value that many share is alone in its bin
    assert comparable(table(x=values), edges={"x": [-5, 0, 5]})[0].sizes == (2,)


def test_data_frames_are_tables_too() -> None:
    real = mixed(200, 1)
    common, sides = comparable(real.to_pandas(), real)
    assert np.array_equal(sides[0].codes, sides[1].codes)
    assert common.numeric == (False, True, True, False)


@pytest.mark.parametrize(
    ("real", "other", "sentence"),
    [
        (table(a=[1] * 20), table(b=[1] * 20), "DA092"),
        (table(a=[1] * 20), table(a=["x"] * 20), "DA096"),
        (table(a=[1] * 5), table(a=[1] * 20), ("DA093", "10")),
        (table(a=[1] * 20), [[1]], "DA094"),
        (table(a=[[1]] * 20), table(a=[[1]] * 20), "DA097"),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(real: object, other: object, sentence: str) -> None:
    with raises(DataError, sentence):
        comparable(real, other)


def test_a_marginal_beyond_all_bounds_is_refused() -> None:
    wide = table(a=[f"a{k}" for k in range(3000)], b=[f"b{k}" for k in range(3000)])
    common, sides = comparable(wide, wide)
    with raises(DataError, "DA099", "2"):
        distance(common, *sides, 2)
