"""A table beside the noisy release: chi-squared is right where the table is the truth, and grows where it is not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from colonnade.kinds.synthesis.agreement import against_release, implied
from colonnade.kinds.tables.residuals import Residual, centred

SIZES = (3, 2, 5, 4)
PEOPLE = 5000


def codes(seed: int, rows: int = PEOPLE) -> np.ndarray:
    draw = np.random.default_rng(seed)
    first = draw.integers(0, 3, rows)
    return np.column_stack(
        [first, draw.random(rows) < 0.2 + first / 4, (first + draw.integers(0, 3, rows)) % 5, draw.integers(0, 4, rows)]
    ).astype(np.int64)


def released(truth: np.ndarray, deviation: float, seed: int) -> list[Residual]:
    draw = np.random.default_rng(seed)
    found = []
    for order in (1, 2, 3):
        for columns in combinations(range(4), order):
            shape = tuple(SIZES[column] for column in columns)
            exact = implied(truth, Residual(columns, np.zeros(shape), 1.0), len(truth))
            found.append(Residual(columns, exact + centred(draw.normal(0, deviation, shape)), deviation))
    return found


def test_the_residual_of_a_table_is_the_sum_of_centred_products() -> None:
    table = codes(1, 50)
    by_hand = np.zeros((3, 2))
    for row in table:
        by_hand += np.outer(np.eye(3)[row[0]] - 1 / 3, np.eye(2)[row[1]] - 1 / 2)
    assert np.allclose(implied(table, Residual((0, 1), np.zeros((3, 2)), 1.0), 50), by_hand)


def test_the_true_table_agrees_as_well_as_noise_allows() -> None:
    table = codes(1)
    found = against_release(table, SIZES, PEOPLE, released(table, 20.0, 2))
    assert [each.order for each in found] == [1, 2, 3]
    assert [each.sets for each in found] == [4, 6, 4]
    assert [each.degrees for each in found] == [10, 35, 50]
    for each in found:
        assert abs(each.surprise) < 5
        assert abs(each.squared) < 5 * each.deviation


def test_another_table_is_found_out_and_its_distance_is_estimated() -> None:
    truth = codes(1)
    wrong = truth.copy()
    wrong[:, 1] = np.random.default_rng(3).permutation(wrong[:, 1])
    found = against_release(wrong, SIZES, PEOPLE, released(truth, 20.0, 4))
    assert abs(found[0].surprise) < 5  # single columns did not change
    assert found[1].surprise > 20
    assert found[1].worst_set == (0, 1)
    exact = [
        (implied(wrong, part, PEOPLE) - implied(truth, part, PEOPLE)) / PEOPLE
        for part in released(truth, 1.0, 5)
        if len(part.columns) == 2
    ]
    squared = sum(float((part**2).sum()) for part in exact) / sum(part.size for part in exact)
    assert found[1].squared == pytest.approx(squared, abs=5 * found[1].deviation)
    assert found[1].distance == pytest.approx(squared**0.5, rel=0.2)


def test_a_table_of_another_size_is_scaled_to_the_people_of_the_release() -> None:
    truth = codes(1)
    found = against_release(np.repeat(truth, 3, axis=0), SIZES, PEOPLE, released(truth, 20.0, 2))
    assert all(abs(each.surprise) < 5 for each in found)
