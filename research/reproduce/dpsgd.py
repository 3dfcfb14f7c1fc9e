"""DP-SGD at a trusted curator: what the joint computations are measured against.

Poisson batches, gradients clipped one by one, Gaussian noise on a grid, calibrated by the library's accountant for
whoever sees all iterates. Rows have norm at most 1 and the label is 0 or 1. The published weights are the average
of the last half of the iterates, as in the joint computation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from colonnade.privacy.noise.local_mechanisms import Grid
from colonnade.randomness import Stream
from research.reproduce.calibration import gradient_deviation
from research.reproduce.chance import Batches, Matrix

_CHUNK = 1 << 21


@dataclass(frozen=True)
class Schedule:
    """How long and in which steps to learn."""

    rate: float
    epochs: float
    learning_rate: float = 2.0

    @property
    def rounds(self) -> int:
        """Batches altogether."""
        return max(1, round(self.epochs / self.rate))


Slope = Callable[[Matrix, Matrix], Matrix]
Noise = Callable[[int], Matrix]


def descend(
    rows: Matrix,
    labels: Matrix,
    schedule: Schedule,
    slope: Slope,
    noise: Noise,
    source: Stream,
    radius: float | None = None,
    clip: float | None = None,
) -> Matrix:
    """Noisy gradient descent: each step adds ``slope(scores, labels) x`` over a batch, and one row of noise.

    ``radius`` keeps the weights in a ball, ``clip`` each person's gradient. The sum is divided by the expected size
    of a batch, so that the size of a batch does not leak.
    """
    batches = Batches(len(rows), schedule.rate, schedule.rounds, source)
    step = schedule.learning_rate / (schedule.rate * len(rows))
    weights, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    chunk = max(1, _CHUNK // rows.shape[1])
    drawn = np.empty((0, rows.shape[1]))
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) if clip is not None else np.empty(0)
    for index in range(schedule.rounds):
        if index % chunk == 0:
            drawn = noise(min(chunk, schedule.rounds - index))
        members = batches[index]
        part = rows[members]
        slopes = slope(part @ weights, labels[members])
        if clip is not None:
            slopes = slopes * np.minimum(1.0, clip / np.maximum(np.abs(slopes) * lengths[members], 1e-300))
        weights = weights - step * (slopes @ part + drawn[index % chunk])
        if radius is not None:
            weights *= min(1.0, radius / max(float(np.linalg.norm(weights)), 1e-300))
        if index >= schedule.rounds // 2:
            total += weights
    averaged: Matrix = total / (schedule.rounds - schedule.rounds // 2)
    return averaged


def residual(scores: Matrix, labels: Matrix) -> Matrix:
    """The slope of the logistic loss."""
    found: Matrix = expit(scores) - labels
    return found


def logistic(
    rows: Matrix, labels: Matrix, schedule: Schedule, *, epsilon: float, delta: float, source: Stream, clip: float = 1.0
) -> Matrix:
    """Weights of a logistic regression."""
    columns = rows.shape[1]
    deviation = gradient_deviation(clip, columns, epsilon, delta, schedule.rate, schedule.rounds)
    grid = Grid()

    def noise(count: int) -> Matrix:
        return grid.real(grid.release(np.zeros((count, columns)), deviation, source))

    return descend(rows, labels, schedule, residual, noise, source, clip=clip)


def straight(scores: Matrix, labels: Matrix) -> Matrix:
    """The same with the sigmoid replaced by its tangent at zero, as SQM has it for H = 1."""
    found: Matrix = 0.5 + scores / 4 - labels
    return found
