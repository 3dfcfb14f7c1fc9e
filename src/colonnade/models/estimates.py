"""Numbers that were computed from noisy ones, with the deviation that the noise gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.randomness import Stream

NORMAL_95 = 1.959963984540054
"""Of a normal law, 95 % lies within so many deviations of its mean."""


class Estimate(float):
    """A released number: a float that also knows how far the noise may have moved it.

    ``deviation`` is the standard deviation that noise gives it, ``None`` where it is not known; ``low`` and ``high``
    are the ends of an interval that holds, in 95 of 100 runs, what the same computation would give without noise.
    """

    deviation: float | None
    low: float
    high: float

    def __new__(
        cls, value: float, deviation: float | None = None, interval: tuple[float, float] | None = None
    ) -> Estimate:
        """The value, its deviation, and an interval; without one, the normal law's around the value."""
        found = super().__new__(cls, value)
        found.deviation = None if deviation is None else float(deviation)
        if interval is None:
            reach = math.inf if deviation is None else NORMAL_95 * deviation
            interval = value - reach, value + reach
        found.low, found.high = map(float, interval)
        return found

    @property
    def clear(self) -> bool:
        """Whether it can be told from zero: the interval is known and does not hold zero."""
        return self.deviation is not None and not self.low <= 0 <= self.high

    @property
    def surely(self) -> float:
        """How large it is at least, whatever its sign: the distance of the interval from zero; 0 if it is not known."""
        return max(0.0, self.low, -self.high) if self.deviation is not None else 0.0

    def text(self, digits: int = 2) -> str:
        """The number with its sign, and its deviation where it is known."""
        return f"{float(self):+.{digits}f}" + ("" if self.deviation is None else f" ± {self.deviation:.{digits}f}")

    def __repr__(self) -> str:
        return float.__repr__(self) if self.deviation is None else f"{float(self):.4g} ± {self.deviation:.2g}"

    def __reduce__(self) -> tuple[type[Estimate], tuple[float, float | None, tuple[float, float]]]:
        return Estimate, (float(self), self.deviation, (self.low, self.high))


@dataclass(frozen=True)
class ErrorBars:
    """Deviations and the ends of intervals for an array of released numbers, each of the same shape."""

    deviations: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def normal(cls, values: NDArray[np.float64], deviations: NDArray[np.float64]) -> ErrorBars:
        """Those of numbers whose noise is normal, or a sum of so many parts that it might be."""
        return cls(deviations, values - NORMAL_95 * deviations, values + NORMAL_95 * deviations)


def public_normals(key: bytes, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers that a public key determines, the same everywhere; nothing secret may rest on them."""
    count = math.prod(shape)
    half = -(-count // 2)
    uniform = (Stream(key).uint64(2 * half) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-uniform[:half])), 2 * np.pi * uniform[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)
