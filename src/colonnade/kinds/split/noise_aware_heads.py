"""Heads that know the noise of what they learn from: it is subtracted from covariances before they are used.

The active party computes them alone, from embeddings that it was told, its own columns and its own labels, and keeps
them. Noise on the rows does not move means of classes, but adds a known covariance to their spread. A head for exact
embeddings of new people uses the spread without it; one for noised embeddings the spread with the noise that these
have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.split.embedding_programs import Labels
from colonnade.kinds.split.private_training import Matrix, Vector

_LEAST = 1e-6
Variance = float | Vector
"""Of the noise on each number of a row: one figure for all of them, or one for each."""


@dataclass(frozen=True)
class NoiseAwareHead:
    """A head: scores are a product with weights and an intercept."""

    weights: Matrix
    """(outputs, columns): those that were told, then the active party's own."""
    intercept: Vector

    def scores(self, received: Matrix, own: Matrix | None = None) -> Matrix:
        """One score for each row and class, (n, outputs)."""
        return np.asarray(_join(received, own) @ self.weights.T + self.intercept)


@dataclass(frozen=True)
class HeadStatistics:
    """All that heads need of the rows that were told: enough for new rows with any noise, and about nobody alone.

    Of classes ``middles`` are their means and ``weights`` their shares. Of a number, ``middles`` has one row, how the
    rows move with the number, and ``weights`` its mean.
    """

    spread: Matrix
    """The covariance of the rows, or within classes, without the noise that they have."""
    centre: Vector
    middles: Matrix
    weights: Vector
    told: int
    """How many columns were told; the others are the active party's own."""

    def head(self, query_variance: Variance = 0.0, penalty: float = 0.0) -> NoiseAwareHead:
        """The head for new rows with noise of this variance on the columns that are told."""
        noise = _noise(query_variance, self.told, len(self.centre))
        spread = self.spread + np.diag(noise) + np.diag(penalty * np.diag(self.spread))
        slopes = np.asarray(np.linalg.solve(spread, self.middles.T).T, dtype=np.float64)
        if len(self.weights) == 1:
            return NoiseAwareHead(slopes, self.weights - slopes @ self.centre)
        return NoiseAwareHead(slopes, np.log(self.weights) - 0.5 * (slopes * self.middles).sum(axis=1))

    def alone(self) -> HeadStatistics:
        """The same of the active party's own columns, as if nothing had been told."""
        own = slice(self.told, None)
        return HeadStatistics(self.spread[own, own], self.centre[own], self.middles[:, own], self.weights, 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same as plain arrays, for a file."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> HeadStatistics:
        """Statistics from such arrays; a ValueError unless they belong together."""
        named = ("spread", "centre", "middles", "weights")
        found = {name: np.asarray(arrays[name], dtype=np.float64) for name in named}
        width, outputs, told = found["centre"].size, found["weights"].size, arrays["told"]
        shapes = ((width, width), (width,), (outputs, width), (outputs,))
        if tuple(each.shape for each in found.values()) != shapes or not 0 <= int(told) <= width:
            raise ValueError("the arrays of a head do not belong together [VA130]")
        return cls(**found, told=int(told))


def class_statistics(
    received: Matrix,
    labels: Labels,
    variance: Variance,
    *,
    classes: int,
    own: Matrix | None = None,
    odds: Fraction | None = None,
) -> HeadStatistics:
    """What a discriminant needs of noised rows and their classes.

    With ``odds``, labels are answers of randomised response; counts and sums of classes are then estimated through the
    known chances of each answer.
    """
    rows = _join(received, own)
    count = len(rows)
    counts, sums = _class_sums(rows, labels, classes, odds)
    means, centre = sums / counts[:, None], rows.mean(axis=0)
    centred, away = rows - centre, means - centre
    within = (centred.T @ centred - (away * counts[:, None]).T @ away) / count
    spread = _subtract_noise(within, _noise(variance, received.shape[1], rows.shape[1]), count)
    return HeadStatistics(spread, centre, means, counts / counts.sum(), received.shape[1])


def number_statistics(
    received: Matrix, target: Vector, variance: Variance, *, own: Matrix | None = None
) -> HeadStatistics:
    """What least squares need of noised rows and a number."""
    rows = _join(received, own)
    centre, middle = rows.mean(axis=0), float(target.mean())
    centred = rows - centre
    known = _noise(variance, received.shape[1], rows.shape[1])
    spread = _subtract_noise(centred.T @ centred / len(rows), known, len(rows))
    moved = centred.T @ (target - middle) / len(rows)
    return HeadStatistics(spread, centre, moved[None, :], np.array([middle]), received.shape[1])


def noisy_discriminant(
    received: Matrix,
    labels: Labels,
    variance: Variance,
    *,
    classes: int,
    own: Matrix | None = None,
    query_variance: Variance = 0.0,
    odds: Fraction | None = None,
) -> NoiseAwareHead:
    """The linear discriminant of noised rows, for new rows with noise of ``query_variance``."""
    return class_statistics(received, labels, variance, classes=classes, own=own, odds=odds).head(query_variance)


def noisy_ridge(
    received: Matrix,
    target: Vector,
    variance: Variance,
    *,
    own: Matrix | None = None,
    query_variance: Variance = 0.0,
    penalty: float = 0.0,
) -> NoiseAwareHead:
    """Least squares of a number on noised rows, for new rows with noise of ``query_variance``.

    ``penalty`` is added to each variance of the rows, in parts of that variance.
    """
    return number_statistics(received, target, variance, own=own).head(query_variance, penalty)


def response_chances(classes: int, odds: Fraction) -> Matrix:
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
            raise DataError(
                "labels that were answered by chance alone cannot teach a head: raise the label epsilon [DA115]"
            )
        back = np.linalg.inv(response_chances(classes, odds))
        counts, sums = back @ counts, back @ sums
    # A class without people, or whose estimate says so, is put in the middle with the weight of one person.
    empty = counts < 1
    return np.where(empty, 1.0, counts), np.where(empty[:, None], rows.mean(axis=0), sums)


def _subtract_noise(spread: Matrix, noise: Vector, count: int) -> Matrix:
    """A covariance less the known noise on its diagonal, kept above what chance could leave of nothing.

    The floor is in units of each column's own deviation, so that columns of other scales do not decide for each other.
    """
    units = np.sqrt(np.maximum(np.diag(spread), np.finfo(float).tiny))
    relative = spread / units / units[:, None] - np.diag(noise / units**2)
    values, vectors = np.linalg.eigh(relative)
    chance = 2 * math.sqrt(len(units) / max(1, count)) * float(np.max(noise / units**2, initial=0.0))
    kept = (vectors * np.maximum(values, max(_LEAST, chance))) @ vectors.T
    return np.asarray(kept * units * units[:, None])


def _noise(variance: Variance, told: int, columns: int) -> Vector:
    """The variance of noise on every column; own ones have none."""
    each = np.broadcast_to(np.asarray(variance, dtype=np.float64), (told,))
    return np.concatenate([each, np.zeros(columns - told)])


def _join(received: Matrix, own: Matrix | None) -> Matrix:
    return np.asarray(received) if own is None else np.hstack([received, own])
