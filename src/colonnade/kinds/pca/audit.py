"""Games about second moments and about directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, OnePersonSampler, describe_neighbours, find_furthest, observers, register
from colonnade.kinds import PCA
from colonnade.kinds.pca import programs as direction_integers
from colonnade.kinds.pca.subspace_iteration import DirectionHistory
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.models import Roster
from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.rows import ColumnBlock
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_LITTLE = 1e-9


@dataclass(frozen=True)
class DirectionProductSampler(OnePersonSampler[SubspaceIteration]):
    """The opened numbers that differ between the two tables, each weighed by how much it differs.

    With ``again`` the first direction is asked twice, which nobody in the protocol would answer.
    """

    again: bool = False

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened numbers, for ``count`` runs of the protocol."""
        rows = self.rows(neighbour, count, stream)
        scores = rows @ self.directions
        total = np.zeros(count)
        for row, column in self.moved:
            total += self.moves[row, column] * (rows[:, row] * scores[:, column] + self._noise(count, stream))
        squares = self.task.total_weight * np.einsum("ij,ij->i", rows, rows)
        return np.asarray(total + self.total_move * (squares + self._noise(count, stream)))

    def rounded(self, owner: str, values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """One owner's integers of some rows, by the protocol's own function."""
        return direction_integers.quantise(values, self.task.block(owner), self.task, stream)

    def _noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        return sum(
            (direction_integers.entry_noise(self.task, (count,), stream) for _ in self.noisy), np.zeros(count, np.int64)
        )

    @cached_property
    def directions(self) -> NDArray[np.int64]:
        """The directions in which the two tables differ, one per round, as the protocol rounds and checks them."""
        vectors = np.column_stack([found for found in self.vectors if found.any()])
        wanted = np.linalg.qr(vectors)[0]
        asked = DirectionHistory(self.task)
        for step in range(self.task.rounds):
            asked.add(asked.round_directions(wanted[:, step :: self.task.rounds]))
        found = np.hstack(asked.rounds).astype(np.int64)
        found = found[:, np.abs(found).any(axis=0)]
        return np.hstack([found, found[:, :1]]) if self.again else found

    @cached_property
    def moves(self) -> NDArray[np.float64]:
        """How much each product moves, scaled to at most one."""
        return np.asarray(self._products / np.abs(self._products).max())

    @cached_property
    def total_move(self) -> float:
        """How much the weighted sum of squared norms moves, on the same scale."""
        before, after = self.vectors
        return float(self.task.total_weight * (after @ after - before @ before) / np.abs(self._products).max())

    @cached_property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """The products that move at all."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(np.abs(self.moves) > _LITTLE))

    @cached_property
    def _products(self) -> NDArray[np.float64]:
        before, after = self.vectors
        return np.asarray(np.outer(after, after @ self.directions) - np.outer(before, before @ self.directions))


def _power_example() -> SubspaceIteration:
    """Three owners of two columns each, three rounds of two directions; epsilon 1 against the analyst."""
    owners = ("bank", "shop", "clinic")
    task = SubspaceIteration(
        tuple(ColumnBlock(owner, ("a", "b"), 1.0) for owner in owners),
        Trust(owners, owners, 1),
        gamma=4096,
        constant=3547,
        rows_at_most=2**20,
        directions=2,
        rounds=3,
        noise=3,
    )
    return task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


@register("pca-power", "products of second moments with directions, opened in rounds", _power_example)
def power_games(task: SubspaceIteration) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        story = f"{describe_neighbours(observer)} at its bounds; directions in which they differ, one a round"
        sampler = DirectionProductSampler(task, find_furthest(task, observer), noisy)
        yield Game("pca-power", observer, story, task.events, task.trust, sampler)


_MOST_ALONE = 7


@dataclass(frozen=True)
class MomentEntrySampler(OnePersonSampler[Moments]):
    """The opened entries that differ between the two tables, each weighed by how much it differs."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened entries, for ``count`` runs of the protocol."""
        joint = self.rows(neighbour, count, stream)
        total = np.zeros(count)
        for i, j in self.moved:
            copies = np.full(count, 1 if i == j else 2)
            entry = copies * joint[:, i] * joint[:, j]
            for owners in self._together:
                entry += programs.sample_entry_noise(self.task, owners * copies, stream)
            total += self.moves[i, j] * entry
        return total

    def rounded(self, owner: str, values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """One owner's integers of some rows, by the protocol's own function."""
        return programs.OwnMoments(self.task, owner).quantise(values, stream)

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


def _moments_example() -> Moments:
    """Three owners of two columns each; epsilon 1 against the analyst."""
    schemas = {name: Schema({"a": number(-1, 1), "b": number(-1, 1)}, clip=1.0) for name in ("bank", "shop", "clinic")}
    return cast("Moments", PCA(2, epsilon={"analyst": 1.0}, rows_at_most=2**20).plan(Roster.of(schemas)))


@register("pca", "second moments of everyone's columns, opened once", _moments_example)
def pca_games(task: Moments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        sampler = MomentEntrySampler(task, find_furthest(task, observer), noisy)
        story = f"{describe_neighbours(observer)} at its bounds; the {len(sampler.moved)} opened entries that move"
        yield Game("pca", observer, story, task.events, task.trust, sampler)
