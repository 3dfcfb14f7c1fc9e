"""The samples follow the law they are said to follow, and every check notices a scale that is 5 % off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from colonnade.errors import CapacityError, PrivacyError
from colonnade.privacy.noise import discrete_gaussian, discrete_laplace, discrete_laplace_share, skellam, strips
from colonnade.randomness import Stream
from research.bounds import share_of
from tests.support.errors import raises

Samples = NDArray[np.int64]
PASS, FAIL = 1e-4, 1e-9
OFF = Fraction(105, 100) ** 2

SMALL_GAUSSIAN = [Fraction(1, 4), Fraction(1), Fraction(10), Fraction(100), Fraction(24691, 2)]
SMALL_SKELLAM = [Fraction(1, 2), Fraction(3), Fraction(50), Fraction(10**4)]
LARGE = [
    (discrete_gaussian, Fraction(10**12), 10.0**6),
    (discrete_gaussian, Fraction(10**24), 10.0**12),
    (skellam, Fraction(10**6), (2 * 10**6) ** 0.5),
    (skellam, Fraction(10**13), (2 * 10**13) ** 0.5),
    (skellam, Fraction(10**21), (2 * 10**21) ** 0.5),
    (skellam, Fraction(10**24), (2 * 10**24) ** 0.5),
    (skellam, Fraction(1 << 117), 2.0**59),
]


def gaussian_masses(variance: Fraction) -> NDArray[np.float64]:
    reach = int(12 * float(variance) ** 0.5) + 3
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    return mass / mass.sum()


def skellam_masses(mu: Fraction) -> NDArray[np.float64]:
    reach = int(12 * float(2 * mu) ** 0.5) + 12
    return special.ive(np.abs(np.arange(-reach, reach + 1)), 2 * float(mu))


def fit(samples: Samples, masses: NDArray[np.float64]) -> float:
    """p-value of chi-squared against masses on a centred range, neighbours pooled to 20 expected each."""
    reach = len(masses) // 2
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=len(masses))
    cells = np.floor(np.cumsum(masses) * len(samples) / 20).astype(int)
    _, cells = np.unique(np.minimum(cells, cells[-1] - 1), return_inverse=True)
    return chi_squared(np.bincount(cells, counts), np.bincount(cells, masses) * len(samples))


def fit_normal(samples: Samples, sigma: float, bins: int = 200) -> float:
    """p-value of chi-squared against the rounded Gaussian, over bins of about equal mass."""
    edges = np.floor(stats.norm.ppf(np.linspace(0, 1, bins + 1)[1:-1]) * sigma) + 0.5
    counts = np.bincount(np.searchsorted(edges, samples.astype(np.float64)), minlength=bins)
    masses = np.diff(stats.norm.cdf(edges / sigma), prepend=0, append=1)
    return chi_squared(counts, masses * len(samples))


def low_bits(samples: Samples, modulus: int) -> float:
    counts = np.bincount(samples % modulus, minlength=modulus)
    return chi_squared(counts, np.full(modulus, len(samples) / modulus))


def chi_squared(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def mean_is_zero(samples: Samples, sigma: float) -> float:
    return float(2 * stats.norm.sf(abs(samples.mean()) / sigma * len(samples) ** 0.5))


def variance_is(samples: Samples, sigma: float, kurtosis: float = 3) -> float:
    ratio = (samples.astype(np.float64) ** 2).mean() / sigma**2
    return float(2 * stats.norm.sf(abs(ratio - 1) * (len(samples) / (kurtosis - 1)) ** 0.5))


def neighbours_unrelated(samples: Samples) -> float:
    scaled = samples / samples.std()
    return float(2 * stats.norm.sf(abs((scaled[1:] * scaled[:-1]).sum()) / len(samples) ** 0.5))


def polya_half(scale: Fraction | int, shape: int | tuple[int, ...], stream: Stream) -> Samples:
    return discrete_laplace_share(scale, 2, shape, stream)


@pytest.mark.parametrize("variance", SMALL_GAUSSIAN)
def test_small_discrete_gaussian(variance: Fraction, stream: Stream) -> None:
    masses = gaussian_masses(variance)
    assert fit(discrete_gaussian(variance, 200_000, stream), masses) > PASS
    assert fit(discrete_gaussian(variance * OFF, 200_000, stream), masses) < FAIL


def test_rounds_to_spare_do_not_change_the_law(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    masses = gaussian_masses(Fraction(90_000))
    for spare in (10**9, 2):  # hardly any, so that holes are filled by drawing again; and more than are needed
        monkeypatch.setattr(strips, "_SPARE", spare)
        assert fit(discrete_gaussian(90_000, 400_000, stream), masses) > PASS
    assert fit(discrete_gaussian(90_000 * OFF, 400_000, stream), masses) < FAIL


@pytest.mark.parametrize("mu", SMALL_SKELLAM)
def test_small_skellam(mu: Fraction, stream: Stream) -> None:
    masses = skellam_masses(mu)
    assert fit(skellam(mu, 200_000, stream), masses) > PASS
    assert fit(skellam(mu * OFF, 200_000, stream), masses) < FAIL


def test_fit_tells_the_two_laws_apart(stream: Stream) -> None:
    assert fit(skellam(3, 200_000, stream), gaussian_masses(Fraction(6))) < FAIL
    assert fit(discrete_gaussian(6, 200_000, stream), skellam_masses(Fraction(3))) < FAIL


@pytest.mark.parametrize(("sampler", "parameter", "sigma"), LARGE)
def test_large_scale(sampler, parameter, sigma, stream: Stream) -> None:  # type: ignore[no-untyped-def]
    right, wrong = sampler(parameter, 400_000, stream), sampler(parameter / OFF, 400_000, stream)
    for check in (fit_normal, variance_is):
        assert check(right, sigma) > PASS
        assert check(wrong, sigma) < FAIL
    assert mean_is_zero(right, sigma) > PASS
    assert mean_is_zero(right + int(sigma / 20), sigma) < FAIL
    assert abs(right.astype(np.float64).var() / sigma**2 - 1) < 0.01
    assert abs(stats.kurtosis(right / sigma, fisher=False) - 3) < 0.03
    assert abs(stats.kurtosis(np.concatenate([right, right[::3] // 2]) / sigma, fisher=False) - 3) > 0.03
    assert neighbours_unrelated(right) > PASS
    assert neighbours_unrelated(right[1:] // 2 + right[:-1] // 2) < FAIL


@pytest.mark.parametrize("modulus", [8, 64])
@pytest.mark.parametrize("mu", [10**13, 10**21])
def test_low_bits_are_uniform(mu: int, modulus: int, stream: Stream) -> None:
    samples = skellam(mu, 200_000, stream)
    assert low_bits(samples, modulus) > PASS
    assert low_bits(samples // 2 * 2, modulus) < FAIL


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [255, 257, 300, 511, 1000])
def test_both_sides_of_the_change_of_method(deviation: int, stream: Stream) -> None:
    variance = Fraction(deviation**2)
    assert fit(discrete_gaussian(variance, 20_000_000, stream), gaussian_masses(variance)) > PASS
    assert fit(skellam(variance / 2, 20_000_000, stream), skellam_masses(variance / 2)) > PASS


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "parameter", "sigma"), LARGE)
def test_large_scale_long(sampler, parameter, sigma, stream: Stream) -> None:  # type: ignore[no-untyped-def]
    samples = sampler(parameter, 20_000_000, stream)
    assert fit_normal(samples, sigma, bins=5000 if sigma > 10**5 else 500) > PASS
    assert variance_is(samples, sigma) > PASS
    assert low_bits(samples, 64) > PASS
    assert abs(stats.kurtosis(samples / sigma, fisher=False) - 3) < 0.006


@pytest.mark.parametrize("sampler", [discrete_gaussian, skellam, discrete_laplace, polya_half])
def test_edges(sampler, stream: Stream) -> None:  # type: ignore[no-untyped-def]
    assert sampler(5, (), stream).shape == ()
    assert sampler(5, (0,), stream).shape == (0,)
    assert sampler(5, (3, 2), stream).shape == (3, 2)
    assert sampler(5, 4, stream).dtype == np.int64
    assert not sampler(0, 1000, stream).any()
    assert not sampler(Fraction(1, 10**60), 1000, stream).any()
    with raises(ValueError, "VA117"):
        sampler(-1, 3, stream)
    with raises(CapacityError, "CA008"):
        sampler(10**40, 3, stream)


def test_share_of() -> None:
    assert share_of(Fraction(12), 4) == 3
    assert share_of(12, 4, colluding=3) == 12
    assert share_of(Fraction(1, 3), 5, 2) == Fraction(1, 9)
    for owners, colluding in ((0, 0), (3, 3), (3, -1), (True, 0), (2.0, 1)):
        with raises(PrivacyError, "PR141"):
            share_of(12, owners, colluding)  # type: ignore[arg-type]
    with raises(PrivacyError, "PR142"):
        share_of(-1, 3)


def test_what_survives_a_coalition_has_the_whole_variance(stream: Stream) -> None:
    owners, colluding, variance = 5, 2, Fraction(10**10)
    share = share_of(variance, owners, colluding)
    left = discrete_gaussian(share, (owners - colluding, 200_000), stream).sum(axis=0)
    assert fit_normal(left, 1e5) > PASS
    assert fit_normal(discrete_gaussian(share, (owners - colluding - 1, 200_000), stream).sum(axis=0), 1e5) < FAIL


def test_parts_are_a_positive_whole_number(stream: Stream) -> None:
    for parts in (0, -1, True, 2.0):
        with raises(PrivacyError, "PR041"):
            discrete_laplace_share(9, parts, 3, stream)  # type: ignore[arg-type]


def test_tiny_variance_is_nearly_always_zero(stream: Stream) -> None:
    assert not discrete_laplace(Fraction(1, 100), 10_000, stream).any()
    for sampler in (discrete_gaussian, skellam, discrete_laplace, polya_half):
        assert not sampler(Fraction(1, 10**400), 10_000, stream).any()
    assert not discrete_gaussian(Fraction(1, 1000), 10_000, stream).any()
    rare = np.count_nonzero(skellam(Fraction(1, 1000), 1_000_000, stream))
    assert abs(rare - 2000) < 250


def test_a_stream_decides_the_noise(stream: Stream) -> None:
    key = stream.bytes(32)
    first, second = (skellam(10**13, 1000, Stream(key)) for _ in range(2))
    assert np.array_equal(first, second)
