from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from colonnade.mpc.verify.four_squares import LARGEST, four_squares
from tests.support.errors import raises


def check(numbers, below=LARGEST):
    numbers = np.asarray(numbers, dtype=np.float64)
    roots = four_squares(numbers, below)
    assert roots.shape == (numbers.size, 4)
    assert np.array_equal(roots, np.floor(roots))
    assert np.array_equal(np.square(roots.astype(np.int64)).sum(axis=1), numbers.astype(np.int64))


def test_every_small_number_is_a_sum_of_four_squares():
    check(np.arange(100_000))
    check(np.arange(300_000), 2**30)


@given(st.lists(st.integers(0, LARGEST - 1), max_size=40))
def test_any_numbers(numbers):
    check(numbers)
    check([number % 2**36 for number in numbers], 2**36)


def test_numbers_that_are_sums_in_few_ways_or_of_no_fewer_squares():
    powers = [4**k for k in range(26)]
    few = [part * power for power in powers for part in (1, 2, 3, 6, 7, 14, 15, 23) if part * power < LARGEST]
    check(few)
    check([number for number in few if number < 2**36], 2**36)
    roots = np.arange(2**26 - 2000, 2**26, dtype=np.int64)
    check(np.concatenate([roots**2 - 1, roots**2, roots**2 + 1])[:-1])
    check(8 * np.arange(20_000) + 7, 2**36)


@pytest.mark.parametrize("scale", [2**20, 2**36, 2**44, 2**52])
def test_a_hundred_thousand_of_every_size(scale):
    check(np.random.default_rng(7).integers(0, scale, 100_000), scale)


@pytest.mark.parametrize("number", [-1.0, float(LARGEST), float("nan")])
def test_other_numbers_are_refused(number):
    with raises(ValueError, "VA105"):
        four_squares(np.array([1.0, number]))


def test_none():
    assert four_squares(np.zeros(0)).shape == (0, 4)
