"""Eq. 6: how far the distances of embeddings are from a normal law with their own mean and deviation.

D(P || N) is the entropy of that normal law, log(2 pi e s^2) / 2, less the entropy of P. The latter is estimated from
the gaps between sorted distances (Vasicek's estimator), which has a slope in every distance.
"""

from __future__ import annotations

import math

import numpy as np

from colonnade.protocols.adaptive.rescaling import Pairs
from colonnade.protocols.embeddings.learner import Matrix, Vector

_MOST_PAIRS = 4096
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


def divergence_slopes(pairs: Pairs) -> Matrix:
    """The slopes of the divergence in each row; of many pairs evenly chosen ones count for all."""
    rows = len(pairs.rows)
    first, second = np.triu_indices(rows, 1)
    if len(first) > _MOST_PAIRS:
        some = np.linspace(0, len(first) - 1, _MOST_PAIRS).astype(np.int64)
        first, second = first[some], second[some]
    _, slopes = divergence(pairs.distances[first, second])
    each = np.zeros((rows, rows))
    each[first, second] = each[second, first] = slopes
    return pairs.slopes(each)
