"""Games of principal components by directions, with the protocol's own rounding, directions and noise.

One person sits at the bounds of every owner's row, and the directions are as bad as they can be: in the first rounds
somebody asks for just those in which the two tables differ, one a round. The observer weighs each opened number by how
much it would move, which is the best one can do against nearly Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.events import alike
from colonnade.protocols.directions import integers
from colonnade.protocols.directions.search import Asked
from colonnade.protocols.directions.task import Directions
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream

_MOST_TURNED = 8
_LITTLE = 1e-9


@dataclass(frozen=True)
class Products:
    """The opened numbers that the two tables move, each weighed by its move, without noise that is known.

    ``people`` are the two rows in the units of the encoded columns; none means a table without a row. ``noisy`` are
    the owners whose noise the observer cannot subtract. With ``again`` the first direction is asked twice, which nobody
    in the protocol would answer.
    """

    task: Directions
    people: tuple[tuple[float, ...] | None, tuple[float, ...]]
    noisy: tuple[str, ...]
    again: bool = False

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened numbers, for so many runs of the protocol."""
        rows = self.rows(neighbour, count, stream)
        scores = rows @ self.directions
        total = np.zeros(count)
        for row, column in self.moved:
            total += self.moves[row, column] * (rows[:, row] * scores[:, column] + self._noise(count, stream))
        squares = self.task.total_weight * np.einsum("ij,ij->i", rows, rows)
        return np.asarray(total + self.total_move * (squares + self._noise(count, stream)))

    def rows(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The person's integer row with the constant, rounded by each owner anew for every run."""
        person = self.people[neighbour]
        if person is None:
            return np.zeros((count, self.task.width), dtype=np.int64)
        parts, start = [], 0
        for block in self.task.blocks:
            values = np.tile(person[start : start + len(block.columns)], (count, 1))
            parts.append(integers.quantise(values, block, self.task, stream))
            start += len(block.columns)
        return np.hstack([*parts, np.full((count, 1), float(self.task.constant))]).astype(np.int64)

    def _noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        return sum((integers.entry_noise(self.task, (count,), stream) for _ in self.noisy), np.zeros(count, np.int64))

    @cached_property
    def directions(self) -> NDArray[np.int64]:
        """In which the two tables differ, as the protocol rounds and checks them, one a round while there are any."""
        vectors = np.column_stack([found for found in self._vectors if found.any()])
        wanted = np.linalg.qr(vectors)[0]
        asked = Asked(self.task)
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
        before, after = self._vectors
        return float(self.task.total_weight * (after @ after - before @ before) / np.abs(self._products).max())

    @cached_property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """The products that move at all."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(np.abs(self.moves) > _LITTLE))

    @cached_property
    def _products(self) -> NDArray[np.float64]:
        before, after = self._vectors
        return np.asarray(np.outer(after, after @ self.directions) - np.outer(before, before @ self.directions))

    @cached_property
    def _vectors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first, second = (_with_constant(self.task, person) for person in self.people)
        return first, second


def _with_constant(task: Directions, person: tuple[float, ...] | None) -> NDArray[np.float64]:
    """A person's row and the constant, but for rounding; nobody's is all zeros."""
    return np.zeros(task.width) if person is None else np.array([*person, task.constant / task.gamma])


def _distance(task: Directions, first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """How far apart the second moments of two people are, squared."""
    a, b = _with_constant(task, first), _with_constant(task, second)
    return float((a @ a) ** 2 + (b @ b) ** 2 - 2 * (a @ b) ** 2)


def _at_bounds(task: Directions, turned: tuple[str, ...] = (), column: int = 0) -> tuple[float, ...]:
    """A person whose value in one column of each owner is as large as the owner's clip."""
    row: list[float] = []
    for block in task.blocks:
        own = [0.0] * len(block.columns)
        if own:
            own[min(column, len(own) - 1)] = -block.clip if block.owner in turned else block.clip
        row += own
    return tuple(row)


def _neighbours(task: Directions, observer: Observer) -> tuple[tuple[float, ...] | None, tuple[float, ...]]:
    """Of some pairs that the observer must not tell apart, the one that moves the second moments furthest."""
    whole = _at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    others = tuple(owner for owner in task.owners if owner not in observer.names)
    pairs = [_at_bounds(task, others[: k + 1]) for k in range(min(len(others), _MOST_TURNED))]
    elsewhere, mixed, start = _at_bounds(task, column=1), list(whole), 0
    for block in task.blocks:
        if block.owner in others:
            mixed[start : start + len(block.columns)] = elsewhere[start : start + len(block.columns)]
        start += len(block.columns)
    return whole, max([*pairs, tuple(mixed)], key=lambda pair: _distance(task, whole, pair))


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


@register(
    "pca-power",
    "products of second moments with directions, opened in rounds",
    _example,
    plays=lambda task: isinstance(task, Directions),
)
def power_games(task: Directions) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    key = alike([(task.event, task.trust)])
    for observer in task.trust.standard_observers(key):
        if task.trust.broken(observer) is None:
            people = _neighbours(task, observer)
            noisy = tuple(owner for owner in task.owners if owner not in observer.names)
            tables = "no row, or one" if people[0] is None else "a row, or another in the others' columns,"
            story = f"{tables} at its bounds; directions in which they differ, one a round"
            yield Game("pca-power", observer, story, task.events, task.trust, Products(task, people, noisy))
