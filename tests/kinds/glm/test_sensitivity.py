"""The formulas of how far one person moves messages: vectors, closed forms, and what never costs less.

That no transcript moves the sides themselves any further, and that some come close, is in ``test_audit.py``.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import PrivacyError
from colonnade.kinds.glm.sensitivity_alternating import (
    ActiveFits,
    PassiveFits,
    active_fits_squared,
    active_fits_weights,
    passive_fits_squared,
    passive_fits_weights,
)
from colonnade.kinds.glm.sensitivity_exchange import Exchange, active_squared, passive_squared, weights_sensitivity
from colonnade.privacy.routes.gaussian import gaussian_mu
from research import formulas as published
from research.bounds import closed_form_squared, logistic_own_slope
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())["hdp_fm_afe"]["hdp"]
NEAR = {"rel": 1e-9}


# --- steps


@pytest.mark.parametrize("case", VECTORS)
def test_exchanges_match_the_vectors(case: dict[str, Any]) -> None:
    run = Exchange(
        case["e"], case["r"], case["b"], case["eta"],
        weight_norm=case["k"], slope=case["L"], curvature=case["beta_theta"],
    )  # fmt: skip
    own, reach, mu = logistic_own_slope(run), 2 * Fraction(case["k"]), gaussian_mu(case["eps"], case["delta"])
    passive, active = (math.sqrt(square) for square in (passive_squared(run), active_squared(run, own)))
    closed = (closed_form_squared(run, Fraction(1), reach), closed_form_squared(run, Fraction(1, 4), own))
    found = {
        "S_A": float(own),
        "delta_B": passive,
        "delta_A": active,
        "delta_B_closed": math.sqrt(closed[0]),
        "delta_A_closed": math.sqrt(closed[1]),
    }
    assert found == {name: pytest.approx(case[name], **NEAR) for name in found}
    assert passive / mu == pytest.approx(case["sigma_B"], rel=1e-6)
    assert active / mu == pytest.approx(case["sigma_A"], rel=1e-6)
    # The vector has no cap; the weights stay in a ball of diameter 2k, and so does their change.
    assert float(weights_sensitivity(run)) == pytest.approx(min(case["model_release_sens"], 2 * case["k"]), **NEAR)


@pytest.mark.parametrize("case", VECTORS)
def test_the_published_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    run = (case["e"], case["r"], case["b"], case["eta"], case["k"])
    passive, active = published.paper_passive_norm(*run), published.paper_active_norm(*run)
    classic = published.classic_gaussian_sigma(case["eps"], case["delta"])
    assert (passive, active) == pytest.approx((case["paper_delta_B"], case["paper_delta_A"]), **NEAR)
    assert classic * passive == pytest.approx(case["paper_sigma_for_ZB"], **NEAR)
    assert classic * active == pytest.approx(case["paper_sigma_for_ZA"], **NEAR)


def test_the_changed_rows_own_slope_reaches_its_bound() -> None:
    run = Exchange(1, 1, 1, 0.1, row_norm=2.0, weight_norm=0.75)
    score = run.row_norm * run.weight_norm
    moved = 1 / (1 + math.exp(-score)) + 1 / (1 + math.exp(-score))  # labels differ, scores +- R k
    assert moved == pytest.approx(float(logistic_own_slope(run)))
    assert logistic_own_slope(Exchange(1, 1, 1, 0.1, weight_norm=1e6)) == 2


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_recursion_is_never_above_its_closed_form(ridge: float) -> None:
    for k in (0.1, 0.5, 50.0):
        run = Exchange(6, 7, 3, 0.5, weight_norm=k, ridge=ridge)
        closed = closed_form_squared(run, Fraction(1), 2 * Fraction(k))
        assert passive_squared(run) <= closed
        assert (passive_squared(run) == closed) == (ridge == 0 and k == 50)


def test_penalties_never_cost_privacy_and_too_large_a_step_is_charged() -> None:
    plain = Exchange(5, 8, 4, 0.5)
    for softer in (Exchange(5, 8, 4, 0.5, ridge=0.2), Exchange(5, 8, 4, 0.5, prox_ridge=0.2)):
        for bound in (passive_squared, active_squared, weights_sensitivity):
            assert bound(softer) < bound(plain)
    run = Exchange(3, 4, 2, 9.0, weight_norm=100.0)
    assert run.active_contraction == Fraction(5, 4)
    assert weights_sensitivity(run, active=True) > weights_sensitivity(run)


# --- fits


def test_one_round_has_a_closed_form_and_more_grow_like_a_root() -> None:
    run = PassiveFits(50, 100, 2.0, 0.0, 0.5, 1.0, 0.25, 0.04)
    assert float(run.spreads[0]) == pytest.approx(2 * 2.0 * 0.5 / 100 / (2 * 0.2), rel=1e-12)
    for before, after in zip(run.spreads, run.spreads[1:], strict=False):
        least = after * before + run.pull(1) ** 2 / (4 * Fraction(0.04))
        assert least <= after**2 <= least * (1 + Fraction(1, 10**12))
    assert float(run.spreads[-1] / run.spreads[0]) == pytest.approx(math.sqrt(2 * 50), rel=0.05)
    # Bounding every score by the weights would cost nine hundred times as much for the other rows.
    run = PassiveFits(1, 1000, 3.0, 10.0, 1.0, 0.0, 0.25, 0.01)
    by_weights = 1000 * 9 * (run.pull(0) / Fraction(0.01)) ** 2
    assert float(by_weights / passive_fits_squared(run)) == pytest.approx(900, rel=1e-9)


@pytest.mark.parametrize("name", ["rounds", "row_norm", "weight_norm", "received", "score", "slack"])
def test_looser_bounds_never_cost_less(name: str) -> None:
    run = PassiveFits(2, 20, 1.0, 0.5, 1.0, 0.4, 0.25, 0.1, 0.001)
    ordered = [replace(run, **{name: getattr(run, name) * factor}) for factor in (1, 2, 3, 4)]
    for bound in (passive_fits_squared, passive_fits_weights):
        figures = [bound(each) for each in ordered]
        assert figures == sorted(figures)


def test_weights_move_within_the_ball() -> None:
    run = PassiveFits(3, 4, 1.0, 0.1, 5.0, 1.0, 0.25, 1e-4)
    assert passive_fits_weights(run) == 2 * Fraction(0.1)
    free = replace(run, weight_norm=100.0, ridge=1.0, rounds=1)
    assert passive_fits_weights(free) == free.pull(0) == Fraction(35, 4)


def test_the_active_partys_rounds_add_up() -> None:
    run = ActiveFits(1, 10, 2.0, 1.0, 0.25, Fraction(3, 2), 0.5)
    assert active_fits_squared(run) == Fraction(9, 4) + Fraction(1, 4) * 10 * Fraction(4, 10) ** 2 / 2
    assert active_fits_squared(replace(run, rounds=7)) == 7 * active_fits_squared(run)
    assert active_fits_weights(run) == Fraction(4, 5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ridge": 0.0}, ("VA122", "ridge")),
        ({"curvature": 0.0}, ("VA122", "curvature")),
        ({"rounds": 0}, "PR*"),
        ({"rows": 0}, "PR*"),
        ({"score": math.nan}, "PR*"),
        ({"received": -1.0}, "PR*"),
    ],
)
def test_senseless_runs_are_refused(changes: dict[str, Any], said: Any) -> None:
    with raises((ValueError, PrivacyError), said):
        replace(PassiveFits(1, 10, 1.0, 1.0, 1.0, 1.0, 0.25, 0.1), **changes)
    with raises(ValueError, "VA123"):
        ActiveFits(1, 10, 1.0, 1.0, 0.25, Fraction(2), 0.0)
    with raises(PrivacyError, "PR089"):
        Exchange(0, 1, 1, 0.1)
    with raises(PrivacyError, "PR090"):
        Exchange(1, 1, 1, math.nan)
