"""Losses of Algorithm 1 and what they rest on: clipping and rescaling, fuzzy clusters, distances of embeddings.

Lines 6 to 8 clip embeddings, estimate how far they lie apart and stretch them to the clip. Line 16 finds by fuzzy
c-means of the returned slopes who is of the same class (Eq. 7). Eq. 6 is how far distances are from a normal law, and
Eq. 8 sets classes apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.private_training import Matrix, Places, Vector

_NOTHING = 1e-300
_ROUNDS, _ROUNDS_ANEW = 3, 15
_SAME = 1e-6  # centres that lie closer than this part of the largest one have become one


@dataclass(frozen=True)
class ClusterLabels:
    """The likeliest cluster of each row, and how much of the row belongs to it."""

    cluster: NDArray[np.int64]
    confidence: Vector

    def is_trusted(self, threshold: float) -> NDArray[np.bool_]:
        """Rows whose cluster is believed."""
        return self.confidence >= threshold


class FuzzyCMeans:
    """Fuzzy c-means with exponent 2: the part of a row in a cluster falls with its squared distance to the centre."""

    def __init__(self, clusters: int) -> None:
        self.clusters = clusters
        self.centres: Matrix | None = None

    def fit(self, rows: Matrix) -> ClusterLabels:
        """The clusters of some rows; the centres are kept for the next batch."""
        rows = unit_rows(rows)
        before = self._before(rows.shape[1])
        centres = spread_centres(rows, self.clusters) if before is None else before
        squares = np.einsum("ij,ij->i", rows, rows)[:, None]
        parts = memberships(rows, squares, centres)
        for _ in range(_ROUNDS_ANEW if before is None else _ROUNDS):
            weights = parts * parts
            centres = weights.T @ rows / np.maximum(weights.sum(axis=0), _NOTHING)[:, None]
            parts = memberships(rows, squares, centres)
        self.centres = centres
        cluster = parts.argmax(axis=1)
        return ClusterLabels(cluster, parts[np.arange(len(rows)), cluster])

    def _before(self, width: int) -> Matrix | None:
        """The centres of the batch before, unless there are none or two of them have become one."""
        centres = self.centres
        if centres is None or centres.shape[1] != width:
            return None
        squares = np.einsum("ij,ij->i", centres, centres)
        apart = _squared_distances(centres, squares[:, None], centres)
        np.fill_diagonal(apart, np.inf)
        return None if apart.min() <= _SAME**2 * squares.max() else centres


def unit_rows(rows: Matrix) -> Matrix:
    """Rows of length 1; those of no length stay as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def memberships(rows: Matrix, squares: Matrix, centres: Matrix) -> Matrix:
    """How much of each row belongs to each centre; the parts of a row add up to 1."""
    parts = 1 / np.maximum(_squared_distances(rows, squares, centres), _NOTHING)
    parts /= parts.sum(axis=1, keepdims=True)
    return parts


def spread_centres(rows: Matrix, count: int) -> Matrix:
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


DEVIATIONS = 3.0
"""Eq. 5 at p2 = 0.9987."""
_LEAST_PART = 1e-6  # of the clip's diameter: equal embeddings are not stretched without end


def clip_rows(raw: Matrix, clip: float) -> Matrix:
    """Line 6: every row within a ball of radius ``clip``."""
    return raw / np.maximum(1.0, _norms(raw) / clip)


def backpropagate_clip(raw: Matrix, slopes: Matrix, clip: float) -> Matrix:
    """Slopes in clipped rows as slopes in the rows before: of a row that was shortened, nothing along it is left."""
    norms = _norms(raw)
    unit = raw / np.maximum(norms, np.finfo(np.float64).tiny)
    along = np.einsum("ij,ij->i", unit, slopes)[:, None]
    shortened: Matrix = (slopes - along * unit) * (clip / np.maximum(norms, clip))
    return np.where(norms > clip, shortened, slopes)


def _norms(rows: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None])


@dataclass(frozen=True)
class EmbeddingPairs:
    """The distances of all pairs of some embeddings."""

    rows: Matrix

    @classmethod
    def of(cls, embeddings: Matrix, most: int | None = None) -> EmbeddingPairs:
        """Pairs of a batch, or of its first rows where ``most`` are compared."""
        return cls(embeddings[:most])

    @cached_property
    def distances(self) -> Matrix:
        """Of each row to each, (m, m)."""
        squares = np.einsum("ij,ij->i", self.rows, self.rows)
        apart = self.rows @ self.rows.T
        apart *= -2.0
        apart += squares[:, None]
        apart += squares
        np.maximum(apart, 0.0, out=apart)
        np.fill_diagonal(apart, 0.0)
        return np.sqrt(apart, out=apart)

    @cached_property
    def middle(self) -> float:
        """The mean distance of two different rows."""
        return float(self.distances.sum()) / self.ordered_pairs

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of those distances."""
        square = float(np.einsum("ij,ij->", self.distances, self.distances)) / self.ordered_pairs
        return float(np.sqrt(max(square - self.middle**2, 0.0)))

    @property
    def ordered_pairs(self) -> int:
        """How many pairs there are, each in both orders."""
        return max(1, len(self.rows) * (len(self.rows) - 1))

    @property
    def closeness(self) -> Matrix:
        """One over each distance, and zero for equal rows, which pull nowhere."""
        near = self.distances
        return np.divide(1.0, near, out=np.zeros_like(near), where=near > 0)

    def slopes(self, of_distances: Matrix) -> Matrix:
        """From the slopes of a loss in each distance, each pair told in both orders, to those in each row."""
        pull = of_distances * self.closeness
        found: NDArray[np.float64] = pull.sum(axis=1)[:, None] * self.rows - pull @ self.rows
        return found


def local_sensitivity(pairs: EmbeddingPairs) -> float:
    """Eq. 5: the distance that hardly any pair of rows exceeds, if distances were normal."""
    return pairs.middle + DEVIATIONS * pairs.deviation


def sensitivity_slopes(pairs: EmbeddingPairs) -> Matrix:
    """The slopes of Eq. 5 in each distance, (m, m); a pair counts in both orders."""
    spread = DEVIATIONS / max(pairs.deviation, _LEAST_PART * pairs.middle, np.finfo(np.float64).tiny)
    found = (2 / pairs.ordered_pairs) * (1 + spread * (pairs.distances - pairs.middle))
    np.fill_diagonal(found, 0.0)
    return found


def stretch_factor(pairs: EmbeddingPairs, clip: float) -> float:
    """Line 8 and Eq. 4: the factor by which all embeddings of the batch are multiplied; of one row it is 1."""
    if len(pairs.rows) < 2:
        return 1.0
    return 2 * clip / max(local_sensitivity(pairs), 2 * clip * _LEAST_PART)


_MOST_PAIRS = 1 << 13  # to sort all of them would double what rescaling costs
_LEAST_GAP = 1e-9


def divergence(distances: Vector) -> tuple[float, Vector]:
    """The divergence of some distances from a normal law, and its slope in each of them."""
    count = len(distances)
    reach = max(1, round(math.sqrt(count)))
    order = np.argsort(distances)
    found = distances[order]
    middle, square = float(found.mean()), float(found.var())
    if count < 3 or square <= _LEAST_GAP**2:
        return 0.0, np.zeros(count)
    low = np.maximum(np.arange(count) - reach, 0)
    high = np.minimum(np.arange(count) + reach, count - 1)
    gaps = np.maximum(found[high] - found[low], _LEAST_GAP * math.sqrt(square))
    entropy = float(np.log(gaps * (count / (2 * reach))).mean())
    value = 0.5 * math.log(2 * math.pi * math.e * square) - entropy
    wider = 1 / (count * gaps)
    slopes = (found - middle) / (count * square)
    slopes -= np.bincount(high, wider, count)
    slopes += np.bincount(low, wider, count)
    placed = np.empty(count)
    placed[order] = slopes
    return value, placed


def divergence_slopes(pairs: EmbeddingPairs) -> Matrix:
    """The slopes of the divergence in each distance, (m, m); where there are many, evenly chosen ones count for all."""
    first, second = _some_pairs(len(pairs.rows))
    _, slopes = divergence(pairs.distances[first, second])
    each = np.zeros_like(pairs.distances)
    each[first, second] = each[second, first] = slopes
    return each


@lru_cache(maxsize=16)
def _some_pairs(rows: int) -> tuple[Places, Places]:
    first, second = np.triu_indices(rows, 1)
    some = np.linspace(0, max(0, len(first) - 1), min(len(first), _MOST_PAIRS)).astype(np.int64)
    return first[some], second[some]


def class_differences(labels: ClusterLabels, threshold: float) -> Matrix:
    """1 - omega: one for two rows whose clusters are believed and differ, (rows, rows)."""
    cluster, believed = labels.cluster, labels.is_trusted(threshold)
    differ: NDArray[np.bool_] = (cluster[:, None] != cluster) & believed[:, None] & believed
    return differ.astype(np.float64)


def contrast_loss(pairs: EmbeddingPairs, others: Matrix, *, apart: bool) -> float:
    """Eq. 8 without its weight: the mean over ordered pairs, with a minus where classes are to move apart.

    Printed is a loss that falls when different classes come together. The authors' figures show them moving apart, so
    that is what they must have run; ``apart`` chooses.
    """
    total = float(np.einsum("ij,ij->", others, pairs.distances)) / len(pairs.rows) ** 2
    return -total if apart else total


def contrast_slopes(others: Matrix, *, apart: bool) -> Matrix:
    """Its slopes in each distance; a pair counts in both orders."""
    return others * ((-2.0 if apart else 2.0) / len(others) ** 2)
