"""Private training: sums of clipped gradients, what they are charged, and that nothing else reaches an encoder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.kinds.split.embedding_programs import (
    cut_rows,
    split_radius,
    sum_clipped_gradients,
    sum_clipped_products,
)
from colonnade.kinds.split.encoders import RowEncoder, encoder_from
from colonnade.privacy import Trust
from tests.kinds.split.embedding_learners import Listed
from tests.support.errors import refused

RADIUS = 1 << 30
TRUST = Trust(("bank", "shop"), (), 0)
Matrix = NDArray[np.float64]
numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


def summed(learner: Listed, clip: float, slopes: Matrix | None = None) -> NDArray[np.int64]:
    places = np.arange(len(learner.rows))
    return sum_clipped_gradients(
        learner, places, np.zeros((len(places), 1)) if slopes is None else slopes, clip, RADIUS
    )


# --- sums of gradients: each person's part is within the radius, whatever the encoder gave


def squared(whole: Matrix) -> int:
    return sum(int(number) ** 2 for number in whole.tolist())


@given(st.lists(numbers, min_size=1, max_size=6), st.sampled_from([1, 2, 7, 1 << 15, (1 << 20) + 1, 1 << 30]))
@settings(max_examples=100, deadline=None)
def test_no_row_is_ever_longer_than_the_radius(row: list[float], radius: int) -> None:
    for scale in (1.0, float(radius)):
        with np.errstate(over="ignore"):
            found = cut_rows(np.array([row]) * scale, radius)[0]
        assert (found == np.trunc(found)).all()
        assert squared(found) <= radius**2


@given(
    st.lists(numbers, min_size=2, max_size=4),
    st.lists(numbers, min_size=1, max_size=3),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([1, 2, 9, (1 << 20) + 1, 1 << 30]),
)
@settings(max_examples=100, deadline=None)
def test_no_product_is_ever_longer_than_the_radius(a: list[float], b: list[float], clip: float, radius: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        found = sum_clipped_products(np.array([a]), np.array([b]), clip, radius)
    assert squared(found) <= radius**2


def test_clipped_rows_reach_the_radius_and_none_goes_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is not merely kept: long rows are as long as it allows, short ones keep their length."""
    rows = np.random.default_rng(0).standard_normal((200, 50))
    assert np.linalg.norm(cut_rows(rows * 1e12, RADIUS), axis=1).min() > 0.9999999 * RADIUS
    short = rows / 20 / np.linalg.norm(rows, axis=1, keepdims=True) * RADIUS
    assert np.abs(cut_rows(short, RADIUS) - short).max() < 1
    products = [sum_clipped_products(row[None], 1e9 * row[None, :3], 1.0, RADIUS) for row in rows[:20]]
    assert min(squared(each) for each in products) > (0.999 * RADIUS) ** 2
    monkeypatch.setattr("colonnade.kinds.split.embedding_programs._INSIDE", 1 + 2.0**-26)
    found = cut_rows(np.array([[3.0 * RADIUS], [0.5 * RADIUS]]), RADIUS)
    assert found.tolist() == [[0.0], [0.5 * RADIUS]]  # floats that promise too much cannot break the bound
    for radius in (1, 2, 3, 1000, 1 << 20, 1 << 29, 1 << 30):
        ours, theirs = split_radius(radius)
        assert min(ours, theirs) >= 1
        assert radius - ours < ours * theirs <= radius


def test_sums_are_those_of_clipped_gradients_and_products_as_if_they_were_listed() -> None:
    rng, clip = np.random.default_rng(1), 3.0
    a, b = rng.standard_normal((30, 5)), rng.standard_normal((30, 4))
    listed = np.einsum("ni,nj->nij", a, b).reshape(30, 20)
    whole, products = summed(Listed(listed), clip), summed(Listed(a, products=4), clip, b)
    expected = (listed * np.minimum(1, clip / np.linalg.norm(listed, axis=1, keepdims=True))).sum(axis=0)
    assert np.abs(whole * clip / RADIUS - expected).max() < 1e-6
    assert np.abs(whole - products).max() * clip / RADIUS < 30 * 3 * clip * 2.0**-14
    assert not np.array_equal(whole, products)


def test_what_is_not_finite_counts_as_zero_and_harms_nobody_else() -> None:
    gradients = np.random.default_rng(3).standard_normal((9, 4))
    spoilt = gradients.copy()
    spoilt[2, 1], spoilt[5] = np.nan, [np.inf, 1e305, -1e305, 0]
    kept = np.delete(gradients, [2, 5], axis=0)
    for products in (0, 1):
        found, due = (summed(Listed(rows, products), 1.0, np.ones((len(rows), 1))) for rows in (spoilt, kept))
        assert np.array_equal(found, due)


def test_sums_that_floats_cannot_hold_are_refused() -> None:
    refused(CapacityError, "CA017", summed, Listed(np.zeros((9, 2)), parameters=(1 << 22) + 1), 1.0)
    refused(
        CapacityError,
        "CA017",
        "8,388,608",
        sum_clipped_gradients,
        Listed(np.zeros((1, 2))),
        np.zeros(1 << 23, dtype=np.int64),
        np.zeros((1, 1)),
        1.0,
        RADIUS,
    )


@given(st.integers(0, 11), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_without_a_person_sums_move_by_no_more_than_the_radius(person: int, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 2))
    sums = []
    for table in (rows, np.delete(rows, person, axis=0)):
        learner = RowEncoder(encoder_from({"kind": "linear"}, 2), table)
        sums.append(sum_clipped_gradients(learner, np.arange(len(table)), 9 * table, 1.0, 1 << 30))
    moved = sum(int(step) ** 2 for step in sums[0] - sums[1])
    assert moved <= RADIUS**2
