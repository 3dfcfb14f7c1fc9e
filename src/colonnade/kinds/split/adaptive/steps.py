"""Steps of an encoder against its gradient: plain, or scaled by the gradients of earlier steps (Adam)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from colonnade.kinds.split.embeddings.learner import Vector

Rule = Literal["adam", "sgd"]
_KEPT, _KEPT_SQUARE, _LEAST = 0.9, 0.999, 1e-8


class Steps:
    """The steps of one encoder."""

    def __init__(self, rule: Rule, rate: float) -> None:
        self.rule, self.rate = rule, rate
        self._taken, self._mean, self._square = 0, np.zeros(0), np.zeros(0)

    def step(self, gradient: Vector) -> Vector:
        """What to add to the parameters."""
        if self.rule == "sgd":
            return -self.rate * gradient
        if not self._taken:
            self._mean, self._square = np.zeros_like(gradient), np.zeros_like(gradient)
        self._taken += 1
        self._mean += (1 - _KEPT) * (gradient - self._mean)
        self._square += (1 - _KEPT_SQUARE) * (gradient * gradient - self._square)
        size = self.rate / (1 - _KEPT**self._taken)
        spread = np.sqrt(self._square / (1 - _KEPT_SQUARE**self._taken))
        spread += _LEAST
        return np.asarray(-size * self._mean / spread)
