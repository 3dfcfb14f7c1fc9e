"""Updates of an encoder as noised sums: each person's gradient is clipped, cut to whole numbers and added up.

What is done with such a sum is free: it is treated as told. So the step is that of Adam, whose scale does not depend on
how long gradients are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from colonnade.kinds.split.embeddings.gradients import Integers, whole_sum
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places, Vector
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS

Drawn = Callable[[int], Integers]
"""A function that draws so many numbers of noise."""
_RADIUS = 1 << GRADIENT_BITS
_SLOW, _SLOWER, _TINY = 0.9, 0.999, 1e-8


def noised_sum(learner: Learner, places: Places, slopes: Matrix, clip: float, draw: Drawn) -> Vector:
    """The noised sum over people of their gradients, each of norm at most ``clip``."""
    total = whole_sum(learner, places, slopes, clip, _RADIUS)
    return np.asarray((total + draw(len(total))) * (clip / _RADIUS))


class Steps:
    """Steps from noised sums to an encoder's parameters (Adam), all of the same public rate."""

    def __init__(self, parameters: int, rate: float) -> None:
        self.rate, self.taken = rate, 0
        self.mean, self.square = np.zeros(parameters), np.zeros(parameters)

    def after(self, total: Vector) -> Vector:
        """What is added to the parameters after a noised sum of gradients."""
        self.taken += 1
        self.mean = _SLOW * self.mean + (1 - _SLOW) * total
        self.square = _SLOWER * self.square + (1 - _SLOWER) * total**2
        mean, square = self.mean / (1 - _SLOW**self.taken), self.square / (1 - _SLOWER**self.taken)
        return np.asarray(-self.rate * mean / (np.sqrt(square) + _TINY))
