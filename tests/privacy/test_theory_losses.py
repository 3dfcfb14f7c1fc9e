"""docs/theory/privacy-loss-distributions.md, with a small reference implementation of what the page describes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
U = 2.0**-53
V: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())


# --- the reference implementation


@dataclass(frozen=True)
class Losses:
    """P-masses at the losses ``(low + i) step``, and at infinity."""

    step: float
    low: int
    mass: Array
    infinite: float

    def delta(self, epsilon: float) -> float:
        losses = (self.low + np.arange(len(self.mass))) * self.step
        return float(self.mass @ np.maximum(-np.expm1(epsilon - losses), 0)) + self.infinite


@dataclass(frozen=True)
class Pair:
    """A pair of laws by the masses that both give to the losses between two cuts, as functions of the cuts."""

    first: Callable[[Array, Array], Array]
    second: Callable[[Array, Array], Array]


def between(low: Array, high: Array, centre: float = 0.0) -> Array:
    """The mass of N(centre, 1) between two points, from whichever tail is the smaller."""
    a, b = low - centre, high - centre
    return np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def crossing(q: float, m: float, loss: Array) -> Array:
    """Where log(1 - q + q e^(my - mm/2)) reaches ``loss``; minus infinity if it is above it everywhere."""
    inside = np.expm1(loss) + q
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside > 0, m / 2 + np.log(np.maximum(inside, 0) / q) / m, -np.inf)


def remove(q: float, m: float) -> Pair:
    def first(low: Array, high: Array) -> Array:
        a, b = crossing(q, m, low), crossing(q, m, high)
        return (1 - q) * between(a, b) + q * between(a, b, m)

    return Pair(first, lambda low, high: between(crossing(q, m, low), crossing(q, m, high)))


def add(q: float, m: float) -> Pair:
    other = remove(q, m)
    return Pair(lambda low, high: other.second(-high, -low), lambda low, high: other.first(-high, -low))


def discretise(pair: Pair, step: float, low: int, high: int) -> Losses:
    cuts = np.arange(low, high + 1) * step
    edge = np.array([np.inf])
    p, s = pair.first(cuts[:-1], cuts[1:]), pair.second(cuts[:-1], cuts[1:])
    upper = np.clip((p - s * np.exp(cuts[:-1])) / -math.expm1(-step), 0, p)
    mass = np.zeros(len(cuts))
    mass[:-1] += p - upper
    mass[1:] += upper
    mass[0] += pair.first(-edge, cuts[:1])[0]
    return Losses(step, low, mass, float(pair.first(cuts[-1:], edge)[0]))


def atoms(step: float, low: int, high: int, given: Sequence[tuple[float, float]]) -> Losses:
    """The same for a pair of finitely many (loss, P-mass)."""
    mass = np.zeros(high - low + 1)
    for loss, p in given:
        k = math.ceil(loss / step - 1e-12) - 1
        upper = min(max(p * (1 - math.exp(k * step - loss)) / -math.expm1(-step), 0.0), p)
        mass[k - low] += p - upper
        mass[k + 1 - low] += upper
    return Losses(step, low, mass, 0.0)


def power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    found, square = np.ones_like(values), values
    while times:
        if times & 1:
            found = found * square
        square, times = square * square, times >> 1
    return found


def chernoff(losses: Losses, times: int, top: int) -> float:
    """A bound of the mass of the sum at or above the grid index ``top``."""
    index = losses.low + np.arange(len(losses.mass))
    some = losses.mass > 0
    best = 0.0
    for rate in np.geomspace(1e-2, 1e3, 60):
        terms = np.log(losses.mass[some]) + rate * losses.step * index[some]
        peak = float(terms.max())
        total = times * (peak + math.log(float(np.exp(terms - peak).sum()))) - rate * top * losses.step
        best = min(best, total)
    return math.exp(best)


def compose(losses: Losses, times: int, low: int, size: int) -> tuple[Losses, float]:
    """The law of the sum on a window, with what lies above it at infinity, and the bound on the FFT's error."""
    folded = np.zeros(size)
    np.add.at(folded, np.arange(len(losses.mass)) % size, losses.mass)
    transform = np.fft.fft(folded)
    raised = power(transform, times)
    raw = np.maximum(np.fft.ifft(raised).real, 0)
    window = raw[(low - times * losses.low + np.arange(size)) % size]
    phi = 6 * U * math.log2(size)
    near = np.abs(transform) + 2 * phi
    slip = times * (phi * near ** (times - 1) + 8 * U * near**times)
    error = 1.01 * (float(np.linalg.norm(slip)) + phi * float(np.linalg.norm(raised)))
    infinite = -math.expm1(times * math.log1p(-losses.infinite)) + chernoff(losses, times, low + size)
    return Losses(losses.step, low, window, infinite), error


def epsilon_at(losses: Losses, error: float, delta: float) -> float:
    low, high = 0.0, (losses.low + len(losses.mass)) * losses.step
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if losses.delta(middle) + error > delta else (low, middle)
    return high


def sampled_epsilon(q: float, m: float, times: int, delta: float, step: float, half: int) -> float:
    size = 2 * half
    found = []
    for pair in (remove(q, m), add(q, m)):
        one = discretise(pair, step, -half, half)
        found.append(epsilon_at(*compose(one, times, -half, size), delta))
    return max(found)


def exact(pair: Pair, epsilon: float) -> float:
    cut, edge = np.array([epsilon]), np.array([np.inf])
    return float(pair.first(cut, edge)[0] - math.exp(epsilon) * pair.second(cut, edge)[0])


SIZES = [(0.01, 0.5), (0.1, 1.0), (0.5, 2.0), (0.003, 1.2), (1.0, 0.7)]


# --- one round


@pytest.mark.parametrize(("q", "m"), SIZES)
@pytest.mark.parametrize("way", [remove, add])
def test_the_discrete_pair_dominates_and_touches_at_the_grid(
    q: float, m: float, way: Callable[[float, float], Pair]
) -> None:
    pair, step = way(q, m), 0.02
    grid = discretise(pair, step, -1000, 1000)
    assert grid.mass.sum() + grid.infinite == pytest.approx(1, abs=1e-12)
    for epsilon in np.linspace(-1.5, 3.0, 61):
        true, bound = exact(pair, float(epsilon)), grid.delta(float(epsilon))
        assert bound >= true - 1e-13
    for k in (-40, -3, 0, 1, 17, 60):
        assert grid.delta(k * step) == pytest.approx(exact(pair, k * step), abs=1e-12)


@pytest.mark.parametrize(("q", "m"), SIZES)
def test_the_two_directions_are_the_two_hockey_sticks_of_one_pair(q: float, m: float) -> None:
    points = np.linspace(-14, 16, 300_001)
    base = np.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    mixture = (1 - q) * base + q * np.exp(-((points - m) ** 2) / 2) / math.sqrt(2 * math.pi)
    width = points[1] - points[0]
    for epsilon in (0.0, 0.1, 0.7):
        there = float(np.maximum(mixture - math.exp(epsilon) * base, 0).sum() * width)
        back = float(np.maximum(base - math.exp(epsilon) * mixture, 0).sum() * width)
        assert exact(remove(q, m), epsilon) == pytest.approx(there, abs=1e-8)
        assert exact(add(q, m), epsilon) == pytest.approx(back, abs=1e-8)


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
    before, after = (Losses(0.3, -3, np.convolve(law, other), 0.0).delta(epsilon) for law in (mass, moved))
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


# --- many rounds

CASES = [
    (0.01, 1.0, 200, 1e-5, 5e-4, 1 << 14),
    (0.1, 0.5, 50, 1e-6, 1e-3, 1 << 14),
    (1.0, 0.3, 20, 1e-5, 2e-3, 1 << 13),
    (0.5, 1.0, 4, 1e-5, 1e-3, 1 << 15),
]


@pytest.mark.parametrize(("q", "m", "times", "delta", "step", "half"), CASES)
def test_composition_agrees_with_dp_accounting(
    q: float, m: float, times: int, delta: float, step: float, half: int
) -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        1 / m, sampling_prob=q, value_discretization_interval=step, use_connect_dots=True
    )
    expected = theirs.self_compose(times).get_epsilon_for_delta(delta)
    found = sampled_epsilon(q, m, times, delta, step, half)
    assert found == pytest.approx(expected, rel=1e-3)


def test_composing_gaussians_is_one_gaussian() -> None:
    one = discretise(remove(1.0, 0.25), 1e-3, -(1 << 14), 1 << 14)
    many, error = compose(one, 16, -(1 << 14), 1 << 15)
    for epsilon in (0.2, 1.0, 3.0):
        true = exact(remove(1.0, 1.0), epsilon)
        assert true <= many.delta(epsilon) + error
        assert many.delta(epsilon) == pytest.approx(true, rel=2e-3)


@pytest.mark.parametrize(("q", "sigma", "times", "name"), [
    (100 / 30162, 2.042, 20000, "pld_eps_sigma2.042"),
    (0.003, 2.042, 20000, "pld_q0.003"),
])  # fmt: skip
def test_vectors_of_variational_inference(q: float, sigma: float, times: int, name: str) -> None:
    found = sampled_epsilon(q, 1 / sigma, times, 1e-5, 1e-4, 1 << 15)
    assert found == pytest.approx(V["dpvi"]["dpvi"][name], rel=1e-3)


@pytest.mark.parametrize(("sigma", "value"), [
    (V["coins_and_gdl"]["coins_mixture_gdp"][0]["sigma"], V["extra"]["lr_gauss_same_nm_pld_eps"]),
    (V["extra"]["lr_gauss_nm_pld_eps1"], 1.0),
])  # fmt: skip
def test_vectors_of_logistic_regression(sigma: float, value: float) -> None:
    assert sampled_epsilon(0.001, 1 / sigma, 5000, 1e-5, 2e-4, 1 << 15) == pytest.approx(value, rel=1e-3)


def test_known_coins_as_a_loss_distribution_are_the_mixture() -> None:
    q, m, times, step = 0.1, 0.5, 100, 4e-3
    full = discretise(remove(1.0, m), step, -(1 << 13), 1 << 13)
    mass = q * full.mass
    mass[1 << 13] += 1 - q
    many, error = compose(Losses(step, full.low, mass, q * full.infinite), times, -(1 << 13), 1 << 14)
    case = V["coins_and_gdl"]["coins_mixture_gdp"][2]
    assert (case["R"], case["q"], case["sens"] / case["sigma"]) == (times, q, m)
    assert epsilon_at(many, error, case["delta"]) == pytest.approx(case["eps"], rel=1e-3)


def test_randomised_response_composed_with_a_gaussian() -> None:
    step, half, epsilon = 1e-3, 1 << 14, 0.7
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    response = atoms(step, -half, half, [(epsilon, keep), (-epsilon, 1 - keep)])
    noise = discretise(remove(1.0, 1.0), step, -half, half)
    mass = np.convolve(response.mass, noise.mass)
    both = Losses(step, -2 * half, mass, noise.infinite)
    theirs = privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step
    ).compose(privacy_loss_distribution.from_gaussian_mechanism(1.0, value_discretization_interval=step))
    assert epsilon_at(both, 0.0, 1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-3)
    # The plain rule, delta(eps) <= delta'(eps - pure), is valid and looser.
    for at in (1.0, 2.5):
        assert both.delta(at) < exact(remove(1.0, 1.0), at - epsilon)


# --- floating point


def exact_power(mass: Array, times: int) -> Array:
    """The circular convolution power with 300 bits."""
    with flint.ctx.workprec(300):
        transform = flint.acb.dft([flint.acb(float(x)) for x in mass])
        back = flint.acb.dft([value**times for value in transform], inverse=True)
        return np.array([float(value.real) for value in back])


@pytest.mark.parametrize(("q", "m", "times"), [(0.01, 1.0, 5000), (0.2, 0.3, 300), (1.0, 0.2, 1), (0.5, 0.5, 17)])
def test_the_error_of_the_fft_is_below_its_bound(q: float, m: float, times: int) -> None:
    size = 1 << 10
    one = discretise(remove(q, m), 0.02, -(size // 2), size // 2 - 1)
    raised = power(np.fft.fft(one.mass), times)
    raw = np.maximum(np.fft.ifft(raised).real, 0)
    slip = float(np.abs(raw - exact_power(one.mass, times)).sum())
    _, error = compose(one, times, -(size // 2), size)
    worst = 16 * times * U * math.log2(size) * math.sqrt(size)
    assert slip <= error <= worst
    assert slip > error * 1e-5  # the bound is not idle
    whole = np.fft.irfft(np.fft.rfft(one.mass) ** times, size)  # real transforms, and numpy's own power
    assert float(np.abs(np.maximum(whole, 0) - exact_power(one.mass, times)).sum()) <= error


@pytest.mark.parametrize("size", [1 << 4, 1 << 9, 1 << 12])
def test_one_transform_is_within_its_bound(size: int) -> None:
    mass = 1 / np.arange(1.0, size + 1) ** 1.5
    mass /= mass.sum()
    with flint.ctx.workprec(200):
        true = flint.acb.dft([flint.acb(float(x)) for x in mass])
        found = np.fft.fft(mass)
        worst = max(float(abs(flint.acb(complex(a)) - b)) for a, b in zip(found, true, strict=True))
    assert worst <= 6 * U * math.log2(size) * mass.sum()


@pytest.mark.parametrize("tilt", [0.5, 1.5, 3.0])
def test_tilting_makes_the_error_small_against_delta(tilt: float) -> None:
    size, times, step = 1 << 12, 400, 0.008
    one = discretise(remove(0.05, 0.8), step, -size // 2, size // 2 - 1)
    true = exact_power(one.mass, times)
    losses = (one.low + np.arange(size)) * step
    grown = one.mass * np.exp(tilt * losses)
    scale = float(grown.sum())
    raised = power(np.fft.fft(grown / scale), times)
    tilted = np.maximum(np.fft.ifft(raised).real, 0)
    place = (-size // 2 - times * one.low + np.arange(size)) % size
    mass = tilted[place] * np.exp(times * math.log(scale) - tilt * losses)
    error = 16 * times * U * math.log2(size) * math.sqrt(size)
    for epsilon in (1.0, 2.0, 3.0):
        found, expected = (Losses(step, -size // 2, law, 0.0).delta(epsilon) for law in (mass, true[place]))
        allowed = error * math.exp(times * math.log(scale) - tilt * epsilon)
        assert expected <= found + allowed
        assert abs(found - expected) <= allowed + expected * 1e-9


def test_wrap_around_from_below_is_harmless_and_the_rest_is_charged() -> None:
    one = discretise(remove(0.3, 1.0), 0.02, -200, 600)
    times = 12
    wide, wide_error = compose(one, times, -(1 << 13), 1 << 14)
    tight, tight_error = compose(one, times, -60, 1 << 9)
    for epsilon in (0.0, 1.0, 4.0):
        assert tight.delta(epsilon) + tight_error >= wide.delta(epsilon) - wide_error - chernoff(one, times, 1 << 13)
    above = float(wide.mass[(1 << 13) - 60 + (1 << 9) :].sum())
    assert above <= chernoff(one, times, -60 + (1 << 9))
