"""docs/theory/known-coins.md and fixed-batches.md: mixtures over coins, and batches that a person is not in."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mpf
from scipy.stats import binom, norm

ALL: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
COINS = ALL["coins_and_gdl"]
Array = np.ndarray[Any, np.dtype[np.float64]]


def gaussian_delta(mu: mpf, epsilon: mpf) -> mpf:
    if mu == 0:
        return max(mpf(0), 1 - mpmath.exp(epsilon))
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return mpmath.ncdf(-low) - mpmath.exp(epsilon) * mpmath.ncdf(-high)


def mixture_delta(rounds: int, q: float, mu: float, epsilon: float) -> mpf:
    """The page's sum, with 50 digits; terms whose binomial mass is below 10^-20 are left out."""
    with mpmath.workdps(50):
        rate, total = mpf(q), mpf(0)
        mass = (1 - rate) ** rounds
        for k in range(rounds + 1):
            if k:
                mass *= rate / (1 - rate) * (rounds - k + 1) / k
            if mass < mpf(10) ** -20 and k > rounds * q:
                break
            total += mass * gaussian_delta(mpf(mu) * mpmath.sqrt(k), mpf(epsilon))
        return total


@pytest.mark.parametrize("case", COINS["coins_mixture_gdp"])
def test_mixture_vectors(case: dict[str, Any]) -> None:
    args = case["R"], case["q"], case["sens"] / case["sigma"]
    assert (
        mixture_delta(*args, case["eps"] * (1 + 1e-6)) < case["delta"] < mixture_delta(*args, case["eps"] * (1 - 1e-6))
    )


def test_a_party_of_two_in_variational_inference() -> None:
    args = 20000, COINS["coins_mixture_gdp"][1]["q"], 2 / (2.042 / math.sqrt(2))
    epsilon = COINS["dpvi_coins_P2"]
    assert mixture_delta(*args, epsilon * (1 + 1e-6)) < 1e-5 < mixture_delta(*args, epsilon * (1 - 1e-6))


@pytest.mark.parametrize("case", ALL["sqm"]["known_coins"])
def test_renyi_vectors(case: dict[str, Any]) -> None:
    order, q, tau = case["alpha"], mpf(case["q"]), mpf(case["tau_base"])
    found = mpmath.log(1 - q + q * mpmath.exp((order - 1) * tau)) / (order - 1)
    assert float(found) == pytest.approx(case["tau"], rel=1e-9)


def renyi_epsilon(rounds: int, q: float, mu: float, delta: float) -> float:
    """The least epsilon over whole orders by the Renyi form, for Gaussian noise."""
    best = math.inf
    for order in range(2, 129):
        with mpmath.workdps(30):
            grown = mpmath.exp((order - 1) * order * mpf(mu) ** 2 / 2)
            tau = rounds * mpmath.log(1 + mpf(q) * (grown - 1)) / (order - 1)
        rest = (math.log(1 / delta) + (order - 1) * math.log1p(-1 / order) - math.log(order)) / (order - 1)
        best = min(best, float(tau) + rest)
    return best


def test_the_renyi_form_is_valid_and_poor() -> None:
    case = COINS["coins_mixture_gdp"][0]
    poor = renyi_epsilon(case["R"], case["q"], case["sens"] / case["sigma"], case["delta"])
    assert poor > 1.4 * case["eps"]
    mild = renyi_epsilon(100, 0.1, 0.5, 1e-5)
    assert COINS["coins_mixture_gdp"][2]["eps"] < mild < 1.6 * COINS["coins_mixture_gdp"][2]["eps"]


# --- exact enumeration


AMONG = np.arange(-24, 25, dtype=np.float64)


def hockey(p: Array, q: Array, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def round_law(value: float, variance: float = 4.0) -> Array:
    raw = np.exp(-((AMONG - value) ** 2) / (2 * variance))
    return np.asarray(raw / raw.sum())


def two_rounds(values: tuple[float, tuple[float, float]]) -> Array:
    """First output, then one whose true value depends on the first output's sign."""
    first, (negative, positive) = values
    second = np.where((AMONG < 0)[:, None], round_law(negative)[None, :], round_law(positive)[None, :])
    return round_law(first)[:, None] * second


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_coins_in_the_view_average_the_hockey_sticks(epsilon: float) -> None:
    q, averaged = 0.3, 0.0
    views: list[tuple[Array, Array]] = []
    for coins in product((0, 1), repeat=2):
        weight = math.prod(q if coin else 1 - q for coin in coins)
        with_person = two_rounds((coins[0] * 1.0, (coins[1] * 1.0, 1.0 - coins[1])))
        without = two_rounds((0.0, (0.0, 1.0)))
        views.append((weight * with_person, weight * without))
        averaged += weight * hockey(with_person, without, epsilon)
    stacked = [np.stack(side) for side in zip(*views, strict=True)]
    joint = hockey(stacked[0], stacked[1], epsilon)
    assert joint == pytest.approx(averaged, rel=1e-12)
    one = hockey(round_law(1.0), round_law(0.0), epsilon)
    two = hockey(np.outer(round_law(1.0), round_law(1.0)), np.outer(round_law(0.0), round_law(0.0)), epsilon)
    assert joint <= 2 * q * (1 - q) * one + q * q * two + 1e-9
    # Hiding the coins can only lower it.
    assert hockey(stacked[0].sum(axis=0), stacked[1].sum(axis=0), epsilon) < joint


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 5.0), st.floats(1.0, 1.5), st.floats(0.0, 20.0))
def test_the_gaussian_profile_grows_with_its_size(mu: float, more: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        assert gaussian_delta(mpf(mu), mpf(epsilon)) <= gaussian_delta(mpf(mu) * mpf(more), mpf(epsilon))


def exact_groups(groups: list[tuple[int, float, float]], epsilon: float) -> float:
    total = 0.0
    for counts in product(*(range(rounds + 1) for rounds, _, _ in groups)):
        weight = math.prod(float(binom.pmf(k, rounds, q)) for k, (rounds, q, _) in zip(counts, groups, strict=True))
        square = math.fsum(k * size**2 for k, (_, _, size) in zip(counts, groups, strict=True))
        total += weight * float(gaussian_delta(mpf(math.sqrt(square)), mpf(epsilon)))
    return total


def rounded_groups(groups: list[tuple[int, float, float]], epsilon: float, step: float) -> float:
    """The law of S = sum k m^2, each m^2 rounded up to the grid, by convolution."""
    law = np.array([1.0])
    for rounds, q, size in groups:
        cells = math.ceil(size**2 / step)
        spread = np.zeros(rounds * cells + 1)
        spread[::cells] = binom.pmf(np.arange(rounds + 1), rounds, q)
        law = np.convolve(law, spread)
    mu = np.sqrt(np.arange(1, len(law)) * step)
    deltas = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    return float(law[1:] @ deltas)


def test_several_groups_and_sizes_rounded_up() -> None:
    groups = [(12, 0.2, 0.31), (7, 0.5, 0.77), (3, 1.0, 0.2)]
    for epsilon in (0.5, 2.0):
        exact = exact_groups(groups, epsilon)
        coarse, fine = (rounded_groups(groups, epsilon, step) for step in (0.05, 0.0005))
        assert exact <= fine <= coarse
        assert fine == pytest.approx(exact, rel=0.01)


# --- fixed batches


def openings(batches: int, epochs: int, person: int | None) -> Array:
    """The exact law of all openings of batches visited in turn; each adds a value that depends on the past."""
    past: list[tuple[int, ...]] = [()]
    masses: list[float] = [1.0]
    for step in range(batches * epochs):
        present = person is not None and step % batches == person
        grown: list[tuple[int, ...]] = []
        weights: list[float] = []
        for seen, mass in zip(past, masses, strict=True):
            keep = 0.5 + 0.1 * (sum(seen) % 3 == 0) * (-1) ** len(seen)  # what all others add up to, given the past
            moved = keep + (0.2 if present else 0.0)
            grown += [(*seen, 0), (*seen, 1)]
            weights += [mass * (1 - moved), mass * moved]
        past, masses = grown, weights
    return np.array(masses)


@pytest.mark.parametrize(("batches", "epochs"), [(1, 3), (4, 3), (6, 2)])
def test_a_person_pays_for_epochs_not_for_openings(batches: int, epochs: int) -> None:
    with_person, without = openings(batches, epochs, 0), openings(batches, epochs, None)
    # Worst single opening: a coin of 0.4 to 0.6 moved by 0.2, bounded by these log ratios.
    worst = max(
        abs(math.log(a / b)) for keep in (0.4, 0.5, 0.6) for a, b in ((keep + 0.2, keep), (0.8 - keep, 1 - keep))
    )
    assert float(np.abs(np.log(with_person / without)).max()) <= epochs * worst + 1e-12
    order = 4
    moment = max(
        (keep + 0.2) ** order * keep ** (1 - order) + (0.8 - keep) ** order * (1 - keep) ** (1 - order)
        for keep in (0.4, 0.5, 0.6)
    )
    assert float((with_person**order * without ** (1 - order)).sum()) <= moment**epochs * (1 + 1e-12)


def test_positions_that_close_up_move_somebody_in_every_batch() -> None:
    people = list(range(60))
    size = 10

    def closing_up(rows: list[int]) -> list[list[int]]:
        return [rows[i : i + size] for i in range(0, len(rows), size)]

    def staying(rows: list[int]) -> list[list[int]]:
        return [[row for row in rows if row // size == batch] for batch in range(6)]

    fewer = [row for row in people if row != 3]
    assert sum(a != b for a, b in zip(closing_up(people), closing_up(fewer), strict=True)) == 6
    assert sum(a != b for a, b in zip(staying(people), staying(fewer), strict=True)) == 1
