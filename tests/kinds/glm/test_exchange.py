"""Generalised linear models over noised messages: the protocol against its reference, its fits, and the losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from colonnade.errors import DataError, StudyError
from colonnade.kinds import GLM
from colonnade.kinds.glm import losses, programs as exchange, sides
from colonnade.kinds.glm.losses import (
    NAMES,
    NEWTON_STEPS,
    Family,
    FitObjective,
    certified_fit,
    estimate_scores,
    family_for,
    free_fit,
    labels_for,
    proven_steps,
)
from colonnade.kinds.glm.planning import GLMChoices, GLMSetting, draft_exchange, plan_exchange, suggest
from colonnade.kinds.glm.sensitivity import GradientExchange as Exchanged
from colonnade.kinds.glm.sides import (
    ActiveFit,
    BallFit,
    ForecastScores,
    PassiveParty,
    VarianceGuess,
    blur_scores,
    fit_corrected,
    unblur_scores,
)
from colonnade.kinds.glm.task import Exchange, ExchangeSide
from colonnade.models.assessment import assess_chances
from colonnade.privacy import Statement, Trust, parse_budgets
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock
from colonnade.tables.columns import Column, Flag, Number, category, flag, number
from research.bounds import logistic_own_slope
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import Array, exchange_task as _task


def _data(task: Exchange, seed: int = 1) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(seed)
    tables = {name: rng.uniform(-0.7, 0.7, (task.rows, 2)) for name in task.owners}
    score = sum(table @ [2.0, -1.0] for table in tables.values())
    return tables, (rng.random(task.rows) < 1 / (1 + np.exp(-score))).astype(float)


def _run(task: Exchange, tables: dict[str, Array], labels: Array) -> dict[str, Any]:
    return kit.outcomes(task, kit.programs_of(exchange, task, tables, labels))


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    pattern = np.arange(count) % 7 - 3
    return (pattern * int(Fraction(variance) ** Fraction(1, 2)) // 4).astype(np.int64)


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("owners", [("bank", "shop"), ("clinic", "bank", "shop")])
def test_the_protocol_ends_with_the_numbers_of_its_reference(
    method: str, release: bool, owners: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _task(method, owners, active="bank", release=release, noise=1 << 14)
    tables, labels = _data(task)
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    done = _run(task, tables, labels)
    kept, released = exchange.reference(tables, labels, task, _fixed)
    assert len({played.result.fit for played in done.values()}) == 1  # everybody knows the fit by the same name
    assert done[COORDINATOR].revealed == ()
    for name in owners:
        outcome = done[name].result
        told = {task.message_event(name), *([task.weights_event(name)] if release else [])}
        assert set(done[name].revealed) == told  # every planned event, and nothing else
        assert np.array_equal(outcome.held[name].weights, kept[name].weights)
        assert outcome.held[name].factors == kept[name].factors
    for found in (done[name].result.released for name in (*owners, COORDINATOR)):
        assert (found is not None) == release
        for name in owners if release else ():
            assert np.array_equal(found[name].weights, released[name].weights)
            assert found[name].factors == released[name].factors


def test_messages_are_charged_to_other_owners_and_a_release_to_everybody_beside_them() -> None:
    draft = _task(owners=("clinic", "bank", "shop"), active="bank")
    task = draft.calibrate(parse_budgets(1.0, 1e-5, draft.trust))
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert statement.epsilon("coordinator") == statement.epsilon("analyst") == 0
    for name in task.owners:
        assert 0.9 < statement.epsilon(name) <= 1.0
    # Somebody who has seen less has learned less: a pair sees the messages of the third alone.
    assert statement.epsilon("bank+shop") < statement.epsilon("bank")
    released = _task(release=True)
    assert len(released.events) == 2 * len(_task().events)
    everything = Statement.of(released.events, released.trust, 1e-5)
    assert 0 < everything.epsilon("bank") < everything.epsilon("analyst")


def test_everybody_is_told_the_same_slopes() -> None:
    """With fresh noise for each, two parties could average it away."""
    task, names = _task(owners=("bank", "shop", "clinic")), set()
    for _ in range(2):
        log: kit.Log = {}
        tables, labels = _data(task)
        done = kit.outcomes(task, kit.programs_of(exchange, task, tables, labels), log=log)
        names.add(done[COORDINATOR].result.fit)
        told = [[fields for kind, fields in log["bank", owner] if kind == "slopes"] for owner in ("shop", "clinic")]
        assert len(told[0]) == task.epochs
        np.testing.assert_equal(told[0], told[1])
    assert len(names) == 2  # no two fits share a name


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        (
            "gradient",
            {"learning_rate": 9.0, "sides": (ExchangeSide("bank", 0.0, 1.0, 1.0), ExchangeSide("shop", 0.0, 1.0, 1.0))},
            ("ST452", "9", "4"),
        ),
        (
            "gradient",
            {"sides": (ExchangeSide("bank", 0.0, 1.0, 1.0), ExchangeSide("shop", 2.0, 1.0, 1.0))},
            ("ST453", "shop"),
        ),
        ("gradient", {"batches": 41}, ("ST449", "40", "41")),
        ("alternating", {"epochs": 2_000_000}, ("ST450", "2000000", "2,000,000", "100")),
        ("gradient", {"epochs": 1, "batches": 1}, "ST451"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_sent(method: str, changes: dict[str, Any], said: Any) -> None:
    with raises(StudyError, said):
        _task(method, **changes)


# --- fits of which something is sent: certified, after as many steps for every table


TRUST = Trust(("bank", "shop"), (), 0)
ZIGZAG = (18, 20, 33)
"""Tables at whose corners halved steps of Newton's went to and fro for 1,800 looks, where most tables took 8 to 27."""


def column_for(family: str, high: float) -> Column:
    return Flag() if family in ("logistic", "svm") else Number(low=0.02 * high if family == "gamma" else 0.0, high=high)


def _default_task(family: str, rows: int, columns: int, high: float = 30.0) -> Exchange:
    """The task of a model with default parameters."""
    blocks = (ColumnBlock("bank", tuple("abcdef"[:columns]), 1.0), ColumnBlock("shop", ("x",), 1.0))
    setting = GLMSetting(blocks, "bank", family_for(family, column_for(family, high)), TRUST, rows)
    return plan_exchange(GLMChoices.of(GLM(family=family, label="bank.y")), setting, parse_budgets(1.0, 1e-5, TRUST))


def _counts(seed: int) -> tuple[Exchange, Array, Array]:
    """A task about counts, and a table with its labels; columns are -1 or 1, so that many rows share each corner."""
    rng = np.random.default_rng(seed)
    rows, columns, high = int(rng.integers(30, 300)), int(rng.integers(1, 7)), float(rng.choice([3, 10, 30, 100]))
    task = _default_task("poisson", rows, columns, high)
    table = (rng.integers(0, 2, (rows, columns)) * 2.0 - 1) / math.sqrt(columns)
    score = table @ rng.normal(0, 2, columns)
    if rng.random() < 0.5:
        return task, table, np.rint(rng.uniform(0, high, rows))
    return task, table, np.minimum(rng.poisson(np.exp(np.clip(task.family.centre + score, -5, 6))), high).astype(float)


def _objective(family: str, seed: int) -> tuple[FitObjective, float, float]:
    """A random objective with default penalties and a few received columns, its longest row, and its slack."""
    rng = np.random.default_rng(seed)
    columns, heard, rows = int(rng.integers(1, 6)), int(rng.integers(0, 3)), int(rng.choice([20, 60, 200]))
    loss = family_for(family, column_for(family, float(rng.choice([3, 30, 1000]))))
    blocks = (ColumnBlock("bank", tuple("abcdef"[:columns]), 1.0), ColumnBlock("shop", ("x",), 1.0))
    own = (rng.integers(0, 2, (rows, columns)) * 2.0 - 1) / math.sqrt(columns)
    received = np.clip(rng.normal(0, 1, (rows, heard)), -3, 3)
    held = np.hstack([own, np.ones((rows, 1)), received])
    scores = held @ rng.normal(0, float(rng.choice([0.3, 1.0, 3.0])), held.shape[1]) + rng.normal(0, 0.5, rows)
    drawn = labels(loss, chance(scores))
    spreads = 10 ** rng.uniform(-2, 0.3, heard)
    ridge = suggest(GLMSetting(blocks, "bank", loss, TRUST, rows), 1.0, epochs=1, message_clip=1.0).sides[0].ridge
    penalties = np.concatenate([np.full(columns + 1, ridge), np.maximum(ridge, 1 / (rows * spreads**2))])
    centre = np.concatenate([np.zeros(columns + 1), spreads / 2])
    norm = math.sqrt(2 + 9 * max(heard, 1))
    return FitObjective(held, drawn, loss, penalties, centre), norm, 2.0**-12 * norm * loss.slope_bound / rows


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


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "many proven steps"])
@pytest.mark.parametrize("seed", ZIGZAG)
def test_a_table_takes_as_many_steps_as_its_neighbours(
    seed: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(losses, "AT_ONCE", 0)
    task, table, labels = _counts(seed)
    found = {_looks(task, table, labels, monkeypatch)}
    for row in range(3):
        other, turned = table.copy(), labels.copy()
        other[row] *= -1
        turned[row] = task.family.high if labels[row] < task.family.high else task.family.low
        found.add(_looks(task, other, turned, monkeypatch))
    found.add(_looks(task, np.zeros_like(table), np.full_like(labels, task.family.low), monkeypatch))
    assert len(found) == 1
    assert at_once or max(found) < 20 * NEWTON_STEPS


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=pytest.mark.slow)])
def test_half_of_newtons_steps_are_enough(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing proves it, so the others are left for tables that nobody has tried."""
    monkeypatch.setattr(losses, "NEWTON_STEPS", NEWTON_STEPS // 2)
    for seed in range(count):
        objective, _, slack = _objective(family, seed)
        assert losses._newton(objective, 0.0).length <= slack


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.slow)])
def test_proven_steps_are_enough_without_newtons(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "NEWTON_STEPS", 0)
    monkeypatch.setattr(losses, "AT_ONCE", 0)
    for seed in range(count):
        objective, norm, slack = _objective(family, seed)
        objective = replace(objective, penalties=objective.penalties * (1.0, 0.1, 10.0)[seed % 3])
        assert objective.at(objective.centre).length > slack
        assert objective.at(certified_fit(objective, norm, slack)).length <= slack


def test_proven_steps_depend_on_public_bounds_alone_and_grow_with_them() -> None:
    task = _default_task("poisson", 200, 2)
    family, ridge, norm, slack = task.family, np.array([task.side("bank").ridge]), task.active_norm, task.slack("bank")
    more = [
        proven_steps(family, *bounds)
        for bounds in ((ridge / 4, norm, slack), (ridge, norm, slack / 2), (ridge, norm * 2, slack))
    ]
    assert proven_steps(family, ridge, norm, slack) < min(more)


@pytest.mark.parametrize("family", NAMES)
def test_a_fit_that_nobody_sees_ends_at_the_same_minimum(family: str) -> None:
    objective, norm, slack = _objective(family, 5)
    apart = free_fit(objective) - certified_fit(objective, norm, slack)
    assert np.linalg.norm(apart) <= 1e-5 / objective.penalties.min()


@pytest.mark.parametrize(("radius", "ridge"), [(1e-6, 1e-3), (0.01, 1e-9), (0.3, 1e-9), (0.3, 10.0), (100.0, 1e-3)])
def test_a_fit_over_a_ball_is_certified(radius: float, ridge: float) -> None:
    """Its weights are the exact minimum after a tilt of at most the slack, where a ball binds and where it does not."""
    rng = np.random.default_rng(7)
    for rows in (5, 40, 300):
        table = rng.normal(0, 1, (rows, 4)) * [1.0, 0.5, 1e-4, 0.0]
        table /= np.maximum(1.0, np.linalg.norm(table, axis=1))[:, None]
        clip, curvature = 3.0, 0.25
        pull = clip + curvature * radius
        fit = BallFit.of(table, curvature, ridge, radius, pull)
        assert fit.steps == BallFit.of(np.zeros((rows, 4)), curvature, ridge, radius, pull).steps  # which are public
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


@pytest.mark.parametrize("release", [False, True])
def test_the_last_fit_is_made_after_the_party_has_left(release: bool) -> None:
    task = _task(release=release)
    outcome = _run(task, *_data(task))[task.active].result
    assert "held" not in vars(outcome)  # play has ended, and with it everything that others see
    side = outcome.fits[task.active].__self__
    assert isinstance(side, ActiveFit)
    assert np.array_equal(outcome.held[task.active].weights, side.keep_weights().weights)


# --- the last fit: what the active party makes of scores with noise


SIDE = ExchangeSide("shop", 0.01, 10.0, 6.0, 1.0)
LOGISTIC = family_for("logistic", Flag())


def chance(scores: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(scores / 2)


def heard(
    rows: Array, scores: Array, noise: float, rng: np.random.Generator, side: ExchangeSide = SIDE
) -> ForecastScores:
    """Scores received with noise of this variance, of which nothing was known but their variance, roughly."""
    guess = VarianceGuess(float(scores.var()), 0.3 * float(scores.var()), 0.1 * float(scores.var()))
    return ForecastScores.of(rows, scores + rng.normal(0, math.sqrt(noise), len(scores)), noise, side, guess)


def half_foretold(seed: int, count: int) -> tuple[Array, Array, np.random.Generator]:
    """Own rows with their constant, and scores of variance 1, half of which own columns foretell."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 1, (count, 1))
    return np.hstack([own, np.ones((count, 1))]), math.sqrt(0.5) * (own[:, 0] + rng.normal(0, 1, count)), rng


def test_scaling_a_factor_up_counts_own_columns_one_and_a_half_times():
    """The counter-example of Proposition E; deviations of a million people are below 0.02 here."""
    rows, scores, rng = half_foretold(1, 1_000_000)
    labels = rows[:, 0] + 2 * scores + rng.normal(0, 0.1, len(rows))
    received = scores + rng.normal(0, 3, len(rows))
    weights = np.linalg.lstsq(np.column_stack([rows, received]), labels, rcond=None)[0]
    naive = weights[0] * rows[:, 0] + weights[2] / 0.1 * scores
    foretold = float(naive @ rows[:, 0] / (rows[:, 0] @ rows[:, 0]))
    assert (foretold - 1) / (2 * math.sqrt(0.5)) == pytest.approx(1.47, abs=0.08)
    found = heard(rows, scores, 9.0, rng)
    assert found.weights[0] == pytest.approx(math.sqrt(0.5), abs=0.03)
    assert found.spread == pytest.approx(0.5, abs=0.05)
    fitted = np.linalg.lstsq(np.column_stack([rows, found.estimated]), labels, rcond=None)[0]
    assert (fitted[0], fitted[2]) == (pytest.approx(1, abs=0.2), pytest.approx(2, abs=0.25))


def test_factors_are_those_of_scores_without_noise():
    rows, scores, rng = half_foretold(2, 200_000)
    labels = (rng.random(len(rows)) < chance(0.8 * rows[:, 0] + 1.2 * scores - 1.5)).astype(float)
    for noise, near in ((9.0, 0.25), (1e-6, 0.1)):
        found = fit_corrected(rows, labels, [heard(rows, scores, noise, rng)], 1e-5)
        assert found == pytest.approx([0.8, -1.5, 1.2], abs=near)


def test_own_columns_alone_keep_the_moments_of_the_labels():
    rows, scores, rng = half_foretold(3, 4_000)
    labels = (rng.random(len(rows)) < chance(rows[:, 0] + scores - 1)).astype(float)
    two = [heard(rows, scores, 9.0, rng), heard(rows, -scores + rng.normal(0, 1, len(rows)), 4.0, rng)]
    weights = fit_corrected(rows, labels, two, 1e-9)
    lean = 1.5 * (1 - 2 * labels.mean())
    half = math.sqrt(1 + lean**2 / 4)
    high, low = lean / 2 + half, lean / 2 - half
    likely = -low / (high - low)
    known = rows @ weights[:2] + sum(f * each.estimated for f, each in zip(weights[2:], two, strict=True))
    reach = [f * math.sqrt(each.hidden) for f, each in zip(weights[2:], two, strict=True)]
    mean = sum(
        p * q * chance(known + reach[0] * a + reach[1] * b)
        for a, p in ((high, likely), (low, 1 - likely))
        for b, q in ((high, likely), (low, 1 - likely))
    )
    assert rows.T @ (mean - labels) / len(rows) == pytest.approx(np.zeros(2), abs=1e-6)


def drafted(rows: int, noise: float) -> Exchange:
    blocks = (ColumnBlock("bank", ("a",), 1.0), ColumnBlock("shop", ("x", "y", "z"), math.sqrt(3)))
    setting = GLMSetting(blocks, "bank", LOGISTIC, TRUST, rows)
    task = draft_exchange(GLMChoices.of(GLM(label="bank.y", epochs=1)), setting, noise)
    return replace(task, noise=round(task.noise * noise**2))


def test_slopes_tell_how_large_the_answered_scores_are():
    """The lemma, without and with noise on what is sent; the guess of the penalty's part is public and rough."""
    rng = np.random.default_rng(4)
    table = np.hstack([rng.uniform(-1, 1, (20_000, 3)), np.ones((20_000, 1))])
    labels = (rng.random(len(table)) < chance(2 * table[:, 0] - 1)).astype(float)
    task = replace(drafted(len(table), 0.5), message_clip=50.0)
    slopes = LOGISTIC.clip_slopes(np.full(len(table), math.log(labels.mean() / (1 - labels.mean()))), labels)
    side = PassiveParty(table, "shop", task)
    side.take(0, slopes)
    scores, ridge = table @ side.weights, task.side("shop").ridge
    left = LOGISTIC.curvature * np.mean(scores**2) + ridge * side.weights @ side.weights
    assert left == pytest.approx(-np.mean(slopes * scores), rel=1e-6)

    deviation = task.message_deviation("bank")
    side.take(0, slopes + rng.normal(0, deviation, len(slopes)))
    loud, noise = side.scores(0), task.message_deviation("shop") ** 2
    received = loud + rng.normal(0, math.sqrt(noise), len(loud))
    guess = VarianceGuess.by_slopes(slopes, received, "shop", task, noise)
    assert guess.variance == pytest.approx(loud.var(), rel=0.4)
    assert guess.plus(guess).variance == pytest.approx(4 * guess.variance)
    assert guess.error < 0.5 * guess.variance


def test_scores_that_speak_against_the_label_are_left_out():
    rng = np.random.default_rng(5)
    own = np.hstack([rng.uniform(-1, 1, (3_000, 1)), np.ones((3_000, 1))])
    labels = (rng.random(3_000) < chance(2 * own[:, 0])).astype(float)
    side = ActiveFit(own, labels, drafted(3_000, 0.5))
    side.slopes(0)
    side.hear("shop", 0, rng.normal(0, 1, 3_000) - 3 * (labels - labels.mean()))
    kept = side.keep_weights()
    assert kept.factors == {"shop": 0.0}
    assert kept.spreads["shop"] > 0
    assert kept.weights == pytest.approx(fit_corrected(own, labels, [], 1 / 3_000), abs=1e-6)


@pytest.mark.parametrize("loudness", [0.01, 1.5])
def test_what_is_expected_of_the_fits_own_people_is_right(loudness):
    """By own rows and scores with little or much noise; without the others' scores it would be told less."""
    rng = np.random.default_rng(7)
    table = np.hstack([rng.uniform(-1, 1, (20_000, 3)), np.ones((20_000, 1))])
    own = np.hstack([rng.uniform(-1, 1, (20_000, 1)), np.ones((20_000, 1))])
    labels = (rng.random(len(table)) < chance(own[:, 0] + 3 * table[:, 0] - 1)).astype(float)
    task = drafted(len(table), loudness)
    side, other = ActiveFit(own, labels, task), PassiveParty(table, "shop", task)
    other.take(0, side.slopes(0) + rng.normal(0, task.message_deviation("bank"), len(labels)))
    side.hear("shop", 0, other.scores(0) + rng.normal(0, task.message_deviation("shop"), len(labels)))
    kept = side.keep_weights()
    found = assess_chances(labels > 0, chance(side.expected_scores(kept)))
    assert found.slope == pytest.approx(1, abs=0.1)
    assert found.intercept == pytest.approx(0, abs=0.1)
    alone = assess_chances(labels > 0, chance(own @ fit_corrected(own, labels, [], 1e-5)))
    assert found.log_loss < alone.log_loss
    assert kept.factors["shop"] > 0


def test_points_for_many_parties_stand_for_all():
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.normal(0, 1, (6_000, 1)), np.ones((6_000, 1))])
    scores = rng.normal(0, 0.5, (8, 6_000))
    labels = (rng.random(6_000) < chance(rows[:, 0] + scores.sum(axis=0))).astype(float)
    found = fit_corrected(rows, labels, [heard(rows, each, 0.01, rng) for each in scores], 1e-5)
    assert found == pytest.approx([1.0, 0.0, *([1.0] * 8)], abs=0.35)


def test_what_is_not_known_flattens_chances_and_raises_means():
    scores = np.linspace(-3, 3, 7)
    drawn = np.random.default_rng(6).normal(0, 1.2, 400_000)
    mean = np.array([chance(each + drawn).mean() for each in scores])
    assert chance(blur_scores(LOGISTIC, scores, 1.44)) == pytest.approx(mean, abs=0.01)
    counts = family_for("poisson", Number(low=0.0, high=30.0))
    assert blur_scores(counts, scores, 0.5) == pytest.approx(scores + 0.25)
    assert unblur_scores(counts, 0.5) == (1.0, -0.25)
    assert np.array_equal(blur_scores(family_for("linear", Number(low=0.0, high=1.0)), scores, 0.5), scores)


def test_the_less_can_be_signal_the_less_is_believed():
    received = 0.3 + np.linspace(-1, 1, 400)
    calm, loud, shifted = (
        estimate_scores(received, 2.0, noise, shared) for noise, shared in ((0, 0), (100, 0), (1, 1))
    )
    assert (calm.middle, calm.share, calm.signal) == pytest.approx((0.3, 1.0, received.var()), rel=0.05)
    assert loud.share < 0.02
    assert 0 < loud.middle < 0.1
    # What all scores share does not average out, however many there are.
    assert estimate_scores(np.tile(received, 100), 2.0, 1.0).middle == pytest.approx(0.3, rel=0.01)
    assert estimate_scores(np.tile(received, 100), 2.0, 1.0, 1.0).middle == pytest.approx(shifted.middle, rel=0.05)
    assert 0 < shifted.middle < 0.03


# --- the losses: slopes, curvatures and row terms of every family, and labels in its units


EXAMPLES = {
    "logistic": family_for("logistic", flag()),
    "logistic, reach 1": family_for("logistic", flag(), reach=1),
    "linear": family_for("linear", number(-3, 7)),
    "linear, narrow": family_for("linear", number(0, 1), clip=0.3, reach=0.5),
    "linear, wide": family_for("linear", number(0, 1), clip=9.0, reach=1.5),
    "svm": family_for("svm", flag()),
    "svm, narrow": family_for("svm", flag(), clip=1.0),
    "svm, wide": family_for("svm", flag(), clip=9.0, reach=2.0),
    "poisson": family_for("poisson", number(0, 20)),
    "poisson, one": family_for("poisson", number(0, 1)),
    "poisson, many": family_for("poisson", number(100, 10_000)),
    "poisson, unclipped": family_for("poisson", number(0, 20), clip=1000, region=(-1, 2)),
    "gamma": family_for("gamma", number(1, 50)),
    "gamma, narrow": family_for("gamma", number(0.5, 40), clip=0.5),
    "gamma, unclipped": family_for("gamma", number(2, 6), clip=1000),
    "gamma, region": family_for("gamma", number(2, 6), region=(0, 3)),
}
each = pytest.mark.parametrize("family", EXAMPLES.values(), ids=EXAMPLES)
families = st.sampled_from(list(EXAMPLES.values()))


def labels(family: Family, share: np.ndarray) -> np.ndarray:
    """Labels of the family for numbers in [0, 1]."""
    if family.name in ("logistic", "svm"):
        ones = np.rint(share)
        return 2 * ones - 1 if family.name == "svm" else ones
    if family.name == "linear":
        return 2 * share - 1
    values = family.low + share * (family.high - family.low)
    return np.rint(values) if family.name == "poisson" else values


def grid(family: Family, points: int = 4001) -> tuple[np.ndarray, np.ndarray]:
    """Scores over and beyond the reach, each with labels over their whole range."""
    scores = np.linspace(-3 * family.reach - 2, 3 * family.reach + 2, points)
    ends = np.array([-family.reach, 0.0, family.reach])
    t, share = np.meshgrid(np.sort(np.concatenate([scores, ends])), np.linspace(0, 1, 21))
    return t, labels(family, share)


def numbers(size: float) -> st.SearchStrategy[float]:
    return st.floats(-size, size, allow_nan=False)


@each
def test_slopes_are_derivatives_of_the_loss_monotone_and_within_their_bound(family):
    t, y = grid(family)
    slopes, step = family.slopes(t, y), 1e-5
    assert 0.97 * family.slope_bound < np.abs(slopes).max() <= family.slope_bound  # which some slope reaches
    assert np.diff(slopes, axis=1).min() >= -1e-14
    rise = (family.loss(t + step, y) - family.loss(t - step, y)) / (2 * step)
    assert np.abs(rise - slopes).max() <= 2 * family.curvature * step + 1e-8
    y = labels(family, np.linspace(0, 1, 7))
    for side in (-1.0, 1.0):
        near, far = np.full(7, side * 1e3), np.full(7, side * 1e6)
        rise = (family.loss(far, y) - family.loss(near, y)) / (far - near)
        assert np.allclose(rise, family.slopes(far, y), rtol=1e-9, atol=1e-9)


@each
def test_the_curvature_is_reached_and_not_exceeded(family):
    t, y = grid(family, 20_001)
    bends = family.hessian(t, y)
    assert bends.min() >= 0
    assert 0.96 * family.curvature < bends.max() <= family.curvature
    t, y = grid(family, 801)
    step = 1e-6
    rise = (family.slopes(t + step, y) - family.slopes(t - step, y)) / (2 * step)
    smooth = np.abs(family.hessian(t + step, y) - family.hessian(t - step, y)) < 1e-3 * family.curvature
    assert smooth.mean() > 0.9
    assert np.abs(rise - family.hessian(t, y))[smooth].max() < 1e-3 * family.curvature


@each
def test_a_row_moves_its_sent_slope_as_far_as_own_says(family):
    t, y = grid(family)
    sent = family.clip_slopes(t, y)
    moved = Fraction(float(sent.max())) - Fraction(float(sent.min()))
    assert Fraction(99, 100) * family.own < moved <= family.own <= 2 * Fraction(family.slope_bound)


@settings(max_examples=300, deadline=None)
@given(families, numbers(1e6), numbers(1e6), st.floats(0, 1), st.floats(0, 1))
@example(EXAMPLES["poisson"], -30.0, 1e6, 1.0, 0.0)
def test_bounds_hold_at_any_score(family, score, other, share, another):
    t, y = np.array([score, other]), labels(family, np.array([share, another]))
    sent, bends = family.clip_slopes(t, y), family.hessian(t, y)
    assert abs(Fraction(float(sent[0])) - Fraction(float(sent[1]))) <= family.own
    assert 0 <= bends.min() <= bends.max() <= family.curvature
    assert np.isfinite(family.loss(t, y)).all()
    for slopes in (family.slopes, family.clip_slopes):
        assert np.abs(slopes(t, y)).max() <= family.slope_bound  # which no NaN is
        moved, expected = np.diff(slopes(t, y[[0, 0]]))[0], other - score
        assert moved * expected >= -1e-13 * abs(expected)
        assert abs(moved) <= family.curvature * abs(expected) + 1e-13


def test_row_terms_are_rounded_up():
    for reach in (0.5, 1.0, 3.0, 40.0):
        run = Exchanged(1, 1, 2, 0.1, row_norm=1.0, weight_norm=reach)
        own = family_for("logistic", flag(), reach=reach).own
        assert own == pytest.approx(float(logistic_own_slope(run)), rel=1e-13)
        assert own >= Fraction(1 + math.tanh(reach / 2))
    for reach in np.linspace(0.01, 9, 200):
        exact = 2 / (1 + Decimal(-float(reach)).exp())
        assert family_for("logistic", flag(), reach=float(reach)).own >= Fraction(exact)
        family = family_for("gamma", number(2, 6), region=(-float(reach), float(reach)), clip=1e9)
        ends = [Decimal(family.centre + side * family.reach).exp() for side in (-1, 1)]
        moved = Fraction(6 / ends[0] - 2 / ends[1]) / Fraction(family.scale)
        assert family.own >= min(moved, 2)
    # Large numbers close together do not lose the row term.
    family = family_for("poisson", number(10**9, 10**9 + 1), region=(math.log(10**9), math.log(10**9) + 1e-9))
    sent = family.clip_slopes(np.array([-1.0, 1.0]), np.array([family.high, family.low]))
    assert Fraction(float(sent[1])) - Fraction(float(sent[0])) <= family.own


def test_means_in_the_units_of_the_label():
    t, far = np.array([-1.0, 0.0, 0.5, 1.0]), np.array([-9.0, 0.0, 9.0])
    logged = number(0, 99, transform="log1p")
    assert family_for("linear", number(-3, 7)).mean(t) == pytest.approx([-3, 2, 4.5, 7])
    assert family_for("linear", number(-3, 7)).mean(far) == pytest.approx([-3, 2, 7])  # within the range
    assert family_for("linear", logged).mean(t) == pytest.approx([0, 9, 10**1.5 - 1, 99])
    assert family_for("gamma", number(1, 4)).mean(far) == pytest.approx([1, 2, 4])
    assert family_for("poisson", number(0, 9), region=(0, 2)).mean(t) == pytest.approx(np.exp(1 + t))
    assert family_for("logistic", flag()).mean(t) == pytest.approx(1 / (1 + np.exp(-t)))


@pytest.mark.parametrize("clip", [1.0, 9.0])
def test_the_mean_of_the_svm_is_the_chance_for_which_its_score_is_best(clip):
    family = family_for("svm", flag(), clip=clip)
    t = np.linspace(-0.99, 0.99, 21)
    chance = family.mean(t)
    ones = np.ones_like(t)
    assert chance * family.slopes(t, ones) + (1 - chance) * family.slopes(t, -ones) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("high", [5, 100])
def test_the_default_clip_hardly_moves_a_poisson_mean(high):
    family = family_for("poisson", number(0, high))
    counts = np.arange(20.0 * high)
    log_factorials = np.array([math.lgamma(count + 1) for count in counts])
    for mean in np.geomspace(high / 50, 0.7 * high, 20):
        chances = np.exp(counts * math.log(mean) - mean - log_factorials)
        near = np.log(mean * np.array([0.99, 1.01])) - family.centre
        below, above = (float(chances @ family.slopes(np.full_like(counts, t), counts)) for t in near)
        assert below < 0 < above


@each
def test_families_are_told_apart_and_guesses_are_within_what_is_proven(family):
    plain = family.plain()
    assert all(isinstance(value, str) for value in plain.values())
    assert (float.fromhex(plain["reach"]), Fraction(plain["own"])) == (family.reach, family.own)
    assert [other for other in EXAMPLES.values() if other.plain() == plain] == [family]
    assert 0 < family.typical_curvature <= family.curvature
    assert 0 < family.typical_spread <= family.slope_bound
    assert family.typical_variance > 0


@pytest.mark.parametrize(
    ("name", "column", "options", "words"),
    [
        ("probit", flag(), {}, ("ST136", "logistic", "linear", "svm", "poisson", "gamma")),
        ("logistic", number(0, 1), {}, "ST465"),
        ("svm", category(["a", "b", "c"]), {}, ("ST466", "3")),
        ("logistic", category(["a", "b"], missing="none"), {}, "ST467"),
        ("linear", number(0, 1, missing="none"), {}, "ST469"),
        ("linear", flag(), {}, ("ST468", "flag")),
        ("poisson", number(-1, 5), {}, "ST463"),
        ("poisson", number(0, 5.5), {}, "ST463"),
        ("poisson", number(0, 5, transform="log1p"), {}, "ST470"),
        ("gamma", number(0, 5), {}, "ST464"),
        ("gamma", number(1, 5, transform="log1p"), {}, "ST470"),
        ("gamma", category(["a", "b"]), {}, ("ST468", "category")),
        ("logistic", flag(), {"clip": 1.0}, ("ST461", "clip")),
        ("linear", number(0, 1), {"region": (0, 1)}, ("ST461", "region")),
        ("poisson", number(0, 5), {"reach": 2.0}, ("ST461", "reach")),
        ("linear", number(0, 1), {"clip": 0}, ("ST137", "clip")),
        ("linear", number(0, 1), {"clip": True}, ("ST137", "clip")),
        ("logistic", flag(), {"reach": math.inf}, ("ST137", "reach")),
        ("gamma", number(1, 5), {"region": (2, 1)}, "ST472"),
        ("gamma", number(1, 5), {"region": (0, 1000)}, "ST472"),
        ("poisson", number(0, 5), {"region": 3}, "ST472"),
    ],
)
def test_what_does_not_fit_is_refused(name, column, options, words):
    with raises(StudyError, words):
        family_for(name, column, **options)


def test_a_family_without_sense_is_refused():
    with raises(StudyError, "ST459", "reach", "logistic"):
        replace(EXAMPLES["logistic"], reach=-1.0)
    with raises(StudyError, "ST460"):
        replace(EXAMPLES["linear"], low=9.0)


def encoded(column, values):
    """What the schema makes of numbers within the bounds."""
    share = (np.asarray(values, dtype=np.float64) - column.low) / (column.high - column.low)
    return (2 * share - 1 if column.scale == "signed" else share)[:, None]


@pytest.mark.parametrize("scale", ["signed", "unit"])
def test_labels_come_back_in_the_family_s_units(scale):
    counts, amounts = number(0, 77, scale=scale), number(0.7, 9.1, scale=scale)
    whole, grid = np.arange(78.0), np.linspace(0.7, 9.1, 50)
    assert np.array_equal(labels_for(family_for("poisson", counts), counts, encoded(counts, whole)), whole)
    found = labels_for(family_for("gamma", amounts), amounts, encoded(amounts, grid))
    assert found == pytest.approx(grid, rel=1e-12)
    assert 0.7 <= found.min() <= found.max() <= 9.1
    linear = labels_for(family_for("linear", amounts), amounts, encoded(amounts, [0.7, 4.9, 9.1]))
    assert linear == pytest.approx([-1, 0, 1], abs=1e-15)


@pytest.mark.parametrize(
    ("name", "column", "values", "words"),
    [
        ("logistic", flag(), [[1.0], [0.5]], ("DA129", "0", "1")),
        ("svm", category(["a", "b"]), [[1.0, 0.0], [0.0, 0.0]], "DA129"),
        ("linear", number(0, 4), [[1.0], [1.01]], "DA129"),
        ("linear", number(0, 4, scale="unit"), [[1.0], [-0.01]], "DA129"),
        ("poisson", number(0, 4), [[0.5], [0.25]], "DA129"),
        ("gamma", number(1, 4), [[0.5], [math.nan]], "DA129"),
        ("logistic", flag(), [[1.0, 0.0]], "DA128"),
    ],
)
def test_a_label_outside_the_range_is_named_by_its_row(name, column, values, words):
    with raises(DataError, words, "clinic.ill", "2") as caught:
        labels_for(family_for(name, column), column, np.array(values), where="clinic.ill")
    assert "0.25" not in str(caught.value)
