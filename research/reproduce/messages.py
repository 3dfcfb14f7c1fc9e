"""HDP-VFL's Algorithm 1 as published, in one place: noised scores and slopes, step by step.

Labelled "as published, not proven" wherever it is shown: the passive party's slopes arrive with unbounded noise, so
its weights move further than the proof allows for. Without noise it is the paper's non-private vertical learning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from colonnade.randomness import Stream
from research.formulas import classic_gaussian_sigma, paper_active_norm, paper_passive_norm
from research.reproduce.chance import Matrix, gaussian


@dataclass(frozen=True)
class Algorithm:
    """The paper's parameters; those that it does not print are the learning rate and the order of the batches."""

    epochs: int = 10
    batch: int = 3200
    learning_rate: float = 0.1
    ridge: float = 0.001
    weight_bound: float = 1.0

    def batches(self, rows: int) -> int:
        """How many batches an epoch has: as many full ones as there are, and at least one."""
        return max(1, rows // self.batch)

    def deviations(self, rows: int, epsilon: float, delta: float) -> tuple[float, float]:
        """The noise on the active party's slopes and on the passive party's scores, by Lemmas 4 and 3."""
        batches = self.batches(rows)
        shape = (self.epochs, batches, rows // batches, self.learning_rate)
        return (
            classic_gaussian_sigma(epsilon, delta, paper_active_norm(*shape, self.weight_bound)),
            classic_gaussian_sigma(epsilon, delta, paper_passive_norm(*shape, self.weight_bound)),
        )

    def fit(
        self, active: Matrix, passive: Matrix, labels: Matrix, noise: tuple[float, float], source: Stream
    ) -> tuple[Matrix, Matrix]:
        """Both parties' weights after the last step; rows have norm at most 1, labels are 0 or 1."""
        own, other = np.zeros(active.shape[1]), np.zeros(passive.shape[1])
        batches = self.batches(len(labels))
        for _ in range(self.epochs):
            for start in range(batches):
                rows = slice(start, None, batches)
                mine, theirs = active[rows], passive[rows]
                scores = theirs @ other + _noise(noise[1], len(mine), source)
                slopes = expit(mine @ own + scores) - labels[rows]
                sent = slopes + _noise(noise[0], len(mine), source)
                own = self._step(own, mine.T @ slopes / len(mine))
                other = self._step(other, theirs.T @ sent / len(mine))
        return own, other

    def _step(self, weights: Matrix, gradient: Matrix) -> Matrix:
        moved = weights - self.learning_rate * (gradient + self.ridge * weights)
        length = float(np.linalg.norm(moved))
        return moved if length <= self.weight_bound else moved * (self.weight_bound / length)


NO_NOISE = (0.0, 0.0)


def _noise(deviation: float, count: int, source: Stream) -> Matrix:
    return gaussian(deviation, count, source) if deviation else np.zeros(count)


def unit_rows(active: Matrix, passive: Matrix) -> tuple[Matrix, Matrix]:
    """Both parties' rows, scaled down together to norm at most 1, a constant of the active party's among them.

    No party could do this alone, as the norm is of both parts; the paper does not say who does.
    """
    active = np.hstack([active, np.full((len(active), 1), 0.5)])
    squares = np.einsum("ij,ij->i", active, active) + np.einsum("ij,ij->i", passive, passive)
    scale = 1 / np.maximum(1.0, np.sqrt(squares))[:, None]
    return active * scale, passive * scale
