"""Whole numbers within a ball, public scaling, and points of classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.kinds.split.embeddings.anchors import anchors, centroids, contrastive
from colonnade.kinds.split.embeddings.clipping import whole_within, within
from colonnade.kinds.split.embeddings.scaling import Scaling
from tests.support.protocols import Array


@settings(max_examples=200, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=st.floats(width=64)),
    st.integers(1, 1 << 30),
)
def test_no_row_is_longer_than_the_radius_in_whole_numbers(rows: Array, radius: int) -> None:
    whole = whole_within(rows, radius)
    assert whole.dtype == np.int64
    for row, before in zip(whole.tolist(), rows, strict=True):
        assert sum(v * v for v in row) <= radius * radius
        assert np.isfinite(before).all() or not any(row)


def test_rows_at_the_edge_are_kept_and_short_rows_stay() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, 5))
    rows *= (1 << 20) / np.linalg.norm(rows, axis=1, keepdims=True)
    norms = np.linalg.norm(whole_within(3 * rows, 1 << 20).astype(float), axis=1)
    assert norms.min() > (1 << 20) - 4
    assert np.array_equal(whole_within(rows / 2, 1 << 20), np.trunc(rows / 2))
    assert within(np.array([[3e307, 4e307]]), 5.0) == pytest.approx(np.array([[3.0, 4.0]]))


def test_centre_and_scale_are_learned_from_noised_embeddings_alone() -> None:
    rng = np.random.default_rng(2)
    embeddings = np.array([0.5, -0.3]) + 0.05 * rng.normal(size=(20_000, 2))
    told = embeddings + 0.5 * rng.normal(size=embeddings.shape)
    learned = Scaling.none(2).learned(told, 0.25, 1.0)
    assert learned.centre == pytest.approx([0.5, -0.3], abs=0.02)
    assert 1 < learned.scale < 30
    exact = Scaling.none(2).learned(embeddings, 0.0, 1.0)
    spread = np.sqrt((exact.applied(embeddings) ** 2).sum(axis=1).mean())
    assert spread == pytest.approx(0.8, rel=0.01)
    again = exact.learned(exact.applied(embeddings), 0.0, 1.0)
    assert again.scale == pytest.approx(exact.scale)
    assert again.centre == pytest.approx(exact.centre)


def test_a_spread_of_nothing_is_not_believed() -> None:
    assert Scaling.none(2).learned(np.zeros((9, 2)), 0.0, 1.0).scale == pytest.approx(0.8 * 64)
    wild = 50 * np.random.default_rng(1).normal(size=(9, 2))
    assert Scaling.none(2).learned(wild, 2500.0, 1.0).scale == 1.0  # noise that shows nothing changes nothing


@pytest.mark.parametrize(("classes", "width"), [(2, 1), (3, 2), (10, 9), (10, 16), (10, 4), (3, 1)])
def test_points_of_classes_are_far_apart_and_within_the_ball(classes: int, width: int) -> None:
    points = anchors(classes, width, 1.5)
    assert points.shape == (classes, width)
    assert np.linalg.norm(points, axis=1) == pytest.approx(np.full(classes, 1.5))
    apart = np.linalg.norm(points[:, None] - points, axis=2)[~np.eye(classes, dtype=bool)]
    if width >= classes - 1:
        assert apart == pytest.approx(np.full(apart.shape, 1.5 * np.sqrt(2 * classes / (classes - 1))))


def _loss(h: Array, labels: Array, points: Array, margin: float, contrast: float) -> float:
    apart = np.linalg.norm(h[:, None] - points, axis=2)
    own = np.arange(len(h)), labels
    push = np.maximum(0, margin - apart) ** 2
    return float((apart[own] ** 2).sum() + contrast * (push.sum() - push[own].sum())) / 2


def test_contrastive_slopes_are_those_of_the_loss_and_push_classes_apart() -> None:
    rng = np.random.default_rng(3)
    h, labels, points = rng.normal(size=(6, 4)), rng.integers(0, 3, 6), anchors(3, 4, 1.0)
    slopes = contrastive(h, labels, points, 2.5, 0.7)
    for place in np.ndindex(h.shape):
        step = np.zeros_like(h)
        step[place] = 1e-6
        change = _loss(h + step, labels, points, 2.5, 0.7) - _loss(h - step, labels, points, 2.5, 0.7)
        assert slopes[place] == pytest.approx(change / 2e-6, rel=1e-4, abs=1e-6)
    beside = points[[1]] + 0.1  # near the point of another class: the push is away from it
    alone = contrastive(beside, np.array([0]), points, 2.5, 0.0)
    assert ((contrastive(beside, np.array([0]), points, 2.5, 1.0) - alone) @ (beside - points[1]).T).item() < 0


def test_centroids_are_means_of_what_was_told() -> None:
    told, points = np.array([[1.0, 0], [3, 0], [0, 5]]), np.full((3, 2), 7.0)
    assert centroids(told, np.array([0, 0, 2]), points).tolist() == [[2, 0], [7, 7], [0, 5]]
