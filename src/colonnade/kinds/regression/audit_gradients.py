"""Games of iterative logistic regression, with the protocol's own rounding, coins, integers and noise.

One person is alone in the table, at the bounds of every owner's row. With weights of zero its gradient is as long as
the sensitivity allows, so the games keep the weights at zero; steps from published numbers tell nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.neighbours import at_bounds
from colonnade.audit.registry import Game, observers, register
from colonnade.kinds.regression.gradients import integers as gradient_integers
from colonnade.kinds.regression.gradients.programs import reference as gradient_reference
from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.protocols.batches import COIN, batches
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream


@dataclass(frozen=True)
class Person:
    """Somebody at the bounds of every owner's row, with a minus at the owners ``turned``."""

    label: int
    turned: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpenedGradients:
    """The likelihood ratio of two tables, from the opened gradients of all rounds.

    ``people`` are the person in the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract. The ratio is that for Gaussian noise, as an audit may use any statistic.
    """

    task: Gradients
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]
    coins_known: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, each with coins of its own."""
        sent = self._gradient(self.people[neighbour], count, stream)
        guesses = [self._mean(person) for person in self.people]
        total = np.zeros(count)
        # If batches take turns, the person is in the first batch of every run.
        drawn = stream.bytes(32) if self.task.sampling == "poisson" else bytes(4 * count)
        for joined in batches(self.task, count, drawn):
            if self.coins_known and not len(joined):
                continue
            seen = self._noise(count, stream)
            seen[joined] += sent[joined]
            first, second = (self._ratio(guess, seen) for guess in guesses)
            if self.coins_known:
                total[joined] += (second - first)[joined]
            else:
                total += self._mixed(second) - self._mixed(first)
        return total

    def _gradient(self, person: Person | None, count: int, stream: Stream) -> NDArray[np.float64]:
        """The person's integer gradient; each owner rounds its row again in every run."""
        if person is None:
            return np.zeros((count, self.task.entries))
        task, rows = self.task, np.tile(at_bounds(self.task, person.turned), (count, 1))
        parts = [
            gradient_integers.quantise(rows[:, task.span(block.owner)], block, task, stream) for block in task.blocks
        ]
        whole = np.hstack([*parts, np.full((count, 1), float(task.constant))])
        return (whole[:, :, None] * self._scores(person)).reshape(count, -1)

    def _mean(self, person: Person | None) -> NDArray[np.float64]:
        if person is None:
            return np.zeros(self.task.entries)
        values = np.array(at_bounds(self.task, person.turned))
        row = np.append(values * self.task.gamma * self.task.scale, float(self.task.constant))
        return (row[:, None] * self._scores(person)).reshape(-1)

    def _scores(self, person: Person) -> NDArray[np.float64]:
        """The person's score in each class, by the protocol's reference at weights of zero."""
        classes = self.task.classes
        label = np.array([[person.label]]) if classes == 1 else np.eye(classes, dtype=np.int64)[[person.label]]
        none = np.zeros((classes, 1), dtype=np.int64)
        scores = gradient_reference(np.ones((1, 1), dtype=np.int64), label, none, self.task)
        return np.asarray(scores, dtype=np.float64)

    def _noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        total = np.zeros((count, self.task.entries))
        for _ in self.noisy:
            total += gradient_integers.noise_shares(self.task, count, stream)
        return total

    def _ratio(self, guess: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = self.task.additive.unit * self.task.noise
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


@register("sqm", "gradients of batches, opened round by round", _example)
def sqm_games(task: Gradients) -> Iterator[Game]:
    """For the analyst, a row or none; for owners, another label or other columns that they do not hold."""
    for observer, noisy in observers(task, lambda owner: owner == task.label_owner):
        fixed = task.sampling == "disjoint"
        known = fixed or bool(set(observer.names) & set(task.coins))
        people, tables = _neighbours(task, observer)
        coins = "in turn" if fixed else f"{'known' if known else 'secret'} coins"
        story = f"{tables}; the gradients of {task.rounds} batches, {coins}"
        yield Game("sqm", observer, story, task.events, task.trust, OpenedGradients(task, people, noisy, known))


def _neighbours(task: Gradients, observer: Observer) -> tuple[tuple[Person | None, Person], str]:
    if observer == Observer.analyst():
        return (None, Person(1)), "no row, or one at its bounds"
    if task.label_owner in observer.names:
        others = tuple(owner for owner in task.owners if owner not in observer.names)
        return (Person(1, others), Person(1)), "a row at its bounds, or the opposite in the others' columns"
    return (Person(0), Person(1)), "a row at its bounds with one label, or the other"
