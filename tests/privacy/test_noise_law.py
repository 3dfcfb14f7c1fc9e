"""The samples follow the law they are said to follow, and every check notices a scale that is 5 % off."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp
from scipy import special, stats

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.noise import discrete_gaussian, discrete_laplace, discrete_laplace_share, skellam, strip_sampler
from colonnade.privacy.noise.local_mechanisms import _draw_below, odds_of_epsilon, randomised_response
from colonnade.privacy.noise.strip_sampler import PolyaMass, sample
from colonnade.randomness import Stream
from research.bounds import share_of
from tests.support.errors import refused
from tests.support.vectors import VECTORS

PASS, FAIL = 1e-4, 1e-9
SCALED = Fraction(105, 100)
OFF = SCALED**2

LARGE = [
    (discrete_gaussian, Fraction(10**12), 10.0**6),
    (discrete_gaussian, Fraction(10**24), 10.0**12),
    (skellam, Fraction(10**6), (2 * 10**6) ** 0.5),
    (skellam, Fraction(10**21), (2 * 10**21) ** 0.5),
    (skellam, Fraction(10**24), (2 * 10**24) ** 0.5),
    (skellam, Fraction(1 << 117), 2.0**59),
]


def gaussian_masses(variance: Fraction):
    reach = int(12 * float(variance) ** 0.5) + 3
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    return mass / mass.sum()


def skellam_masses(mu: Fraction):
    reach = int(12 * float(2 * mu) ** 0.5) + 12
    return special.ive(np.abs(np.arange(-reach, reach + 1)), 2 * float(mu))


def fit(samples, masses) -> float:
    """p-value of chi-squared against masses on a centred range."""
    reach = len(masses) // 2
    return fit_cells(samples, np.arange(-reach, reach), np.cumsum(masses)[:-1])


def fit_cells(samples, edges, below) -> float:
    """p-value of chi-squared over the cells that the edges part; ``below`` holds P(X <= edge)."""
    masses = np.diff(below, prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, samples, side="left"), minlength=len(masses))
    # Cells too small for the test are pooled with those after them, to 20 expected each.
    cells = np.floor(np.cumsum(masses) * len(samples) / 20).astype(int)
    _, cells = np.unique(np.minimum(cells, cells[-1] - 1), return_inverse=True)
    return chi_squared(np.bincount(cells, counts), np.bincount(cells, masses) * len(samples))


def fit_normal(samples, sigma: float, bins: int = 200) -> float:
    """p-value of chi-squared against the rounded Gaussian, over bins of about equal mass."""
    edges = np.floor(stats.norm.ppf(np.linspace(0, 1, bins + 1)[1:-1]) * sigma) + 0.5
    counts = np.bincount(np.searchsorted(edges, samples.astype(np.float64)), minlength=bins)
    masses = np.diff(stats.norm.cdf(edges / sigma), prepend=0, append=1)
    return chi_squared(counts, masses * len(samples))


def low_bits(samples, modulus: int) -> float:
    counts = np.bincount(samples % modulus, minlength=modulus)
    return chi_squared(counts, np.full(modulus, len(samples) / modulus))


def chi_squared(counts, expected) -> float:
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


def mean_is_zero(samples) -> float:
    return float(2 * stats.norm.sf(abs(samples.mean()) / samples.std() * len(samples) ** 0.5))


def variance_is(samples, sigma: float, kurtosis: float = 3) -> float:
    ratio = (samples.astype(np.float64) ** 2).mean() / sigma**2
    return float(2 * stats.norm.sf(abs(ratio - 1) * (len(samples) / (kurtosis - 1)) ** 0.5))


def neighbours_unrelated(samples) -> float:
    scaled = samples / samples.std()
    return float(2 * stats.norm.sf(abs((scaled[1:] * scaled[:-1]).sum()) / len(samples) ** 0.5))


def polya_half(scale: Fraction | int, shape: int | tuple[int, ...], stream: Stream):
    return discrete_laplace_share(scale, 2, shape, stream)


SMALL = [
    *((discrete_gaussian, gaussian_masses, Fraction(v)) for v in ("1/4", "10", "24691/2")),
    *((skellam, skellam_masses, Fraction(v)) for v in ("1/2", "3", "10000")),
]


@pytest.mark.parametrize(("sampler", "masses_of", "size"), SMALL)
def test_small_scale(sampler, masses_of, size: Fraction, stream: Stream) -> None:
    masses = masses_of(size)
    assert fit(sampler(size, 200_000, stream), masses) > PASS
    assert fit(sampler(size * OFF, 200_000, stream), masses) < FAIL


def test_rounds_to_spare_do_not_change_the_law(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    masses = gaussian_masses(Fraction(90_000))
    for spare in (10**9, 2):  # hardly any, so that holes are filled by drawing again; and more than are needed
        monkeypatch.setattr(strip_sampler, "_SPARE", spare)
        assert fit(discrete_gaussian(90_000, 400_000, stream), masses) > PASS
    assert fit(discrete_gaussian(90_000 * OFF, 400_000, stream), masses) < FAIL


@pytest.mark.parametrize(("sampler", "parameter", "sigma"), LARGE)
def test_large_scale(sampler, parameter, sigma, stream: Stream) -> None:
    right, wrong = sampler(parameter, 200_000, stream), sampler(parameter / OFF, 200_000, stream)
    for check in (fit_normal, variance_is):
        assert check(right, sigma) > PASS
        assert check(wrong, sigma) < FAIL
    assert mean_is_zero(right) > PASS
    assert mean_is_zero(right + int(sigma / 20)) < FAIL
    assert abs(stats.kurtosis(right / sigma, fisher=False) - 3) < 5 * (24 / len(right)) ** 0.5
    assert neighbours_unrelated(right) > PASS
    assert neighbours_unrelated(right[1:] // 2 + right[:-1] // 2) < FAIL


LOW_BITS = [(skellam, 10**13), (skellam, 10**21), (discrete_laplace, 10**12), (polya_half, 10**12)]


@pytest.mark.parametrize(("sampler", "size"), LOW_BITS)
def test_low_bits_are_uniform(sampler, size: int, stream: Stream) -> None:
    samples = sampler(size, 200_000, stream)
    for modulus in (8, 64):
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
def test_large_scale_long(sampler, parameter, sigma, stream: Stream) -> None:
    samples = sampler(parameter, 20_000_000, stream)
    assert fit_normal(samples, sigma, bins=5000 if sigma > 10**5 else 500) > PASS
    assert variance_is(samples, sigma) > PASS
    assert low_bits(samples, 64) > PASS
    assert abs(stats.kurtosis(samples / sigma, fisher=False) - 3) < 0.006


@pytest.mark.parametrize("sampler", [discrete_gaussian, skellam, discrete_laplace, polya_half])
def test_edges(sampler, stream: Stream) -> None:
    for shape in ((), (0,), (3, 2)):
        assert sampler(5, shape, stream).shape == shape
    assert sampler(5, 4, stream).dtype == np.int64
    for tiny in (0, Fraction(1, 10**60), Fraction(1, 10**400)):
        assert not sampler(tiny, 1000, stream).any()
    refused(ValueError, "VA117", sampler, -1, 3, stream)
    refused(CapacityError, "CA008", sampler, 10**40, 3, stream)


def test_what_survives_a_coalition_has_the_whole_variance(stream: Stream) -> None:
    share = share_of(Fraction(10**10), owners=5, colluding=2)
    for left, whole in ((3, True), (2, False)):
        known = fit_normal(discrete_gaussian(share, (left, 200_000), stream).sum(axis=0), 1e5)
        assert known > PASS if whole else known < FAIL
    for wrong in ((12, 2, 2), (12, 0), (12, True), (-1, 3)):
        refused(PrivacyError, (), share_of, *wrong)


def test_a_stream_decides_the_noise_and_one_part_is_the_whole(stream: Stream) -> None:
    key = stream.bytes(32)
    first, second = (skellam(10**13, 1000, Stream(key)) for _ in range(2))
    assert np.array_equal(first, second)
    whole, share = discrete_laplace(77, 500, Stream(key)), discrete_laplace_share(77, 1, 500, Stream(key))
    assert np.array_equal(whole, share)


# --- discrete Laplace noise and its Polya shares follow their laws, and every check notices a scale that is 5 % off


SCALES = [Fraction(t) for t in ("3/10", "17/2", "12345", "1000000000000")]
LARGEST = Fraction(1 << 55)
SHARES = [(Fraction(t), m) for t in ("3/10", "700", "1000000000000") for m in (2, 5)]


def laplace_fit(samples, scale: Fraction, cells: int = 60) -> float:
    quantiles = stats.laplace.ppf(np.linspace(0, 1, cells + 1)[1:-1]) * float(scale)
    edges = np.unique(np.floor(quantiles).astype(np.int64))
    rate = 1 / float(scale)
    # P(X > k) = p^(k+1) / (1+p) for k >= 0, and P(X <= k) = p^-k / (1+p) below.
    tail = np.exp(-rate * np.where(edges < 0, -edges, edges + 1)) / (1 + np.exp(-rate))
    return fit_cells(samples, edges, np.where(edges < 0, tail, 1 - tail))


def polya_fit(samples, scale: Fraction, parts: int, cells: int = 40) -> float:
    quantiles = special.gammaincinv(1 / parts, np.linspace(0, 1, cells + 1)[1:-1]) * float(scale)
    edges = np.unique(np.floor(quantiles).astype(np.int64))
    if scale > 2**40:  # betainc of older scipys fails here; the limit differs by less than 2^-40
        return fit_cells(samples, edges, special.gammainc(1 / parts, (edges + 1.0) / float(scale)))
    return fit_cells(samples, edges, special.betainc(1 / parts, edges + 1.0, -np.expm1(-1 / float(scale))))


def share_masses(scale: float, parts: int, reach: int):
    """Masses of the difference of two Polya counts at -reach..reach, by convolution."""
    one = stats.nbinom.pmf(np.arange(reach + 1), 1 / parts, -np.expm1(-1 / scale))
    return np.convolve(one, one[::-1])


def laplace_variance_is(samples, scale: Fraction, parts: int = 1) -> float:
    ratio_p, gap = np.exp(-1 / float(scale)), np.expm1(-1 / float(scale)) ** 2
    return variance_is(samples, (2 * ratio_p / gap / parts) ** 0.5, 3 + parts * (3 + gap / (2 * ratio_p)))


@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_discrete_laplace(scale: Fraction, stream: Stream) -> None:
    right, wrong = (discrete_laplace(t, 300_000, stream) for t in (scale, scale / SCALED))
    for check in (laplace_fit, laplace_variance_is):
        assert check(right, scale) > PASS
        assert check(wrong, scale) < FAIL
    assert mean_is_zero(right) > PASS
    assert mean_is_zero(right + max(1, int(scale / 10))) < FAIL


@pytest.mark.parametrize(("scale", "parts"), [*SHARES, (LARGEST, 3)])
def test_polya_counts(scale: Fraction, parts: int, stream: Stream) -> None:
    right, wrong = (sample(PolyaMass(t, parts), 300_000, stream) for t in (scale, scale / SCALED))
    assert right.min() >= 0
    assert polya_fit(right, scale, parts) > PASS
    assert polya_fit(wrong, scale, parts) < FAIL
    assert polya_fit(right, scale, parts + 1) < FAIL


@pytest.mark.parametrize(("scale", "parts"), [(Fraction(3, 10), 2), (Fraction(10), 3)])
def test_shares_have_the_law_of_a_difference(scale: Fraction, parts: int, stream: Stream) -> None:
    reach = int(40 * scale) + 20
    below = np.cumsum(share_masses(float(scale), parts, reach))
    edges = np.arange(-reach, reach + 1)
    right, wrong = (discrete_laplace_share(t, parts, 300_000, stream) for t in (scale, scale / SCALED))
    assert fit_cells(right, edges[:-1], below[:-1]) > PASS
    assert fit_cells(wrong, edges[:-1], below[:-1]) < FAIL
    assert fit_cells(discrete_laplace(scale, 300_000, stream), edges[:-1], below[:-1]) < FAIL


@pytest.mark.parametrize(("scale", "parts"), SHARES)
def test_shares_add_up_to_discrete_laplace(scale: Fraction, parts: int, stream: Stream) -> None:
    shares, wrong = (discrete_laplace_share(t, parts, (parts, 200_000), stream) for t in (scale, scale / SCALED))
    assert laplace_fit(shares.sum(axis=0), scale) > PASS
    for other in (wrong, shares[1:]):
        assert laplace_fit(other.sum(axis=0), scale) < FAIL
    assert laplace_variance_is(shares.reshape(-1), scale, parts) > PASS
    assert mean_is_zero(shares[0]) > PASS


@pytest.mark.slow
@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_discrete_laplace_long(scale: Fraction, stream: Stream) -> None:
    samples = discrete_laplace(scale, 20_000_000, stream)
    assert laplace_fit(samples, scale, cells=2000) > PASS
    assert laplace_fit(discrete_laplace(scale / Fraction(1005, 1000), 20_000_000, stream), scale) < FAIL
    assert laplace_variance_is(samples, scale) > PASS


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3, 30])
@pytest.mark.parametrize("scale", [*SCALES, LARGEST])
def test_polya_counts_long(scale: Fraction, parts: int, stream: Stream) -> None:
    samples = sample(PolyaMass(scale, parts), 20_000_000, stream)
    assert polya_fit(samples, scale, parts, cells=1000) > PASS
    assert polya_fit(sample(PolyaMass(scale / SCALED, parts), 20_000_000, stream), scale, parts) < FAIL


# --- randomised response keeps labels as often as it says, and its odds never exceed what epsilon allows


def fit_answers(counts, masses) -> float:
    return float(stats.chisquare(counts, masses / masses.sum() * counts.sum()).pvalue)


def test_keep_probability() -> None:
    for case in VECTORS["hdp_fm_afe"]["rr"]:
        odds = odds_of_epsilon(case["eps"])
        assert float(odds / (odds + case["K"] - 1)) == pytest.approx(case["p_true"], rel=1e-9)


@given(st.floats(0, 20))
@settings(deadline=None)
def test_odds_are_the_largest_allowed(epsilon: float) -> None:
    odds, step = odds_of_epsilon(epsilon), Fraction(1, 1 << 32)
    assert (odds / step).denominator == 1
    with mp.workdps(60):
        assert mp.log(mp.mpf(odds.numerator) / odds.denominator) <= epsilon
        above = odds + step
        assert mp.log(mp.mpf(above.numerator) / above.denominator) > epsilon


def test_odds_next_to_a_grid_point_are_still_decided() -> None:
    for epsilon in (math.log(2), math.log(3), math.log1p(2.0**-32)):
        for near in (math.nextafter(epsilon, 0), epsilon, math.nextafter(epsilon, 9)):
            with mp.workdps(60):
                assert odds_of_epsilon(near) == Fraction(int(mp.floor(mp.exp(near) * 2**32)), 1 << 32)


@pytest.mark.parametrize(("epsilon", "categories"), [(0.0, 3), (0.5, 2), (1.0, 10), (6.0, 100)])
def test_the_law_of_the_answers(epsilon: float, categories: int, stream: Stream) -> None:
    odds, label = odds_of_epsilon(epsilon), categories - 1
    masses = np.ones(categories)
    masses[label] = float(odds)
    right, wrong = (
        randomised_response(np.full(300_000, label), categories, used, stream) for used in (odds, odds * SCALED)
    )
    never = (right + (right == 0)) % categories  # never answers 0
    for answers, good in ((right, True), (wrong, False), (never, False)):
        found = fit_answers(np.bincount(answers, minlength=categories), masses)
        assert found > PASS if good else found < FAIL


def test_labels_are_treated_alike(stream: Stream) -> None:
    labels = np.arange(4 * 50_000).reshape(-1, 4) % 4
    answers = randomised_response(labels, 4, Fraction(5), stream)
    assert (answers.shape, answers.dtype) == (labels.shape, np.int64)
    moved = np.bincount(((answers - labels) % 4).ravel(), minlength=4)
    assert fit_answers(moved, np.array([5.0, 1, 1, 1])) > PASS
    assert (answers == labels).mean(axis=0) == pytest.approx(np.full(4, 5 / 8), abs=0.012)
    assert randomised_response(labels[:0, 0], 2, Fraction(3), stream).shape == (0,)
    assert set(randomised_response(labels[:, 0] == 0, 2, Fraction(3), stream).tolist()) == {0, 1}
    assert len(randomised_response([1] * 9, 1 << 29, odds_of_epsilon(20.0), stream)) == 9


@pytest.mark.parametrize("bound", [3, 1000, 3 << 60])
def test_below_is_uniform(bound: int, stream: Stream) -> None:
    drawn = _draw_below(bound, 120_000, stream)
    assert 0 <= drawn.min() <= drawn.max() < bound
    cells = min(bound, 60)
    edges = np.array([bound * k // cells for k in range(cells + 1)])
    counts = np.bincount(np.searchsorted(edges[1:], drawn, side="right"), minlength=cells)
    assert fit_answers(counts, np.diff(edges).astype(np.float64)) > PASS


def test_wrong_arguments_are_refused(stream: Stream) -> None:
    for error, code, call, *words in (
        *((PrivacyError, "PR089", discrete_laplace_share, 9, parts, 3) for parts in (0, -1, True, 2.0)),
        (DataError, "DA107", randomised_response, [0.0, 1.0], 3, Fraction(2)),
        (PrivacyError, "PR047", randomised_response, [0, 1], 3, Fraction(1, 2)),
        (CapacityError, "CA012", randomised_response, [0, 1], 3, Fraction((1 << 70) + 1, 1 << 60)),
        *((PrivacyError, "PR089", randomised_response, [0], many, Fraction(2)) for many in (1, 0, True, 2.0)),
    ):
        refused(error, code, call, *words, stream)
    for labels in ([0, 3], [-1, 0], np.array([2**63], dtype=np.uint64)):
        said = refused(DataError, "DA108", "2", randomised_response, labels, 3, Fraction(2), stream)
        assert not {"-1", "3"} & set(said.replace("[DA108]", "").split()), "a label is not told"
    for epsilon, code in ((-0.1, "PR045"), (math.nan, "PR045"), (math.inf, "PR045"), (20.5, "CA011")):
        refused((PrivacyError, CapacityError), code, odds_of_epsilon, epsilon)
