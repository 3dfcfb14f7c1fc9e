"""Losses of the distances of embeddings: Eq. 6, how far they are from a normal law, and Eq. 8, between classes.

The normal law of Eq. 6 has their own mean and deviation. D(P || N) is its entropy, log(2 pi e s^2) / 2, less the
entropy of P, which is estimated from the gaps between sorted distances (Vasicek's estimator), so it has a slope in
every distance.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.adaptive.clusters import SoftLabels
from colonnade.kinds.split.adaptive.rescaling import Pairs
from colonnade.kinds.split.embeddings.learner import Matrix, Places, Vector

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


def divergence_pulls(pairs: Pairs) -> Matrix:
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


def different(labels: SoftLabels, threshold: float) -> Matrix:
    """1 - omega: one for two rows whose clusters are believed and differ, (rows, rows)."""
    cluster, believed = labels.cluster, labels.trusted(threshold)
    differ: NDArray[np.bool_] = (cluster[:, None] != cluster) & believed[:, None] & believed
    return differ.astype(np.float64)


def contrast(pairs: Pairs, others: Matrix, *, apart: bool) -> float:
    """Eq. 8 without its weight: the mean over ordered pairs, with a minus where classes are to move apart.

    Printed is a loss that falls when different classes come together. The authors' figures show them moving apart, so
    that is what they must have run; ``apart`` chooses.
    """
    total = float(np.einsum("ij,ij->", others, pairs.distances)) / len(pairs.rows) ** 2
    return -total if apart else total


def contrast_pulls(others: Matrix, *, apart: bool) -> Matrix:
    """Its slopes in each distance; a pair counts in both orders."""
    return others * ((-2.0 if apart else 2.0) / len(others) ** 2)
