"""The statistic of games about studies that open one noisy sum a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.protocols.iteration import COIN, iterate_batches
from colonnade.randomness import Stream

RoundTask = TypeVar("RoundTask", bound=Any)
"""A task on shares that opens one sum a round."""


@dataclass(frozen=True)
class RoundSampler(ABC, Generic[RoundTask]):
    """The likelihood ratio of two tables, from the opened sums of all rounds.

    ``people`` are the person in the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract. The ratio is that for Gaussian noise, as an audit may use any statistic.
    """

    task: RoundTask
    people: tuple[Any, Any]
    noisy: tuple[str, ...]
    coins_known: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, each with coins of its own."""
        sent = self.draw_sums(self.people[neighbour], count, stream)
        first, second = (self.mean_sums(person) for person in self.people)
        total = np.zeros(count)
        for joined in self.joined(count, stream):
            if self.coins_known and not len(joined):
                continue
            seen = self.noise(count, stream)
            seen[joined] += sent[joined]
            ratios = self._ratio(first, seen), self._ratio(second, seen)
            if self.coins_known:
                total[joined] += (ratios[1] - ratios[0])[joined]
            else:
                total += self._mixed(ratios[1]) - self._mixed(ratios[0])
        return total

    @abstractmethod
    def draw_sums(self, person: Any, count: int, stream: Stream) -> NDArray[np.float64]:
        """What the person adds to the integers of a round, in each of ``count`` runs."""

    @abstractmethod
    def mean_sums(self, person: Any) -> NDArray[np.float64]:
        """The mean of what the person adds to the integers of a round."""

    @abstractmethod
    def draw_noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """One owner's noise of one round, in each of ``count`` runs."""

    def joined(self, count: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
        """For each round the runs in which the person is in the batch."""
        # If batches take turns, the person is in the first batch of every run.
        drawn = bytes(4 * count) if self.task.sampling == "disjoint" else stream.bytes(32)
        return iterate_batches(self.task, count, drawn)

    def noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        """The noise of one round that the observer does not know, in each of ``count`` runs."""
        total = np.zeros((count, self.task.entries))
        for _ in self.noisy:
            total += self.draw_noise(count, stream)
        return total

    def _ratio(self, guess: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = self.task.additive.unit * self.task.noise
        variance = whole * len(self.noisy) / len(self.task.owners)
        return np.asarray((seen @ guess - guess @ guess / 2) / variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log1p(self.task.threshold / COIN * np.expm1(ratio)))
