"""Are there enough people? How far noise alone is expected to move a result, from public numbers: no data is read.

The figures are rough, and about a typical table whose columns have half of the variance that their bounds allow
(docs/how-to/planning.md says what each of them means). They say when a result would be mostly noise, not how good it
will be.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

ENOUGH_OF_A_PREDICTION = 0.1
ENOUGH_OF_A_SHARE = 0.5
ENOUGH_OF_A_MARGINAL = 0.1
ENOUGH_OF_A_PART = 0.5


@dataclass(frozen=True)
class SampleSizeForecast:
    """The expected error of one number of a result, and from how many people on it is small enough."""

    of: str
    """The number that errs, in words."""
    enough: float
    """An error up to which a result is of use."""
    rows: int | None
    """For how many people the error is meant; ``None``: the study does not say how many there are."""
    error: float | None
    """The expected error with so many people."""
    people: int | None
    """From about how many people on the error is small enough; ``None``: not known."""

    @classmethod
    def falling(cls, of: str, enough: float, scale: float, rows: int | None) -> SampleSizeForecast:
        """Of an error that is ``scale`` divided by the number of people."""
        return cls(of, enough, rows, None if rows is None else scale / rows, two_digits(scale / enough))

    @property
    def too_few(self) -> bool:
        """Whether the result is expected to be mostly noise."""
        return self.error is not None and self.error > self.enough

    @property
    def forecast(self) -> str:
        """A sentence: how much the noise does."""
        if self.error is None or self.rows is None:
            needed = "many people" if self.people is None else f"about {self.people:,} people"
            return f"FORECAST: it takes {needed} until noise moves {self.of} by no more than {self.enough:g}"
        least = "" if self.people is None else f"; {self.enough:g} takes about {self.people:,} people"
        return f"FORECAST for {self.rows:,} people: noise moves {self.of} by about {self.error:.2g}{least}"

    @property
    def warning(self) -> str | None:
        """A sentence where there are too few people, with what would do; ``None`` where there are enough."""
        if self.error is None or not self.too_few:
            return None
        if self.people is None or self.rows is None:
            return "TOO FEW PEOPLE: noise would hide most of it; it takes many more people, or a larger epsilon"
        times = f"about {self.people:,} people, or about {self.people / self.rows:.1f} times the epsilon"
        return f"TOO FEW PEOPLE: noise would hide most of it; it takes {times}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"too_few": self.too_few}


def two_digits(people: float) -> int:
    """The number rounded up to two digits: more of them would promise what nobody knows."""
    step: int = 10 ** max(0, math.floor(math.log10(max(people, 1.0))) - 1)
    return max(1, math.ceil(people / step) * step)


def operator_norm(entry: float, columns: int) -> float:
    """About the largest factor by which symmetric noise of this deviation on each entry stretches a vector."""
    return 2 * entry * math.sqrt(columns)
