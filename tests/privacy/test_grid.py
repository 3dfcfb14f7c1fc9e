"""Noise on a grid: what rounding adds to a sensitivity, exactly; and what noise off the grid gives away."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from mpmath import mp
from scipy import stats

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.noise.grid import FLOAT_SLACK, Grid
from colonnade.randomness import Stream
from tests.support.errors import raises

reals = st.floats(-1e6, 1e6)
bits = st.integers(0, 40)
vectors = st.lists(st.tuples(reals, st.floats(-3, 3)), min_size=1, max_size=12)


@given(reals, bits)
def test_quantise_is_nearest(value: float, bits: int) -> None:
    grid = Grid(bits)
    point = int(grid.quantise([value])[0])
    assert abs(point * grid.step - Fraction(value)) <= grid.step / 2


@given(vectors, bits)
def test_rounding_adds_at_most_one_step_a_coordinate(pairs: list[tuple[float, float]], bits: int) -> None:
    grid = Grid(bits)
    first = np.array([value for value, _ in pairs])
    second = np.array([value + move for value, move in pairs])
    apart = [Fraction(a) - Fraction(b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    steps = (grid.quantise(first) - grid.quantise(second)).tolist()
    l2 = Fraction(math.isqrt(math.ceil(sum(gap**2 for gap in apart) * 4**90)) + 1, 2**90)
    assert sum(step**2 for step in steps) <= grid.sensitivity_squared(l2, len(pairs))
    assert sum(map(abs, steps)) <= grid.sensitivity_l1(sum(map(abs, apart), Fraction(0)), len(pairs))


def test_the_extra_step_is_needed() -> None:
    grid, count = Grid(4), 9
    below = np.full(count, math.nextafter(grid.step / 2, 0))
    above = np.full(count, math.nextafter(grid.step / 2, 1))
    moved = grid.quantise(above) - grid.quantise(below)
    assert (moved == 1).all()
    assert grid.sensitivity_squared(0, count) == (moved**2).sum() == count
    assert grid.sensitivity_l1(0, count) == count


@given(st.fractions(0, 1000, max_denominator=10**6), st.integers(0, 10**9), bits)
def test_sensitivity_is_rounded_up_and_by_less_than_one(l2: Fraction, count: int, bits: int) -> None:
    found = Grid(bits).sensitivity_squared(l2, count)
    reach = l2 * (1 + FLOAT_SLACK) * 2**bits
    with mp.workdps(80):
        exact = (mp.mpf(reach.numerator) / reach.denominator + mp.sqrt(count)) ** 2
        assert found >= exact - mp.mpf(10) ** -40
        assert found < exact + 1


def test_sensitivity_is_exact_where_roots_are() -> None:
    exact = 1 / (1 + FLOAT_SLACK)
    assert Grid(0).sensitivity_squared(3 * exact, 16) == 49
    assert Grid(1).sensitivity_squared(3 * exact, 16) == 100
    assert Grid(1).sensitivity_l1(3 * exact, 16) == 22
    assert Grid(0).sensitivity_squared(exact / 3, 0) == 1


def test_the_price_of_the_default_grid_is_small() -> None:
    squared = Grid().sensitivity_squared(1, 10**8)
    assert math.sqrt(squared) / 2**30 == pytest.approx(1, abs=2e-5)


def test_release(stream: Stream) -> None:
    grid, values = Grid(), np.linspace(-3, 3, 100_000)
    noise = grid.real(grid.release(values, 0.75, stream)) - values
    assert abs(noise.mean()) < 5 * 0.75 / len(values) ** 0.5
    assert stats.kstest(noise / 0.75, "norm").pvalue > 1e-4
    assert stats.kstest(noise / (0.75 * 1.05), "norm").pvalue < 1e-9
    assert np.array_equal(grid.release(values, 0, stream), grid.quantise(values))
    assert grid.release(np.zeros((2, 3)), Fraction(1, 3), stream).shape == (2, 3)


def test_variance_is_exact() -> None:
    assert Grid(3).variance(Fraction(1, 3)) == Fraction(64, 9)
    assert Grid(30).variance(0.1) == (Fraction(0.1) * 2**30) ** 2


def multiples_only(outputs: np.ndarray, exponent: int) -> np.ndarray:
    """Whether each output near zero is a multiple of 2^-exponent."""
    near = outputs[np.abs(outputs) < 0.125]
    scaled = np.ldexp(near, exponent)
    return scaled == np.rint(scaled)


def test_float_noise_gives_the_number_away() -> None:
    """1 + noise near zero is a multiple of 2^-53 always, 0 + noise hardly ever: such outputs tell 0 from 1."""
    rng = np.random.default_rng(7)
    zero, one = (true + rng.normal(0.0, 1.0, 200_000) for true in (0.0, 1.0))
    assert multiples_only(one, 53).all()
    assert multiples_only(zero, 53).mean() < 0.5


def test_float_noise_on_a_large_number_has_no_low_bits() -> None:
    rng = np.random.default_rng(8)
    outputs = 2.0**40 + rng.normal(0.0, 1.0, 10_000)
    assert (np.ldexp(outputs, 13) % 1 == 0).all()


@pytest.mark.parametrize("true", [0.0, 1.0, 2.0**30])
def test_grid_noise_has_the_same_low_bits_everywhere(true: float, stream: Stream) -> None:
    released = Grid().release(np.full(100_000, true), 1.0, stream)
    counts = np.bincount(released % 64, minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.chisquare(np.bincount(released // 2 * 2 % 64, minlength=64)).pvalue < 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with raises(DataError, "DA106"):
        Grid().quantise([0.0, bad])


def test_what_does_not_fit_is_refused(stream: Stream) -> None:
    for value in (2.0**32, -(2.0**32), 1e308):
        with raises(CapacityError, "CA009"):
            Grid(30).quantise(value)
    assert Grid(30).quantise(math.nextafter(2.0**32, 0)) < 1 << 62
    with raises(CapacityError, "CA010"):
        Grid(30).release([0.0], 2.0**28, stream)
    assert Grid(30).release([0.0], 2.0**27, stream).shape == (1,)


def test_wrong_arguments_are_refused() -> None:
    for bits in (-1, 61, True, 3.0):
        with raises(PrivacyError, "PR042"):
            Grid(bits)  # type: ignore[arg-type]
    for wrong in (-1, math.nan, math.inf):
        with raises(PrivacyError, "PR044"):
            Grid().sensitivity_squared(wrong, 3)
        with raises(PrivacyError, "PR044"):
            Grid().variance(wrong)
    for count in (-1, True, 2.0):
        with raises(PrivacyError, "PR043"):
            Grid().sensitivity_l1(1, count)  # type: ignore[arg-type]
