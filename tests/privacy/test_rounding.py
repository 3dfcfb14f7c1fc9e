from __future__ import annotations

import numpy as np
import pytest

from colonnade.privacy.noise.rounding import stochastic_round
from colonnade.randomness import Stream


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
    with pytest.raises(ValueError, match="finite"):
        stochastic_round(np.array([1.0, bad]), stream)
