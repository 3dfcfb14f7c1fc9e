"""Games of the second moments behind PCA, with the protocol's own rounding and noise.

Rows are rounded and noise is drawn by the functions that the owners call in a study, from the task and not from
the event, so that an error in either shows as a difference between what is promised and what is seen.

One person is at the bounds of every owner's row. The observer weighs each opened entry by how much it differs between
the tables, which is the best statistic for nearly Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.neighbours import OnePerson, furthest
from colonnade.audit.registry import Game, observers, register, two_tables
from colonnade.kinds import PCA
from colonnade.models import Roster
from colonnade.protocols.moments import integers
from colonnade.protocols.moments.task import Moments
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_MOST_ALONE = 7


@dataclass(frozen=True)
class Entries(OnePerson[Moments]):
    """The opened entries that differ between the two tables, each weighed by how much it differs."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened entries, for ``count`` runs of the protocol."""
        joint = self.rows(neighbour, count, stream)
        total = np.zeros(count)
        for i, j in self.moved:
            copies = np.full(count, 1 if i == j else 2)
            entry = copies * joint[:, i] * joint[:, j]
            for owners in self._together:
                entry += integers.entry_noise(self.task, owners * copies, stream)
            total += self.moves[i, j] * entry
        return total

    def rounded(self, owner: str, values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """One owner's integers of some rows, by the protocol's own function."""
        return integers.OwnBlock(self.task, owner).quantise(values, stream)

    @property
    def _together(self) -> list[int]:
        """How many owners' noise is drawn at a time: one by one, then all others at once, as Skellam shares add up."""
        rest = len(self.noisy[_MOST_ALONE:])
        return [1] * (len(self.noisy) - rest) + [rest] * (rest > 0)

    @cached_property
    def moves(self) -> NDArray[np.float64]:
        """How much each entry of the full matrix moves, scaled to at most one."""
        before, after = self.vectors
        change = np.outer(after, after) - np.outer(before, before)
        return np.asarray(change / np.abs(change).max())

    @cached_property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """The entries on and above the diagonal that move at all."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(np.triu(self.moves)))


def _example() -> Moments:
    """Three owners of two columns each; epsilon 1 against the analyst."""
    schemas = {name: Schema({"a": number(-1, 1), "b": number(-1, 1)}, clip=1.0) for name in ("bank", "shop", "clinic")}
    return cast("Moments", PCA(2, epsilon={"analyst": 1.0}, rows_at_most=2**20).plan(Roster.of(schemas)))


@register("pca", "second moments of everyone's columns, opened once", _example)
def pca_games(task: Moments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        sampler = Entries(task, furthest(task, observer), noisy)
        story = f"{two_tables(observer)} at its bounds; the {len(sampler.moved)} opened entries that move"
        yield Game("pca", observer, story, task.events, task.trust, sampler)
