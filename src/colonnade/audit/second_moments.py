"""Games of the second moments behind PCA, with the protocol's own rounding and noise.

Rows are rounded and noise is drawn by the functions that the owners call in a study, from the task and not from
the event, so that an error in either is one between what is promised and what is seen.

One person sits at the bounds of every owner's row. The observer weighs each opened entry by how much it
would move, which is the best one can do against nearly Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.models import PCA, Roster
from colonnade.privacy import Observer
from colonnade.privacy.events import alike
from colonnade.protocols.moments import integers
from colonnade.protocols.moments.task import Moments
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_MOST_TURNED = 8
_MOST_ALONE = 7


@dataclass(frozen=True)
class Entries:
    """The opened entries that the two tables move, each weighed by its move, without noise that is known.

    ``people`` are the two rows in the units of the encoded columns; none means a table without a row. ``noisy`` are
    the owners whose noise the observer cannot subtract.
    """

    task: Moments
    people: tuple[tuple[float, ...] | None, tuple[float, ...]]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened entries, for so many runs of the protocol."""
        joint = self.rows(neighbour, count, stream)
        total = np.zeros(count)
        for i, j in self.moved:
            copies = np.full(count, 1 if i == j else 2)
            entry = copies * joint[:, i] * joint[:, j]
            for owners in self._together:
                entry += integers.entry_noise(self.task, owners * copies, stream)
            total += self.moves[i, j] * entry
        return total

    def rows(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The person's integer row with the constant, rounded by each owner anew for every run."""
        person = self.people[neighbour]
        if person is None:
            return np.zeros((count, self.task.width), dtype=np.int64)
        row = np.array(person)
        whole = [
            integers.OwnBlock(self.task, owner).quantise(np.tile(row[self.task.span(owner)], (count, 1)), stream)
            for owner in self.task.owners
        ]
        constant = np.full((count, 1), float(self.task.constant))
        return np.hstack([*whole, constant]).astype(np.int64)

    @property
    def _together(self) -> list[int]:
        """How many owners' noise is drawn at a time: one's, and at last all others', as Skellam shares add up."""
        rest = len(self.noisy[_MOST_ALONE:])
        return [1] * (len(self.noisy) - rest) + [rest] * (rest > 0)

    @cached_property
    def moves(self) -> NDArray[np.float64]:
        """How much each entry of the full matrix moves, scaled to at most one."""
        change = _change(self.task, *self.people)
        return np.asarray(change / np.abs(change).max())

    @cached_property
    def moved(self) -> tuple[tuple[int, int], ...]:
        """The entries on and above the diagonal that move at all."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(np.triu(self.moves)))


def _change(task: Moments, first: tuple[float, ...] | None, second: tuple[float, ...]) -> NDArray[np.float64]:
    """The second table's matrix less the first's, but for rounding."""
    constant = task.constant / task.gamma
    after = np.array([*second, constant])
    before = np.zeros_like(after) if first is None else np.array([*first, constant])
    return np.asarray(np.outer(after, after) - np.outer(before, before))


def _at_bounds(task: Moments, column: int = 0, turned: Iterable[str] = ()) -> tuple[float, ...]:
    """A person whose value in one column of each owner is as large as the owner's clip."""
    row = np.zeros(len(task.names))
    for block in task.blocks:
        span = task.span(block.owner)
        row[span.start + min(column, len(block.columns) - 1)] = -block.clip if block.owner in turned else block.clip
    return tuple(row.tolist())


def _neighbours(task: Moments, observer: Observer) -> tuple[tuple[float, ...] | None, tuple[float, ...]]:
    """Of some pairs that the observer must not tell apart, the one that moves the matrix furthest."""
    whole = _at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    others = [owner for owner in task.owners if owner not in observer.names]
    columns, pairs = np.array(whole), []
    elsewhere = np.array(_at_bounds(task, column=1))
    for owner in others:
        columns[task.span(owner)] = elsewhere[task.span(owner)]
    pairs.append(tuple(columns.tolist()))
    pairs += [_at_bounds(task, turned=others[: k + 1]) for k in range(min(len(others), _MOST_TURNED))]
    return whole, max(pairs, key=lambda second: float(np.linalg.norm(_change(task, whole, second))))


def _example() -> Moments:
    """Three owners of two columns each; epsilon 1 against the analyst."""
    schemas = {name: Schema({"a": number(-1, 1), "b": number(-1, 1)}, clip=1.0) for name in ("bank", "shop", "clinic")}
    task = PCA(2, epsilon={"analyst": 1.0}, rows_at_most=2**20).plan(Roster.of(schemas))
    assert isinstance(task, Moments)  # noqa: S101 - for the type checker
    return task


def _plays(task: object) -> bool:
    return isinstance(task, Moments) and not task.laplace


@register("pca", "second moments of everyone's columns, opened once", _example, plays=_plays)
def pca_games(task: Moments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    key = alike([(task.event, task.trust)])
    for observer in task.trust.standard_observers(key):
        if task.trust.broken(observer) is None:
            people = _neighbours(task, observer)
            noisy = tuple(owner for owner in task.owners if owner not in observer.names)
            sampler = Entries(task, people, noisy)
            tables = "no row, or one" if people[0] is None else "a row, or another in the others' columns,"
            story = f"{tables} at its bounds; the {len(sampler.moved)} opened entries that move"
            yield Game("pca", observer, story, (task.event,), task.trust, sampler)
