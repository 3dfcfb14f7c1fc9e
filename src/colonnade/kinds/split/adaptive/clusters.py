"""Line 16 of Algorithm 1: fuzzy c-means of the returned slopes, which finds who is of the same class (Eq. 7).

Slopes are clustered by their directions. Their lengths say how wrong the head is about a row, and rows of all classes
about which it is right gather around zero. Clustering starts from the centres of the batch before, so few rounds are
enough. That it works is what shows that labels are not protected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.embeddings.learner import Matrix, Vector

_NOTHING = 1e-300
_ROUNDS, _ROUNDS_ANEW = 3, 15
_SAME = 1e-6  # centres that lie closer than this part of the largest one have become one


@dataclass(frozen=True)
class SoftLabels:
    """The likeliest cluster of each row, and how much of the row belongs to it."""

    cluster: NDArray[np.int64]
    confidence: Vector

    def trusted(self, threshold: float) -> NDArray[np.bool_]:
        """Rows whose cluster is believed."""
        return self.confidence >= threshold


class FuzzyMeans:
    """Fuzzy c-means with exponent 2: the part of a row in a cluster falls with its squared distance to the centre."""

    def __init__(self, clusters: int) -> None:
        self.clusters = clusters
        self.centres: Matrix | None = None

    def fit(self, rows: Matrix) -> SoftLabels:
        """The clusters of some rows; the centres are kept for the next batch."""
        rows = directions(rows)
        before = self._before(rows.shape[1])
        centres = spread(rows, self.clusters) if before is None else before
        squares = np.einsum("ij,ij->i", rows, rows)[:, None]
        parts = memberships(rows, squares, centres)
        for _ in range(_ROUNDS_ANEW if before is None else _ROUNDS):
            weights = parts * parts
            centres = weights.T @ rows / np.maximum(weights.sum(axis=0), _NOTHING)[:, None]
            parts = memberships(rows, squares, centres)
        self.centres = centres
        cluster = parts.argmax(axis=1)
        return SoftLabels(cluster, parts[np.arange(len(rows)), cluster])

    def _before(self, width: int) -> Matrix | None:
        """The centres of the batch before, unless there are none or two of them have become one."""
        centres = self.centres
        if centres is None or centres.shape[1] != width:
            return None
        squares = np.einsum("ij,ij->i", centres, centres)
        apart = _squared_distances(centres, squares[:, None], centres)
        np.fill_diagonal(apart, np.inf)
        return None if apart.min() <= _SAME**2 * squares.max() else centres


def directions(rows: Matrix) -> Matrix:
    """Rows of length 1; those of no length stay as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def memberships(rows: Matrix, squares: Matrix, centres: Matrix) -> Matrix:
    """How much of each row belongs to each centre; the parts of a row add up to 1."""
    parts = 1 / np.maximum(_squared_distances(rows, squares, centres), _NOTHING)
    parts /= parts.sum(axis=1, keepdims=True)
    return parts


def spread(rows: Matrix, count: int) -> Matrix:
    """Rows to start from: the longest one, and then always the one farthest from those before."""
    squares = np.einsum("ij,ij->i", rows, rows)[:, None]
    chosen = [int(squares.argmax())]
    nearest = _squared_distances(rows, squares, rows[chosen])[:, 0]
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, _squared_distances(rows, squares, rows[chosen[-1:]])[:, 0], out=nearest)
    return rows[chosen].copy()


def _squared_distances(rows: Matrix, squares: Matrix, centres: Matrix) -> Matrix:
    found = rows @ (-2.0 * centres.T)
    found += squares
    found += np.einsum("ij,ij->i", centres, centres)
    return np.maximum(found, 0.0, out=found)
