"""Games of fitting a mixture, with the protocol's own integers, coins and noise.

One person is alone in the table. Its columns are certain to come from the first component, and its vectors are as long
as every owner's clip, so that its sums are nearly as long as the sensitivity allows. The parameters stay as they are;
steps from published numbers tell nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, observers, register
from colonnade.kinds.synthesis.mixture import round_sums
from colonnade.kinds.synthesis.mixture.programs import reference_sums
from colonnade.kinds.synthesis.mixture.round_sums import Whole, bound_vectors, integer_densities
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.protocols.iteration import COIN, iterate_batches
from colonnade.randomness import Stream

Turned = tuple[str, ...]
"""The owners whose vectors of a person have a minus."""
_CERTAIN = 1e3  # by this much the logarithm of the first component's density is larger


@dataclass(frozen=True)
class MixtureSumSampler:
    """The likelihood ratio of two tables, from the opened sums of all rounds.

    ``people`` are the person in the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract. The ratio is that for Gaussian noise, as an audit may use any statistic.
    """

    task: MixtureTask
    people: tuple[Turned | None, Turned]
    noisy: tuple[str, ...]
    coins_known: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, each with coins of its own."""
        first, second = self.contributions
        total = np.zeros(count)
        for joined in self.joined(count, stream):
            if self.coins_known and not len(joined):
                continue
            seen = self.noise(count, stream)
            seen[joined] += self.contributions[neighbour]
            ratio = self._ratio(second, seen), self._ratio(first, seen)
            if self.coins_known:
                total[joined] += (ratio[0] - ratio[1])[joined]
            else:
                total += self._mixed(ratio[0]) - self._mixed(ratio[1])
        return total

    @cached_property
    def contributions(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the person of each table adds to the integers of a round, by the protocol's reference."""
        first, second = (self._sums(person) for person in self.people)
        return first, second

    def joined(self, count: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
        """For each round the runs in which the person is in the batch."""
        task = self.task
        # If batches take turns, the person is in the first batch of every run.
        drawn = bytes(4 * count) if task.sampling == "disjoint" else stream.bytes(32)
        return iterate_batches(task, count, drawn)

    def noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        """The noise of one round that the observer does not know, in each of ``count`` runs."""
        total = np.zeros((count, self.task.entries))
        for _ in self.noisy:
            total += round_sums.noise_shares(self.task, count, stream)
        return total

    def _sums(self, person: Turned | None) -> NDArray[np.float64]:
        task = self.task
        if person is None:
            return np.zeros(task.entries)
        logs = np.full((1, task.components), -_CERTAIN)
        logs[:, 0] = 0.0
        dealt = {
            part.owner: (integer_densities(logs, task, part.owner, logs[0]), self._vectors(part, part.owner in person))
            for part in task.parts
        }
        return reference_sums(dealt, task).astype(np.float64)

    def _vectors(self, part: MixturePart, turned: bool) -> Whole:
        """The person's integer vectors: the clip in the first of the numbers."""
        rows = (1,) if self.task.vectors == "statistics" else (1, self.task.components)
        vectors = np.zeros((*rows, part.width))
        if part.width:
            vectors[..., 0] = -part.clip if turned else part.clip
        return bound_vectors(vectors, self.task, part.owner)

    def _ratio(self, guess: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = self.task.additive.unit * self.task.noise
        variance = whole * len(self.noisy) / len(self.task.owners)
        return np.asarray((seen @ guess - guess @ guess / 2) / variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log1p(self.task.threshold / COIN * np.expm1(ratio)))


@dataclass(frozen=True)
class CountFractionSampler(MixtureSumSampler):
    """What is left of an opened count when whole people are taken off: it tells nothing if noise has the same grid."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The fractions of the first component's count in the first round, in ``count`` runs."""
        seen = self.noise(count, stream)[:, 0]
        seen[next(self.joined(count, stream))] += self.contributions[neighbour][0]
        return np.asarray(np.mod(seen, self.task.gamma) / self.task.gamma)


def _example() -> MixtureTask:
    """Three owners and two components, four batches of a quarter of the people; epsilon 1 against the analyst."""
    owners = ("bank", "shop", "clinic")
    task = MixtureTask(
        tuple(MixturePart(owner, ("a",), 1, 2.0) for owner in owners),
        components=2,
        trust=Trust(owners, owners, 1),
        sampling="poisson",
        rows=400,
        batch=100,
        rounds=4,
        noise=3,
        rows_at_most=2**16,
    )
    return task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


@register("mixture", "sums of a mixture's rounds, opened one after the other", _example)
def mixture_games(task: MixtureTask) -> Iterator[Game]:
    """For the analyst, a row or none; for others, a row or the opposite in columns that they do not hold."""
    for observer, noisy in observers(task):
        known = task.sampling != "poisson" or bool(set(observer.names) & set(task.coins))
        people: tuple[Turned | None, Turned] = (None, ())
        tables = "no row, or one at its clips"
        if observer != Observer.analyst():
            people = (tuple(owner for owner in task.owners if owner not in observer.names), ())
            tables = "a row at its clips, or the opposite in the others' columns"
        coins = {"poisson": f"{'known' if known else 'secret'} coins", "disjoint": "in turn", "all": "everybody"}
        story = f"{tables}; the sums of {task.rounds} batches, {coins[task.sampling]}"
        sampler = MixtureSumSampler(task, people, noisy, known)
        yield Game("mixture", observer, story, task.events, task.trust, sampler)
        if observer == Observer.analyst():
            story = f"{tables}; the fraction of a count, without the whole people in it"
            fraction = CountFractionSampler(task, people, noisy, known)
            yield Game("mixture", observer, story, task.events, task.trust, fraction, part="fraction")
