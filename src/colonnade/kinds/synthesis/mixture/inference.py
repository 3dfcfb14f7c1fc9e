"""Variational inference of a mixture from noisy sums: the public part, equal at every participant.

The posterior of the unconstrained parameters is approximated by independent normals. A round draws parameters from it
by public coins, the participants open noised sums at these parameters, and the normals take a step up the bound on the
evidence (docs/theory/mixture-model.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.model import MixtureModel, normal
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]
_LOWEST, _HIGHEST, _FIRST = -5.0, 0.0, -3.0  # log deviations of the posterior
_EQUAL = 0.5  # of the rounds with equal weights: otherwise few components take all rows before the others differ


@dataclass(frozen=True)
class Posterior:
    """Independent normals of the parameters: their means and deviations, (K, ``model.width``)."""

    mean: Matrix
    deviation: Matrix

    def draw(self, stream: Stream) -> Matrix:
        """Parameters drawn from the posterior."""
        return self.mean + self.deviation * normal(stream, self.mean.shape)


class Ascent:
    """Adam's steps up a noisy slope (Kingma and Ba), the learning rate falling to zero over the last part."""

    def __init__(self, shape: tuple[int, ...], learning_rate: float, rounds: int) -> None:
        self.learning_rate, self.rounds = learning_rate, rounds
        self._first, self._second, self._done = np.zeros(shape), np.zeros(shape), 0

    def step(self, slope: Matrix) -> Matrix:
        """What to add to the parameters."""
        self._done += 1
        self._first += 0.1 * (slope - self._first)
        self._second += 0.001 * (slope**2 - self._second)
        left = max(0.0, 1 - (self._done - 1) / self.rounds)
        rate = self.learning_rate * min(1.0, 2 * left)
        size = np.sqrt(self._second / (1 - 0.999**self._done)) + 1e-12
        return rate * self._first / (1 - 0.9**self._done) / size


class Variational:
    """The posterior so far; ``draw`` gives the parameters of a round and ``step`` takes what was opened there.

    ``rate`` is the chance with which a row is in a batch: sums of a batch stand for 1/rate times as many rows.
    """

    def __init__(
        self, model: MixtureModel, start: Matrix, coins: Stream, *, rate: float, rounds: int, learning_rate: float
    ) -> None:
        self.model, self.rate, self.rounds = model, rate, rounds
        self.mean, self.log_deviation = start.copy(), np.full(start.shape, _FIRST)
        self._coins = coins
        self._ascent = Ascent((2, *start.shape), learning_rate, rounds)
        self._drawn, self._chance = self.mean, np.zeros(start.shape)
        self._totals, self._done, self._since = np.zeros((2, *start.shape)), 0, rounds - max(1, rounds // 10)

    def draw(self) -> Matrix:
        """This round's parameters, the same at everybody who holds the key of the coins."""
        self._chance = normal(self._coins, self.mean.shape)
        self._drawn = self.mean + np.exp(self.log_deviation) * self._chance
        return self._drawn

    def step(self, sums: Matrix) -> None:
        """One step from the opened sums at the drawn parameters: responsibilities first, then weighted derivatives.

        The number of rows in the batch is not told; the sum of all responsibilities stands for it.
        """
        slope = sums.copy()
        slope[:, 0] -= softmax(np.clip(self._drawn[:, 0], -LIMIT, LIMIT)) * sums[:, 0].sum()
        slope = slope / self.rate + self.model.scales(self._drawn) * self.model.prior_slope(self._drawn)
        if self._done < _EQUAL * self.rounds:
            slope[:, 0] = 0.0
        moved = self._chance * np.exp(self.log_deviation)
        step = self._ascent.step(np.stack([slope, slope * moved + 1.0]))
        self.mean = np.clip(self.mean + step[0], -LIMIT, LIMIT)
        self.log_deviation = np.clip(self.log_deviation + step[1], _LOWEST, _HIGHEST)
        self._done += 1
        if self._done > self._since:
            self._totals += np.stack([self.mean, self.log_deviation])

    @property
    def posterior(self) -> Posterior:
        """The average of the iterates of the last tenth of the rounds, or the last one before that."""
        count = self._done - self._since
        mean, deviation = self._totals / count if count > 0 else (self.mean, self.log_deviation)
        return Posterior(mean.copy(), np.exp(deviation))
