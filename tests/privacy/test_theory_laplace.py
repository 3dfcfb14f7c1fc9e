"""docs/theory/laplace-shares.md, checked with mpmath and by enumeration."""

from __future__ import annotations

import json
import math
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf

from colonnade.errors import PrivacyError
from colonnade.privacy.routes.laplace import _above, _enclosed, generalised_laplace_epsilon

V: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())["coins_and_gdl"][
    "gdl_coalition_eps"
]


@pytest.fixture(autouse=True)
def _digits() -> Any:
    with mp.workdps(40):
        yield


def mass(weight: float, scale: float, value: int) -> mpf:
    """The hypergeometric form of the page."""
    r, p, x = mpf(weight), mpmath.exp(-1 / mpf(scale)), abs(value)
    rising = mpmath.rf(r, x) / mpmath.factorial(x)
    return (1 - p) ** (2 * r) * p**x * rising * mpmath.hyp2f1(r + x, r, x + 1, p * p)


def log_ratio(weight: float, scale: float, low: int, high: int) -> mpf:
    return mpmath.log(mass(weight, scale, low) / mass(weight, scale, high))


def counts(weight: float, p: float, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Masses of NB(weight, p), by their recurrence."""
    found = [(1 - p) ** weight]
    for k in range(size - 1):
        found.append(found[-1] * p * (weight + k) / (k + 1))
    return np.array(found)


@pytest.mark.parametrize("weight", [0.2, 0.5, 0.75, 1.0, 1.6])
def test_the_mass_is_that_of_a_difference_of_negative_binomial_counts(weight: float) -> None:
    one = counts(weight, math.exp(-1 / 3), 400)
    difference = np.convolve(one, one[::-1])
    for value in (0, 1, 2, 7, 30):
        assert difference[399 + value] == pytest.approx(float(mass(weight, 3, value)), rel=1e-11)


def test_shares_add_up_to_one_discrete_laplace_variable() -> None:
    p, parts = math.exp(-1 / 4), [0.2, 0.3, 0.5]
    total = np.array([1.0])
    for weight in parts:
        one = counts(weight, p, 300)
        total = np.convolve(total, np.convolve(one, one[::-1]))
    middle = len(total) // 2
    for value in range(20):
        assert total[middle + value] == pytest.approx((1 - p) / (1 + p) * p**value, rel=1e-9)


@pytest.mark.parametrize("case", [case for case in V if case["beta"] <= 1])
def test_vectors_of_observers_who_know_shares(case: dict[str, Any]) -> None:
    found = generalised_laplace_epsilon(case["beta"], case["Delta"] / case["eps0"], case["Delta"])
    assert found == pytest.approx(case["eps"], rel=1e-9)


def test_the_vector_above_one_is_a_scan_that_stopped_and_the_supremum_is_the_plain_ratio() -> None:
    (case,) = (case for case in V if case["beta"] > 1)
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


@pytest.mark.parametrize("weight", [1e-6, 0.25, 0.5, 0.5 + 1e-12, 0.9, 1 - 1e-9])
@pytest.mark.parametrize(("scale", "shift"), [(1e12, 1), (1e12, 1000), (1e12, 10**12), (1e9, 10**11), (1.0, 10**6)])
def test_large_scales_and_shifts(weight: float, scale: float, shift: int) -> None:
    found = generalised_laplace_epsilon(weight, scale, shift)
    more = generalised_laplace_epsilon(weight, scale, shift + 1)
    less_noise = generalised_laplace_epsilon(weight * 0.99, scale, shift)
    assert shift / scale <= found < more
    assert found < less_noise < math.inf


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


@pytest.mark.parametrize("wrong", [(-0.1, 1.0, 1), (0.5, 0.0, 1), (0.5, 1.0, -1), (math.nan, 1.0, 1), (0.5, 1.0, True)])
def test_what_makes_no_sense_is_refused(wrong: tuple[float, float, int]) -> None:
    with pytest.raises(PrivacyError):
        generalised_laplace_epsilon(*wrong)


def test_no_noise_and_no_shift() -> None:
    assert generalised_laplace_epsilon(0.0, 1.0, 1) == math.inf
    assert generalised_laplace_epsilon(0.0, 1.0, 0) == 0.0
