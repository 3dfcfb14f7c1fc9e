"""What a receiver believes of others' parts: formulas against integrals, and by simulation never worse than before."""

from __future__ import annotations

import math

import numpy as np
import pytest

from colonnade import category, flag, number
from colonnade.kinds.prediction.beliefs import (
    GUESSED,
    PUBLISHED,
    Belief,
    Law,
    after_levels,
    after_noise,
    flattened,
    guessed,
    of_law,
)
from colonnade.privacy.noise.response import odds_for, randomised_response
from colonnade.testing.seeded import seeded


def people(rows, seed, spread=1.0, follows=0.5):
    """Own scores, what they foretell of the others' part, and that part."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 1, (rows, 1))
    foretold = follows * own
    return own, foretold, foretold + rng.normal(0, spread, (rows, 1))


def believed(foretold, spread=1.0, doubt=PUBLISHED):
    return Belief(foretold, np.full_like(foretold, spread**2), doubt)


def error(found, truth):
    return float(np.mean(np.square(found - truth)))


@pytest.mark.parametrize("deviation", [0.3, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("rows", [40, 3000])
def test_noisy_sums_are_never_worse_than_own_columns_in_expectation(deviation, rows):
    rng, worse, better = np.random.default_rng(rows), 0.0, 0.0
    for seed in range(8000 // rows + 4):
        own, foretold, truth = people(rows, seed)
        found = after_noise(believed(foretold), own, truth + rng.normal(0, deviation, truth.shape), deviation)
        worse, better = worse + error(foretold, truth), better + error(found.mean, truth)
    ideal = deviation**2 / (1 + deviation**2)
    assert better <= worse * (1.02 if ideal > 0.98 else 1.0)
    assert better == pytest.approx(worse * ideal, rel=0.12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 6.0])
@pytest.mark.parametrize("rows", [40, 3000])
def test_levels_are_never_worse_than_own_columns_in_expectation(epsilon, rows):
    stream, worse, better, said = seeded(rows), 0.0, 0.0, 0.0
    cuts, odds, turns = np.array([-0.8, 0.8]), odds_for(epsilon), 8000 // rows + 4
    for seed in range(turns):
        own, foretold, truth = people(rows, seed)
        told = randomised_response(np.searchsorted(cuts, truth[:, 0]), 3, odds, stream)
        found = after_levels(believed(foretold), own, told, cuts, float(odds))
        worse, better = worse + error(foretold, truth), better + error(found.mean, truth)
        said += float(found.variance.mean())
    assert better <= worse * (1.01 if epsilon < 0.5 else 0.97)
    assert said == pytest.approx(better, rel=0.06)


def test_the_moments_after_a_level_are_those_of_the_integral():
    values = np.linspace(-9, 9, 400_001)
    mean, variance, cuts, odds = 0.3, 0.7**2, np.array([-0.4, 0.9]), 5.0
    law = np.exp(-np.square(values - mean) / (2 * variance))
    for level in range(3):
        weights = law * np.where(np.searchsorted(cuts, values) == level, odds, 1.0)
        middle = float(values @ weights / weights.sum())
        spread = float(np.square(values - middle) @ weights / weights.sum())
        # One person is too little to change what a publication says of everybody.
        found = after_levels(
            of_law(Law(np.array([mean]), np.array([variance]), 1e-6), 1),
            np.zeros((1, 1)),
            np.array([level]),
            cuts,
            odds,
        )
        assert found.mean[0, 0] == pytest.approx(middle, abs=1e-4)
        assert found.variance[0, 0] == pytest.approx(spread, abs=1e-4)


@pytest.mark.parametrize("how", ["noise", "levels"])
def test_many_people_correct_a_guess(how):
    rng, rows = np.random.default_rng(3), 8000
    own = rng.normal(0, 2, (rows, 1))
    truth = 1.5 + 0.4 * own + rng.normal(0, 0.5, (rows, 1))
    guess = of_law(Law(np.zeros(1), np.ones(1), GUESSED), rows)
    if how == "noise":
        found = after_noise(guess, own, truth + rng.normal(0, 2, truth.shape), 2.0)
    else:
        cuts = np.array([-0.7, 0.7])
        told = randomised_response(np.searchsorted(cuts, truth[:, 0]), 3, odds_for(2.0), seeded(3))
        found = after_levels(guess, own, told, cuts, math.exp(2))
    assert error(found.mean, truth) < 0.35 < 2.0 < error(guess.mean, truth)


def test_nothing_is_learned_of_a_part_that_cannot_vary():
    flat = Belief(np.full((4, 1), 2.0), np.zeros((4, 1)))
    own = np.arange(4.0)[:, None]
    assert np.array_equal(after_levels(flat, own, np.array([0, 1, 0, 1]), np.zeros(1), 3.0).mean, flat.mean)
    assert np.array_equal(after_noise(flat, own, own, 1.0).mean, flat.mean)


def test_a_guess_spreads_columns_evenly():
    columns = {"age": number(0, 9), "rate": number(0, 9, scale="unit"), "car": flag(), "city": category(["A", "B"])}
    weights = {"age": 3.0, "rate": 6.0, "car": -2.0, "city=A": 1.0, "city=B": 5.0}
    found = guessed(columns, {name: np.array([value, 0.0]) for name, value in weights.items()}, 2)
    assert found.mean.tolist() == [0 + 3 - 1 + 3, 0]
    assert found.variance == pytest.approx([3 + 3 + 1 + 4, 0])
    assert found.doubt == GUESSED


def test_chances_average_over_what_is_not_known():
    rng = np.random.default_rng(4)
    for score, deviation in ((0.0, 2.0), (1.0, 1.0), (-2.0, 1.5), (3.0, 0.1)):
        drawn = score + deviation * rng.normal(size=200_000)
        found = 1 / (1 + math.exp(-float(flattened(np.array(score), np.array(deviation**2)))))
        assert found == pytest.approx(float(np.mean(1 / (1 + np.exp(-drawn)))), abs=0.015)
