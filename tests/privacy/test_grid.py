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
from colonnade.privacy.noise.rounding import (
    MODES,
    RoundingMode,
    beyond,
    conditional_round,
    round_rows,
    stochastic_round,
)
from colonnade.privacy.sensitivity.norms import conditional_norm_squared
from tests.support.errors import refused

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


def test_sensitivity_is_exact_where_roots_are_and_the_default_grid_costs_little() -> None:
    exact = 1 / (1 + FLOAT_SLACK)
    assert Grid(0).sensitivity_squared(3 * exact, 16) == 49
    assert Grid(1).sensitivity_squared(3 * exact, 16) == 100
    assert Grid(1).sensitivity_l1(3 * exact, 16) == 22
    assert Grid(0).sensitivity_squared(exact / 3, 0) == 1
    assert math.sqrt(Grid().sensitivity_squared(1, 10**8)) / 2**30 == pytest.approx(1, abs=2e-5)


def test_release(stream) -> None:
    grid, values = Grid(), np.linspace(-3, 3, 100_000)
    noise = grid.real(grid.release(values, 0.75, stream)) - values
    assert abs(noise.mean()) < 5 * 0.75 / len(values) ** 0.5
    assert stats.kstest(noise / 0.75, "norm").pvalue > 1e-4
    assert stats.kstest(noise / (0.75 * 1.05), "norm").pvalue < 1e-9
    assert np.array_equal(grid.release(values, 0, stream), grid.quantise(values))
    assert grid.release(np.zeros((2, 3)), Fraction(1, 3), stream).shape == (2, 3)
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
    outputs = 2.0**40 + rng.normal(0.0, 1.0, 10_000)
    assert (np.ldexp(outputs, 13) % 1 == 0).all(), "on a large number it has no low bits"


@pytest.mark.parametrize("true", [0.0, 1.0, 2.0**30])
def test_grid_noise_has_the_same_low_bits_everywhere(true: float, stream) -> None:
    released = Grid().release(np.full(100_000, true), 1.0, stream)
    counts = np.bincount(released % 64, minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.chisquare(np.bincount(released // 2 * 2 % 64, minlength=64)).pvalue < 1e-9


def test_what_does_not_fit_or_is_no_number_is_refused(stream) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        refused(DataError, "DA106", Grid().quantise, [0.0, bad])
        refused(ValueError, "VA118", stochastic_round, np.array([1.0, bad]), stream)
    for value in (2.0**32, -(2.0**32), 1e308):
        refused(CapacityError, "CA009", Grid(30).quantise, value)
    assert Grid(30).quantise(math.nextafter(2.0**32, 0)) < 1 << 62
    refused(CapacityError, "CA010", Grid(30).release, [0.0], 2.0**28, stream)
    assert Grid(30).release([0.0], 2.0**27, stream).shape == (1,)


def test_wrong_arguments_are_refused() -> None:
    for bits in (-1, 61, True, 3.0):
        refused(PrivacyError, "PR042", Grid, bits)
    for wrong in (-1, math.nan, math.inf):
        refused(PrivacyError, "PR044", Grid().sensitivity_squared, wrong, 3)
        refused(PrivacyError, "PR044", Grid().variance, wrong)
    for count in (-1, True, 2.0):
        refused(PrivacyError, "PR043", Grid().sensitivity_l1, 1, count)


def test_integers_stay(stream) -> None:
    values = np.array([0.0, -0.0, 1.0, -7.0, 2.0**52, -(2.0**60), 1e300])
    for _ in range(50):
        assert np.array_equal(stochastic_round(values, stream), values)


def test_result_is_a_neighbouring_integer(stream) -> None:
    values = np.concatenate(
        [
            stream.uint64(100_000).astype(np.float64) * 2.0**-50 - 8192,
            [-1e-300, 1e-300, np.nextafter(1, 0), np.nextafter(1, 2), -np.nextafter(1, 0), 2.0**51 + 0.5],
        ]
    )
    rounded = stochastic_round(values, stream)
    assert np.array_equal(rounded, np.floor(rounded))
    assert (np.floor(values) <= rounded).all()
    assert (rounded <= np.ceil(values)).all()


@pytest.mark.parametrize("value", [0.25, -0.25, 3.9, -1000.001])
def test_right_on_average(value: float, stream) -> None:
    rounded = stochastic_round(np.full(200_000, value), stream)
    share = value - np.floor(value)
    assert abs(rounded.mean() - value) < 4.5 * (share * (1 - share) / 200_000) ** 0.5


def test_shapes_and_strides_are_kept(stream) -> None:
    for shape in ((), (0,), (3, 5), (40_000, 2)):
        assert stochastic_round(np.full(shape, 0.5), stream).shape == shape
    values = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(stochastic_round(values[::2, ::3].T, stream), values[::2, ::3].T)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_neighbouring_integers(mode: RoundingMode, stream) -> None:
    values = stream.uint64((3000, 3)).astype(np.float64) * 2.0**-60 - 8
    rounded = round_rows(values, mode, 10**6, stream)
    assert np.array_equal(rounded, np.floor(rounded))
    assert (np.abs(rounded - values) < 1).all()
    if mode == "nearest":
        assert (np.abs(rounded - values) <= 0.5).all()
    if mode == "toward-zero":
        assert (np.abs(rounded) <= np.abs(values)).all()


def test_the_published_norm_is_exceeded_and_conditional_rounding_keeps_its_own(stream) -> None:
    """gamma = 3, x = (1/2, 1/2, 1/2, 1/2): coins give a squared norm of 16, above gamma^2 + 4 = 13."""
    values = np.full((2000, 4), 1.5)
    free = (stochastic_round(values, stream) ** 2).sum(axis=1)
    assert free.max() == 16 > 13
    limit = conditional_norm_squared(3, 1.0, 4)
    assert limit < 16
    kept = conditional_round(values, limit, stream)
    norms = (kept**2).sum(axis=1)
    assert norms.max() <= limit
    assert set(np.unique(kept)) == {1.0, 2.0}


def test_a_limit_that_no_draw_meets_ends_in_rounding_toward_zero(stream) -> None:
    kept = conditional_round(np.array([[1.5, 1.5], [0.2, 0.1]]), 1, stream)
    assert kept[0].tolist() == [1.0, 1.0]
    assert (kept[1] ** 2).sum() <= 1
    rows = np.array([[2.0**30, 1.0], [2.0**30, 0.0]])
    assert beyond(rows, 2**60).tolist() == [0], "exact where floats are not"


def test_unknown_modes_and_numbers_that_are_none(stream) -> None:
    refused(PrivacyError, "PR048", "up", round_rows, np.zeros((1, 1)), "up", 1, stream)
    for mode in MODES:
        refused(ValueError, "VA118|VA119", round_rows, np.array([[np.nan]]), mode, 1, stream)
