"""Games of principal components by directions, with the protocol's own rounding, directions and noise.

One person is at the bounds of every owner's row, and the directions are the worst ones: in the first rounds somebody
asks for those in which the two tables differ, one per round. The observer weighs each opened number by how much it
differs between the tables, which is the best statistic for nearly Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.neighbours import OnePerson, furthest
from colonnade.audit.registry import Game, observers, register, two_tables
from colonnade.kinds.pca.directions import integers as direction_integers
from colonnade.kinds.pca.directions.search import AskedDirections
from colonnade.kinds.pca.directions.task import Directions
from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream

_LITTLE = 1e-9


@dataclass(frozen=True)
class Products(OnePerson[Directions]):
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
        asked = AskedDirections(self.task)
        for step in range(self.task.rounds):
            asked.add(asked.rounded(wanted[:, step :: self.task.rounds]))
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


def _example() -> Directions:
    """Three owners of two columns each, three rounds of two directions; epsilon 1 against the analyst."""
    owners = ("bank", "shop", "clinic")
    task = Directions(
        tuple(Block(owner, ("a", "b"), 1.0) for owner in owners),
        Trust(owners, owners, 1),
        gamma=4096,
        constant=3547,
        rows_at_most=2**20,
        directions=2,
        rounds=3,
        noise=3,
    )
    return task.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


@register("pca-power", "products of second moments with directions, opened in rounds", _example)
def power_games(task: Directions) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        story = f"{two_tables(observer)} at its bounds; directions in which they differ, one a round"
        sampler = Products(task, furthest(task, observer), noisy)
        yield Game("pca-power", observer, story, task.events, task.trust, sampler)
