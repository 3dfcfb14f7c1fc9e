"""Fits of which something is sent: certified for every table, after as many steps for one table as for another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from colonnade.kinds import GLM
from colonnade.kinds.glm.exchange import fits, programs as exchange, sides
from colonnade.kinds.glm.exchange.ball import BallFit
from colonnade.kinds.glm.exchange.fits import NEWTON_STEPS, Objective, certified_fit, free_fit, proven_steps
from colonnade.kinds.glm.exchange.sides import ActiveFit
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.losses.labels import NAMES, Family, family_for
from colonnade.kinds.glm.plan import Choices, Setting, planned
from colonnade.kinds.glm.tuning import suggest
from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.rows import Block
from colonnade.tables.columns import Column, Flag, Number
from tests.support import protocols as kit
from tests.support.protocols import Array

TRUST = Trust(("bank", "shop"), (), 0)
ZIGZAG = (18, 20, 33)
"""Tables at whose corners halved steps of Newton's went to and fro for 1,800 looks, where most tables took 8 to 27."""


def _label(family: str, high: float) -> Column:
    if family in ("logistic", "svm"):
        return Flag()
    return Number(low=0.02 * high if family == "gamma" else 0.0, high=high)


def _task(family: str, rows: int, columns: int, high: float = 30.0) -> Exchange:
    """The task of a model with default parameters."""
    blocks = (Block("bank", tuple("abcdef"[:columns]), 1.0), Block("shop", ("x",), 1.0))
    setting = Setting(blocks, "bank", family_for(family, _label(family, high)), TRUST, rows)
    return planned(Choices.of(GLM(family=family, label="bank.y")), setting, parse_budgets(1.0, 1e-5, TRUST))


def _counts(seed: int) -> tuple[Exchange, Array, Array]:
    """A task about counts, and a table with its labels; columns are -1 or 1, so that many rows share each corner."""
    rng = np.random.default_rng(seed)
    rows, columns, high = int(rng.integers(30, 300)), int(rng.integers(1, 7)), float(rng.choice([3, 10, 30, 100]))
    task = _task("poisson", rows, columns, high)
    table = (rng.integers(0, 2, (rows, columns)) * 2.0 - 1) / math.sqrt(columns)
    score = table @ rng.normal(0, 2, columns)
    if rng.random() < 0.5:
        return task, table, np.rint(rng.uniform(0, high, rows))
    return task, table, np.minimum(rng.poisson(np.exp(np.clip(task.family.centre + score, -5, 6))), high).astype(float)


def _labels(family: Family, score: Array, rng: np.random.Generator) -> Array:
    if family.name == "logistic":
        return (score > rng.normal(0, 1, len(score))).astype(float)
    if family.name == "svm":
        return np.where(score > rng.normal(0, 1, len(score)), 1.0, -1.0)
    if family.name == "linear":
        return np.clip(score + rng.normal(0, 0.5, len(score)), -1, 1)
    return np.clip(np.rint(np.exp(family.centre + score + rng.normal(0, 0.5, len(score)))), family.low, family.high)


def _objective(family: str, seed: int) -> tuple[Objective, float, float]:
    """A random objective with default penalties and a few received columns, its longest row, and its slack."""
    rng = np.random.default_rng(seed)
    columns, heard, rows = int(rng.integers(1, 6)), int(rng.integers(0, 3)), int(rng.choice([20, 60, 200]))
    loss = family_for(family, _label(family, float(rng.choice([3, 30, 1000]))))
    blocks = (Block("bank", tuple("abcdef"[:columns]), 1.0), Block("shop", ("x",), 1.0))
    own = (rng.integers(0, 2, (rows, columns)) * 2.0 - 1) / math.sqrt(columns)
    received = np.clip(rng.normal(0, 1, (rows, heard)), -3, 3)
    held = np.hstack([own, np.ones((rows, 1)), received])
    labels = _labels(loss, held @ rng.normal(0, float(rng.choice([0.3, 1.0, 3.0])), held.shape[1]), rng)
    spreads = 10 ** rng.uniform(-2, 0.3, heard)
    ridge = suggest(blocks, "bank", loss, rows, 1.0, epochs=1, message_clip=1.0).sides[0].ridge
    penalties = np.concatenate([np.full(columns + 1, ridge), np.maximum(ridge, 1 / (rows * spreads**2))])
    centre = np.concatenate([np.zeros(columns + 1), spreads / 2])
    norm = math.sqrt(2 + 9 * max(heard, 1))
    return Objective(held, labels, loss, penalties, centre), norm, 2.0**-12 * norm * loss.slope_bound / rows


def _looks(task: Exchange, table: Array, labels: Array, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a fit of which slopes are sent computes the slopes of all rows."""
    looks, slopes = 0, Family.slopes

    def counted(self: Family, t: Array, y: Array) -> Array:
        nonlocal looks
        looks += 1
        return slopes(self, t, y)

    side = sides.active_side(sides.with_constant(table, "bank", task), labels, task)
    with monkeypatch.context() as counting:
        counting.setattr(Family, "slopes", counted)
        side.slopes(0)
    return looks


@pytest.mark.parametrize("seed", ZIGZAG)
def test_a_table_takes_as_many_steps_as_its_neighbours(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task, table, labels = _counts(seed)
    found = {_looks(task, table, labels, monkeypatch)}
    for row in range(3):
        other, turned = table.copy(), labels.copy()
        other[row] *= -1
        turned[row] = task.family.high if labels[row] < task.family.high else task.family.low
        found.add(_looks(task, other, turned, monkeypatch))
    found.add(_looks(task, np.zeros_like(table), np.full_like(labels, task.family.low), monkeypatch))
    assert len(found) == 1


def test_where_proven_steps_are_many_a_table_takes_as_many_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "AT_ONCE", 0)
    task, table, labels = _counts(ZIGZAG[0])
    found = {_looks(task, table, labels, monkeypatch)}
    for row in range(10):
        other = table.copy()
        other[row] *= -1
        found.add(_looks(task, other, labels, monkeypatch))
    assert len(found) == 1
    assert max(found) < 20 * NEWTON_STEPS


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=pytest.mark.slow)])
def test_half_of_newtons_steps_are_enough(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing proves it, so the others are left for tables that nobody has tried."""
    monkeypatch.setattr(fits, "NEWTON_STEPS", NEWTON_STEPS // 2)
    for seed in range(count):
        objective, _, slack = _objective(family, seed)
        assert fits._newton(objective, 0.0).length <= slack


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.slow)])
def test_proven_steps_are_enough_without_newtons(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "NEWTON_STEPS", 0)
    monkeypatch.setattr(fits, "AT_ONCE", 0)
    for seed in range(count):
        objective, norm, slack = _objective(family, seed)
        objective = replace(objective, penalties=objective.penalties * (1.0, 0.1, 10.0)[seed % 3])
        assert objective.at(objective.centre).length > slack
        assert objective.at(certified_fit(objective, norm, slack)).length <= slack


def test_proven_steps_depend_on_public_bounds_alone_and_grow_with_them() -> None:
    task = _task("poisson", 200, 2)
    ridge, norm, slack = np.array([task.side("bank").ridge]), task.active_norm, task.slack("bank")
    steps = proven_steps(task.family, ridge, norm, slack)
    assert steps < proven_steps(task.family, ridge / 4, norm, slack)
    assert steps < proven_steps(task.family, ridge, norm, slack / 2)
    assert steps < proven_steps(task.family, ridge, norm * 2, slack)


@pytest.mark.parametrize("family", NAMES)
def test_a_fit_that_nobody_sees_ends_at_the_same_minimum(family: str) -> None:
    objective, norm, slack = _objective(family, 5)
    apart = free_fit(objective) - certified_fit(objective, norm, slack)
    assert np.linalg.norm(apart) <= 1e-5 / objective.penalties.min()


@pytest.mark.parametrize("radius", [1e-6, 0.01, 0.3, 100.0])
@pytest.mark.parametrize("ridge", [1e-9, 1e-3, 10.0])
def test_a_fit_over_a_ball_is_certified(radius: float, ridge: float) -> None:
    """Its weights are the exact minimum after a tilt of at most the slack, where a ball binds and where it does not."""
    rng = np.random.default_rng(7)
    for rows in (5, 40, 300):
        table = rng.normal(0, 1, (rows, 4)) * [1.0, 0.5, 1e-4, 0.0]
        table /= np.maximum(1.0, np.linalg.norm(table, axis=1))[:, None]
        clip, curvature = 3.0, 0.25
        pull = clip + curvature * radius
        fit = BallFit.of(table, curvature, ridge, radius, pull)
        before = np.zeros(4)
        for _ in range(3):
            gradient = rng.uniform(-clip, clip, rows) @ table / rows
            weights, gram = fit.minimise(gradient, before), table.T @ table / rows
            slope = curvature * (gram @ (weights - before)) + gradient + ridge * weights
            norm = float(np.linalg.norm(weights))
            # At the sphere the slope may point inwards, against the weights, and in no other direction.
            held = max(0.0, -float(slope @ weights) / norm**2) if norm >= radius * (1 - 2.0**-47) else 0.0
            assert norm <= radius
            assert np.linalg.norm(slope + held * weights) <= 2.0**-12 * pull / rows
            before = weights


def test_the_steps_of_a_fit_over_a_ball_depend_on_public_bounds_alone() -> None:
    rng = np.random.default_rng(3)
    fits_of = [BallFit.of(rng.uniform(-size, size, (50, 3)), 0.25, 1e-3, 0.5, 2.0) for size in (0.0, 0.1, 0.5)]
    assert len({fit.steps for fit in fits_of}) == 1


@pytest.mark.parametrize("release", [False, True])
def test_the_last_fit_is_made_after_the_party_has_left(release: bool) -> None:
    task = kit.exchange_task(release=release)
    rng = np.random.default_rng(2)
    tables = {name: rng.uniform(-0.7, 0.7, (task.rows, 2)) for name in task.owners}
    labels = (rng.random(task.rows) < 0.5).astype(float)
    done = kit.outcomes(task, kit.programs_of(exchange, task, tables, labels))
    outcome = done[task.active].result
    assert "kept" not in vars(outcome)  # play has ended, and with it everything that others see
    side = outcome.last_fit.__self__
    assert isinstance(side, ActiveFit)
    assert np.array_equal(outcome.kept.weights, side.kept().weights)
