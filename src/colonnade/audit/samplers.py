"""What an observer sees, drawn many times: parts from which games are made.

Noise comes from the samplers of the library, share by share. An observer subtracts the shares it knows, so
they are not drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.noise.grid import Grid
from colonnade.privacy.noise.response import randomised_response
from colonnade.randomness import Stream

Shares = tuple[tuple[str, Fraction], ...]
Law = Callable[[Fraction, int, Stream], NDArray[np.int64]]


@dataclass(frozen=True)
class Opening:
    """One opened integer: the value of the first or second table, and the noise that the observer does not know."""

    values: tuple[int, int]
    shares: Shares
    law: Law
    known: tuple[str, ...] = ()

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The opened integers."""
        return self.noise(count, stream) + self.values[neighbour]

    def noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """The sum of the shares that the observer cannot subtract."""
        total = np.zeros(count, dtype=np.int64)
        for owner, size in self.shares:
            if owner not in self.known:
                total += self.law(size, count, stream)
        return total


@dataclass(frozen=True)
class Rounds:
    """The same release many times with fresh noise; the sum tells as much as all of them."""

    once: Opening
    times: int

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """Sums over the rounds."""
        total = np.zeros(count, dtype=np.int64)
        for _ in range(self.times):
            total += self.once(neighbour, count, stream)
        return total


@dataclass(frozen=True)
class Batches:
    """Rounds that a person joins by a coin; the statistic is the likelihood ratio of the two tables.

    ``variance`` is that of the noise which the observer does not know. The ratio is that for Gaussian noise.
    """

    once: Opening
    rate: Fraction
    rounds: int
    coins_known: bool
    variance: float

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios."""
        total = np.zeros(count)
        for _ in range(self.rounds):
            joined = stream.uint32(count) < float(self.rate) * 2.0**32
            seen = self.once.noise(count, stream) + joined * self.once.values[neighbour]
            first, second = (self._likelihood(value, seen) for value in self.once.values)
            if self.coins_known:
                total += np.where(joined, second - first, 0.0)
            else:
                total += self._mixed(second) - self._mixed(first)
        return total

    def _likelihood(self, value: int, seen: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray((value * seen - value * value / 2) / self.variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        rate = float(self.rate)
        return np.asarray(np.log1p(rate * np.expm1(ratio)))


@dataclass(frozen=True)
class Labels:
    """A label that its holder answers at random; the statistic is which of the two labels the answer is."""

    labels: tuple[int, int]
    categories: int
    odds: Fraction

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """1 for the second label, -1 for the first, 0 for any other."""
        true = np.full(count, self.labels[neighbour], dtype=np.int64)
        return self.compare(randomised_response(true, self.categories, self.odds, stream))

    def compare(self, seen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of the two labels each answer is."""
        second, first = (np.asarray(seen == label, dtype=np.int64) for label in reversed(self.labels))
        return second - first


@dataclass(frozen=True)
class OnGrid:
    """A real number released on a grid; the statistic is the number, or its fractional part."""

    values: tuple[float, float]
    grid: Grid
    deviation: float
    fraction: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[Any]:
        """The released numbers."""
        real = np.full(count, self.values[neighbour])
        return self.look(self.grid.real(self.grid.release(real, self.deviation, stream)))

    def look(self, released: NDArray[np.float64]) -> NDArray[np.float64]:
        """The number itself or its fractional part."""
        return released - np.floor(released) if self.fraction else released


Draw = Callable[[int, Stream], NDArray[np.int64]]


@dataclass(frozen=True)
class Weighed:
    """A few opened integers, those of the first or the second table, weighed by their difference.

    ``share`` draws one owner's noise for a number of runs, as the protocol does; ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    values: tuple[tuple[int, ...], tuple[int, ...]]
    share: Draw
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sums of ``count`` runs."""
        first, second = (np.array(values, dtype=np.float64) for values in self.values)
        moved = second - first
        weights = moved / max(1.0, float(np.abs(moved).max()))
        seen = np.tile(second if neighbour else first, (count, 1))
        for _ in self.noisy:
            seen += self.share(count, stream)
        return np.asarray(seen @ weights)
