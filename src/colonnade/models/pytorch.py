"""torch, which is imported when the first network is made, where it computes, and Adam's steps without it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from colonnade.errors import StudyError

_SLOW, _SLOWER, _TINY = 0.9, 0.999, 1e-8


def load_torch() -> ModuleType:
    """The torch library, which is needed for networks only."""
    try:
        import torch
    except ImportError:
        raise StudyError('networks need torch, which is not installed: pip install "colonnade[nn]" [ST329]') from None
    return torch


def find_device(device: str) -> str:
    """The device to compute on; ``auto`` is a GPU if torch finds one."""
    if device not in ("cpu", "cuda", "auto"):
        raise StudyError("the device of a network is cpu, cuda or auto [ST330]")
    there = load_torch().cuda.is_available()
    if device == "cuda" and not there:
        raise StudyError("torch finds no GPU here: choose the device cpu or auto [ST331]")
    return "cuda" if there and device != "cpu" else "cpu"


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
