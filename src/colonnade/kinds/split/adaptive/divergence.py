"""Eq. 6: how far the distances of embeddings are from a normal law with their own mean and deviation.

D(P || N) is the entropy of that normal law, log(2 pi e s^2) / 2, less the entropy of P. The latter is estimated from
the gaps between sorted distances (Vasicek's estimator), which has a slope in every distance.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

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
