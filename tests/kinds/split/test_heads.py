"""Heads: from sums, where without noise they are the closed forms; over told embeddings; and those that learn."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade.errors import DataError, StudyError
from colonnade.kinds.split.embeddings.heads import Statistics, chances, discriminant, of_classes, ridge
from colonnade.kinds.split.heads import Head, Sums, head_from
from colonnade.kinds.split.learned_heads import SoftmaxHead, TorchHead, fit, loss_and_pulls
from colonnade.privacy.noise.response import randomised_response
from colonnade.randomness import Stream
from tests.support.errors import raises, refused
from tests.support.protocols import Array

# --- from sums


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


def test_heads_of_exact_sums_are_the_closed_forms() -> None:
    rows, labels = clouds()
    sums, flags, centred = sums_of(rows, labels, 3), np.eye(3)[labels], rows - rows.mean(axis=0)
    head = head_from(sums, classes=3)
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
    inverse = np.linalg.inv(sum(np.cov(rows[labels == k].T, bias=True) * (labels == k).mean() for k in range(3)))
    constants = np.log(flags.mean(axis=0)) - np.einsum("kd,de,ke->k", means, inverse, means) / 2
    due = rows @ inverse @ means.T + constants
    assert head.kind == "discriminant"
    np.testing.assert_allclose(head.scores(rows), due, rtol=1e-8, atol=1e-8)
    likelihood = head.probabilities(rows)
    np.testing.assert_allclose(likelihood.sum(axis=1), 1.0)
    assert (likelihood.argmax(axis=1) == due.argmax(axis=1)).all()
    for penalty in (25.0, 0.0):
        plain = head_from(sums, classes=3, solver="ridge", ridge=penalty)
        due = np.linalg.solve(centred.T @ centred + penalty * np.eye(6), centred.T @ (flags - flags.mean(axis=0)))
        np.testing.assert_allclose(plain.scores(rows), centred @ due + flags.mean(axis=0), atol=1e-9)
        assert plain.facts["rows"] == pytest.approx(len(rows))
    steep = head_from(sums, classes=3, solver="logistic")
    np.testing.assert_allclose(steep.scores(rows), steep.facts["slope"] * (plain.scores(rows) - 0.5), atol=1e-9)
    chosen, clipped = (np.clip(each.probabilities(rows), 1e-6, 1)[flags > 0] for each in (steep, plain))
    assert np.log(chosen).mean() > np.log(clipped).mean()


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


def test_heads_that_make_no_sense_are_refused() -> None:
    sums = sums_of(*clouds(rows=50), 3)
    refused(StudyError, "ST280", head_from, sums, classes=3, solver="forest")
    refused(StudyError, "ST281", head_from, sums, classes=0, solver="discriminant")
    refused(StudyError, "ST205", head_from, sums, classes=3, ridge=-1.0)
    refused(ValueError, "VA067", Head, np.zeros((3, 2)), np.zeros(2), "ridge")


# --- over told embeddings, whose noise they know


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


def test_exact_queries_need_the_noise_subtracted_and_noised_ones_need_it_left() -> None:
    """The second column is of use only through its covariance with the first, which noise hides."""
    rows, labels = _classes()
    new, truth = _classes(seed=2)
    rng, variance = np.random.default_rng(3), 0.25
    told, asked = (each + 0.5 * rng.normal(size=each.shape) for each in (rows, new))
    silent = discriminant(rows, labels, 0.0, classes=2)
    means = np.array([rows[labels == k].mean(axis=0) for k in range(2)])
    within = np.cov((rows - means[labels]).T, bias=True)
    assert silent.weights == pytest.approx(means @ np.linalg.inv(within), rel=1e-6)  # the linear discriminant
    halves = 0.5 * (silent.weights * means).sum(axis=1)
    assert silent.intercept == pytest.approx(np.log(np.bincount(labels) / ROWS) - halves, rel=1e-6)
    exact = discriminant(told, labels, variance, classes=2)
    naive = discriminant(told, labels, 0.0, classes=2)
    noised = discriminant(told, labels, variance, classes=2, query_variance=variance)
    best = _right(silent.scores(new), truth)
    assert best > 0.9
    assert _right(exact.scores(new), truth) > best - 0.03
    assert _right(naive.scores(new), truth) < best - 0.1
    assert _right(noised.scores(asked), truth) > _right(exact.scores(asked), truth) + 0.05
    assert noised.weights == pytest.approx(naive.weights, rel=1e-6)
    beside = discriminant(told[:, :1], labels, variance, classes=2, own=rows[:, 1:] * 1e4)  # own columns have no noise
    assert _right(beside.scores(new[:, :1], new[:, 1:] * 1e4), truth) > 0.9


def test_more_noise_than_signal_gives_a_head_that_is_still_finite() -> None:
    rng = np.random.default_rng(6)
    told, labels = rng.normal(size=(50, 20)), rng.integers(0, 3, 50)
    head = discriminant(told, labels, 2.0, classes=4)  # more is subtracted than there is, and one class is empty
    assert np.isfinite(head.scores(told)).all()
    assert np.linalg.norm(head.weights) < 1e3
    rows, labels = clouds(rows=30)
    for solver in ("discriminant", "ridge", "logistic"):
        head = head_from(sums_of(rows, labels, 3, noise=1e6), classes=3, solver=solver)
        assert np.isfinite([head.scores(rows), head.probabilities(rows)]).all()
        assert head.facts["raised"] > 0


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


# --- that learn beside encoders


def made(kind: str, labels: Any, width: int, classes: int, **more: Any) -> Any:
    if kind == "numpy":
        return SoftmaxHead(labels, width, classes, **more)
    torch = pytest.importorskip("torch")
    if kind == "hidden":
        more["module"] = torch.nn.Sequential(
            torch.nn.Linear(width, 8), torch.nn.Tanh(), torch.nn.Linear(8, max(1, classes))
        )
    return TorchHead(labels, width, classes, **more)


@pytest.mark.parametrize("kind", ["numpy", "linear", "hidden"])
@pytest.mark.parametrize("classes", [3, 0])
def test_slopes_are_those_of_each_rows_own_loss_before_the_head_moves(kind: str, classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 20) if classes else rng.standard_normal(20)
    head = made(kind, labels, 4, classes, rate=0.05)
    for _ in range(3):
        head.slopes(np.arange(20), rng.standard_normal((20, 4)))
    places, rows = np.array([7, 1, 12]), rng.standard_normal((3, 4))

    def losses(at: Any) -> Any:
        return loss_and_pulls(head.scores(at), head.labels[places])[0]

    expected, size = np.empty((3, 4)), 1e-2
    for column in range(4):
        step = size * np.eye(4)[column]
        expected[:, column] = (losses(rows + step) - losses(rows - step)) / (2 * size)
    before = losses(rows).mean()
    loss, found = head.slopes(places, rows)
    assert np.isclose(loss, before, atol=1e-5)
    assert np.allclose(found, expected, atol=2e-3)
    assert not np.isclose(losses(rows).mean(), before)


@pytest.mark.parametrize("kind", ["numpy", "hidden"])
def test_a_head_is_fitted_to_embeddings_that_do_not_change(kind: str) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((500, 3))
    labels = rows @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(500)
    head = made(kind, labels, 3, 0, rate=0.05)
    assert sum(each.size for each in head.arrays().values()) == (4 if kind == "numpy" else 3 * 8 + 8 + 8 + 1)
    assert fit(head, rows, epochs=30, batch=64) < 0.1
    assert np.corrcoef(head.scores(rows)[:, 0], labels)[0, 1] > 0.98
    with raises(StudyError, "ST291"):
        fit(head, rows, epochs=0)


def test_scores_that_are_large_overflow_nothing_and_labels_must_be_classes() -> None:
    losses, pulls = loss_and_pulls(np.array([[1e4, -1e4], [0.0, 1e4]]), np.array([1, 1]))
    assert losses.tolist() == [2e4, 0.0]
    assert np.allclose(pulls, [[1, -1], [0, 0]])
    for labels in ([0, 3], [-1, 0], [0.5, 1.0], ["a", "b"]):
        with raises(StudyError, "ST292"):
            SoftmaxHead(np.array(labels), 2, 3)


def test_a_module_must_fit_the_embeddings_and_classes() -> None:
    torch = pytest.importorskip("torch")
    labels = np.array([0, 1])
    refused(StudyError, "ST289", "4", TorchHead, labels, 4, 2, torch.nn.Linear(3, 2))
    refused(StudyError, "ST290", "2", TorchHead, labels, 4, 2, torch.nn.Linear(4, 3))
