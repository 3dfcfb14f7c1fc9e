from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import PrivacyError
from colonnade.kinds.glm.sensitivity_exchange import Exchange, active_squared, passive_squared, weights_sensitivity
from colonnade.privacy.routes.gaussian import gaussian_mu
from research import formulas as published
from research.bounds import closed_form_squared, logistic_own_slope
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())["hdp_fm_afe"]["hdp"]
Array = np.ndarray[Any, Any]


def _run(case: dict[str, Any]) -> Exchange:
    return Exchange(
        case["e"], case["r"], case["b"], case["eta"],
        weight_norm=case["k"], slope=case["L"], curvature=case["beta_theta"],
    )  # fmt: skip


@pytest.mark.parametrize("case", VECTORS)
def test_exchanges_match_the_vectors(case: dict[str, Any]) -> None:
    run, near = _run(case), {"rel": 1e-9}
    own = logistic_own_slope(run)
    passive, active = (math.sqrt(square) for square in (passive_squared(run), active_squared(run, own)))
    assert float(own) == pytest.approx(case["S_A"], **near)
    assert passive == pytest.approx(case["delta_B"], **near)
    assert active == pytest.approx(case["delta_A"], **near)
    reach = 2 * Fraction(case["k"])
    closed = (closed_form_squared(run, Fraction(1), reach), closed_form_squared(run, Fraction(1, 4), own))
    assert math.sqrt(closed[0]) == pytest.approx(case["delta_B_closed"], **near)
    assert math.sqrt(closed[1]) == pytest.approx(case["delta_A_closed"], **near)
    mu = gaussian_mu(case["eps"], case["delta"])
    assert passive / mu == pytest.approx(case["sigma_B"], rel=1e-6)
    assert active / mu == pytest.approx(case["sigma_A"], rel=1e-6)
    # The vector has no cap; the weights stay in a ball of diameter 2k, and so does their change.
    assert float(weights_sensitivity(run)) == pytest.approx(min(case["model_release_sens"], 2 * case["k"]), **near)


@pytest.mark.parametrize("case", VECTORS)
def test_the_published_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    run = (case["e"], case["r"], case["b"], case["eta"], case["k"])
    passive, active = published.paper_passive_norm(*run), published.paper_active_norm(*run)
    assert passive == pytest.approx(case["paper_delta_B"], rel=1e-9)
    assert active == pytest.approx(case["paper_delta_A"], rel=1e-9)
    classic = published.classic_gaussian_sigma(case["eps"], case["delta"])
    assert classic * passive == pytest.approx(case["paper_sigma_for_ZB"], rel=1e-9)
    assert classic * active == pytest.approx(case["paper_sigma_for_ZA"], rel=1e-9)


def _ball(v: Array, radius: float) -> Array:
    return v * min(1.0, radius / max(float(np.linalg.norm(v)), 1e-300))


def _sent_by_passive(run: Exchange, rows: Array, slopes: Array) -> tuple[list[Array], Array]:
    """All scores a passive party sends in a run in which it receives these slopes, and its final weights."""
    w = np.zeros(rows.shape[2])
    sent = []
    for epoch in range(run.epochs):
        for t in range(run.batches):
            sent.append(rows[t] @ w)
            received = np.clip(slopes[epoch, t], -run.slope, run.slope)
            step = w - run.rate * (received @ rows[t] / run.batch_size + run.ridge * w)
            w = _ball(step / (1 + run.rate * run.prox_ridge), run.weight_norm)
    return sent, w


def _sent_by_active(run: Exchange, rows: Array, labels: Array, offsets: Array) -> tuple[list[Array], Array]:
    """All logistic slopes the active party sends in a run in which it receives these scores."""
    w = np.zeros(rows.shape[2])
    sent = []
    for epoch in range(run.epochs):
        for t in range(run.batches):
            y = labels[t]
            slopes = -y / (1 + np.exp(y * (rows[t] @ w + offsets[epoch, t])))
            slopes = np.clip(slopes, -run.slope, run.slope)
            sent.append(slopes)
            step = w - run.rate * (slopes @ rows[t] / run.batch_size + run.ridge * w)
            w = _ball(step / (1 + run.rate * run.prox_ridge), run.weight_norm)
    return sent, w


def _distance_squared(one: list[Array], other: list[Array]) -> float:
    return float(sum(((a - b) ** 2).sum() for a, b in zip(one, other, strict=True)))


def test_a_scripted_transcript_comes_close_to_the_bound() -> None:
    """Messages that always push the changed row the same way: the difference of weights is real and spreads."""
    run = Exchange(3, 50, 4, 0.5)
    rows = np.ones((50, 4, 1))
    slopes = np.zeros((3, 50, 4))
    slopes[:, 0, 0] = 1.0
    changed = rows.copy()
    changed[0, 0] = -1.0
    realised = _distance_squared(_sent_by_passive(run, rows, slopes)[0], _sent_by_passive(run, changed, slopes)[0])
    assert realised == pytest.approx(172.4375)
    assert float(passive_squared(run)) == pytest.approx(184.4375)
    ignored = 4 * run.weight_norm**2 * run.epochs
    assert ignored == 12 < realised < passive_squared(run)


def _random_run(rng: np.random.Generator) -> Exchange:
    return Exchange(
        int(rng.integers(1, 5)), int(rng.integers(1, 6)), int(rng.integers(1, 5)), float(rng.uniform(0.05, 8)),
        row_norm=float(rng.uniform(0.5, 2)), weight_norm=float(rng.uniform(0.2, 3)), slope=float(rng.uniform(0.3, 1)),
        ridge=float(rng.choice([0, 0.01, 0.1])), prox_ridge=float(rng.choice([0, 0.05])),
    )  # fmt: skip


def _random_rows(rng: np.random.Generator, run: Exchange, width: int) -> tuple[Array, Array, tuple[int, int]]:
    """Rows on the sphere, the same with one of them turned around, and which."""
    rows = rng.normal(size=(run.batches, run.batch_size, width))
    rows *= run.row_norm / np.linalg.norm(rows, axis=2, keepdims=True)
    place = (int(rng.integers(run.batches)), int(rng.integers(run.batch_size)))
    changed = rows.copy()
    changed[place] *= -1
    return rows, changed, place


def _scripted(rng: np.random.Generator, run: Exchange, place: tuple[int, int], size: float) -> Array:
    messages = rng.normal(size=(run.epochs, run.batches, run.batch_size)) * rng.choice([0.0, 1.0, 30.0])
    if rng.random() < 0.5:
        messages[:, place[0], place[1]] = size
    return messages


def test_random_transcripts_realise_at_most_the_passive_bound() -> None:
    rng = np.random.default_rng(11)
    worst = 0.0
    for _ in range(300):
        run = _random_run(rng)
        rows, changed, place = _random_rows(rng, run, int(rng.integers(1, 4)))
        slopes = _scripted(rng, run, place, run.slope)
        (one, w), (other, v) = (_sent_by_passive(run, data, slopes) for data in (rows, changed))
        worst = max(worst, _distance_squared(one, other) / float(passive_squared(run)))
        assert np.linalg.norm(w - v) <= float(weights_sensitivity(run)) * (1 + 1e-12)
    assert 0.5 < worst <= 1 + 1e-12


def test_random_transcripts_realise_at_most_the_active_bound() -> None:
    rng = np.random.default_rng(12)
    worst = 0.0
    for _ in range(300):
        run = _random_run(rng)
        rows, changed, place = _random_rows(rng, run, int(rng.integers(1, 4)))
        labels = rng.choice([-1.0, 1.0], size=rows.shape[:2])
        flipped = labels.copy()
        flipped[place] *= -1
        offsets = _scripted(rng, run, place, 0.0)
        one, w = _sent_by_active(run, rows, labels, offsets)
        other, v = _sent_by_active(run, changed, flipped, offsets)
        bound = float(active_squared(run, logistic_own_slope(run)))
        assert bound <= float(active_squared(run))
        worst = max(worst, _distance_squared(one, other) / bound)
        assert np.linalg.norm(w - v) <= float(weights_sensitivity(run, active=True)) * (1 + 1e-12)
    assert 0.5 < worst <= 1 + 1e-12


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


def test_penalties_never_cost_privacy() -> None:
    plain = Exchange(5, 8, 4, 0.5)
    for softer in (Exchange(5, 8, 4, 0.5, ridge=0.2), Exchange(5, 8, 4, 0.5, prox_ridge=0.2)):
        assert passive_squared(softer) < passive_squared(plain)
        assert active_squared(softer) < active_squared(plain)
        assert weights_sensitivity(softer) < weights_sensitivity(plain)


def test_too_large_a_step_is_charged_not_refused() -> None:
    run = Exchange(3, 4, 2, 9.0, weight_norm=100.0)
    assert run.active_contraction == Fraction(5, 4)
    assert weights_sensitivity(run, active=True) > weights_sensitivity(run)


def test_senseless_runs_are_refused() -> None:
    with raises(PrivacyError, "PR089"):
        Exchange(0, 1, 1, 0.1)
    with raises(PrivacyError, "PR090"):
        Exchange(1, 1, 1, math.nan)
