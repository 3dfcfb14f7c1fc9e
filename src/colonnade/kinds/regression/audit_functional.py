"""Games of the functional mechanism: coefficients with discrete Laplace noise, drawn as the owners draw them.

The best statistic for Laplace noise is a sum of absolute values: the likelihood ratio of whole Laplace variables. An
observer that can subtract no more shares than allowed sees at least one whole variable of noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.neighbours import Person
from colonnade.audit.registry import Game, observers, register, two_tables
from colonnade.kinds.regression.linear import LinearRegression
from colonnade.models import Roster
from colonnade.privacy import Observer
from colonnade.protocols.moments import integers
from colonnade.protocols.moments.programs import reference
from colonnade.protocols.moments.task import Moments
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_MOST_ENTRIES = 64
"""More entries take long to draw, and those that differ little show nothing in the noise."""


@dataclass(frozen=True)
class Coefficients:
    """The log-likelihood ratio of two rows from the opened entries, less the noise that is known."""

    task: Moments
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Ratios of ``count`` runs; rows at their bounds are whole numbers, so rounding does not change them."""
        first, second = self.sums
        total = np.zeros(count)
        for index in self.moved:
            scale = int(self.task.scales[index])
            seen = np.full(count, float(self.sums[neighbour][index]))
            for _ in self.noisy:
                seen += integers.entry_noise(self.task, np.ones(count, dtype=np.int64), stream, scale)
            total += (np.abs(seen - first[index]) - np.abs(seen - second[index])) / scale
        return total

    @cached_property
    def moved(self) -> NDArray[np.intp]:
        """The entries that differ most compared with their noise, only the first few of them."""
        first, second = self.sums
        far = np.abs(first - second) / self.task.scales
        order = np.argsort(-far, kind="stable")
        found: NDArray[np.intp] = order[far[order] > 0][:_MOST_ENTRIES]
        return found

    @cached_property
    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The exact entries of both tables."""
        first, second = (_entries(self.task, person) for person in self.people)
        return first, second


def _entries(task: Moments, person: Person | None) -> NDArray[np.int64]:
    if person is None:
        return np.zeros(task.entries, dtype=np.int64)
    row = np.rint(np.array(person) * task.gamma).astype(np.int64)[None]
    return reference({owner: row[:, task.span(owner)] for owner in task.owners}, task)


def _at_bounds(task: Moments, turned: tuple[int, ...] = ()) -> Person:
    """A row whose every group has its largest L1 norm, in its first column; some groups with the other sign."""
    row: list[float] = []
    for number_, (width, radius) in enumerate(group for block in task.blocks for group in block.groups):
        row += [-float(radius) if number_ in turned else float(radius), *[0.0] * (width - 1)]
    return tuple(row)


def _neighbours(task: Moments, observer: Observer) -> tuple[Person | None, Person]:
    """Of the pairs that the observer must not tell apart, the one that moves the coefficients furthest."""
    whole = _at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    owners = [block.owner for block in task.blocks for _ in block.groups]
    theirs = [index for index, owner in enumerate(owners) if owner not in observer.names][:10]
    pairs = [_at_bounds(task, turned) for size in range(1, len(theirs) + 1) for turned in combinations(theirs, size)]
    base = _entries(task, whole)
    return whole, max(pairs, key=lambda pair: int(np.abs(_entries(task, pair) - base).sum()))


def _example() -> Moments:
    """Three owners of one column each, one of them the label; any one owner still sees a whole variable of noise."""
    schemas = {name: Schema({name[0]: number(-1, 1)}) for name in ("bank", "shop", "clinic")}
    budgets = {"analyst": 1.0, "party": 2.0}
    model = LinearRegression(epsilon=budgets, label="clinic.c", method="functional", gamma=64, rows_at_most=2**20)
    return model.plan(Roster.of(schemas))


@register("functional", "coefficients of a regression with Laplace noise, opened once", _example)
def functional_games(task: Moments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        sampler = Coefficients(task, _neighbours(task, observer), noisy)
        story = f"{two_tables(observer)} at its bounds; {len(sampler.moved)} of the coefficients that move"
        yield Game("functional", observer, story, task.events, task.trust, sampler)
