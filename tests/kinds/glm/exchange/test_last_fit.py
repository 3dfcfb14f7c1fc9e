"""What the active party makes of scores with noise: factors of the scores themselves, and chances that are right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from colonnade.kinds import GLM
from colonnade.kinds.glm.exchange import sides
from colonnade.kinds.glm.exchange.bounds import Side
from colonnade.kinds.glm.exchange.last_fit import Foreseen, Guess, blurred, corrected_fit, unblurred
from colonnade.kinds.glm.exchange.sides import ActiveFit, PassiveFit
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.losses.labels import family_for
from colonnade.kinds.glm.plan import Choices, Setting, draft
from colonnade.models.assessment import assess
from colonnade.privacy import Trust
from colonnade.protocols.rows import Block
from colonnade.tables.columns import Flag, Number
from tests.support.protocols import Array

TRUST = Trust(("bank", "shop"), (), 0)
SIDE = Side("shop", 0.01, 10.0, 6.0, 1.0)
LOGISTIC = family_for("logistic", Flag())


def chance(scores: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(scores / 2)


def heard(rows: Array, scores: Array, noise: float, rng: np.random.Generator, side: Side = SIDE) -> Foreseen:
    """Scores received with noise of this variance, of which nothing was known but their variance, roughly."""
    guess = Guess(float(scores.var()), 0.3 * float(scores.var()), 0.1 * float(scores.var()))
    return Foreseen.of(rows, scores + rng.normal(0, math.sqrt(noise), len(scores)), noise, side, guess)


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


@pytest.mark.parametrize("middle", [0.0, -1.5])
def test_factors_are_those_of_scores_without_noise(middle):
    rows, scores, rng = half_foretold(2, 200_000)
    labels = (rng.random(len(rows)) < chance(0.8 * rows[:, 0] + 1.2 * scores + middle)).astype(float)
    weights = corrected_fit(rows, labels, [heard(rows, scores, 9.0, rng)], 1e-5)
    assert weights == pytest.approx([0.8, middle, 1.2], abs=0.25)
    calm = corrected_fit(rows, labels, [heard(rows, scores, 1e-6, rng)], 1e-5)
    assert calm == pytest.approx([0.8, middle, 1.2], abs=0.1)


def test_own_columns_alone_keep_the_moments_of_the_labels():
    rows, scores, rng = half_foretold(3, 4_000)
    labels = (rng.random(len(rows)) < chance(rows[:, 0] + scores - 1)).astype(float)
    two = [heard(rows, scores, 9.0, rng), heard(rows, -scores + rng.normal(0, 1, len(rows)), 4.0, rng)]
    weights = corrected_fit(rows, labels, two, 1e-9)
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


def _task(rows: int, noise: float) -> Exchange:
    blocks = (Block("bank", ("a",), 1.0), Block("shop", ("x", "y", "z"), math.sqrt(3)))
    setting = Setting(blocks, "bank", LOGISTIC, TRUST, rows)
    task = draft(Choices.of(GLM(label="bank.y", epochs=1)), setting, noise)
    return replace(task, noise=round(task.noise * noise**2))


def test_slopes_tell_how_large_the_answered_scores_are():
    """The lemma, without and with noise on what is sent; the guess of the penalty's part is public and rough."""
    rng = np.random.default_rng(4)
    table = np.hstack([rng.uniform(-1, 1, (20_000, 3)), np.ones((20_000, 1))])
    labels = (rng.random(len(table)) < chance(2 * table[:, 0] - 1)).astype(float)
    task = replace(_task(len(table), 0.5), message_clip=50.0)
    slopes = LOGISTIC.sent(np.full(len(table), math.log(labels.mean() / (1 - labels.mean()))), labels)
    side = PassiveFit(table, "shop", task)
    side.take(0, slopes)
    scores, ridge = table @ side.weights, task.side("shop").ridge
    left = LOGISTIC.curvature * np.mean(scores**2) + ridge * side.weights @ side.weights
    assert left == pytest.approx(-np.mean(slopes * scores), rel=1e-6)

    deviation = task.message_deviation("bank")
    side.take(0, slopes + rng.normal(0, deviation, len(slopes)))
    loud, noise = side.scores(0), task.message_deviation("shop") ** 2
    received = loud + rng.normal(0, math.sqrt(noise), len(loud))
    guess = Guess.by_slopes(slopes, received, "shop", task, noise)
    assert guess.variance == pytest.approx(loud.var(), rel=0.4)
    assert guess.plus(guess).variance == pytest.approx(4 * guess.variance)
    assert guess.error < 0.5 * guess.variance


def test_scores_that_speak_against_the_label_are_left_out():
    rng = np.random.default_rng(5)
    own = np.hstack([rng.uniform(-1, 1, (3_000, 1)), np.ones((3_000, 1))])
    labels = (rng.random(3_000) < chance(2 * own[:, 0])).astype(float)
    task = _task(3_000, 0.5)
    side = ActiveFit(own, labels, task)
    side.slopes(0)
    side.hear("shop", 0, rng.normal(0, 1, 3_000) - 3 * (labels - labels.mean()))
    kept = side.kept()
    assert kept.factors == {"shop": 0.0}
    assert kept.spreads["shop"] > 0
    alone = corrected_fit(own, labels, [], 1 / 3_000)
    assert kept.weights == pytest.approx(alone, abs=1e-6)
    assert sides.KeptWeights("bank", kept.weights).spreads == {}


@pytest.mark.parametrize("loudness", [0.01, 1.5])
def test_what_is_expected_of_the_fits_own_people_is_right(loudness):
    """By own rows and scores with little or much noise; without the others' scores it would be told less."""
    rng = np.random.default_rng(7)
    table = np.hstack([rng.uniform(-1, 1, (20_000, 3)), np.ones((20_000, 1))])
    own = np.hstack([rng.uniform(-1, 1, (20_000, 1)), np.ones((20_000, 1))])
    labels = (rng.random(len(table)) < chance(own[:, 0] + 3 * table[:, 0] - 1)).astype(float)
    task = _task(len(table), loudness)
    side, other = ActiveFit(own, labels, task), PassiveFit(table, "shop", task)
    other.take(0, side.slopes(0) + rng.normal(0, task.message_deviation("bank"), len(labels)))
    side.hear("shop", 0, other.scores(0) + rng.normal(0, task.message_deviation("shop"), len(labels)))
    kept = side.kept()
    found = assess(labels > 0, chance(side.expected(kept)))
    assert found.slope == pytest.approx(1, abs=0.1)
    assert found.intercept == pytest.approx(0, abs=0.1)
    alone = assess(labels > 0, chance(own @ corrected_fit(own, labels, [], 1e-5)))
    assert found.log_loss < alone.log_loss
    assert kept.factors["shop"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_points_for_many_parties_stand_for_all(seed):
    rng = np.random.default_rng(seed)
    rows = np.hstack([rng.normal(0, 1, (6_000, 1)), np.ones((6_000, 1))])
    scores = rng.normal(0, 0.5, (8, 6_000))
    labels = (rng.random(6_000) < chance(rows[:, 0] + scores.sum(axis=0))).astype(float)
    found = corrected_fit(rows, labels, [heard(rows, each, 0.01, rng) for each in scores], 1e-5)
    assert found == pytest.approx([1.0, 0.0, *([1.0] * 8)], abs=0.35)


def test_what_is_not_known_flattens_chances_and_raises_means():
    scores = np.linspace(-3, 3, 7)
    drawn = np.random.default_rng(6).normal(0, 1.2, 400_000)
    mean = np.array([chance(each + drawn).mean() for each in scores])
    assert chance(blurred(LOGISTIC, scores, 1.44)) == pytest.approx(mean, abs=0.01)
    counts = family_for("poisson", Number(low=0.0, high=30.0))
    assert blurred(counts, scores, 0.5) == pytest.approx(scores + 0.25)
    assert unblurred(counts, 0.5) == (1.0, -0.25)
    assert np.array_equal(blurred(family_for("linear", Number(low=0.0, high=1.0)), scores, 0.5), scores)
