from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy.noise.rounding import (
    MODES,
    RoundingMode,
    beyond,
    conditional_round,
    round_rows,
    stochastic_round,
)
from colonnade.privacy.sensitivity.norms import conditional_norm_squared
from colonnade.randomness import Stream
from tests.support.errors import raises


def test_integers_stay(stream: Stream) -> None:
    values = np.array([0.0, -0.0, 1.0, -7.0, 2.0**52, -(2.0**60), 1e300])
    for _ in range(50):
        assert np.array_equal(stochastic_round(values, stream), values)


def test_result_is_a_neighbouring_integer(stream: Stream) -> None:
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
def test_right_on_average(value: float, stream: Stream) -> None:
    rounded = stochastic_round(np.full(200_000, value), stream)
    share = value - np.floor(value)
    assert abs(rounded.mean() - value) < 4.5 * (share * (1 - share) / 200_000) ** 0.5


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (40_000, 2)])
def test_shape_is_kept(shape: tuple[int, ...], stream: Stream) -> None:
    assert stochastic_round(np.full(shape, 0.5), stream).shape == shape


def test_strided_input(stream: Stream) -> None:
    values = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(stochastic_round(values[::2, ::3].T, stream), values[::2, ::3].T)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_a_number(bad: float, stream: Stream) -> None:
    with raises(ValueError, "VA118"):
        stochastic_round(np.array([1.0, bad]), stream)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_neighbouring_integers(mode: RoundingMode, stream: Stream) -> None:
    values = stream.uint64((3000, 3)).astype(np.float64) * 2.0**-60 - 8
    rounded = round_rows(values, mode, 10**6, stream)
    assert np.array_equal(rounded, np.floor(rounded))
    assert (np.abs(rounded - values) < 1).all()
    if mode == "nearest":
        assert (np.abs(rounded - values) <= 0.5).all()
    if mode == "toward-zero":
        assert (np.abs(rounded) <= np.abs(values)).all()


def test_the_published_norm_is_exceeded_and_conditional_rounding_keeps_its_own(stream: Stream) -> None:
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


def test_a_limit_that_no_draw_meets_ends_in_rounding_toward_zero(stream: Stream) -> None:
    kept = conditional_round(np.array([[1.5, 1.5], [0.2, 0.1]]), 1, stream)
    assert kept[0].tolist() == [1.0, 1.0]
    assert (kept[1] ** 2).sum() <= 1


def test_beyond_is_exact_where_floats_are_not() -> None:
    rows = np.array([[2.0**30, 1.0], [2.0**30, 0.0]])
    assert beyond(rows, 2**60).tolist() == [0]


def test_unknown_modes_and_numbers_that_are_none(stream: Stream) -> None:
    with raises(PrivacyError, "PR048", "up"):
        round_rows(np.zeros((1, 1)), "up", 1, stream)  # type: ignore[arg-type]
    for mode in MODES:
        with raises(ValueError, "VA118|VA119"):
            round_rows(np.array([[np.nan]]), mode, 1, stream)
