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
from colonnade.privacy.noise.local_mechanisms import (
    FLOAT_SLACK,
    MODES,
    Grid,
    RoundingMode,
    conditional_round,
    round_rows,
    rows_beyond,
    stochastic_round,
)
from colonnade.privacy.sensitivity import conditional_norm_squared
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
    for bits, l2, count, square in ((0, 3, 16, 49), (1, 3, 16, 100), (0, Fraction(1, 3), 0, 1)):
        assert Grid(bits).sensitivity_squared(l2 * exact, count) == square
    assert Grid(1).sensitivity_l1(3 * exact, 16) == 22
    assert math.sqrt(Grid().sensitivity_squared(1, 10**8)) / 2**30 == pytest.approx(1, abs=2e-5)


def test_release(stream) -> None:
    grid, values = Grid(), np.linspace(-3, 3, 100_000)
    noise = grid.real(grid.release(values, 0.75, stream)) - values
    assert abs(noise.mean()) < 5 * 0.75 / len(values) ** 0.5
    assert stats.kstest(noise / 0.75, "norm").pvalue > 1e-9
    assert stats.kstest(noise / (0.75 * 1.05), "norm").pvalue < 1e-9
    assert np.array_equal(grid.release(values, 0, stream), grid.quantise(values))
    assert (Grid(3).variance(Fraction(1, 3)), Grid(30).variance(0.1)) == (Fraction(64, 9), (Fraction(0.1) * 2**30) ** 2)


def test_float_noise_gives_the_number_away() -> None:
    """1 + noise near zero is a multiple of 2^-53 always, 0 + noise hardly ever: such outputs tell 0 from 1."""
    rng = np.random.default_rng(7)
    share = {}
    for true in (0.0, 1.0):
        outputs = true + rng.normal(0.0, 1.0, 200_000)
        share[true] = (np.ldexp(outputs[np.abs(outputs) < 0.125], 53) % 1 == 0).mean()
    assert share[0.0] < 0.5
    assert share[1.0] == 1


@pytest.mark.parametrize("true", [0.0, 1.0, 2.0**30])
def test_grid_noise_has_the_same_low_bits_everywhere(true: float, stream) -> None:
    released = Grid().release(np.full(100_000, true), 1.0, stream)
    counts = np.bincount(released % 64, minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-9
    assert stats.chisquare(np.bincount(released // 2 * 2 % 64, minlength=64)).pvalue < 1e-9


def test_what_does_not_fit_or_makes_no_sense_is_refused(stream) -> None:
    grid, one = Grid(30), np.zeros((1, 1))
    assert grid.quantise(math.nextafter(2.0**32, 0)) < 1 << 62
    assert grid.release([0.0], 2.0**27, stream).shape == (1,)
    for error, code, call, *words in (
        *((DataError, "DA106", grid.quantise, [0.0, bad]) for bad in (math.nan, math.inf, -math.inf)),
        *((ValueError, "VA118", stochastic_round, np.array([bad]), stream) for bad in (math.nan, math.inf)),
        *((ValueError, "VA118|VA119", round_rows, one + math.nan, mode, 1, stream) for mode in MODES),
        *((CapacityError, "CA009", grid.quantise, value) for value in (2.0**32, -(2.0**32), 1e308)),
        (CapacityError, "CA010", grid.release, [0.0], 2.0**28, stream),
        *((PrivacyError, "PR042", Grid, bits) for bits in (-1, 61, True, 3.0)),
        *((PrivacyError, "PR090", grid.sensitivity_squared, wrong, 3) for wrong in (-1, math.nan, math.inf)),
        *((PrivacyError, "PR090", grid.variance, wrong) for wrong in (-1, math.nan, math.inf)),
        *((PrivacyError, "PR089", grid.sensitivity_l1, 1, count) for count in (-1, True, 2.0)),
        (PrivacyError, "PR048", round_rows, one, "up", 1, stream),
    ):
        refused(error, code, call, *words)


def test_integers_stay_and_others_become_a_neighbour_in_the_same_shape(stream) -> None:
    whole = np.array([0.0, -0.0, 1.0, -7.0, 2.0**52, -(2.0**60), 1e300])
    corners = [-1e-300, 1e-300, np.nextafter(1, 0), np.nextafter(1, 2), -np.nextafter(1, 0), 2.0**51 + 0.5]
    drawn = stream.uint64(100_000).astype(np.float64) * 2.0**-50 - 8192
    for values in (np.tile(whole, 50), np.array(corners), drawn.reshape(400, 250)[::2, ::3].T, drawn[:0], drawn[0]):
        rounded = stochastic_round(values, stream)
        assert rounded.shape == values.shape
        assert np.array_equal(rounded, np.floor(rounded))
        assert ((np.floor(values) <= rounded) & (rounded <= np.ceil(values))).all()


def test_right_on_average(stream) -> None:
    for value in (0.25, -0.25, 3.9, -1000.001):
        rounded = stochastic_round(np.full(200_000, value), stream)
        share = value - np.floor(value)
        assert abs(rounded.mean() - value) < 4.5 * (share * (1 - share) / 200_000) ** 0.5


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_neighbouring_integers(mode: RoundingMode, stream) -> None:
    values = stream.uint64((3000, 3)).astype(np.float64) * 2.0**-60 - 8
    rounded = round_rows(values, mode, 10**6, stream)
    assert np.array_equal(rounded, np.floor(rounded))
    assert np.abs(rounded - values).max() < (0.5 + 1e-12 if mode == "nearest" else 1)
    assert mode != "toward-zero" or (np.abs(rounded) <= np.abs(values)).all()


def test_the_published_norm_is_exceeded_and_conditional_rounding_keeps_its_own(stream) -> None:
    """gamma = 3, x = (1/2, 1/2, 1/2, 1/2): coins give a squared norm of 16, above gamma^2 + 4 = 13."""
    values, limit = np.full((2000, 4), 1.5), conditional_norm_squared(3, 1.0, 4)
    free, kept = stochastic_round(values, stream), conditional_round(values, limit, stream)
    assert (free**2).sum(axis=1).max() == 16 > max(13, limit)
    assert (kept**2).sum(axis=1).max() <= limit
    assert set(np.unique(kept)) == {1.0, 2.0}


def test_a_limit_that_no_draw_meets_ends_in_rounding_toward_zero(stream) -> None:
    kept = conditional_round(np.array([[1.5, 1.5], [0.2, 0.1]]), 1, stream)
    assert kept[0].tolist() == [1.0, 1.0]
    assert (kept[1] ** 2).sum() <= 1
    rows = np.array([[2.0**30, 1.0], [2.0**30, 0.0]])
    assert rows_beyond(rows, 2**60).tolist() == [0], "exact where floats are not"
