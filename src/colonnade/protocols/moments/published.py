"""The published result of second moments: what follows from the opened integers without another look at data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.protocols.moments.task import Moments


@dataclass(frozen=True)
class NoisyMoments:
    """The published result: the opened integers, and numbers that are computed from them."""

    task: Moments
    opened: NDArray[np.int64]

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy second-moment matrix of (x, constant), in the units of the encoded columns."""
        return self._symmetric(self.opened / (self.task.weights * float(self.task.gamma) ** 2))

    @cached_property
    def deviations(self) -> NDArray[np.float64]:
        """The standard deviation of the noise on each entry of the matrix."""
        task = self.task
        if task.laplace:
            known = {scale: math.sqrt(task.additive_of(scale).variance) for scale in np.unique(task.scales).tolist()}
            found = np.array([known[scale] for scale in task.scales.tolist()])
        else:
            # A sum of two copies has noise of twice the variance; it is halved, and so is its noise.
            found = np.sqrt(task.additive.variance / task.weights)
        return self._symmetric(found / float(task.gamma) ** 2)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, without the constant."""
        return self.task.names

    @property
    def constant(self) -> float:
        """The constant column's value, in the units of the encoded columns."""
        return self.task.constant / self.task.gamma

    @property
    def second_moments(self) -> NDArray[np.float64]:
        """X'X."""
        return self.matrix[:-1, :-1]

    @property
    def count(self) -> float:
        """The noisy number of rows, never below one."""
        return max(1.0, float(self.matrix[-1, -1]) / self.constant**2)

    @property
    def means(self) -> NDArray[np.float64]:
        """The noisy column means."""
        means: NDArray[np.float64] = self.matrix[-1, :-1] / (self.constant * self.count)
        return means

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The noisy covariance matrix; it follows from what is published, so it costs no privacy."""
        covariance: NDArray[np.float64] = self.second_moments / self.count - np.outer(self.means, self.means)
        return covariance

    def spectrum(self, *, center: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All variances in rising order, and their directions as columns; around the means with ``center``."""
        values, vectors = np.linalg.eigh(self.covariance if center else self.second_moments / self.count)
        return values, vectors

    def components(self, count: int, *, center: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest variances, never negative, and their directions as rows."""
        values, vectors = self.spectrum(center=center)
        return np.maximum(values[::-1][:count], 0.0), vectors[:, ::-1][:, :count].T

    def variance(self, *, center: bool) -> float:
        """The noisy mean squared norm of a row, less that of the means with ``center``."""
        return float(np.trace(self.covariance if center else self.second_moments / self.count))

    @property
    def entry_deviation(self) -> float:
        """The deviation of the noise on an entry of the diagonal."""
        return float(self.deviations[0, 0])

    @property
    def sum_deviations(self) -> NDArray[np.float64]:
        """The deviation of the noise on each column's sum, times the constant; last that of the constant itself."""
        found: NDArray[np.float64] = self.deviations[-1]
        return found

    @property
    def largest(self) -> float:
        """The largest sum of squares in one direction, as far as it is known."""
        return float(np.max(np.diag(self.matrix), initial=0.0))

    def with_label(self, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X'X and X'y, where y is the named column and X the others."""
        index = self.task.names.index(label)
        rest = np.delete(np.arange(len(self.task.names)), index)
        return self.second_moments[np.ix_(rest, rest)], self.second_moments[rest, index]

    def _symmetric(self, upper: NDArray[np.float64]) -> NDArray[np.float64]:
        full = np.zeros((self.task.width, self.task.width))
        full[np.triu_indices(self.task.width)] = upper
        return full + np.triu(full, 1).T
