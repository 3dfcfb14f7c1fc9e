"""docs/theory/pure-epsilon.md and replacing-and-groups.md, on small supports that can be summed exactly."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]
V: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())


def hockey(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def moment(p: Array, q: Array, order: float) -> float:
    return float((p * np.exp((order - 1) * np.log(p / q))).sum())


def response(epsilon: float) -> tuple[Array, Array]:
    """Binary randomised response, the extreme pair."""
    p = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    return p, p[::-1].copy()


def bound(epsilon: float, order: float) -> float:
    """The page's closed form of its moment."""
    return (math.sinh(order * epsilon) - math.sinh((order - 1) * epsilon)) / math.sinh(epsilon)


@st.composite
def pure_pairs(draw: st.DrawFn) -> tuple[Array, Array, float]:
    """Two laws on a few points whose log ratios stay within an epsilon."""
    size = draw(st.integers(2, 6))
    whole = st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size)
    q, tilt = np.array(draw(whole)), np.array(draw(whole))
    p = q * np.exp(3 * tilt)
    p, q = p / p.sum(), q / q.sum()
    return p, q, float(np.abs(np.log(p / q)).max())


@settings(deadline=None, max_examples=150)
@given(pure_pairs(), st.floats(1.01, 40.0), st.floats(-3.0, 4.0))
def test_binary_randomised_response_is_the_extreme_pair(
    drawn: tuple[Array, Array, float], order: float, at: float
) -> None:
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


def laplace(scale: float, shift: int, reach: int = 400) -> Array:
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


def test_the_norm_that_counts_for_vectors_is_the_first() -> None:
    one, shifts = [laplace(3.0, shift, 30) for shift in (0, 1, 2)], (1, 2)
    p = np.outer(one[0], one[0])
    q = np.outer(one[shifts[0]], one[shifts[1]])
    assert float(np.abs(np.log(p / q)).max()) == pytest.approx(sum(shifts) / 3.0, rel=1e-12)


@pytest.mark.parametrize("case", V["hdp_fm_afe"]["rr"])
def test_randomised_response_vectors(case: dict[str, Any]) -> None:
    odds = math.exp(case["eps"])
    keep, other = odds / (odds + case["K"] - 1), 1 / (odds + case["K"] - 1)
    assert keep == pytest.approx(case["p_true"], rel=1e-9)
    assert keep + (case["K"] - 1) * other == pytest.approx(1, rel=1e-12)
    assert math.log(keep / other) == pytest.approx(case["eps"], rel=1e-12)


@pytest.mark.parametrize("pure_first", [True, False])
@pytest.mark.parametrize("epsilon", [0.2, 0.6, 1.0, 1.7])
def test_a_pure_part_shifts_the_profile(pure_first: bool, epsilon: float) -> None:
    """Adaptive: the second law depends on the first output."""
    pure = 0.5
    extreme, noise = response(pure), (laplace(4.0, 0, 60), laplace(4.0, 3, 60))
    mixed = noise[0], 0.9 * noise[1] + 0.1 * np.roll(noise[1], 5)  # not pure at its own epsilon
    flipped = (extreme[1], extreme[0])
    rows = []
    for side in (0, 1):
        if pure_first:
            later = [mixed[side], mixed[side][::-1]]
            rows.append(np.concatenate([extreme[side][i] * later[i] for i in (0, 1)]))
        else:
            each = [extreme[side] if i % 2 else flipped[side] for i in range(len(mixed[side]))]
            rows.append(np.concatenate([mass * law for mass, law in zip(mixed[side], each, strict=True)]))
    profile = max(hockey(*mixed, epsilon - pure), hockey(mixed[0][::-1], mixed[1][::-1], epsilon - pure))
    assert hockey(rows[0], rows[1], epsilon) <= profile + 1e-12


def test_pure_epsilons_add_up() -> None:
    p, q = response(0.4), response(0.9)
    both = np.outer(p[0], q[0]), np.outer(p[1], q[1])
    assert float(np.log(both[0] / both[1]).max()) == pytest.approx(1.3, rel=1e-12)


# --- replacing is removing and adding


def gaussian(centre: float, variance: float = 4.0) -> Array:
    points = np.arange(-60, 61)
    raw = np.exp(-((points - centre) ** 2) / (2 * variance))
    return np.asarray(raw / raw.sum())


@pytest.mark.parametrize("q", [0.05, 0.3, 1.0])
@pytest.mark.parametrize(("one", "other"), [(2, -2), (2, 1), (-1, 2)])
def test_replacing_costs_at_most_a_removal_and_an_addition(q: float, one: int, other: int) -> None:
    out = gaussian(0)
    first, second = ((1 - q) * out + q * gaussian(x) for x in (one, other))
    worst = (1 - q) * out + q * gaussian(2)  # the longest change that adding or removing a person can make

    def either(epsilon: float) -> float:
        return max(hockey(worst, out, epsilon), hockey(out, worst, epsilon))

    for epsilon in (0.0, 0.1, 0.4, 1.0):
        assert hockey(first, second, 2 * epsilon) <= (1 + math.exp(epsilon)) * either(epsilon) + 1e-12
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
