"""The bounds on fits that take turns, against fits that are written down a second time, a thousand at once."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
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
from tests.support.errors import raises

Array = np.ndarray[Any, Any]
MANY, ROUNDS = 250, 3
SHAPES = [(2, 1), (5, 2), (9, 3), (40, 1)]  # rows and columns


def _rows(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Rows on the unit sphere, for half of the runs along one line, and the same with the first one turned around."""
    rows = rng.normal(size=(MANY, *shape))
    rows[::2] = rows[::2, :1] * rng.choice([-1.0, 1.0], (len(rows[::2]), shape[0], 1))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    changed = rows.copy()
    changed[:, 0] *= -1
    return rows, changed


def _powers(rng: np.random.Generator, low: float, high: float) -> Array:
    return 10 ** rng.uniform(low, high, MANY)


# --- passive parties


def _in_ball(rows: Array, wanted: Array, curvature: Array, ridge: Array, radius: Array) -> Array:
    """The minimiser over a ball: by bisection, the multiplier at which the weights are short enough."""
    sizes, axes = np.linalg.eigh(np.einsum("rni,rnj->rij", rows, rows) / rows.shape[1])
    along = np.einsum("rij,ri->rj", axes, wanted)
    tall = curvature[:, None] * np.maximum(sizes, 0) + ridge[:, None]
    low, high = np.zeros(len(rows)), np.linalg.norm(wanted, axis=1) / radius
    for _ in range(100):
        middle = (low + high) / 2
        over = np.linalg.norm(along / (tall + middle[:, None]), axis=1) > radius
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    free = np.linalg.norm(along / tall, axis=1) <= radius
    held = np.where(free, 0.0, high)
    return np.einsum("rij,rj->ri", axes, along / (tall + held[:, None]))


def _passive(rows: Array, slopes: Array, chosen: dict[str, Array]) -> tuple[Array, Array]:
    """All scores of all rounds, and the last weights, for slopes of every round."""
    weights, sent = np.zeros(rows[:, 0].shape), []
    for received in slopes:
        clipped = np.clip(received, -chosen["received"][:, None], chosen["received"][:, None])
        pulled = np.einsum("rni,rn->ri", rows, chosen["curvature"][:, None] * _scores(rows, weights) - clipped)
        bounds = (chosen["curvature"], chosen["ridge"], chosen["weight_norm"])
        weights = _in_ball(rows, pulled / rows.shape[1], *bounds)
        sent.append(np.clip(_scores(rows, weights), -chosen["score"][:, None], chosen["score"][:, None]))
    return np.concatenate(sent, axis=1), weights


def _scores(rows: Array, weights: Array) -> Array:
    return np.einsum("rni,ri->rn", rows, weights)


def _slopes(rng: np.random.Generator, rows: Array) -> Array:
    """Noise, silence, or a push along the rows; of the changed row always something loud."""
    kinds = [3 * rng.normal(size=rows.shape[:2]), np.zeros(rows.shape[:2]), -100 * np.sign(rows[:, :, 0])]
    chosen = np.choose(rng.integers(0, 3, MANY)[:, None], kinds)
    chosen[:, 0] = 100.0
    return np.tile(chosen, (ROUNDS, 1, 1))


@pytest.mark.parametrize(("shape", "least"), list(zip(SHAPES, (0.08, 0.3, 0.3, 0.5), strict=True)))
def test_a_thousand_transcripts_move_a_passive_party_by_at_most_the_bound(shape: tuple[int, int], least: float) -> None:
    """In four groups of equal shape, with penalties from 1e-4 to 1 and balls that bind or not."""
    rng = np.random.default_rng(shape[0])
    chosen = {
        "weight_norm": _powers(rng, -2, 1), "received": _powers(rng, -1, 1), "score": _powers(rng, -1, 1),
        "curvature": rng.choice([0.25, 1.0, 2.0], MANY), "ridge": _powers(rng, -4, 0),
    }  # fmt: skip
    tables = _rows(rng, shape)
    slopes = _slopes(rng, tables[0])
    (one, w), (two, v) = (_passive(rows, slopes, chosen) for rows in tables)
    moved, weights = ((one - two) ** 2).sum(axis=1), np.linalg.norm(w - v, axis=1)
    found = {name: values.tolist() for name, values in chosen.items()}
    runs = [PassiveFits(ROUNDS, shape[0], 1.0, **{name: each[k] for name, each in found.items()}) for k in range(MANY)]
    parts = moved / np.array([float(passive_fits_squared(run)) for run in runs])
    assert least < parts.max() <= 1 + 1e-9
    parts = weights / np.array([float(passive_fits_weights(run)) for run in runs])
    assert 0.9 < parts.max() <= 1 + 1e-9


@pytest.mark.parametrize(("rounds", "least"), [(1, 0.99), (2, 0.88), (4, 0.65)])
def test_rows_alike_come_close_to_the_passive_bound(rounds: int, least: float) -> None:
    """What is left is a ball that must be larger than any one fit needs; the changed row alone would claim nothing."""
    rows = np.ones((1, 500, 1))
    changed = rows.copy()
    changed[:, 0] = -1
    run = PassiveFits(rounds, 500, 1.0, 1.05 * rounds / 250, 1.0, 10.0, 0.25, 0.25)
    names = ("weight_norm", "received", "score", "curvature", "ridge")
    chosen = {name: np.array([getattr(run, name)]) for name in names}
    slopes = np.zeros((rounds, 1, 500))
    slopes[:, :, 0] = -7.0
    (one, _), (two, _) = (_passive(table, slopes, chosen) for table in (rows, changed))
    moved = float(((one - two) ** 2).sum())
    assert least < moved / float(passive_fits_squared(run)) <= 1
    alone = 4 * rounds * (run.row_norm * run.weight_norm) ** 2
    assert moved > 60 * alone


# --- the active party


def _fit(rows: Array, labels: Array, ridge: Array) -> Array:
    """Logistic fits by Newton steps, of every step the best of several lengths."""
    weights, lengths = np.zeros(rows[:, 0].shape), 0.5 ** np.arange(8)

    def loss(at: Array) -> Array:
        scores = np.einsum("rni,lri->lrn", rows, at)
        return (np.logaddexp(0, scores) - labels * scores).mean(axis=2) + ridge / 2 * (at**2).sum(axis=2)

    for _ in range(25):
        chance = 1 / (1 + np.exp(-_scores(rows, weights)))
        gradient = np.einsum("rni,rn->ri", rows, chance - labels) / rows.shape[1] + ridge[:, None] * weights
        curved = np.einsum("rni,rnj,rn->rij", rows, rows, chance * (1 - chance)) / rows.shape[1]
        curved += ridge[:, None, None] * np.eye(rows.shape[2])
        tried = weights - lengths[:, None, None] * np.linalg.solve(curved, gradient[..., None])[..., 0]
        weights = tried[loss(tried).argmin(axis=0), np.arange(len(rows))]
    assert np.linalg.norm(gradient, axis=1).max() < 1e-9
    return weights


@pytest.mark.parametrize("shape", SHAPES)
def test_a_thousand_fits_move_the_active_party_by_at_most_the_bound(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(100 + shape[0])
    tables, ridge, reach = _rows(rng, shape), _powers(rng, -4, 0), rng.choice([0.5, 3.0], MANY)
    labels = np.where(tables[0][:, :, 0] > 0, 1.0, 0.0)
    labels[1::2] = rng.integers(0, 2, labels[1::2].shape)
    turned = labels.copy()
    turned[:, 0] = 1 - labels[:, 0]
    sent, fits = [], []
    for rows, y in zip(tables, (labels, turned), strict=True):
        fits.append(_fit(rows, y, ridge))
        scores = np.clip(_scores(rows, fits[-1]), -reach[:, None], reach[:, None])
        sent.append(1 / (1 + np.exp(-scores)) - y)
    own = [Fraction(1 + math.tanh(value / 2)) * (1 + Fraction(1, 1 << 50)) for value in reach]
    runs = [ActiveFits(1, shape[0], 1.0, 1.0, 0.25, own[k], float(ridge[k])) for k in range(MANY)]
    parts = ((sent[0] - sent[1]) ** 2).sum(axis=1) / np.array([float(active_fits_squared(run)) for run in runs])
    assert 0.3 < parts.max() <= 1 + 1e-9
    weights = np.linalg.norm(fits[0] - fits[1], axis=1)
    assert (weights <= np.array([float(active_fits_weights(run)) for run in runs]) * (1 + 1e-9)).all()


# --- the formulas


def test_one_round_has_a_closed_form_and_more_grow_like_a_root() -> None:
    run = PassiveFits(50, 100, 2.0, 0.0, 0.5, 1.0, 0.25, 0.04)
    pull = 2 * 2.0 * 0.5 / 100
    assert float(run.spreads[0]) == pytest.approx(pull / (2 * 0.2), rel=1e-12)
    for before, after in zip(run.spreads, run.spreads[1:], strict=False):
        assert float(after**2) == pytest.approx(
            float(after * before + run.pull(1) ** 2 / 4 / Fraction(0.04)), rel=1e-12
        )
        assert after**2 >= after * before + run.pull(1) ** 2 / (4 * Fraction(0.04))
    assert float(run.spreads[-1] / run.spreads[0]) == pytest.approx(math.sqrt(2 * 50), rel=0.05)


def test_scores_matter_and_not_weights() -> None:
    """Bounding every score by the weights would cost nine hundred times as much for the other rows."""
    run = PassiveFits(1, 1000, 3.0, 10.0, 1.0, 0.0, 0.25, 0.01)
    by_weights = 1000 * 9 * (run.pull(0) / Fraction(0.01)) ** 2
    assert float(by_weights / passive_fits_squared(run)) == pytest.approx(900, rel=1e-9)


@pytest.mark.parametrize("name", ["rounds", "row_norm", "weight_norm", "received", "score", "slack"])
def test_looser_bounds_never_cost_less(name: str) -> None:
    run = PassiveFits(2, 20, 1.0, 0.5, 1.0, 0.4, 0.25, 0.1, 0.001)
    for factor in (1, 2, 3):
        looser = replace(run, **{name: getattr(run, name) * (factor + 1)})
        tighter = replace(run, **{name: getattr(run, name) * factor})
        assert passive_fits_squared(looser) >= passive_fits_squared(tighter)
        assert passive_fits_weights(looser) >= passive_fits_weights(tighter)


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


def test_senseless_fits_are_refused() -> None:
    run = PassiveFits(1, 10, 1.0, 1.0, 1.0, 1.0, 0.25, 0.1)
    with raises(ValueError, "VA122", "ridge"):
        replace(run, ridge=0.0)
    with raises(ValueError, "VA122", "curvature"):
        replace(run, curvature=0.0)
    with raises(ValueError, "VA123"):
        ActiveFits(1, 10, 1.0, 1.0, 0.25, Fraction(2), 0.0)
    for wrong in ({"rounds": 0}, {"rows": 0}, {"score": math.nan}, {"received": -1.0}):
        with pytest.raises(PrivacyError):
            replace(run, **wrong)
