"""Heads that learn beside encoders: their slopes are those of each row's loss, and they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.split.learned_heads import SoftmaxHead, TorchHead, fit, loss_and_pulls
from tests.support.errors import raises


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


@pytest.mark.parametrize("kind", ["numpy", "linear"])
def test_a_head_learns_classes(kind: str) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 300)
    rows = np.eye(3)[labels] * 2 + rng.standard_normal((300, 3)) * 0.4
    head = made(kind, labels, 3, 3, rate=0.1)
    first, _ = head.slopes(np.arange(300), rows)
    for _ in range(60):
        last, _ = head.slopes(np.arange(300), rows)
    assert first == pytest.approx(np.log(3), abs=1e-6)  # it starts at zero
    assert last < 0.3
    assert (head.scores(rows).argmax(axis=1) == labels).mean() > 0.95
    assert sum(each.size for each in head.arrays().values()) == 12


@pytest.mark.parametrize("kind", ["numpy", "hidden"])
def test_a_head_is_fitted_to_embeddings_that_do_not_change(kind: str) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((500, 3))
    labels = rows @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(500)
    head = made(kind, labels, 3, 0, rate=0.05)
    assert fit(head, rows, epochs=30, batch=64) < 0.1
    assert np.corrcoef(head.scores(rows)[:, 0], labels)[0, 1] > 0.98
    with raises(StudyError, "ST291"):
        fit(head, rows, epochs=0)


def test_scores_that_are_large_overflow_nothing() -> None:
    losses, pulls = loss_and_pulls(np.array([[1e4, -1e4], [0.0, 1e4]]), np.array([1, 1]))
    assert losses.tolist() == [2e4, 0.0]
    assert np.allclose(pulls, [[1, -1], [0, 0]])


@pytest.mark.parametrize("labels", [np.array([0, 3]), np.array([-1, 0]), np.array([0.5, 1.0]), np.array(["a", "b"])])
def test_labels_must_be_classes(labels: Any) -> None:
    with raises(StudyError, "ST292"):
        SoftmaxHead(labels, 2, 3)


def test_a_module_must_fit_the_embeddings_and_classes() -> None:
    torch = pytest.importorskip("torch")
    labels = np.array([0, 1])
    with raises(StudyError, "ST289", "4"):
        TorchHead(labels, 4, 2, torch.nn.Linear(3, 2))
    with raises(StudyError, "ST290", "2"):
        TorchHead(labels, 4, 2, torch.nn.Linear(4, 3))
