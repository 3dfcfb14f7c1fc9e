"""Heads that know the noise of what they learn from: it is subtracted from covariances before they are used.

The active party computes them alone, from embeddings that it was told, its own columns and its own labels, and keeps
them. Noise on the rows does not move means of classes, but adds a known covariance to their spread. A head for exact
embeddings of new people uses the spread without it; one for noised embeddings the spread with the noise that these
have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from colonnade.errors import DataError
from colonnade.protocols.embeddings.anchors import Labels
from colonnade.protocols.embeddings.learner import Matrix, Vector

_LEAST = 1e-6
Variance = float | Vector
"""Of the noise on each number of a row: one figure for all of them, or one for each."""


@dataclass(frozen=True)
class Linear:
    """A head: scores are a product with weights and an intercept."""

    weights: Matrix
    """(outputs, columns): those that were told, then the active party's own."""
    intercept: Vector

    def scores(self, received: Matrix, own: Matrix | None = None) -> Matrix:
        """One score for each row and class, (n, outputs)."""
        return np.asarray(_joined(received, own) @ self.weights.T + self.intercept)


def discriminant(
    received: Matrix,
    labels: Labels,
    variance: Variance,
    *,
    classes: int,
    own: Matrix | None = None,
    query_variance: Variance = 0.0,
    odds: Fraction | None = None,
) -> Linear:
    """The linear discriminant of noised rows, for new rows with noise of ``query_variance``.

    With ``odds``, labels are answers of randomised response; counts and sums of classes are then estimated through the
    known chances of each answer.
    """
    rows = _joined(received, own)
    known = _noise(variance, received.shape[1], rows.shape[1])
    count = len(rows)
    counts, sums = _class_sums(rows, labels, classes, odds)
    means = sums / counts[:, None]
    centre = rows.mean(axis=0)
    centred = rows - centre
    away = means - centre
    within = (centred.T @ centred - (away * counts[:, None]).T @ away) / count
    spread = _without(within, known, count) + np.diag(_noise(query_variance, received.shape[1], rows.shape[1]))
    weights: Matrix = np.linalg.solve(spread, means.T).T
    intercept = np.log(counts / counts.sum()) - 0.5 * (weights * means).sum(axis=1)
    return Linear(weights, intercept)


def ridge(
    received: Matrix,
    target: Vector,
    variance: Variance,
    *,
    own: Matrix | None = None,
    query_variance: Variance = 0.0,
    penalty: float = 0.0,
) -> Linear:
    """Least squares of a number on noised rows, for new rows with noise of ``query_variance``.

    ``penalty`` is added to each variance of the rows, in parts of that variance.
    """
    rows = _joined(received, own)
    known = _noise(variance, received.shape[1], rows.shape[1])
    centre, middle = rows.mean(axis=0), float(target.mean())
    centred = rows - centre
    total = centred.T @ centred / len(rows)
    spread = _without(total, known, len(rows)) + np.diag(_noise(query_variance, received.shape[1], rows.shape[1]))
    spread += np.diag(penalty * np.diag(spread))
    slope = np.linalg.solve(spread, centred.T @ (target - middle) / len(rows))
    return Linear(slope[None, :], np.array([middle - slope @ centre]))


def chances(classes: int, odds: Fraction) -> Matrix:
    """The chance of each answer (row) to randomised response for each true class (column)."""
    keep = float(odds / (odds + classes - 1))
    other = (1 - keep) / (classes - 1)
    return np.full((classes, classes), other) + np.diag(np.full(classes, keep - other))


def _class_sums(rows: Matrix, labels: Labels, classes: int, odds: Fraction | None) -> tuple[Vector, Matrix]:
    """How many people are in each class, at least one, and the sum of their rows."""
    members = np.zeros((len(rows), classes))
    members[np.arange(len(rows)), labels] = 1.0
    counts, sums = members.sum(axis=0), members.T @ rows
    if odds is not None:
        if odds <= 1:
            raise DataError("labels that were answered by chance alone cannot teach a head: raise the label epsilon")
        back = np.linalg.inv(chances(classes, odds))
        counts, sums = back @ counts, back @ sums
    # A class without people, or whose estimate says so, is put in the middle with the weight of one person.
    empty = counts < 1
    return np.where(empty, 1.0, counts), np.where(empty[:, None], rows.mean(axis=0), sums)


def _without(spread: Matrix, noise: Vector, count: int) -> Matrix:
    """A covariance less the known noise on its diagonal, kept above what chance could leave of nothing.

    The floor is in units of each column's own deviation, so that columns of other scales do not decide for each other.
    """
    units = np.sqrt(np.maximum(np.diag(spread), np.finfo(float).tiny))
    relative = spread / units / units[:, None] - np.diag(noise / units**2)
    values, vectors = np.linalg.eigh(relative)
    chance = math.sqrt(len(units) / max(1, count)) * float(np.max(noise / units**2, initial=0.0))
    kept = (vectors * np.maximum(values, max(_LEAST, chance))) @ vectors.T
    return np.asarray(kept * units * units[:, None])


def _noise(variance: Variance, told: int, columns: int) -> Vector:
    """The variance of noise on every column; own ones have none."""
    each = np.broadcast_to(np.asarray(variance, dtype=np.float64), (told,))
    return np.concatenate([each, np.zeros(columns - told)])


def _joined(received: Matrix, own: Matrix | None) -> Matrix:
    return np.asarray(received) if own is None else np.hstack([received, own])
