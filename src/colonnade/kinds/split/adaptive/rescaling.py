"""Lines 6 to 8 of Algorithm 1: clip embeddings, estimate how far they lie apart, and stretch them to the clip.

The stretching is why nothing is proven: its factor depends on the rows of a batch, and what it gives is longer than the
clip (docs/theory/errors-in-the-papers.md). Distances come from one product of matrices. They are those of the whole
batch unless it is larger than a task's ``compared``: what they cost grows with the square of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.embeddings.learner import Matrix

DEVIATIONS = 3.0
"""Eq. 5 at p2 = 0.9987."""
_LEAST_PART = 1e-6  # of the clip's diameter: equal embeddings are not stretched without end


def clip_rows(raw: Matrix, clip: float) -> Matrix:
    """Line 6: every row within a ball of radius ``clip``."""
    return raw / np.maximum(1.0, _norms(raw) / clip)


def back_through_clip(raw: Matrix, slopes: Matrix, clip: float) -> Matrix:
    """Slopes in clipped rows as slopes in the rows before: of a row that was shortened, nothing along it is left."""
    norms = _norms(raw)
    unit = raw / np.maximum(norms, np.finfo(np.float64).tiny)
    along = np.einsum("ij,ij->i", unit, slopes)[:, None]
    shortened: Matrix = (slopes - along * unit) * (clip / np.maximum(norms, clip))
    return np.where(norms > clip, shortened, slopes)


def _norms(rows: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None])


@dataclass(frozen=True)
class Pairs:
    """The distances of all pairs of some embeddings."""

    rows: Matrix

    @classmethod
    def of(cls, embeddings: Matrix, most: int | None = None) -> Pairs:
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
        return float(self.distances.sum()) / self.ordered

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of those distances."""
        square = float(np.einsum("ij,ij->", self.distances, self.distances)) / self.ordered
        return float(np.sqrt(max(square - self.middle**2, 0.0)))

    @property
    def ordered(self) -> int:
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


def local_sensitivity(pairs: Pairs) -> float:
    """Eq. 5: the distance that hardly any pair of rows exceeds, if distances were normal."""
    return pairs.middle + DEVIATIONS * pairs.deviation


def sensitivity_pulls(pairs: Pairs) -> Matrix:
    """The slopes of Eq. 5 in each distance, (m, m); a pair counts in both orders."""
    spread = DEVIATIONS / max(pairs.deviation, _LEAST_PART * pairs.middle, np.finfo(np.float64).tiny)
    found = (2 / pairs.ordered) * (1 + spread * (pairs.distances - pairs.middle))
    np.fill_diagonal(found, 0.0)
    return found


def stretch(pairs: Pairs, clip: float) -> float:
    """Line 8 and Eq. 4: the factor by which all embeddings of the batch are multiplied; of one row it is 1."""
    if len(pairs.rows) < 2:
        return 1.0
    return 2 * clip / max(local_sensitivity(pairs), 2 * clip * _LEAST_PART)
