"""Heads that know the noise: what it would do to a head that does not, and what is left of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import DataError
from colonnade.kinds.split.embeddings.heads import Statistics, chances, discriminant, of_classes, ridge
from colonnade.privacy.noise.response import randomised_response
from colonnade.randomness import Stream
from tests.support.errors import raises
from tests.support.protocols import Array

ROWS = 40_000


def _classes(rows: int = ROWS, seed: int = 1) -> tuple[Array, Array]:
    """Two classes that differ along one column, beside which a second one varies with the first."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.3).astype(np.int64)
    shared = rng.normal(size=rows)
    first = 0.3 * labels + shared
    return np.column_stack([first, shared + 0.1 * rng.normal(size=rows)]), labels


def _right(head_scores: Array, labels: Array) -> float:
    return float((head_scores.argmax(axis=1) == labels).mean())


def test_without_noise_it_is_the_linear_discriminant() -> None:
    rows, labels = _classes()
    head = discriminant(rows, labels, 0.0, classes=2)
    means = np.array([rows[labels == k].mean(axis=0) for k in range(2)])
    within = np.cov((rows - means[labels]).T, bias=True)
    assert head.weights == pytest.approx(means @ np.linalg.inv(within), rel=1e-6)
    assert head.intercept == pytest.approx(
        np.log(np.bincount(labels) / ROWS) - 0.5 * (head.weights * means).sum(axis=1), rel=1e-6
    )


def test_exact_queries_need_the_noise_subtracted_and_noised_ones_need_it_left() -> None:
    """The second column is of use only through its covariance with the first, which noise hides."""
    rows, labels = _classes()
    new, truth = _classes(seed=2)
    rng, variance = np.random.default_rng(3), 0.25
    told = rows + 0.5 * rng.normal(size=rows.shape)
    asked = new + 0.5 * rng.normal(size=new.shape)
    best = _right(discriminant(rows, labels, 0.0, classes=2).scores(new), truth)
    exact = discriminant(told, labels, variance, classes=2)
    naive = discriminant(told, labels, 0.0, classes=2)
    noised = discriminant(told, labels, variance, classes=2, query_variance=variance)
    assert best > 0.9
    assert _right(exact.scores(new), truth) > best - 0.03
    assert _right(naive.scores(new), truth) < best - 0.1
    assert _right(noised.scores(asked), truth) > _right(exact.scores(asked), truth) + 0.05
    assert noised.weights == pytest.approx(naive.weights, rel=1e-6)


def test_own_columns_have_no_noise_and_stand_behind_those_that_were_told() -> None:
    rows, labels = _classes()
    told = rows[:, :1] + 0.5 * np.random.default_rng(4).normal(size=(ROWS, 1))
    head = discriminant(told, labels, 0.25, classes=2, own=rows[:, 1:] * 1e4)
    new, truth = _classes(seed=5)
    assert head.weights.shape == (2, 2)
    assert _right(head.scores(new[:, :1], new[:, 1:] * 1e4), truth) > 0.9


def test_more_noise_than_signal_gives_a_head_that_is_still_finite() -> None:
    rng = np.random.default_rng(6)
    told, labels = rng.normal(size=(50, 20)), rng.integers(0, 3, 50)
    head = discriminant(told, labels, 2.0, classes=4)  # more is subtracted than there is, and one class is empty
    assert np.isfinite(head.scores(told)).all()
    assert np.linalg.norm(head.weights) < 1e3


def test_answers_of_randomised_response_are_corrected_by_their_known_chances() -> None:
    rng = np.random.default_rng(7)
    labels = rng.choice(3, p=[0.6, 0.3, 0.1], size=ROWS)
    middles = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    rows = middles[labels] + rng.normal(size=(ROWS, 2))
    answers = randomised_response(labels, 3, Fraction(4), Stream(bytes(32)))
    truth, given = (
        discriminant(rows, seen, 0.0, classes=3, odds=odds) for seen, odds in ((labels, None), (answers, Fraction(4)))
    )
    wrong = discriminant(rows, answers, 0.0, classes=3)
    assert given.weights == pytest.approx(truth.weights, abs=0.15)
    assert np.abs(wrong.weights - truth.weights).max() > 0.5
    assert chances(3, Fraction(4)).sum(axis=0) == pytest.approx(np.ones(3))
    with raises(DataError, "DA115"):
        discriminant(rows, answers, 0.0, classes=3, odds=Fraction(1))


def test_statistics_are_enough_for_new_rows_with_any_noise() -> None:
    rows, labels = _classes(2000)
    kept = Statistics.of(of_classes(rows[:, :1], labels, 0.1, classes=2, own=rows[:, 1:]).arrays())
    for noise in (0.0, 0.5):
        head = discriminant(rows[:, :1], labels, 0.1, classes=2, own=rows[:, 1:], query_variance=noise)
        assert np.array_equal(kept.head(noise).weights, head.weights)
        assert np.array_equal(kept.head(noise).intercept, head.intercept)
    with raises(ValueError, "VA130"):
        Statistics.of(kept.arrays() | {"centre": np.zeros(3)})


def test_regression_on_noised_rows_is_not_flattened() -> None:
    rng = np.random.default_rng(8)
    rows, slope = rng.normal(size=(ROWS, 3)) * [1.0, 2.0, 0.5] + 1.0, np.array([2.0, -1.0, 0.5])
    target = rows @ slope + 4.0 + 0.1 * rng.normal(size=ROWS)
    told = rows + rng.normal(size=rows.shape)
    head = ridge(told, target, 1.0)
    assert head.weights[0] == pytest.approx(slope, abs=0.15)
    assert head.intercept[0] == pytest.approx(4.0, abs=0.2)
    assert ridge(told, target, 0.0).weights[0, 0] == pytest.approx(1.0, abs=0.1)  # half of it
    same = ridge(told, target, np.ones(3), query_variance=1.0)
    assert same.weights == pytest.approx(ridge(told, target, 0.0).weights, rel=1e-6)
    assert np.abs(ridge(rows, target, 0.0, penalty=1.0).weights[0]) == pytest.approx(np.abs(slope) / 2, rel=0.05)
    half = ridge(told[:, :2], target, 1.0, own=rows[:, 2:])
    assert half.scores(told[:, :2], rows[:, 2:]).shape == (ROWS, 1)
    assert half.weights[0, 2] == pytest.approx(0.5, abs=0.15)
