"""Eq. 8: the distance of embeddings of different classes, as a loss.

Printed is a loss that falls when different classes come together. The authors' figures show them moving apart, so that
is what they must have run; ``apart`` chooses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.adaptive.clusters import SoftLabels
from colonnade.kinds.split.adaptive.rescaling import Pairs
from colonnade.kinds.split.embeddings.learner import Matrix


def different(labels: SoftLabels, threshold: float) -> Matrix:
    """1 - omega: one for two rows whose clusters are believed and differ, (rows, rows)."""
    cluster, believed = labels.cluster, labels.trusted(threshold)
    differ: NDArray[np.bool_] = (cluster[:, None] != cluster) & believed[:, None] & believed
    return differ.astype(np.float64)


def contrast(pairs: Pairs, others: Matrix, *, apart: bool) -> float:
    """Eq. 8 without its weight: the mean over ordered pairs, with a minus where classes are to move apart."""
    total = float(np.einsum("ij,ij->", others, pairs.distances)) / len(pairs.rows) ** 2
    return -total if apart else total


def contrast_pulls(others: Matrix, *, apart: bool) -> Matrix:
    """Its slopes in each distance; a pair counts in both orders."""
    return others * ((-2.0 if apart else 2.0) / len(others) ** 2)
