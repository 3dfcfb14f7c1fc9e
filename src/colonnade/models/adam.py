"""Adam's steps (Kingma and Ba 2015), for arrays of numpy and tensors of torch alike."""

from __future__ import annotations

from typing import Any

_SLOW, _SLOWER, _TINY = 0.9, 0.999, 1e-8


class Adam:
    """Adam's steps against gradients, which are arrays of numpy or tensors of torch, all of one shape.

    The optimisers that torch brings take seconds to import.
    """

    def __init__(self, rate: float) -> None:
        self.rate, self._taken = rate, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def step(self, gradient: Any) -> Any:
        """What is added to the parameters."""
        self._taken += 1
        self._mean = _SLOW * self._mean + (1 - _SLOW) * gradient
        self._square = _SLOWER * self._square + (1 - _SLOWER) * gradient**2
        mean, square = self._mean / (1 - _SLOW**self._taken), self._square / (1 - _SLOWER**self._taken)
        return -self.rate * mean / (square**0.5 + _TINY)
