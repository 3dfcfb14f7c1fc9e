"""docs/theory/poisson-sampling.md: sampled divergences summed exactly, against the formula."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf

V: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())["sqm"]["subsampled_skellam"]
Law = dict[int, mpf]
SLACK = mpf(10) ** -20


@pytest.fixture(autouse=True)
def _digits() -> Any:
    with mp.workdps(40):
        yield


@cache
def skellam(mu: float) -> Law:
    reach = int(12 + 14 * (2 * mu) ** 0.5)
    half = [mpmath.exp(-2 * mpf(mu)) * mpmath.besseli(k, 2 * mpf(mu)) for k in range(reach + 1)]
    return {k: half[abs(k)] for k in range(-reach, reach + 1)}


@cache
def discrete_gaussian(variance: float) -> Law:
    reach = int(10 + 14 * variance**0.5)
    raw = {k: mpmath.exp(-mpf(k * k) / (2 * mpf(variance))) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(raw.values())
    return {k: value / total for k, value in raw.items()}


@cache
def discrete_laplace(scale: float) -> Law:
    reach = int(60 * scale)
    raw = {k: mpmath.exp(-abs(k) / mpf(scale)) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(raw.values())
    return {k: value / total for k, value in raw.items()}


LAWS: dict[str, Callable[[], Law]] = {
    "skellam 1/2": lambda: skellam(0.5),
    "skellam 4": lambda: skellam(4.0),
    "gaussian 2": lambda: discrete_gaussian(2.0),
    "gaussian 30": lambda: discrete_gaussian(30.0),
    "laplace 3": lambda: discrete_laplace(3.0),
}


def moved(law: Law, shift: int, among: range) -> list[mpf]:
    """The masses of law + shift, on a common range inside which both have their full support."""
    return [law.get(z - shift, mpf(0)) for z in among]


def pair(law: Law, shift: int) -> tuple[list[mpf], list[mpf]]:
    # Only points that both laws reach: the cut masses are far below the tolerance, and ratios stay finite.
    reach = max(law)
    among = range(-reach + max(shift, 0), reach + 1 + min(shift, 0))
    return moved(law, 0, among), moved(law, shift, among)


def power(first: list[mpf], second: list[mpf], order: int) -> mpf:
    """The sum of p^order s^(1 - order)."""
    return mpmath.fsum(p**order * s ** (1 - order) for p, s in zip(first, second, strict=True))


def mixed(q: mpf, out: list[mpf], inside: list[mpf]) -> list[mpf]:
    return [(1 - q) * p + q * s for p, s in zip(out, inside, strict=True)]


def formula(order: int, q: mpf, excess: Callable[[int], mpf]) -> mpf:
    """The moment that the page bounds; ``excess(l)`` is (l - 1) tau_l."""
    first = (1 - q) ** (order - 1) * (order * q - q + 1)
    return first + mpmath.fsum(
        mpmath.binomial(order, i) * (1 - q) ** (order - i) * q**i * mpmath.exp(excess(i)) for i in range(2, order + 1)
    )


def skellam_tau(order: int, mu: float, d1: float, d2: float) -> mpf:
    mu_, d1_, square = mpf(mu), mpf(d1), mpf(d2) ** 2
    extra = min(((2 * order - 1) * square + 6 * d1_) / (16 * mu_**2), 3 * d1_ / (4 * mu_))
    return order * square / (4 * mu_) + extra


# --- the two-point inequality


@settings(deadline=None, max_examples=300)
@given(st.floats(1e-6, 1.0), st.floats(-30.0, 30.0), st.floats(1.0, 80.0))
def test_the_two_point_inequality(q: float, log_ratio: float, order: float) -> None:
    with mp.workdps(60):
        x, rate, a = mpmath.exp(mpf(log_ratio)), mpf(q), mpf(order)
        u, v = 1 - rate + rate * x, 1 - rate + rate / x
        left, right = u**a + x * v**a, u ** (1 - a) + x * v ** (1 - a)
        assert left - right >= -(left + right) * mpf(10) ** -50


@settings(deadline=None, max_examples=100)
@given(st.floats(1.001, 1e6), st.floats(1.0, 60.0))
def test_the_two_point_inequality_is_an_equality_without_sampling(x: float, order: float) -> None:
    with mp.workdps(60):
        big, a = mpf(x), mpf(order)
        left, right = big**a + big * big**-a, big ** (1 - a) + big * big ** (a - 1)
        assert mpmath.almosteq(left, right, mpf(10) ** -50)


# --- one round, one coordinate


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("shift", [1, -3])
@pytest.mark.parametrize("q", [0.01, 0.3, 0.9])
def test_removing_meets_the_formula_exactly_and_adding_stays_below(name: str, shift: int, q: float) -> None:
    out, inside = pair(LAWS[name](), shift)
    sample = mixed(mpf(q), out, inside)
    for order in (2, 3, 6, 12):
        exact = formula(order, mpf(q), lambda i: mpmath.log(power(inside, out, i)))
        removed, added = power(sample, out, order), power(out, sample, order)
        assert mpmath.almosteq(removed, exact, mpf(10) ** -15)
        assert added <= exact + SLACK


@pytest.mark.parametrize(("mu", "shift"), [(0.5, 1), (2.0, 2), (10.0, 3), (40.0, 10)])
@pytest.mark.parametrize("q", [0.001, 0.05, 0.5])
def test_skellam_with_its_cited_bound_is_never_above_the_formula(mu: float, shift: int, q: float) -> None:
    out, inside = pair(skellam(mu), shift)
    sample = mixed(mpf(q), out, inside)
    for order in (2, 4, 8, 16):
        bound = formula(order, mpf(q), lambda i: (i - 1) * skellam_tau(i, mu, shift, shift))
        assert power(sample, out, order) <= bound + SLACK
        assert power(out, sample, order) <= bound + SLACK


@pytest.mark.parametrize("case", V)
def test_vectors(case: dict[str, Any]) -> None:
    def excess(i: int) -> mpf:
        return (i - 1) * skellam_tau(i, case["mu"], case["d1"], case["d2"])

    found = mpmath.log(formula(case["alpha"], mpf(case["q"]), excess)) / (case["alpha"] - 1)
    assert float(found) == pytest.approx(case["tau"], rel=1e-9)


# --- a table: the coins of others, coins that round, two coordinates, two rounds


def test_other_peoples_coins_and_rounding_coins_do_not_matter() -> None:
    law, q = skellam(1.5), mpf("0.3")
    others = [2, -1]
    rounded = {1: mpf("0.25"), 2: mpf("0.75")}  # the person's value is rounded by a coin
    among = range(-14, 16)

    def output(with_person: bool) -> list[mpf]:
        total = [mpf(0)] * len(among)
        for coins in product((0, 1), repeat=3):
            weight = mpmath.fprod(q if coin else 1 - q for coin in coins)
            for value, chance in rounded.items():
                f = sum(coin * x for coin, x in zip(coins, others, strict=False)) + with_person * coins[2] * value
                for i, mass in enumerate(moved(law, f, among)):
                    total[i] += weight * chance * mass
        return total

    there, gone = output(True), output(False)
    out, inside = pair(law, 2)
    for order in (2, 5, 9):
        bound = formula(order, q, lambda i: mpmath.log(power(inside, out, i)))
        assert power(there, gone, order) < bound
        assert power(gone, there, order) < bound


def test_two_coordinates_and_two_adaptive_rounds() -> None:
    law, q = discrete_gaussian(1.5), mpf("0.4")
    among = range(-9, 11)
    laws = {shift: moved(law, shift, among) for shift in (0, 1, 2)}

    def sampled(shift: tuple[int, int]) -> tuple[list[mpf], list[mpf]]:
        out = [a * b for a in laws[0] for b in laws[0]]
        return mixed(q, out, [a * b for a in laws[shift[0]] for b in laws[shift[1]]]), out

    # The second round's direction depends on what the first round showed; its length does not.
    first, seconds = sampled((1, 2)), [sampled((2, 1)), sampled((1, 2))]
    base = [a * b for a in laws[1] for b in laws[2]], [a * b for a in laws[0] for b in laws[0]]
    for order in (2, 4):
        bound = formula(order, q, lambda i: mpmath.log(power(*base, i)))
        for way in (0, 1):
            inner = [power(second[way], second[1 - way], order) for second in seconds]
            total = mpmath.fsum(
                p**order * s ** (1 - order) * inner[i % 2]
                for i, (p, s) in enumerate(zip(first[way], first[1 - way], strict=True))
            )
            assert total <= bound**2 + SLACK


# --- replacing is another matter


def test_the_add_remove_figure_does_not_cover_replacing() -> None:
    law, q = discrete_gaussian(4.0), mpf("0.1")
    among = range(-20, 21)
    out, plus, minus = (moved(law, shift, among) for shift in (0, 1, -1))
    replaced = power(mixed(q, out, plus), mixed(q, out, minus), 2) - 1
    bound = formula(2, q, lambda i: mpmath.log(power(plus, out, i))) - 1
    assert replaced > 3 * bound


def test_the_replace_sensitivity_in_the_formula_does_not_cover_replacing() -> None:
    law, q = discrete_gaussian(4.0), mpf("0.01")
    among = range(-20, 50)
    out, one, other = (moved(law, shift, among) for shift in (0, 25, 26))
    bound = formula(2, q, lambda i: mpmath.log(power(*pair(law, 1), i))) - 1
    first, second = mixed(q, out, one), mixed(q, out, other)
    replaced = mpmath.fsum(p * p / s for p, s in zip(first, second, strict=True) if s > 0) - 1
    assert replaced > 20 * bound
