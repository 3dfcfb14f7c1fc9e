"""Numbers that were computed from noisy ones, with the deviation that the noise gives them."""

from __future__ import annotations

import math

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

    def __repr__(self) -> str:
        return float.__repr__(self) if self.deviation is None else f"{float(self):.4g} ± {self.deviation:.2g}"

    def __reduce__(self) -> tuple[type[Estimate], tuple[float, float | None, tuple[float, float]]]:
        return Estimate, (float(self), self.deviation, (self.low, self.high))
