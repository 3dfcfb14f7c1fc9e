from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.kinds.regression.quadratic import (
    Reading,
    check_ridge,
    fit,
    operator_norm,
    problem,
    rescaled,
    shifted,
    solve,
    steepness,
)
from tests.support.errors import raises

CONSTANT = 0.7


class Moments:
    """Exact second moments of (x, y, constant), with the deviations that noise would have had."""

    def __init__(self, x, y, deviation=0.0, noise=0.0, weight=1.0, seed=0):
        z = np.hstack([x, weight * y, np.full((len(x), 1), CONSTANT)])
        drawn = np.random.default_rng(seed).normal(size=(z.shape[1],) * 2) * noise
        self.matrix = z.T @ z + np.triu(drawn) + np.triu(drawn, 1).T
        self.deviations = np.full_like(self.matrix, deviation or noise)
        self.constant = CONSTANT
        self.names = tuple([f"x{k}" for k in range(x.shape[1])] + [f"y{k}" for k in range(y.shape[1])])


def table(rows=400, columns=4, labels=1, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, columns)) + 0.2
    weights = rng.normal(size=(columns, labels))
    return x, np.clip(x @ weights / 6 + rng.normal(size=(rows, labels)) / 10, -1, 1)


def reading(x, y, middles=0.0, label_middles=0.0, weight=1.0):
    return Reading(
        [f"x{k}" for k in range(x.shape[1])],
        [f"y{k}" for k in range(y.shape[1])],
        np.full(x.shape[1], middles),
        np.full(y.shape[1], label_middles),
        weight,
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.floats(0, 50))
def test_without_noise_it_is_scikit_learns_ridge(seed, columns, labels, ridge):
    from sklearn.linear_model import Ridge

    x, y = table(200, columns, labels, seed)
    plain = Ridge(alpha=max(ridge, 1e-9)).fit(x, y)
    found = fit(Moments(x, y), reading(x, y), float(ridge))
    np.testing.assert_allclose(found.weights, plain.coef_.reshape(labels, columns), atol=1e-7)
    np.testing.assert_allclose(found.offsets, np.ravel(plain.intercept_), atol=1e-7)
    assert found.rows == pytest.approx(200)


def test_centring_and_scaling_beforehand_change_nothing():
    x, y = table(labels=2)
    plain = fit(Moments(x, y), reading(x, y), 3.0)
    moved = fit(Moments(x - 0.3, y - 0.5, weight=2.5), reading(x, y, 0.3, 0.5, 2.5), 3.0)
    np.testing.assert_allclose(moved.weights, plain.weights, atol=1e-9)
    np.testing.assert_allclose(moved.offsets, plain.offsets, atol=1e-9)
    np.testing.assert_allclose(moved.label_means, plain.label_means, atol=1e-9)


def test_without_an_intercept_it_passes_through_a_given_value():
    x, y = table()
    found = fit(Moments(x - 0.3, y - 0.5), reading(x, y, 0.3, 0.5), 0.0, through=0.25)
    best = np.linalg.lstsq(x, y[:, 0] - 0.25, rcond=None)[0]
    np.testing.assert_allclose(found.weights[0], best, atol=1e-8)
    assert found.offsets.tolist() == [0.25]


def test_the_shift_carries_its_noise_along():
    """Deviations of shifted moments are those that draws show."""
    x, y = table(50)
    draws = []
    offsets = np.array([0.5, 0.0, -0.5, 0.25, 0.1])
    for seed in range(1200):
        noisy = Moments(x, y, noise=1.0, seed=seed)
        draws.append(shifted(noisy.matrix, noisy.deviations, CONSTANT, offsets)[0])
    expected = shifted(noisy.matrix, noisy.deviations, CONSTANT, offsets)[1]
    off = ~np.eye(6, dtype=bool)  # on the diagonal equal pieces of noise add up, which is left out
    np.testing.assert_allclose(np.std(draws, axis=0)[off], expected[off], rtol=0.2)


def test_rescaling():
    x, y = table()
    given, factors = Moments(x, y, noise=2.0), np.array([1, 1, 2, 1, 0.5, 1])
    matrix, deviations = rescaled(given.matrix, given.deviations, factors)
    assert matrix[2, 4] == given.matrix[2, 4]
    assert matrix[2, 2] == 4 * given.matrix[2, 2]
    assert deviations[4, 4] == 0.5


@pytest.mark.parametrize("size", [20, 80])
def test_the_operator_norm_of_noise_is_known_beforehand(size):
    drawn = np.random.default_rng(3).normal(size=(size, size)) * 3
    noise = np.triu(drawn) + np.triu(drawn, 1).T
    assert operator_norm(np.full((size, size), 3.0)) == pytest.approx(np.abs(np.linalg.eigvalsh(noise)).max(), rel=0.2)


def test_negative_eigenvalues_are_clipped_and_counted():
    matrix = np.diag([5.0, -3.0, 2.0, 1.0])
    matrix[0, 2] = matrix[2, 0] = 1.0
    matrix[1, 2] = matrix[2, 1] = 1.0
    given = problem(matrix, np.zeros((4, 4)), 1.0, np.array([2]))
    found = solve(given, 0.5)
    assert found.clipped == 1
    np.testing.assert_allclose(found.weights, [[1 / 5.5, 2.0]])
    assert solve(given, 0.0).weights[0, 1] == 0  # nothing is known in that direction, so nothing is said


def test_the_automatic_ridge_is_the_norm_of_the_noise_and_helps():
    x, y = table(300, 12)
    plain = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y[:, 0], rcond=None)[0]
    errors = {}
    for ridge in ("auto", 0.0):
        worst = []
        for seed in range(20):
            found = fit(Moments(x, y, noise=20.0, seed=seed), reading(x, y), ridge)
            worst.append(np.std(x @ (found.weights[0] - plain[:-1])))
        errors[ridge] = np.mean(worst)
    assert fit(Moments(x, y, noise=20.0), reading(x, y), "auto").solution.ridge == pytest.approx(40 * math.sqrt(12))
    assert errors["auto"] < 0.5 * errors[0.0]


def test_stretching_undoes_what_the_ridge_shrank():
    x, _ = table(20_000, 3)
    y = x @ np.array([[0.5], [-0.4], [0.3]])
    best = fit(Moments(x, y), reading(x, y), 0.0).weights
    with_it, without = [], []
    for seed in range(20):
        found = fit(Moments(x, y, noise=400.0, seed=seed), reading(x, y), "auto")
        with_it.append(np.linalg.norm(found.weights - best))
        without.append(np.linalg.norm(found.weights / found.solution.stretches[0] - best))
    assert np.mean(with_it) < 0.9 * np.mean(without)
    assert fit(Moments(x, y, noise=400.0), reading(x, y), 10.0).solution.stretches[0] == 1  # a given ridge is kept to


def test_noise_that_drowns_everything_gives_a_dull_model():
    x, y = table(50)
    for seed in range(20):
        found = fit(Moments(x, y, noise=1e6, seed=seed), reading(x, y), "auto")
        assert np.isfinite(found.weights).all()
        assert np.abs(found.weights).max() < 2
        assert np.abs(found.label_means).max() <= 1


@pytest.mark.parametrize("share", [0.5, 0.2, 0.7])
def test_steepness_is_that_of_a_logistic_curve(share):
    """Scores that are normal within each class: the slope is that of a logistic regression through the threshold."""
    rng = np.random.default_rng(5)
    labels = rng.random(400_000) < share
    scores = share + 0.35 * (labels - share) + 0.15 * rng.standard_normal(len(labels))
    centred = scores - scores.mean()
    found = steepness(0.5, float(labels.mean()), float(scores.std()), float(np.mean(centred * labels)))
    slope = 1.0
    for _ in range(50):  # Newton's steps of that regression
        chances = 1 / (1 + np.exp(-slope * (scores - 0.5)))
        slope += np.sum((labels - chances) * (scores - 0.5)) / np.sum(chances * (1 - chances) * (scores - 0.5) ** 2)
    assert found == pytest.approx(slope, rel=0.02)
    if share == 0.5:
        assert found == pytest.approx(0.35 / 0.15**2, rel=0.02)  # by Bayes' rule


def test_steepness_stays_within_its_limits():
    assert steepness(0.5, 0.5, 0.1, 10.0) == 16.0
    assert steepness(0.5, 0.5, 0.1, -10.0) == 1.0
    assert 1.0 <= steepness(0.5, -0.3, 0.1, 0.01) <= 16.0
    assert 1.0 <= steepness(0.5, 0.2, 0.0, 0.0) <= 16.0


@pytest.mark.parametrize("ridge", [-1, True, math.inf, math.nan, "much", None])
def test_bad_ridges_are_refused(ridge):
    with raises(StudyError, "ST205"):
        check_ridge(ridge)
