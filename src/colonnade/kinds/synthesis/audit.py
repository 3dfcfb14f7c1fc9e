"""Games of fitting a mixture, with the protocol's own integers, coins and noise.

One person is alone in the table. Its columns are certain to come from the first component, and its vectors are as long
as every owner's clip, so that its sums are nearly as long as the sensitivity allows. The parameters stay as they are;
steps from published numbers tell nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.mechanisms import RoundSampler
from colonnade.audit.registry import Game, observers, register
from colonnade.kinds.synthesis.mixture.programs import (
    Whole,
    bound_vectors,
    integer_densities,
    noise_shares,
    reference_sums,
)
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.randomness import Stream

Turned = tuple[str, ...]
"""The owners whose vectors of a person have a minus."""
_CERTAIN = 1e3  # by this much the logarithm of the first component's density is larger


@dataclass(frozen=True)
class MixtureSumSampler(RoundSampler[MixtureTask]):
    """The likelihood ratio of two tables, from the opened sums of all rounds."""

    def draw_sums(self, person: Turned | None, count: int, stream: Stream) -> NDArray[np.float64]:
        """What the person adds to the integers of a round, by the protocol's reference: always the same."""
        return np.broadcast_to(self.mean_sums(person), (count, self.task.entries))

    def mean_sums(self, person: Turned | None) -> NDArray[np.float64]:
        """What the person adds to the integers of a round."""
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

    def draw_noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """One owner's noise of one round."""
        return noise_shares(self.task, count, stream)

    def _vectors(self, part: MixturePart, turned: bool) -> Whole:
        """The person's integer vectors: the clip in the first of the numbers."""
        rows = (1,) if self.task.vectors == "statistics" else (1, self.task.components)
        vectors = np.zeros((*rows, part.width))
        if part.width:
            vectors[..., 0] = -part.clip if turned else part.clip
        return bound_vectors(vectors, self.task, part.owner)


@dataclass(frozen=True)
class CountFractionSampler(MixtureSumSampler):
    """What is left of an opened count when whole people are taken off: it tells nothing if noise has the same grid."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The fractions of the first component's count in the first round, in ``count`` runs."""
        seen = self.noise(count, stream)[:, 0]
        seen[next(self.joined(count, stream))] += self.mean_sums(self.people[neighbour])[0]
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
