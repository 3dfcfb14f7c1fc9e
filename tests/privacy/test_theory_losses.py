"""docs/theory/privacy-loss-distributions.md: what the code does on its grids against what is known exactly."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import flint
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from colonnade.errors import PrivacyError
from colonnade.privacy import Ledger, Observer, Sensitivity, Statement, Trust, accountant, views
from colonnade.privacy.releases import DiscreteLaplaceRelease, PostProcessing, Repeated, SkellamRelease
from colonnade.privacy.routes.losses import LossDistribution, _Side
from colonnade.privacy.routes.rounds import UNIT, Rounds, one_round
from research.bounds import gaussian_delta
from tests.support.errors import refused
from tests.support.vectors import VECTORS

SIZES = [(0.01, 0.5), (0.1, 1.0), (0.5, 2.0), (0.003, 1.2), (1.0, 0.7)]


def secret(q: float, m: float, times: int = 1) -> Rounds:
    """Rounds of a sensitivity of m deviations, of which nobody knows who is in them."""
    return Rounds(times, mu=m, rate=q, known=False)


def delta_of(losses, masses, epsilon: float) -> float:
    """The hockey stick of a law of losses."""
    return float(masses @ np.maximum(-np.expm1(epsilon - losses), 0))


# --- one round


@pytest.mark.parametrize(("q", "m"), SIZES)
@pytest.mark.parametrize("added", [False, True])
def test_one_secret_round_covers_both_hockey_sticks_of_its_pair(q: float, m: float, added: bool) -> None:
    step, points = 0.02, np.linspace(-14, 16, 300_001)
    one = one_round(secret(q, m), added, step, (-1000, 1000))
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


# --- many rounds


def test_composing_gaussians_is_one_gaussian() -> None:
    for epsilon in (0.2, 1.0, 3.0):
        true = gaussian_delta(1.0, epsilon)
        found = float(LossDistribution([Rounds(16, mu=0.25)]).deltas(np.array([epsilon]))[0])
        assert true <= found == pytest.approx(true, rel=2e-3)


def test_known_coins_as_a_loss_distribution_are_the_mixture() -> None:
    for case in VECTORS["coins_and_gdl"]["coins_mixture_gdp"]:
        known = Rounds(case["R"], mu=case["sens"] / case["sigma"], rate=case["q"])
        assert LossDistribution([known]).epsilon(case["delta"]) == pytest.approx(case["eps"], rel=1e-3)


def test_randomised_response_composed_with_a_gaussian() -> None:
    step, epsilon = 1e-3, 0.7
    both = LossDistribution([Rounds(1, pure=epsilon), Rounds(1, mu=1.0)])
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
    one = one_round(secret(q, m), False, step, (-(size // 2), size // 2 - 1))
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
    side, epsilons = _Side([secret(0.3, 1.0, 12)], False), np.array([0.0, 1.0, 4.0])
    fine = side._composed(tilt, 1e-5).deltas(epsilons)
    for cells in (1 << 7, 1 << 9):
        assert np.all(side._composed(tilt, 1e-5, cells).deltas(epsilons) >= fine * (1 - 1e-6))


# --- formulas between events and figures, each against a value that is found by other means


THREE = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
SHARES = tuple((name, Fraction(10_000)) for name in THREE.owners)


@pytest.mark.parametrize(("dimension", "square"), [(1, 9), (2, 0), (2, 5), (3, 1), (3, 3), (3, 9)])
def test_no_integer_vector_is_longer_than_its_sensitivity_says(dimension: int, square: int) -> None:
    reach = range(-math.isqrt(square), math.isqrt(square) + 1)
    known = np.array([one for one in itertools.product(reach, repeat=dimension) if sum(x * x for x in one) <= square])
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
    curve = LossDistribution([Rounds(times, pure=pure)])
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
    for release, who in itertools.product((noisy, pure), (Observer.analyst(), Observer.party("a"))):
        once, often = (
            accountant.epsilon(views(events, who, THREE), 1e-6).epsilon
            for events in ([Repeated(release, times)], [release] * times)
        )
        assert once == pytest.approx(often, rel=1e-9)


def test_post_processing_is_free_only_for_those_who_received_its_source(tmp_path) -> None:
    sealed = SkellamRelease("sums", SHARES, 1, 100, 10_000, 200, 40_000, audience=("a",))
    book, own = Ledger(tmp_path / "ledger.sqlite"), PostProcessing("for a", audience=("a",))
    for audience in ((), ("b",), ("a", "b")):
        others = PostProcessing("for others", audience=audience)
        refused(PrivacyError, "PR035", Statement.of, [Repeated(sealed, 3), others], THREE, 1e-5)
        refused(PrivacyError, "PR035", book.reserve, "s", "0" * 64, [sealed, others], THREE, [])
    assert book.entries() == ()
    alone, both = (Statement.of(events, THREE, 1e-6) for events in ([sealed], [sealed, own]))
    assert [row.epsilon for row in alone.rows] == [row.epsilon for row in both.rows]
    published = Statement.of([replace(sealed, audience=()), PostProcessing("eigenvectors")], THREE, 1e-5)
    assert both.epsilon("analyst") == 0 < published.epsilon("analyst")
