"""Discrete Laplace noise and its Polya shares follow their laws, and every check notices a scale that is 5 % off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from colonnade.privacy.noise import discrete_laplace, discrete_laplace_share
from colonnade.privacy.noise.laws import Polya
from colonnade.privacy.noise.strips import sample
from colonnade.randomness import Stream

Samples = NDArray[np.int64]
Floats = NDArray[np.float64]
PASS, FAIL = 1e-4, 1e-9
OFF = Fraction(105, 100)
SCALES = [Fraction(t) for t in ("3/10", "1", "17/2", "100", "12345", "1000000000", "1000000000000")]
LARGEST = Fraction(1 << 55)
SHARES = [(Fraction(t), m) for t in ("3/10", "10", "700", "1000000", "1000000000000") for m in (2, 5)]


def chi_squared(counts: NDArray[np.int64], expected: Floats) -> float:
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def fit(samples: Samples, edges: Samples, below: Floats) -> float:
    """p-value of chi-squared over the cells that the edges part; ``below`` holds P(X <= edge)."""
    masses = np.diff(below, prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, samples, side="left"), minlength=len(masses))
    # Cells too small for the test are pooled with the one after them.
    cells = np.floor(np.cumsum(masses) * len(samples) / 20).astype(int)
    _, cells = np.unique(np.minimum(cells, cells[-1] - 1), return_inverse=True)
    return chi_squared(np.bincount(cells, counts), np.bincount(cells, masses) * len(samples))


def laplace_fit(samples: Samples, scale: Fraction, cells: int = 60) -> float:
    quantiles = stats.laplace.ppf(np.linspace(0, 1, cells + 1)[1:-1]) * float(scale)
    edges = np.unique(np.floor(quantiles).astype(np.int64))
    rate = 1 / float(scale)
    # P(X > k) = p^(k+1) / (1+p) for k >= 0, and P(X <= k) = p^-k / (1+p) below.
    tail = np.exp(-rate * np.where(edges < 0, -edges, edges + 1)) / (1 + np.exp(-rate))
    return fit(samples, edges, np.where(edges < 0, tail, 1 - tail))


def polya_fit(samples: Samples, scale: Fraction, parts: int, cells: int = 40) -> float:
    quantiles = special.gammaincinv(1 / parts, np.linspace(0, 1, cells + 1)[1:-1]) * float(scale)
    edges = np.unique(np.floor(quantiles).astype(np.int64))
    if scale > 2**40:  # betainc of older scipys fails here; the limit differs by less than 2^-40
        return fit(samples, edges, special.gammainc(1 / parts, (edges + 1.0) / float(scale)))
    return fit(samples, edges, special.betainc(1 / parts, edges + 1.0, -np.expm1(-1 / float(scale))))


def share_masses(scale: float, parts: int, reach: int) -> Floats:
    """Masses of the difference of two Polya counts at -reach..reach, by convolution."""
    one = stats.nbinom.pmf(np.arange(reach + 1), 1 / parts, -np.expm1(-1 / scale))
    return np.convolve(one, one[::-1])


def variance_is(samples: Samples, scale: Fraction, parts: int = 1) -> float:
    ratio_p = np.exp(-1 / float(scale))
    variance = 2 * ratio_p / np.expm1(-1 / float(scale)) ** 2 / parts
    kurtosis = 3 + parts * (3 + np.expm1(-1 / float(scale)) ** 2 / (2 * ratio_p))
    found = (samples.astype(np.float64) ** 2).mean() / variance
    return float(2 * stats.norm.sf(abs(found - 1) * (len(samples) / (kurtosis - 1)) ** 0.5))


def mean_is_zero(samples: Samples) -> float:
    return float(2 * stats.norm.sf(abs(samples.mean()) / samples.std() * len(samples) ** 0.5))


def low_bits(samples: Samples, modulus: int) -> float:
    counts = np.bincount(samples % modulus, minlength=modulus)
    return chi_squared(counts, np.full(modulus, len(samples) / modulus))


@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_discrete_laplace(scale: Fraction, stream: Stream) -> None:
    right, wrong = (discrete_laplace(t, 300_000, stream) for t in (scale, scale / OFF))
    assert laplace_fit(right, scale) > PASS
    assert laplace_fit(wrong, scale) < FAIL
    assert variance_is(right, scale) > PASS
    assert variance_is(wrong, scale) < FAIL
    assert mean_is_zero(right) > PASS
    assert mean_is_zero(right + max(1, int(scale / 10))) < FAIL


@pytest.mark.parametrize(("scale", "parts"), [*SHARES, (LARGEST, 3)])
def test_polya_counts(scale: Fraction, parts: int, stream: Stream) -> None:
    right, wrong = (sample(Polya(t, parts), 400_000, stream) for t in (scale, scale / OFF))
    assert right.min() >= 0
    assert polya_fit(right, scale, parts) > PASS
    assert polya_fit(wrong, scale, parts) < FAIL
    assert polya_fit(right, scale, parts + 1) < FAIL


@pytest.mark.parametrize(("scale", "parts"), [(Fraction(3, 10), 2), (Fraction(10), 3), (Fraction(60), 2)])
def test_shares_have_the_law_of_a_difference(scale: Fraction, parts: int, stream: Stream) -> None:
    reach = int(40 * scale) + 20
    below = np.cumsum(share_masses(float(scale), parts, reach))
    edges = np.arange(-reach, reach + 1)
    right, wrong = (discrete_laplace_share(t, parts, 300_000, stream) for t in (scale, scale / OFF))
    assert fit(right, edges[:-1], below[:-1]) > PASS
    assert fit(wrong, edges[:-1], below[:-1]) < FAIL
    assert fit(discrete_laplace(scale, 300_000, stream), edges[:-1], below[:-1]) < FAIL


@pytest.mark.parametrize(("scale", "parts"), SHARES)
def test_shares_add_up_to_discrete_laplace(scale: Fraction, parts: int, stream: Stream) -> None:
    shares, wrong = (discrete_laplace_share(t, parts, (parts, 200_000), stream) for t in (scale, scale / OFF))
    assert laplace_fit(shares.sum(axis=0), scale) > PASS
    assert laplace_fit(wrong.sum(axis=0), scale) < FAIL
    assert laplace_fit(shares[1:].sum(axis=0), scale) < FAIL
    assert variance_is(shares.reshape(-1), scale, parts) > PASS
    assert variance_is(wrong.reshape(-1), scale, parts) < FAIL
    assert mean_is_zero(shares[0]) > PASS


def test_one_part_is_the_whole(stream: Stream) -> None:
    key = stream.bytes(32)
    whole, share = discrete_laplace(77, 500, Stream(key)), discrete_laplace_share(77, 1, 500, Stream(key))
    assert np.array_equal(whole, share)


@pytest.mark.parametrize("modulus", [8, 64])
def test_low_bits_are_uniform(modulus: int, stream: Stream) -> None:
    for samples in (discrete_laplace(10**12, 200_000, stream), discrete_laplace_share(10**12, 3, 200_000, stream)):
        assert low_bits(samples, modulus) > PASS
        assert low_bits(samples // 2 * 2, modulus) < FAIL


@pytest.mark.slow
@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_discrete_laplace_long(scale: Fraction, stream: Stream) -> None:
    samples = discrete_laplace(scale, 20_000_000, stream)
    assert laplace_fit(samples, scale, cells=2000) > PASS
    assert laplace_fit(discrete_laplace(scale / Fraction(1005, 1000), 20_000_000, stream), scale) < FAIL
    assert variance_is(samples, scale) > PASS


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3, 30])
@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_polya_counts_long(scale: Fraction, parts: int, stream: Stream) -> None:
    samples = sample(Polya(scale, parts), 20_000_000, stream)
    assert polya_fit(samples, scale, parts, cells=1000) > PASS
    assert polya_fit(sample(Polya(scale / OFF, parts), 20_000_000, stream), scale, parts) < FAIL
