"""From the masses of bins to a density that is smooth across them, and draws from it within given bins.

The density is continuous and piecewise linear, with a knot at each edge and one in the middle of each bin. At an edge
its height lies between the mean heights of the two bins, but is at most twice the smaller one; then the height in the
middle that keeps the mass of the bin is never negative. Where a bin has no neighbour to borrow from (at the ends,
beside a bin of one value) the density is linear across it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Density:
    """Heights at the left edge, in the middle and at the right edge of each bin, where all edges span a length of 1."""

    edges: Vector
    left: Vector
    middle: Vector
    right: Vector

    @classmethod
    def uniform(cls, edges: Vector) -> Density:
        """The same height everywhere within a bin."""
        flat = np.ones(len(edges) - 1)
        return cls(edges, flat, flat, flat)

    @classmethod
    def of(cls, edges: Vector, masses: Vector, apart: NDArray[np.bool_]) -> Density:
        """The density of bins with these masses; bins marked ``apart`` are no neighbours to any other."""
        widths = _widths(edges)
        apart = apart | (widths <= 0)
        heights = np.divide(masses, widths, out=np.zeros(len(widths)), where=~apart)
        joined = ~apart[:-1] & ~apart[1:]
        reach = np.where(joined, widths[:-1] + widths[1:], 1.0)
        between = (heights[:-1] * widths[1:] + heights[1:] * widths[:-1]) / reach
        between = np.minimum(between, 2 * np.minimum(heights[:-1], heights[1:]))
        left = np.concatenate([[np.nan], np.where(joined, between, np.nan)])
        right = np.concatenate([np.where(joined, between, np.nan), [np.nan]])
        # Without a neighbour on one side the bin is linear; without any it is flat.
        alone = np.isnan(left) & np.isnan(right)
        left, right = np.where(alone, heights, left), np.where(alone, heights, right)
        left, right = (
            np.where(np.isnan(left), 2 * heights - right, left),
            np.where(np.isnan(right), 2 * heights - left, right),
        )
        middle = np.maximum(2 * heights - (left + right) / 2, 0.0)
        empty = left + 2 * middle + right <= 0
        return cls(edges, *(np.where(empty, 1.0, part) for part in (left, middle, right)))

    @property
    def masses(self) -> Vector:
        """The mass of each bin."""
        return np.asarray(_widths(self.edges) * (self.left + 2 * self.middle + self.right) / 4)

    def draw(self, bins: NDArray[np.int64], uniform: Vector) -> Vector:
        """For each of these bins the place within it below which lies the given share of its mass."""
        peak = np.maximum(np.maximum(self.left, self.right), self.middle)
        left, middle, right = ((heights / peak)[bins] for heights in (self.left, self.middle, self.right))
        first, second = left + middle, middle + right
        mark = uniform * (first + second)
        later = mark >= first
        start, end = np.where(later, middle, left), np.where(later, right, middle)
        half = np.where(later, second, first)
        share = np.clip(
            np.divide(np.where(later, mark - first, mark), half, out=np.zeros_like(half), where=half > 0), 0, 1
        )
        # The inverse of the integral of a linear function, in a form that does not cancel.
        below = start + np.sqrt((1 - share) * start**2 + share * end**2)
        within = np.divide(share * half, below, out=share.copy(), where=below > 0)
        place = (np.minimum(within, 1.0) + later) / 2
        low, high = self.edges[bins], self.edges[bins + 1]
        found: Vector = np.clip(low + place * (high - low), low, high)
        return found


def _widths(edges: Vector) -> Vector:
    return np.asarray(np.diff(edges) / (edges[-1] - edges[0]))
