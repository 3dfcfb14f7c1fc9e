"""Heads from sums: without noise they are the closed forms, with noise they believe what stands out of it."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.split.heads import Head, Sums, head_from
from tests.support.errors import raises


def clouds(rows: int = 4000, width: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    labels = rng.choice(classes, rows, p=[0.5, 0.3, 0.2])
    shape = rng.normal(size=(width, width)) / 2 + np.eye(width)
    return rng.normal(size=(rows, width)) @ shape + 2 * rng.normal(size=(classes, width))[labels], labels


def sums_of(rows: np.ndarray, labels: np.ndarray, classes: int, noise: float = 0.0) -> Sums:
    joint = np.hstack([rows, np.eye(classes)[labels]])
    matrix = joint.T @ joint
    draw = np.random.default_rng(6).normal(size=matrix.shape) * noise
    return Sums(matrix + np.triu(draw) + np.triu(draw, 1).T, np.full(matrix.shape, noise), classes)


def test_a_discriminant_of_exact_sums_is_linear_discriminant_analysis() -> None:
    rows, labels = clouds()
    head = head_from(sums_of(rows, labels, 3), classes=3)
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
    within = sum(np.cov(rows[labels == k].T, bias=True) * (labels == k).mean() for k in range(3))
    inverse = np.linalg.inv(within)
    shares = np.bincount(labels) / len(labels)
    due = rows @ inverse @ means.T - np.einsum("kd,de,ke->k", means, inverse, means) / 2 + np.log(shares)
    assert head.kind == "discriminant"
    np.testing.assert_allclose(head.scores(rows), due, rtol=1e-8, atol=1e-8)
    likelihood = head.probabilities(rows)
    np.testing.assert_allclose(likelihood.sum(axis=1), 1.0)
    assert (likelihood.argmax(axis=1) == due.argmax(axis=1)).all()


@pytest.mark.parametrize("ridge", [0.0, 25.0])
def test_a_ridge_of_exact_sums_is_ridge_regression_of_the_flags(ridge: float) -> None:
    rows, labels = clouds()
    head = head_from(sums_of(rows, labels, 3), classes=3, solver="ridge", ridge=ridge)
    flags = np.eye(3)[labels]
    centred = rows - rows.mean(axis=0)
    due = np.linalg.solve(centred.T @ centred + ridge * np.eye(6), centred.T @ (flags - flags.mean(axis=0)))
    np.testing.assert_allclose(head.scores(rows), centred @ due + flags.mean(axis=0), atol=1e-9)
    assert head.facts["rows"] == pytest.approx(len(rows))


def test_logistic_scores_are_ordered_like_least_squares_and_give_probabilities() -> None:
    rows, labels = clouds()
    plain, steep = (head_from(sums_of(rows, labels, 3), classes=3, solver=name) for name in ("ridge", "logistic"))
    np.testing.assert_allclose(steep.scores(rows), steep.facts["slope"] * (plain.scores(rows) - 0.5), atol=1e-9)
    chosen = steep.probabilities(rows)[np.arange(len(rows)), labels]
    assert (
        -np.log(chosen).mean()
        < -np.log(np.clip(plain.probabilities(rows), 1e-6, 1))[np.arange(len(rows)), labels].mean()
    )


def test_a_number_is_predicted_by_least_squares_around_its_mean() -> None:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(3000, 5)) + 0.3
    label = np.clip(rows @ np.array([0.1, -0.2, 0.0, 0.1, 0.05]) + 0.1, -1, 1)
    joint = np.hstack([rows, label[:, None], np.full((3000, 1), 0.5)])
    sums = Sums(joint.T @ joint, np.zeros((7, 7)), 1)
    head = head_from(sums, classes=0, constant=0.5)
    due = np.linalg.lstsq(np.hstack([rows, np.ones((3000, 1))]), label, rcond=None)[0]
    np.testing.assert_allclose(head.weights[0], due[:-1], atol=1e-8)
    assert head.intercept[0] == pytest.approx(due[-1])


@pytest.mark.parametrize("solver", ["discriminant", "ridge", "logistic"])
def test_noise_as_large_as_the_sums_gives_finite_scores(solver: str) -> None:
    rows, labels = clouds(rows=30)
    head = head_from(sums_of(rows, labels, 3, noise=1e6), classes=3, solver=solver)
    assert np.isfinite(head.scores(rows)).all()
    assert np.isfinite(head.probabilities(rows)).all()
    assert head.facts["raised"] > 0


def test_little_noise_changes_little() -> None:
    rows, labels = clouds()
    exact, noisy = (head_from(sums_of(rows, labels, 3, noise), classes=3) for noise in (0.0, 5.0))
    agree = exact.scores(rows).argmax(axis=1) == noisy.scores(rows).argmax(axis=1)
    assert agree.mean() > 0.97


def test_what_makes_no_sense_is_refused() -> None:
    rows, labels = clouds(rows=50)
    sums = sums_of(rows, labels, 3)
    with raises(StudyError, "ST280"):
        head_from(sums, classes=3, solver="forest")
    with raises(StudyError, "ST281"):
        head_from(sums, classes=0, solver="discriminant")
    with raises(StudyError, "ST205"):
        head_from(sums, classes=3, ridge=-1.0)
    with raises(ValueError, "VA067"):
        Head(np.zeros((3, 2)), np.zeros(2), "ridge")
