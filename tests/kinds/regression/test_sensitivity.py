from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.regression.sensitivity import (
    Program,
    cubic_maximum,
    gradient_scale,
    gradient_sensitivity,
    inner_product_bound,
    worst_weights_squared,
)
from colonnade.privacy.sensitivity.exact import root_up
from colonnade.privacy.sensitivity.moments import moments_sensitivity
from colonnade.privacy.sensitivity.norms import party_norm_squared
from research import formulas as published
from research.bounds import Polynomial, bombieri_squares, gradient_norm, polynomial_sensitivity
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())
PROGRAMS: tuple[Program, ...] = ("linear", "logistic", "cubic", "published")
NEAR = {"rel": 1e-9}


def _norms(gamma: int, d: int, quarter: bool = False) -> tuple[Fraction, Fraction]:
    return gamma + root_up(d), Fraction(gamma, 4 if quarter else 1) + root_up(d)


def _normalised(program: Program, gamma: int, d: int) -> float:
    norms = _norms(gamma, d, quarter=program == "published")
    return float(gradient_norm(program, gamma, *norms) / gradient_scale(program, gamma))


@pytest.mark.parametrize("case", VECTORS["sqm"]["lr_sens_normalised"])
def test_normalised_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, d = case["gamma"], case["d"]
    assert _normalised("published", gamma, d) == pytest.approx(case["alg3_safe"], **NEAR)
    assert _normalised("logistic", gamma, d) == pytest.approx(case["struct"], **NEAR)
    assert _normalised("cubic", gamma, d) == pytest.approx(case["struct_H3"], **NEAR)
    assert published.paper_logistic_gradient_norm(gamma, d) / gamma**3 == pytest.approx(case["paper"], **NEAR)
    assert published.mended_logistic_gradient_norm(gamma, d) / gamma**3 == pytest.approx(case["paper_fixed"], **NEAR)


def test_the_published_experiment_matches_the_vectors() -> None:
    case = VECTORS["sqm"]["lr_fig3"]
    gamma, d = case["gamma"], case["d"]
    norms = {
        "paper_eq22": (published.paper_logistic_gradient_norm(gamma, d), 1),
        "paper_fixed": (published.mended_logistic_gradient_norm(gamma, d), 1),
        "alg3_safe": (float(gradient_norm("published", gamma, *_norms(gamma, d, quarter=True))), 1),
        "struct": (float(gradient_norm("logistic", gamma, *_norms(gamma, d))), 4),
    }
    for name, (norm, multiple) in norms.items():
        given_mu = math.sqrt(2 * case[name]["mu"])
        assert norm == pytest.approx(case[name]["d2"], **NEAR)
        assert given_mu / norm == pytest.approx(case[name]["noise_multiplier"], **NEAR)
        assert given_mu / (multiple * gamma**3) == pytest.approx(case[name]["std_norm"], **NEAR)


@pytest.mark.parametrize("case", VECTORS["lr_calibration_rdp_struct"])
def test_calibrated_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, d = case["gamma"], case["d"]
    norm, weights = _norms(gamma, d)
    bound = gradient_sensitivity("logistic", gamma, norm * norm, weights * weights, d)
    assert math.sqrt(bound.l2_squared) == pytest.approx(case["d2"], **NEAR)
    assert abs(bound.l1 - case["d1"]) <= 1 + 1e-9 * case["d1"]
    assert math.sqrt(2 * case["mu"]) / gradient_scale("logistic", gamma) == pytest.approx(case["std_norm"], **NEAR)
    # What a run uses: integers that a party checks, hence never above the real bound and very close to it.
    whole = gradient_sensitivity(
        "logistic", gamma, party_norm_squared(gamma, 1.0, d), worst_weights_squared("logistic", gamma, d), d
    )
    assert 0.9999 * bound.l2_squared <= whole.l2_squared <= bound.l2_squared


def _score(program: Program, gamma: int, u: int, y: int) -> int:
    if program == "linear":
        return u - gamma * y
    if program == "logistic":
        return 2 * gamma**2 * (1 - 2 * y) + u
    if program == "cubic":
        return 24 * gamma**6 * (1 - 2 * y) + 12 * gamma**4 * u - u**3
    return -(-(gamma**2) // 2) - gamma**2 * y + u


def _gradient(program: Program, gamma: int, w: Any, x: Any, y: int) -> Any:
    return x * _score(program, gamma, int(w @ x), y)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PROGRAMS), st.integers(1, 9), st.integers(1, 6), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_no_integer_row_moves_a_gradient_further(
    program: Program, gamma: int, columns: int, label: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    reach = int(rng.integers(1, 60))
    w, x, z = (rng.integers(-reach, reach + 1, columns).astype(object) for _ in range(3))
    if rng.random() < 0.3:
        z, x = x, w.copy()  # aligned with the weights: the worst direction
    labels = rng.integers(-label, label + 1, 2) if program == "linear" else rng.integers(0, 2, 2)
    square = max(int(x @ x), int(z @ z))
    bound = gradient_sensitivity(program, gamma, square, int(w @ w), columns, label if program == "linear" else 0)
    one, other = (_gradient(program, gamma, w, row, int(y)) for row, y in zip((x, z), labels, strict=True))
    assert int(one @ one) <= bound.l2_squared
    assert int(abs(one).sum()) <= bound.l1
    gap = one - other
    assert int(gap @ gap) <= bound.replace_l2_squared <= 4 * bound.l2_squared
    assert int(abs(gap).sum()) <= bound.replace_l1 <= 2 * bound.l1


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_bounds_are_reached(program: Program) -> None:
    gamma, label, w = 2, 3, np.array([3, 4], dtype=object)
    bound = gradient_sensitivity(program, gamma, 25, 25, 2, label if program == "linear" else 0)
    signs = [(x, y) for x in (w, -w) for y in ((-label, label) if program == "linear" else (0, 1))]
    moved = [_gradient(program, gamma, w, x, y) for x, y in signs]
    assert max(int(g @ g) for g in moved) == bound.l2_squared


def test_replacing_a_row_costs_less_than_twice() -> None:
    """Only the label's part turns around; x x' w does not, so 2 c B + W B^2 holds in place of 2 (c B + W B^2)."""
    gamma = 1 << 13
    bound = gradient_sensitivity("logistic", gamma, gamma**2, gamma**2, 800)
    scale = gradient_scale("logistic", gamma)
    assert math.sqrt(bound.l2_squared) / scale == pytest.approx(0.75)
    assert math.sqrt(bound.replace_l2_squared) / scale == pytest.approx(1.25)
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(20_000):
        one, other = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 2)))
        signs = rng.choice([-2.0, 2.0], 2)
        gap = one * (signs[0] + one[0]) - other * (signs[1] + other[0])
        worst = max(worst, float(np.linalg.norm(gap)) / 4)
    assert 1.0 < worst < 1.25  # and not 1.5


def test_replacing_a_row_in_the_cubic_program() -> None:
    gamma = 1 << 10
    near = gradient_sensitivity("cubic", gamma, gamma**2, gamma**2, 4)
    far = gradient_sensitivity("cubic", gamma, gamma**2, 16 * gamma**2, 4)
    scale = gradient_scale("cubic", gamma)
    assert math.sqrt(near.replace_l2_squared) / scale == pytest.approx(1.25)
    assert far.replace_l2_squared == 4 * far.l2_squared


@given(st.fractions(0, 12, max_denominator=97))
def test_the_cubic_maximum_is_the_maximum(reach: Fraction) -> None:
    grid = [reach * Fraction(step, 60) for step in range(61)]
    best = max(abs(Fraction(1, 2) + v / 4 - v**3 / 48) for point in grid for v in (point, -point))
    bound = cubic_maximum(reach)
    assert best <= bound
    peaks = [point for point in (Fraction(2), reach) if point <= reach]
    assert bound == max(Fraction(1, 2) + abs(v / 4 - v**3 / 48) for v in peaks)


def test_integers_are_bounded_below_the_real_root() -> None:
    assert inner_product_bound(2, 3) == 2
    assert float(inner_product_bound(Fraction(2), Fraction(3))) == pytest.approx(math.sqrt(6))
    assert worst_weights_squared("published", 8, 4) == 16  # (8/4 + 2)^2
    assert worst_weights_squared("logistic", 8, 4) == 100


def test_senseless_programs_are_refused() -> None:
    with raises(PrivacyError, "PR091"):
        gradient_sensitivity("quartic", 2, 1, 1, 1)  # type: ignore[arg-type]
    with raises(PrivacyError, "PR090"):
        gradient_sensitivity("linear", 2, -1, 1, 1)
    with raises(PrivacyError, "PR089"):
        gradient_scale("linear", 0)


OUTER = [{tuple((i == a) + (i == b) for i in range(3)): 1} for a in range(3) for b in range(3)]


def test_bombieri_is_loose_for_moments_by_the_known_factor() -> None:
    assert bombieri_squares(OUTER) == {2: 6}
    bound = polynomial_sensitivity(OUTER, 10)
    assert bound.l2_squared == 600  # n (n + 1) / 2 times the right 100
    assert moments_sensitivity(10, 3).l2_squared == 100


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
def test_no_polynomial_exceeds_its_bombieri_bound(seed: int, variables: int, outputs: int) -> None:
    rng = np.random.default_rng(seed)
    polynomials: list[Polynomial] = [
        {tuple(map(int, rng.integers(0, 3, variables))): int(rng.integers(-9, 10)) for _ in range(4)}
        for _ in range(outputs)
    ]
    x, y = (list(map(int, rng.integers(-5, 6, variables))) for _ in range(2))

    def at(row: list[int]) -> list[int]:
        return [
            sum(c * math.prod(v**e for v, e in zip(row, powers, strict=True)) for powers, c in p.items())
            for p in polynomials
        ]

    bound = polynomial_sensitivity(polynomials, max(sum(v * v for v in row) for row in (x, y)))
    one, other = at(x), at(y)
    assert sum(v * v for v in one) <= bound.l2_squared
    assert sum(map(abs, one)) <= bound.l1
    assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= bound.replace_l2_squared


def test_a_power_of_a_linear_form_reaches_its_bombieri_bound() -> None:
    cube: Polynomial = {(3, 0): 27, (2, 1): 108, (1, 2): 144, (0, 3): 64}  # (3x + 4y)^3
    assert polynomial_sensitivity([cube], 25).l2_squared == 25**6


def test_constants_cost_nothing_when_a_row_is_replaced() -> None:
    bound = polynomial_sensitivity([{(0,): 7, (1,): 1}], 1)
    assert (bound.l2_squared, bound.replace_l2_squared) == (64, 4)
    with raises(PrivacyError, "PR139"):
        polynomial_sensitivity([{(-1,): 1}], 1)
