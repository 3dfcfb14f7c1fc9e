"""Games of iterative logistic regression, with the protocol's own rounding, coins, integers and noise.

One person is alone in the table, at the bounds of every owner's row. While the weights are small its gradient is
as long as the sensitivity counts, so the games let them be zero; steps on published numbers tell nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.events import alike
from colonnade.protocols import gradients
from colonnade.protocols.gradients_task import COIN, Gradients
from colonnade.protocols.moments_task import Block
from colonnade.randomness import Stream


@dataclass(frozen=True)
class OpenedGradients:
    """The likelihood ratio of two tables, from the opened gradients of all rounds.

    ``labels`` are the person's in the two tables; none means a table without a row. ``noisy`` are the owners whose
    noise the observer cannot subtract. Noise is taken for Gaussian: any statistic is fair.
    """

    task: Gradients
    labels: tuple[int | None, int]
    noisy: tuple[str, ...]
    coins_known: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of so many runs, each with coins of its own."""
        sent, guesses = self._gradient(self.labels[neighbour], count, stream), [self._mean(v) for v in self.labels]
        total = np.zeros(count)
        for joined in gradients.batches(self.task, count, stream.bytes(32)):
            seen = self._noise(count, stream)
            seen[joined] += sent[joined]
            first, second = (self._ratio(guess, seen) for guess in guesses)
            if self.coins_known:
                total[joined] += (second - first)[joined]
            else:
                total += self._mixed(second) - self._mixed(first)
        return total

    def _gradient(self, label: int | None, count: int, stream: Stream) -> NDArray[np.float64]:
        """The person's integer gradient, its row rounded by each owner anew for every run."""
        if label is None:
            return np.zeros((count, self.task.width))
        parts = []
        for block in self.task.blocks:
            row = np.zeros((count, len(block.columns)))
            row[:, 0] = block.clip
            parts.append(gradients.quantise(row, block, self.task, stream))
        whole = np.hstack([*parts, np.full((count, 1), float(self.task.constant))])
        one, none = np.ones((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
        score = gradients.reference(one, label * one, none, self.task)[0]
        return whole * float(score)

    def _mean(self, label: int | None) -> NDArray[np.float64]:
        values = [
            block.clip if index == 0 else 0.0 for block in self.task.blocks for index in range(len(block.columns))
        ]
        row = np.append(np.array(values) * self.task.gamma * self.task.scale, float(self.task.constant))
        score = 0 if label is None else self.task.divisor // (2 * self.task.gamma) * (1 - 2 * label)
        return row * float(score)

    def _noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        total = np.zeros((count, self.task.entries))
        for _ in self.noisy:
            total += gradients.noise_shares(self.task, count, stream)
        return total

    def _ratio(self, guess: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = (2 if self.task.law == "skellam" else 1) * self.task.noise
        variance = whole * len(self.noisy) / len(self.task.owners)
        return np.asarray((seen @ guess - guess @ guess / 2) / variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log1p(self.task.threshold / COIN * np.expm1(ratio)))


def _example() -> Gradients:
    """Three owners, four batches that hold a quarter of the people each; epsilon 1 against the analyst."""
    owners = ("bank", "shop", "clinic")
    task = Gradients(
        tuple(Block(owner, ("a",), 1.0) for owner in owners),
        label_owner="clinic",
        classes=1,
        trust=Trust(owners, owners, 1),
        gamma=1024,
        scale=1 / math.sqrt(3.25),
        expansion=1,
        weight_bound=0.01,
        learning_rate=1.0,
        sampling="poisson",
        rows=400,
        batch=100,
        rounds=4,
        noise=3,
        rows_at_most=2**16,
    )
    return task.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


@register(
    "sqm", "gradients of batches, opened round by round", _example, plays=lambda task: isinstance(task, Gradients)
)
def sqm_games(task: Gradients) -> Iterator[Game]:
    """Somebody or nobody for the analyst; one label or the other for whoever does not hold it."""
    if task.classes > 1 or task.sampling == "disjoint":
        return
    for observer in task.trust.standard_observers(alike([(task.event, task.trust)])):
        if task.trust.broken(observer) is not None or task.label_owner in observer.names:
            continue
        analyst = observer == Observer.analyst()
        known = bool(set(observer.names) & set(task.coins))
        noisy = tuple(owner for owner in task.owners if owner not in observer.names)
        sampler = OpenedGradients(task, (None, 1) if analyst else (0, 1), noisy, known)
        tables = "no row, or one at its bounds" if analyst else "a row at its bounds with one label, or the other"
        coins = "known" if known else "secret"
        story = f"{tables}; the gradients of {task.rounds} batches, {coins} coins"
        yield Game("sqm", observer, story, task.events, task.trust, sampler)
