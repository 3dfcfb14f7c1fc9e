"""Sums of gradients: whole numbers of which each person's part is within the radius, whatever the encoder gave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.kinds.split.embeddings.gradients import split_radius, whole_rows, whole_sum, whole_sum_of_products
from tests.support.errors import raises

Matrix = NDArray[np.float64]
RADIUS = 1 << 30


class Given:
    """A learner whose gradients are given; ``factors`` too, where they are products."""

    def __init__(
        self, gradients: Matrix, factors: tuple[Matrix, Matrix] | None = None, said: int | None = None
    ) -> None:
        self.gradients, self._factors, self.said = gradients, factors, said

    width = 1

    @property
    def parameters(self) -> int:
        return self.said or self.gradients.shape[1]

    def embed(self, places: NDArray[np.int64], /) -> Matrix:
        return np.zeros((len(places), 1))

    def pull_back(self, places: NDArray[np.int64], slopes: Matrix, /) -> Matrix:
        return self.gradients[places].sum(axis=0)

    def pull_back_each(self, places: NDArray[np.int64], slopes: Matrix, /) -> Iterator[Matrix]:
        yield from np.array_split(self.gradients[places], 3)

    def factors(self, places: NDArray[np.int64], slopes: Matrix, /) -> tuple[Matrix, Matrix] | None:
        return None if self._factors is None else (self._factors[0][places], self._factors[1][places])

    def move(self, step: Matrix, /) -> None:
        raise AssertionError("nothing moves here")


def summed(learner: Given, clip: float, radius: int = RADIUS) -> NDArray[np.int64]:
    places = np.arange(len(learner.gradients))
    return whole_sum(learner, places, np.zeros((len(places), 1)), clip, radius)


def squared(whole: Matrix) -> int:
    return sum(int(number) ** 2 for number in whole.tolist())


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(st.lists(numbers, min_size=1, max_size=6), st.sampled_from([1, 2, 7, 1 << 15, (1 << 20) + 1, 1 << 30]))
@settings(max_examples=300, deadline=None)
def test_no_row_is_ever_longer_than_the_radius(row: list[float], radius: int) -> None:
    for scale in (1.0, float(radius)):
        with np.errstate(over="ignore"):
            found = whole_rows(np.array([row]) * scale, radius)[0]
        assert (found == np.trunc(found)).all()
        assert squared(found) <= radius**2


@given(
    st.lists(numbers, min_size=2, max_size=4),
    st.lists(numbers, min_size=1, max_size=3),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([1, 2, 9, (1 << 20) + 1, 1 << 30]),
)
@settings(max_examples=300, deadline=None)
def test_no_product_is_ever_longer_than_the_radius(a: list[float], b: list[float], clip: float, radius: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        found = whole_sum_of_products(np.array([a]), np.array([b]), clip, radius)
    assert squared(found) <= radius**2


def test_clipped_rows_reach_the_radius() -> None:
    """The bound is not merely kept: long rows are as long as it allows, short ones keep their length."""
    rows = np.random.default_rng(0).standard_normal((200, 50))
    lengths = np.linalg.norm(whole_rows(rows * 1e12, RADIUS), axis=1)
    assert lengths.min() > 0.9999999 * RADIUS
    short = rows / 20 / np.linalg.norm(rows, axis=1, keepdims=True) * RADIUS
    assert np.abs(whole_rows(short, RADIUS) - short).max() < 1
    products = [whole_sum_of_products(row[None], 1e9 * row[None, :3], 1.0, RADIUS) for row in rows[:20]]
    assert min(squared(each) for each in products) > (0.999 * RADIUS) ** 2


def test_a_row_beside_the_radius_is_refused_by_its_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.kinds.split.embeddings.gradients._INSIDE", 1 + 2.0**-26)
    found = whole_rows(np.array([[3.0 * RADIUS], [0.5 * RADIUS]]), RADIUS)
    assert found.tolist() == [[0.0], [0.5 * RADIUS]]  # floats that promise too much cannot break the bound


def test_sums_are_those_of_clipped_gradients() -> None:
    rng = np.random.default_rng(1)
    gradients, clip = rng.standard_normal((40, 6)), 2.0
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    expected = (gradients * np.minimum(1, clip / norms)).sum(axis=0)
    assert np.abs(summed(Given(gradients), clip) * clip / RADIUS - expected).max() < 1e-6


def test_products_are_summed_as_if_they_were_listed() -> None:
    rng = np.random.default_rng(2)
    a, b, clip = rng.standard_normal((30, 5)), rng.standard_normal((30, 4)), 3.0
    listed = np.einsum("ni,nj->nij", a, b).reshape(30, 20)
    whole, products = summed(Given(listed), clip), summed(Given(listed, (a, b)), clip)
    assert np.abs(whole - products).max() * clip / RADIUS < 30 * 3 * clip * 2.0**-14
    assert not np.array_equal(whole, products)


def test_what_is_not_finite_counts_as_zero_and_harms_nobody_else() -> None:
    gradients = np.random.default_rng(3).standard_normal((9, 4))
    spoilt = gradients.copy()
    spoilt[2, 1], spoilt[5] = np.nan, [np.inf, 1e305, -1e305, 0]
    kept = np.delete(gradients, [2, 5], axis=0)
    assert np.array_equal(summed(Given(spoilt), 1.0), summed(Given(kept), 1.0))
    pair = (spoilt, np.ones((9, 1)))
    assert np.array_equal(summed(Given(spoilt, pair), 1.0), summed(Given(kept, (kept, np.ones((7, 1)))), 1.0))


def test_sums_that_floats_cannot_hold_are_refused() -> None:
    with raises(CapacityError, "CA017"):
        summed(Given(np.zeros((9, 2)), said=(1 << 22) + 1), 1.0)
    learner, places = Given(np.zeros((1, 2))), np.zeros(1 << 23, dtype=np.int64)
    with raises(CapacityError, "CA017", "8,388,608"):
        whole_sum(learner, places, np.zeros((1, 1)), 1.0, RADIUS)


@pytest.mark.parametrize("radius", [1, 2, 3, 1000, 1 << 20, 1 << 29, 1 << 30])
def test_the_radius_is_split_without_a_remainder_that_would_lengthen_it(radius: int) -> None:
    ours, theirs = split_radius(radius)
    assert ours >= 1
    assert theirs >= 1
    assert radius - ours < ours * theirs <= radius
