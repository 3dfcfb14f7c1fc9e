"""From opened gradients to weights, and how far the noise of all rounds may have moved these."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.kinds.regression.task import GradientTask
from colonnade.models.estimates import public_normals

_LARGEST_RATE = 8.0  # a row of norm 1 bends the loss by 1/4, and steps shrink errors while rate x 1/4 is below 2


@dataclass(frozen=True)
class LearnedWeights:
    """The published result: the average weights of the last half of the rounds, one row per class, the intercept last.

    The weights are for scaled rows; :attr:`slopes` and :attr:`offsets` are for the rows before scaling.
    """

    task: GradientTask
    weights: NDArray[np.float64]

    @property
    def slopes(self) -> NDArray[np.float64]:
        """Weights of the unscaled columns, (classes, columns)."""
        slopes: NDArray[np.float64] = self.weights[:, :-1] * self.task.scale
        return slopes

    @property
    def offsets(self) -> NDArray[np.float64]:
        """What is added to each class's score."""
        offsets: NDArray[np.float64] = self.weights[:, -1] * (self.task.constant / self.task.gamma)
        return offsets

    @property
    def deviation(self) -> float | None:
        """About the largest deviation that the rounds' noise can give a weight, as if no step undid earlier noise.

        ``None`` if the learning rate is so large that steps may even enlarge it.
        """
        task, early = self.task, self.task.rounds // 2
        if task.learning_rate > _LARGEST_RATE:
            return None
        late = task.rounds - early
        # Noise of a round stays in all later weights, and the last ``late`` of them are averaged.
        steps = early + (late + 1) * (2 * late + 1) / (6 * late)
        return task.learning_rate * task.noise_std * math.sqrt(steps)


class GradientDescent:
    """The public part of the iteration, equal at every participant: opened integers go in, integer weights come out.

    It uses only operations that every machine rounds in the same way: elementwise arithmetic and ``fsum``.
    """

    def __init__(self, task: GradientTask) -> None:
        self.task = task
        self.weights = np.zeros((task.classes, task.width))
        self._total = np.zeros_like(self.weights)
        self._done = 0
        self._rate, self._divisor = task.learning_rate / task.batch, task.divisor

    @property
    def integer_weights(self) -> NDArray[np.int64]:
        """The weights as integers, whose norm the sensitivity counts on."""
        whole = np.rint(self.weights * float(self.task.gamma))
        for row in whole:
            if squared_norm(row) > self.task.weights_squared:
                raise PrivacyError(
                    "the weights are longer than the sensitivity allows; nothing more is revealed [PR113]"
                )
        return whole.astype(np.int64)

    def step(self, opened: NDArray[Any]) -> None:
        """Take one step against the opened gradient, back into the ball, and add the weights to the average."""
        task = self.task
        gradient = (opened / self._divisor).astype(np.float64, copy=False).reshape(task.width, task.classes).T
        self.weights = self.weights - self._rate * gradient
        for row in self.weights:
            self._keep_inside(row)
        self._done += 1
        if self._done > task.rounds // 2:
            self._total += self.weights

    def _keep_inside(self, row: NDArray[np.float64]) -> None:
        norm = math.sqrt(math.fsum((row * row).tolist()))
        if not norm <= self.task.weight_bound:
            # A little inside the ball, so that rounding cannot leave it.
            row *= self.task.weight_bound / norm * (1 - 2.0**-40)

    @property
    def learned(self) -> LearnedWeights:
        """The average of the last half of the iterates."""
        return LearnedWeights(self.task, self._total / (self.task.rounds - self.task.rounds // 2))


def squared_norm(row: NDArray[np.float64]) -> int:
    """The exact squared norm of whole numbers (docs/theory/gradient-sensitivity.md, section 7); refuses others."""
    about = float(row.dot(row))
    if about < 2.0**53:  # sums of squares only grow, so none on the way was rounded
        return int(about)
    if not np.isfinite(row).all():
        raise PrivacyError("the weights cannot be computed from what was opened; nothing more is revealed [PR114]")
    return sum(int(value) ** 2 for value in row.tolist())


_UNDONE = 0.8
"""What later steps leave of a deviation that no step undoes: measured, as it depends on columns that nobody sees."""
_STEPS = 100
_NUMBERS = 4000  # of noise in each of these steps: many columns need few draws


def weight_deviations(result: LearnedWeights) -> NDArray[np.float64] | None:
    """The deviation of each class's weights, about the same for all of them; ``None`` where steps enlarge noise."""
    if (largest := result.deviation) is None:
        return None
    key = hashlib.sha256(b"colonnade error bars of rounds 1" + np.ascontiguousarray(result.weights).tobytes()).digest()
    classes, width = result.weights.shape
    noise = public_normals(key, (classes, min(_STEPS, result.task.rounds), max(2, min(40, _NUMBERS // width)), width))
    bound = result.task.weight_bound
    kept = [_kept(row, drawn, largest, bound) for row, drawn in zip(result.weights, noise, strict=True)]
    return _UNDONE * largest * np.array(kept)


def _kept(weights: NDArray[np.float64], noise: NDArray[np.float64], largest: float, bound: float) -> float:
    """What the ball leaves of this deviation, if the weights without noise are the published ones; at most 1.

    These are reached in the first half of the steps. Many rounds are one step here.
    """
    steps, draws, width = noise.shape
    early = steps // 2
    late = steps - early
    each = largest / np.sqrt(early + (late + 1) * (2 * late + 1) / (6 * late))
    noisy, apart = np.zeros((draws, width)), np.zeros((draws, width))
    for step in range(steps):
        share = min(1.0, (step + 1) / max(1, early))
        noisy = noisy + each * noise[step] + (weights / max(1, early) if step < early else 0.0)
        noisy = noisy * np.minimum(1.0, bound / np.maximum(np.linalg.norm(noisy, axis=1), bound / 2))[:, None]
        if step >= early:
            apart += noisy - share * weights
    return min(1.0, float(np.sqrt(np.mean(np.square(apart / late)))) / largest)
