"""The expected error of a private regression, from public numbers alone: rows, columns, bounds and noise.

The error is the deviation of a predicted probability that the noise alone causes, for a typical person, if the
features have half of the variance that their bounds allow, spread evenly over d encoded columns: v = |x|^2 / (2 d).
Noise of deviation s on each of d coefficients then moves a prediction by s sqrt(d / v).

* From second moments: s = noise of an entry / rows, for the entries with the label and, times the norm of the weights,
  for those between features. The weights are taken to have norm 1/2.
* From gradients: s = noise of a round's mean gradient, over the root of half the rounds, which are averaged. What is
  left to learn after so many steps is added: it shrinks by learning rate x v / 4 a round.

The assumptions are rough and the same for all methods: the figures rank them, and show when there are too few rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.models.design import label_weight
from colonnade.protocols.moments.task import Moments
from colonnade.tables import Column
from colonnade.tables.centred import Norm

WEIGHTS = 0.5
LEARNABLE = 0.35
"""The deviation of predicted probabilities when about half of the label's variance is explained."""


@dataclass(frozen=True)
class Forecast:
    """A method, the task that would carry it out, and the expected error of a predicted probability.

    Without a number of rows ``error`` is that of a single row, which is enough to rank methods.
    """

    method: str
    task: Moments | Gradients
    error: float
    rows: int | None

    def __str__(self) -> str:
        return f"{self.method}: expected error {self.error:.3g}" + ("" if self.rows else " / rows")


def expected(
    method: str, task: Moments | Gradients, declared: Column, norm: float, columns: int, rows: int | None
) -> Forecast:
    """The forecast for a task about ``columns`` encoded features whose rows have at most this norm."""
    variance = norm * norm / (2 * columns)
    if task.scheme is None:
        error = moments_error(task, declared) * math.sqrt(columns / variance) / (rows or 1)
    else:
        error = gradients_error(cast("Gradients", task), columns, variance)
    return Forecast(method, task, error, rows)


def moments_error(task: Moments, declared: Column) -> float:
    """The deviation of a coefficient's noise in the least squares problem, times the number of rows."""
    norm: Norm = "l1" if task.laplace else "l2"
    weight = float(label_weight(declared, norm, task.constant, task.gamma))
    # Off the diagonal there are two copies of each entry, except with Laplace noise.
    entry = task.noise_std if task.laplace else task.noise_std / math.sqrt(2)
    return entry * math.hypot(1 / weight, WEIGHTS)


def gradients_error(task: Gradients, columns: int, variance: float) -> float:
    """The error of a probability: by noise in the averaged weights, and because learning stops early."""
    scaled = variance * task.scale**2
    averaged = max(1, task.rounds - task.rounds // 2)
    noise = task.noise_std / math.sqrt(averaged) * math.sqrt(columns / scaled)
    unlearned = LEARNABLE * math.exp(-task.learning_rate * scaled / 4 * 0.75 * task.rounds)
    return math.hypot(noise, unlearned)
