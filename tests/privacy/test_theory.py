"""Theorems of docs/theory: noise near a Gaussian, Laplace shares, pure epsilons, replacing, and losses on grids."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import flint
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from flint import arb, ctx
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf
from scipy.stats import norm

from colonnade.errors import PrivacyError
from colonnade.privacy import (
    DiscreteLaplaceRelease,
    Ledger,
    Observer,
    PostProcessing,
    RepeatedRelease,
    Sensitivity,
    SkellamRelease,
    Statement,
    Trust,
    accountant,
    views,
)
from colonnade.privacy.accountant import PureProfile
from colonnade.privacy.accounting.loss_distributions import UNIT, LossDistribution, RoundGroup, _Direction, round_losses
from colonnade.privacy.events import check_sources
from colonnade.privacy.noise.strip_sampler import _above, _enclosed, generalised_laplace_epsilon
from research.bounds import gaussian_delta
from tests.support.errors import refused
from tests.support.vectors import VECTORS

# --- docs/theory/skellam-close-to-gaussian.md, checked with intervals on a grid


BITS = 600
GRID = [16, 50, 144, 1000, 65_536, 2 * 10**9, 2 * 10**13]
DEPTHS = [0, 0.5, 1, 2, 4, 7, 10, 12]


@pytest.fixture(autouse=True)
def _precise():
    with ctx.workprec(BITS), mp.workdps(40):
        yield


def points(x: int) -> list[int]:
    root = x**0.5
    return sorted({0, 1, 2} | {int(z * root) for z in DEPTHS if z * z <= x})


def skellam(n: int, x: int) -> arb:
    return arb(x).bessel_i(n, scaled=True)


def rounded(n: int, x: int) -> arb:
    root = (arb(2) * x).sqrt()
    return (((n - arb(1) / 2) / root).erfc() - ((n + arb(1) / 2) / root).erfc()) / 2


def discrete(n: int, x: int) -> arb:
    theta = 1 + 2 * sum(((-2 * arb.pi() ** 2 * x * m * m).exp() for m in range(1, 6)), arb(0))
    return (-(arb(n) ** 2) / (2 * x)).exp() / ((2 * arb.pi() * x).sqrt() * theta)


@pytest.mark.parametrize("x", GRID)
def test_lemmas_1_to_5_and_t(x: int) -> None:
    tiny, mode = arb(2) ** -300, skellam(0, x)
    assert 0 < (mode * (2 * arb.pi() * x).sqrt()).log() < arb(1) / (7 * x), "Lemma 4, the mass at zero"
    for n in points(x):
        here, whole, a = skellam(n, x), arb(n), n + arb(1) / 2
        ratio = skellam(n + 1, x) / here
        assert x / (a + (arb(x) ** 2 + (a + 1) ** 2).sqrt()) < ratio < x / (a + (arb(x) ** 2 + a**2).sqrt()), "Lemma 1"
        top = -(whole**2) / (2 * x) * (1 - (whole**2 - arb(1) / 2) / (12 * arb(x) ** 2))
        slack = whole * (n + 1) / (2 * arb(x) ** 2) + whole**6 / (80 * arb(x) ** 5)
        assert top - slack - tiny <= (here / mode).log() <= top + tiny, "Lemma 3, the ratio to the mode"
        gap = (discrete(n, x) / rounded(n, x)).log()
        low = -(whole**2) / (24 * arb(x) ** 2) - 3 * (-2 * arb.pi() ** 2 * x).exp()
        assert low <= gap <= arb(1) / (24 * x), "Lemma 5, rounded and discrete Gaussian"
        z = whole / arb(x).sqrt()
        to_rounded, to_discrete = ((here / law(n, x)).log() for law in (rounded, discrete))
        assert -(13 * z**2 / 24 + arb(1) / 2) / x < to_rounded < (z**4 / 24 + arb(1) / 5) / x, "Lemma T"
        assert -(z**2 + 1) / (2 * x) < to_discrete < (z**4 / 24 + arb(1) / 6) / x, "Lemma T"


def test_lemma_t_is_not_far_from_the_truth() -> None:
    x, n = 2 * 10**9, int(12 * (2 * 10**9) ** 0.5)
    gap = (skellam(n, x) / rounded(n, x)).log() * x
    assert gap > 0.95 * (12**4 / 24)


@pytest.mark.parametrize("x", [16, 50, 400])
def test_tail(x: int) -> None:
    with ctx.workprec(200):  # intervals are wider, and what they show is as certain
        masses = [skellam(n, x) for n in range(int(20 * x**0.5) + 60)]
    for z in (1, 2, 4, 6, 9, 12):
        first = int(z * x**0.5) + 1
        tail = 2 * sum(masses[first:], arb(0))
        assert tail < 2 * (-(arb(z) ** 2) / 2 + arb(z) ** 4 / (24 * x)).exp()


# --- docs/theory/laplace-shares.md, checked with mpmath and by enumeration


def mass(weight: float, scale: float, value: int) -> mpf:
    """The hypergeometric form of the page."""
    r, p, x = mpf(weight), mpmath.exp(-1 / mpf(scale)), abs(value)
    rising = mpmath.rf(r, x) / mpmath.factorial(x)
    return (1 - p) ** (2 * r) * p**x * rising * mpmath.hyp2f1(r + x, r, x + 1, p * p)


def log_ratio(weight: float, scale: float, low: int, high: int) -> mpf:
    return mpmath.log(mass(weight, scale, low) / mass(weight, scale, high))


def counts(weight: float, p: float, size: int):
    """Masses of NB(weight, p), by their recurrence."""
    found = [(1 - p) ** weight]
    for k in range(size - 1):
        found.append(found[-1] * p * (weight + k) / (k + 1))
    return np.array(found)


@pytest.mark.parametrize("weight", [0.2, 0.5, 1.0, 1.6])
def test_the_mass_is_that_of_a_difference_of_negative_binomial_counts(weight: float) -> None:
    one = counts(weight, math.exp(-1 / 3), 400)
    difference = np.convolve(one, one[::-1])
    for value in (0, 1, 2, 7, 30):
        assert difference[399 + value] == pytest.approx(float(mass(weight, 3, value)), rel=1e-11)


def test_shares_add_up_to_one_discrete_laplace_variable() -> None:
    p, total = math.exp(-1 / 4), np.ones(1)
    for weight in (0.2, 0.3, 0.5):
        one = counts(weight, p, 300)
        total = np.convolve(total, np.convolve(one, one[::-1]))
    expected = (1 - p) / (1 + p) * p ** np.arange(20)
    assert total[len(total) // 2 :][:20] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", [case for case in VECTORS["coins_and_gdl"]["gdl_coalition_eps"] if case["beta"] <= 1])
def test_vectors_of_observers_who_know_shares(case) -> None:
    found = generalised_laplace_epsilon(case["beta"], case["Delta"] / case["eps0"], case["Delta"])
    assert found == pytest.approx(case["eps"], rel=1e-9)


def test_the_vector_above_one_is_a_scan_that_stopped_and_the_supremum_is_the_plain_ratio() -> None:
    (case,) = (case for case in VECTORS["coins_and_gdl"]["gdl_coalition_eps"] if case["beta"] > 1)
    scale = case["Delta"] / case["eps0"]
    seen = [float(log_ratio(case["beta"], scale, x, x + case["Delta"])) for x in (0, 50, 100, 200, 400)]
    assert seen[2] == pytest.approx(case["eps"], rel=1e-9)
    assert seen == sorted(seen)
    assert seen[-1] > 0.95
    assert generalised_laplace_epsilon(case["beta"], scale, case["Delta"]) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shift", [1, 3, 12])
def test_the_supremum_is_attained_at_zero(weight: float, shift: int) -> None:
    at_zero = log_ratio(weight, 5, 0, shift)
    for x in range(-30, 60):
        assert log_ratio(weight, 5, x, x + shift) <= at_zero + mpf(10) ** -25
    assert generalised_laplace_epsilon(weight, 5, shift) == pytest.approx(float(at_zero), rel=1e-14)


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_the_mass_is_log_convex_on_one_side(weight: float) -> None:
    logs = [mpmath.log(mass(weight, 6, x)) for x in range(40)]
    assert all(logs[x - 1] + logs[x + 1] > 2 * logs[x] for x in range(1, 39))
    assert all(later < earlier for earlier, later in pairwise(logs))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_equal_small_shifts_are_the_worst(dimension: int) -> None:
    total, one = 6, {x: float(log_ratio(0.5, 6, 0, x)) for x in range(7)}
    shifts = [shift for shift in product(range(total + 1), repeat=dimension) if sum(shift) <= total]
    worst = max(sum(one[x] for x in shift) for shift in shifts)
    assert worst == pytest.approx(dimension * one[total // dimension], rel=1e-12)
    assert dimension == 1 or worst > one[total] * 1.2


def test_many_unit_shifts_cost_thousands_where_the_whole_noise_costs_one() -> None:
    sensitivity = 10**6
    unit = generalised_laplace_epsilon(0.5, float(sensitivity), 1)
    assert generalised_laplace_epsilon(0.5, float(sensitivity), sensitivity) < 5
    assert sensitivity * unit > 1e4
    # Below one half a unit shift costs a constant however large the scale.
    assert generalised_laplace_epsilon(0.25, 1e12, 1) == pytest.approx(math.log(3), abs=1e-4)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 0.999), st.floats(0.5, 200.0), st.integers(1, 60))
def test_the_code_is_the_formula_rounded_up(weight: float, scale: float, shift: int) -> None:
    exact = log_ratio(weight, scale, 0, shift)
    found = generalised_laplace_epsilon(weight, scale, shift)
    assert exact <= found <= exact * (1 + mpf(2) ** -50)
    assert found >= shift / scale * (1 - 1e-15)


@pytest.mark.parametrize("weight", [1e-6, 0.5, 0.5 + 1e-12, 1 - 1e-9])
@pytest.mark.parametrize(("scale", "shift"), [(1e12, 1), (1e12, 10**12), (1e9, 10**11), (1.0, 10**6)])
def test_large_scales_and_shifts(weight: float, scale: float, shift: int) -> None:
    found, more, less_noise = (
        generalised_laplace_epsilon(share, scale, moved)
        for share, moved in ((weight, shift), (weight, shift + 1), (weight * 0.99, shift))
    )
    assert shift / scale <= found < min(more, less_noise) < math.inf


def test_half_a_variable_at_a_large_scale_against_an_integral() -> None:
    scale, shift = 1e12, 1000
    square, p = mpmath.exp(-2 / mpf(scale)), mpmath.exp(-1 / mpf(scale))
    gap = -mpmath.expm1(-2 / mpf(scale))

    def euler(x: int) -> mpf:
        # u = 1 - e^-y; the mass is p^x times this integral, up to a constant.
        return mpmath.quad(
            lambda y: mpmath.exp(-y / 2) * (gap + square * mpmath.exp(-y)) ** -0.5 * (-mpmath.expm1(-y)) ** (x - 0.5),
            [0, 1e-6, 0.01, 1, 5, 10, 20, 30, 50, 120],
        )

    expected = mpmath.log(euler(0) / euler(shift)) - shift * mpmath.log(p)
    assert generalised_laplace_epsilon(0.5, scale, shift) == pytest.approx(float(expected), rel=1e-8)


def test_the_binomial_bound_is_above_and_close_beyond_the_scale() -> None:
    with flint.ctx.workprec(1024):
        for shift in (10, 1000, 100_000):
            exact, above = (f(flint.arb(0.5), flint.arb(1000.0), shift) for f in (_enclosed, _above))
            assert above > exact
            assert above - exact < 0.25 * 1000 / shift


def test_no_noise_no_shift_and_what_makes_no_sense() -> None:
    assert [generalised_laplace_epsilon(0.0, 1.0, shift) for shift in (1, 0)] == [math.inf, 0.0]
    for wrong in ((-0.1, 1.0, 1), (0.5, 0.0, 1), (0.5, 1.0, -1), (math.nan, 1.0, 1), (0.5, 1.0, True)):
        refused(PrivacyError, "PR*", generalised_laplace_epsilon, *wrong)


# --- docs/theory/pure-epsilon.md and replacing-and-groups.md, on small supports that can be summed exactly


def hockey(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def moment(p, q, order: float) -> float:
    return float((p * np.exp((order - 1) * np.log(p / q))).sum())


def response(epsilon: float):
    """Binary randomised response, the extreme pair."""
    p = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    return p, p[::-1].copy()


def bound(epsilon: float, order: float) -> float:
    """The page's closed form of its moment."""
    return (math.sinh(order * epsilon) - math.sinh((order - 1) * epsilon)) / math.sinh(epsilon)


@st.composite
def pure_pairs(draw: st.DrawFn):
    """Two laws on a few points whose log ratios stay within an epsilon."""
    size = draw(st.integers(2, 6))
    whole = st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size)
    q, tilt = np.array(draw(whole)), np.array(draw(whole))
    p = q * np.exp(3 * tilt)
    p, q = p / p.sum(), q / q.sum()
    return p, q, float(np.abs(np.log(p / q)).max())


@settings(deadline=None, max_examples=150)
@given(pure_pairs(), st.floats(1.01, 40.0), st.floats(-3.0, 4.0))
def test_binary_randomised_response_is_the_extreme_pair(drawn, order: float, at: float) -> None:
    p, q, epsilon = drawn
    if epsilon < 1e-6:
        return
    assert moment(p, q, order) <= bound(epsilon, order) * (1 + 1e-9)
    assert hockey(p, q, at) <= hockey(*response(epsilon), at) + 1e-12


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("order", [1.5, 2, 7, 30])
def test_its_moment_has_the_closed_form(epsilon: float, order: float) -> None:
    assert moment(*response(epsilon), order) == pytest.approx(bound(epsilon, order), rel=1e-11)
    assert math.log(bound(epsilon, order)) / (order - 1) < min(epsilon, order * epsilon**2 / 2)


def laplace(scale: float, shift: int, reach: int = 400):
    raw = np.exp(-np.abs(np.arange(-reach, reach + 1) - shift) / scale)
    p = math.exp(-1 / scale)
    return np.asarray(raw * (1 - p) / (1 + p))


@pytest.mark.parametrize(("scale", "shift"), [(5.0, 1), (5.0, 7), (0.5, 2)])
def test_discrete_laplace_noise_is_pure(scale: float, shift: int) -> None:
    reach = 100
    p, q = laplace(scale, 0, reach), laplace(scale, shift, reach)
    inside = (p > 1e-300) & (q > 1e-300)
    worst = float(np.abs(np.log(p[inside] / q[inside])).max())
    assert worst == pytest.approx(shift / scale, rel=1e-12)
    for order in (2, 5, 16):
        assert moment(p[inside], q[inside], order) <= bound(shift / scale, order) * (1 + 1e-9)


@pytest.mark.parametrize("pure_first", [True, False])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 1.7])
def test_a_pure_part_shifts_the_profile(pure_first: bool, epsilon: float) -> None:
    """Adaptive: the second law depends on the first output."""
    pure = 0.5
    extreme, noise = response(pure), (laplace(4.0, 0, 60), laplace(4.0, 3, 60))
    mixed = noise[0], 0.9 * noise[1] + 0.1 * np.roll(noise[1], 5)  # not pure at its own epsilon
    rows = []
    for side in (0, 1):
        if pure_first:
            parts = [extreme[side][i] * mixed[side][:: 1 - 2 * i] for i in (0, 1)]
        else:
            parts = [mass * extreme[side if i % 2 else 1 - side] for i, mass in enumerate(mixed[side])]
        rows.append(np.concatenate(parts))
    profile = max(hockey(*mixed, epsilon - pure), hockey(mixed[0][::-1], mixed[1][::-1], epsilon - pure))
    assert hockey(rows[0], rows[1], epsilon) <= profile + 1e-12


def test_pure_epsilons_add_up() -> None:
    """Of parts of a release, and of coordinates: the norm that counts for vectors is the first."""
    still, *moved = (laplace(3.0, shift, 30) for shift in (0, 1, 2))
    pairs = [((response(0.4)), response(0.9), 1.3), ((still, moved[0]), (still, moved[1]), (1 + 2) / 3.0)]
    for one, other, total in pairs:
        ratio = np.outer(one[0], other[0]) / np.outer(one[1], other[1])
        assert float(np.log(ratio).max()) == pytest.approx(total, rel=1e-12)


# --- replacing is removing and adding


def gaussian(centre: float, variance: float = 4.0):
    points = np.arange(-60, 61)
    raw = np.exp(-((points - centre) ** 2) / (2 * variance))
    return np.asarray(raw / raw.sum())


@pytest.mark.parametrize("q", [0.05, 0.3, 1.0])
@pytest.mark.parametrize(("one", "other"), [(2, -2), (2, 1), (-1, 2)])
def test_replacing_costs_at_most_a_removal_and_an_addition(q: float, one: int, other: int) -> None:
    out = gaussian(0)
    first, second, worst = ((1 - q) * out + q * gaussian(x) for x in (one, other, 2))  # the longest change is of 2
    for epsilon in (0.0, 0.1, 0.4, 1.0):
        either = max(hockey(worst, out, epsilon), hockey(out, worst, epsilon))
        assert hockey(first, second, 2 * epsilon) <= (1 + math.exp(epsilon)) * either + 1e-12
    for left, right in product((0.0, 0.2, 0.9), repeat=2):
        cost = hockey(worst, out, left) + math.exp(left) * hockey(out, worst, right)
        assert hockey(first, second, left + right) <= cost + 1e-12


def test_the_removal_alone_is_not_enough() -> None:
    out, q = gaussian(0), 0.3
    first, second = (1 - q) * out + q * gaussian(2), (1 - q) * out + q * gaussian(-2)
    worst = max(hockey(first, out, 0.2), hockey(out, first, 0.2))
    assert hockey(first, second, 0.2) > 1.5 * worst


@pytest.mark.parametrize("people", [2, 3, 5])
def test_groups(people: int) -> None:
    epsilon = 0.3
    delta = hockey(gaussian(1), gaussian(0), epsilon)
    total = delta * math.expm1(people * epsilon) / math.expm1(epsilon)
    assert hockey(gaussian(people), gaussian(0), people * epsilon) <= total + 1e-12


# --- docs/theory/privacy-loss-distributions.md: what the code does on its grids against what is known exactly


SIZES = [(0.01, 0.5), (0.1, 1.0), (0.5, 2.0), (0.003, 1.2), (1.0, 0.7)]


def secret(q: float, m: float, times: int = 1) -> RoundGroup:
    """Rounds of a sensitivity of m deviations, of which nobody knows who is in them."""
    return RoundGroup(times, mu=m, rate=q, known=False)


def delta_of(losses, masses, epsilon: float) -> float:
    """The hockey stick of a law of losses."""
    return float(masses @ np.maximum(-np.expm1(epsilon - losses), 0))


# --- one round


@pytest.mark.parametrize(("q", "m"), SIZES)
@pytest.mark.parametrize("added", [False, True])
def test_one_secret_round_covers_both_hockey_sticks_of_its_pair(q: float, m: float, added: bool) -> None:
    step, points = 0.02, np.linspace(-14, 16, 300_001)
    one = round_losses(secret(q, m), added, step, (-1000, 1000))
    assert one.masses.sum() + one.infinite == pytest.approx(1, abs=1e-12)
    losses = step * (one.first + np.arange(len(one.masses)))
    plain = norm.pdf(points)
    mixed = (1 - q) * plain + q * norm.pdf(points, m)
    first, second = (plain, mixed) if added else (mixed, plain)

    def exact(epsilon: float) -> float:
        return float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * (points[1] - points[0]))

    for epsilon in np.linspace(-1.5, 3.0, 23).tolist():
        assert delta_of(losses, one.masses, epsilon) + one.infinite >= exact(epsilon) - 1e-8
    for k in (-40, -3, 0, 1, 17, 60):
        assert delta_of(losses, one.masses, k * step) + one.infinite == pytest.approx(exact(k * step), abs=1e-8)


def rational_split(p: Fraction, s: Fraction) -> tuple[int, Fraction]:
    """The cell (2^k, 2^(k+1)] of the ratio p/s, and the share of p that goes to its upper end."""
    k = 0
    while p / s > Fraction(2) ** (k + 1):
        k += 1
    while p / s <= Fraction(2) ** k:
        k -= 1
    return k, 2 * (1 - s / p * Fraction(2) ** k)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=7))
def test_a_kernel_leads_from_the_atoms_back_to_the_pair(weights: list[tuple[int, int]]) -> None:
    """In exact fractions, on the grid of the powers of two."""
    total_p, total_s = (sum(side) for side in zip(*weights, strict=True))
    old = [(Fraction(p, total_p), Fraction(s, total_s)) for p, s in weights]
    atom: dict[int, Fraction] = {}
    joint: dict[tuple[int, int], Fraction] = {}
    for place, (p, s) in enumerate(old):
        k, upper = rational_split(p, s)
        assert 0 <= upper <= 1
        for end, part in ((k, (1 - upper) * p), (k + 1, upper * p)):
            atom[end] = atom.get(end, Fraction(0)) + part
            joint[end, place] = joint.get((end, place), Fraction(0)) + part
    new = {end: (p, p / Fraction(2) ** end) for end, p in atom.items() if p}
    assert [sum(side) for side in zip(*new.values(), strict=True)] == [1, 1]
    for place, (p, s) in enumerate(old):
        kernel = {end: joint.get((end, place), Fraction(0)) / atom[end] for end in new}
        assert sum(new[end][0] * kernel[end] for end in new) == p
        assert sum(new[end][1] * kernel[end] for end in new) == s
    for threshold in (Fraction(1, 3), Fraction(1), Fraction(5, 4), Fraction(3)):
        before = sum(max(p - threshold * s, Fraction(0)) for p, s in old)
        assert sum(max(p - threshold * s, Fraction(0)) for p, s in new.values()) >= before


# --- many rounds


def test_composing_gaussians_is_one_gaussian() -> None:
    for epsilon in (0.2, 1.0, 3.0):
        true = gaussian_delta(1.0, epsilon)
        found = float(LossDistribution([RoundGroup(16, mu=0.25)]).deltas(np.array([epsilon]))[0])
        assert true <= found == pytest.approx(true, rel=2e-3)


def test_known_coins_as_a_loss_distribution_are_the_mixture() -> None:
    for case in VECTORS["coins_and_gdl"]["coins_mixture_gdp"]:
        known = RoundGroup(case["R"], mu=case["sens"] / case["sigma"], rate=case["q"])
        assert LossDistribution([known]).epsilon(case["delta"]) == pytest.approx(case["eps"], rel=1e-3)


def test_randomised_response_composed_with_a_gaussian() -> None:
    step, epsilon = 1e-3, 0.7
    both = LossDistribution([RoundGroup(1, pure=epsilon), RoundGroup(1, mu=1.0)])
    theirs = privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step
    ).compose(privacy_loss_distribution.from_gaussian_mechanism(1.0, value_discretization_interval=step))
    assert both.epsilon(1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-3)
    for at in (1.0, 2.5):  # the plain rule, delta(eps) <= delta'(eps - pure), is valid and looser
        assert both.deltas(np.array([at]))[0] < gaussian_delta(1.0, at - epsilon)


# --- floating point


def exact_power(mass, times: int):
    """The circular convolution power with 300 bits."""
    with flint.ctx.workprec(300):
        transform = flint.acb.dft([flint.acb(float(x)) for x in mass])
        back = flint.acb.dft([value**times for value in transform], inverse=True)
        return np.array([float(value.real) for value in back])


def on_a_grid(q: float, m: float, step: float, size: int):
    """One round's losses and masses, around zero."""
    one = round_losses(secret(q, m), False, step, (-(size // 2), size // 2 - 1))
    mass = np.zeros(size)
    mass[one.first + size // 2 :][: len(one.masses)] = one.masses
    return (np.arange(size) - size // 2) * step, mass


@pytest.mark.parametrize(("q", "m", "times"), [(0.01, 1.0, 5000), (0.2, 0.3, 300), (1.0, 0.2, 1), (0.5, 0.5, 17)])
def test_the_error_of_the_fft_is_below_its_bound(q: float, m: float, times: int) -> None:
    size = 1 << 10
    _, mass = on_a_grid(q, m, 0.02, size)
    transform = np.fft.fft(mass)
    phi = 6 * UNIT * math.log2(size)
    near = np.abs(transform) + 2 * phi
    slips = times * (phi * near ** (times - 1) + 8 * UNIT * near**times)
    error = 1.01 * float(np.linalg.norm(slips) + phi * np.linalg.norm(transform**times))
    assert error <= 16 * times * UNIT * math.log2(size) * math.sqrt(size)
    true = exact_power(mass, times)
    for found in (np.fft.ifft(transform**times).real, np.fft.irfft(np.fft.rfft(mass) ** times, size)):
        slip = float(np.abs(np.maximum(found, 0) - true).sum())
        assert error * 1e-5 < slip <= error, "the bound holds, and is not idle"


@pytest.mark.parametrize("tilt", [0.5, 1.5, 3.0])
def test_tilting_makes_the_error_small_against_delta(tilt: float) -> None:
    size, times, step = 1 << 12, 400, 0.008
    losses, one = on_a_grid(0.05, 0.8, step, size)
    grown = one * np.exp(tilt * losses)
    scale = float(grown.sum())
    tilted = np.maximum(np.fft.irfft(np.fft.rfft(grown / scale) ** times, size), 0)
    place = (-size // 2 + times * (size // 2) + np.arange(size)) % size
    mass, true = tilted[place] * np.exp(times * math.log(scale) - tilt * losses), exact_power(one, times)[place]
    error = 16 * times * UNIT * math.log2(size) * math.sqrt(size)
    for epsilon in (1.0, 2.0, 3.0):
        found, expected = (delta_of(losses, law, epsilon) for law in (mass, true))
        allowed = error * math.exp(times * math.log(scale) - tilt * epsilon)
        assert abs(found - expected) <= allowed + expected * 1e-9


@pytest.mark.parametrize("tilt", [0.1, 1.0, 3.0])
def test_wrap_around_from_below_is_harmless_and_the_rest_is_charged(tilt: float) -> None:
    """What a coarse window cuts off or turns round is added: it never shows less than a fine one."""
    side, epsilons = _Direction([secret(0.3, 1.0, 12)], False), np.array([0.0, 1.0, 4.0])
    fine = side._composed(tilt, 1e-5).deltas(epsilons)
    for cells in (1 << 7, 1 << 9):
        assert np.all(side._composed(tilt, 1e-5, cells).deltas(epsilons) >= fine * (1 - 1e-6))


# --- formulas between events and figures, each against a value that is found by other means


THREE = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
SHARES = tuple((name, Fraction(10_000)) for name in THREE.owners)


@pytest.mark.parametrize(("dimension", "square"), [(1, 9), (2, 0), (2, 5), (3, 1), (3, 3), (3, 9)])
def test_no_integer_vector_is_longer_than_its_sensitivity_says(dimension: int, square: int) -> None:
    reach = range(-math.isqrt(square), math.isqrt(square) + 1)
    known = np.array([one for one in product(reach, repeat=dimension) if sum(x * x for x in one) <= square])
    moved = (known[:, None] - known[None]).reshape(-1, dimension)
    said = Sensitivity.from_l2(Fraction(square) + Fraction(1, 3), dimension)
    assert said.l2_squared == square
    assert np.abs(known).sum(axis=1).max() <= said.l1
    assert np.abs(moved).sum(axis=1).max() <= said.replace_l1
    assert (moved**2).sum(axis=1).max() == 4 * (known**2).sum(axis=1).max() <= said.replace_l2_squared  # it is met


@pytest.mark.parametrize("times", [1, 2, 7])
def test_losses_of_pure_rounds_are_those_of_binomial_sums(times: int) -> None:
    pure = 0.5
    heads = 1 / (1 + math.exp(-pure))
    curve = LossDistribution([RoundGroup(times, pure=pure)])
    for at in (0.2, 0.7, 1.3):
        exact = math.fsum(
            math.comb(times, k)
            * heads**k
            * (1 - heads) ** (times - k)
            * max(0.0, 1 - math.exp(at - pure * (2 * k - times)))
            for k in range(times + 1)
        )
        found = float(curve.deltas(np.array([at]))[0])
        assert exact <= found <= exact * 1.01 + 1e-6


@pytest.mark.parametrize("times", [2, 5])
def test_a_repeated_release_costs_what_as_many_releases_cost(times: int) -> None:
    noisy = SkellamRelease("sums", SHARES, 1, 100, 10_000, 200, 40_000)
    pure = DiscreteLaplaceRelease("sums", tuple((name, Fraction(1)) for name in THREE.owners), 1, Fraction(100), 40, 80)
    for release, who in product((noisy, pure), (Observer.analyst(), Observer.party("a"))):
        once, often = (
            accountant.epsilon(views(events, who, THREE), 1e-6).epsilon
            for events in ([RepeatedRelease(release, times)], [release] * times)
        )
        assert once == pytest.approx(often, rel=1e-9)


def test_post_processing_is_free_only_for_those_who_received_its_source(tmp_path) -> None:
    sealed = SkellamRelease("sums", SHARES, 1, 100, 10_000, 200, 40_000, audience=("a",))
    book, own = Ledger(tmp_path / "ledger.sqlite"), PostProcessing("for a", audience=("a",))
    for audience in ((), ("b",), ("a", "b")):
        others = PostProcessing("for others", audience=audience)
        refused(PrivacyError, "PR035", check_sources, [sealed, others])
        refused(PrivacyError, "PR035", Statement.of, [RepeatedRelease(sealed, 3), others], THREE, 1e-5)
        refused(PrivacyError, "PR035", book.reserve, "s", "0" * 64, [sealed, others], THREE, [])
    assert book.entries() == ()
    alone, both = (Statement.of(events, THREE, 1e-6) for events in ([sealed], [sealed, own]))
    assert [row.epsilon for row in alone.rows] == [row.epsilon for row in both.rows]
    published = Statement.of([replace(sealed, audience=()), PostProcessing("eigenvectors")], THREE, 1e-5)
    assert both.epsilon("analyst") == 0 < published.epsilon("analyst")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 30), min_size=3, max_size=8),
    st.integers(0, 7),
    st.integers(1, 5),
    st.floats(-1, 2),
)
def test_moving_mass_up_only_adds(raw: list[int], place: int, up: int, epsilon: float) -> None:
    mass = np.array([*raw, 0, 0, 0, 0, 0], dtype=np.float64) / sum(raw)
    moved = mass.copy()
    place %= len(raw)
    moved[place] -= mass[place] / 2
    moved[place + up] += mass[place] / 2
    other = np.array([0.2, 0.5, 0.3])
    losses = 0.3 * np.arange(-3, len(mass) - 1)
    before, after = (delta_of(losses, np.convolve(law, other), epsilon) for law in (mass, moved))
    assert after >= before - 1e-15


def test_one_dimension_dominates_a_vector_in_any_direction() -> None:
    """The kernel of the page, on the moments that fix a Gaussian: mean along the shift, unit covariance."""
    m, shift = 1.3, np.array([0.3, -0.5, 0.4])
    size = float(np.linalg.norm(shift))
    along, ratio = shift / size, size / m
    embed = np.outer(along, [ratio, math.sqrt(1 - ratio**2)])
    covariance = embed @ embed.T + np.eye(3) - np.outer(along, along)
    assert np.allclose(embed @ [m, 0], shift)
    assert np.allclose(covariance, np.eye(3))


@pytest.mark.parametrize("size", [1 << 4, 1 << 9, 1 << 12])
def test_one_transform_is_within_its_bound(size: int) -> None:
    mass = 1 / np.arange(1.0, size + 1) ** 1.5
    mass /= mass.sum()
    with flint.ctx.workprec(200):
        true = flint.acb.dft([flint.acb(float(x)) for x in mass])
        found = np.fft.fft(mass)
        worst = max(float(abs(flint.acb(complex(a)) - b)) for a, b in zip(found, true, strict=True))
    assert worst <= 6 * UNIT * math.log2(size) * mass.sum()


@pytest.mark.parametrize("pure", [0.1, 1.0, 3.0])
def test_the_curve_of_a_pure_epsilon_is_that_of_two_coins(pure: float) -> None:
    heads = math.exp(pure) / (1 + math.exp(pure))
    for at in (0.0, pure / 3, pure, pure + 1):
        exact = max(0.0, heads - math.exp(at) * (1 - heads))
        assert PureProfile(pure).deltas(np.array([at]))[0] == pytest.approx(exact, rel=1e-9, abs=1e-9)
        if exact > 0:
            assert PureProfile(pure).epsilon(exact) == pytest.approx(at, abs=1e-9)


def test_the_norm_that_counts_for_vectors_is_the_first() -> None:
    one, shifts = [laplace(3.0, shift, 30) for shift in (0, 1, 2)], (1, 2)
    p = np.outer(one[0], one[0])
    q = np.outer(one[shifts[0]], one[shifts[1]])
    assert float(np.abs(np.log(p / q)).max()) == pytest.approx(sum(shifts) / 3.0, rel=1e-12)
