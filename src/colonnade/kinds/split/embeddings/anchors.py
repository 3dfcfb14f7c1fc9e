"""Public points that encoders learn to reach, one for each class, and the slopes of the loss that pulls them there."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.embeddings.learner import Matrix

Labels = NDArray[np.int64]
_NEAREST = 1e-6  # a point that lies upon an embedding pushes it no harder than from here


def anchors(classes: int, width: int, clip: float) -> Matrix:
    """One point of norm ``clip`` for each class, (classes, width), the same on every machine up to rounding.

    From one dimension less than there are classes on, they are the corners of a regular simplex, which are as far from
    each other as so many points of this norm can be; with fewer dimensions its projection, along cosines.
    """
    used = min(width, classes - 1)
    middles = np.arange(classes)[:, None] + 0.5
    points = np.cos(math.pi * middles * np.arange(1, used + 1) / classes)
    points *= clip / np.linalg.norm(points, axis=1, keepdims=True)
    return np.pad(points, ((0, 0), (0, width - used)))


def contrastive(embeddings: Matrix, labels: Labels, points: Matrix, margin: float, contrast: float) -> Matrix:
    """The slope in each embedding of half |h - own|^2 + contrast * sum over others of max(0, margin - |h - other|)^2.

    The second term pushes an embedding away from the points of other classes, until it is ``margin`` away. Each row has
    its own loss, against public points: no two embeddings of people meet in it. The slope of an embedding too long to
    be squared may not be finite, without a word; such a row then counts as none.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (embeddings**2).sum(axis=1, keepdims=True) - 2 * embeddings @ points.T + (points**2).sum(axis=1)
        distance = np.sqrt(np.maximum(squares, _NEAREST**2))
        pull = -contrast * np.maximum(0.0, margin - distance) / distance
        pull[np.arange(len(labels)), labels] = 1.0
        return np.asarray(pull.sum(axis=1, keepdims=True) * embeddings - pull @ points)


def centroids(told: Matrix, labels: Labels, points: Matrix) -> Matrix:
    """The mean of told embeddings of each class, by told labels; a class without people keeps its given point."""
    classes = len(points)
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros_like(points)
    np.add.at(sums, labels, told)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], points)
