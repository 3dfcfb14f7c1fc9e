"""Two tables that differ in one person, whose values are as large as every owner's bounds allow.

Games about rows that owners round and multiply share what is here: the person, its rounded rows, and its neighbour.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy import Observer
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream

Person = tuple[float, ...]
"""One row, in the units of the encoded columns."""
_MOST_TURNED = 8


class Bounded(Protocol):
    """A task about rows of which every owner bounds its own part."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns of each owner, with its bounds."""


class Rounded(Bounded, Protocol):
    """A task about rows that owners scale and round, with a public constant as their last column."""

    @property
    def gamma(self) -> int:
        """What rows are scaled by."""

    @property
    def constant(self) -> int:
        """The last column of every integer row."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""

    @property
    def width(self) -> int:
        """How many columns there are, with the constant."""

    def span(self, owner: str) -> slice:
        """The columns of an owner."""


Public = TypeVar("Public", bound=Rounded)


@dataclass(frozen=True)
class OnePerson(ABC, Generic[Public]):
    """What an observer sees of one person's products, without the noise that it knows.

    ``people`` are the rows of the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    task: Public
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]

    def rows(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The person's integer row with the constant, rounded again by each owner in each of ``count`` runs."""
        task, person = self.task, self.people[neighbour]
        if person is None:
            return np.zeros((count, task.width), dtype=np.int64)
        row = np.array(person)
        whole = [self.rounded(owner, np.tile(row[task.span(owner)], (count, 1)), stream) for owner in task.owners]
        return np.hstack([*whole, np.full((count, 1), float(task.constant))]).astype(np.int64)

    @abstractmethod
    def rounded(self, owner: str, values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """One owner's integers of some rows, by the protocol's own function."""

    @cached_property
    def vectors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both rows with the constant, before rounding; all zeros for a table without a row."""
        first, second = (_with_constant(self.task, person) for person in self.people)
        return first, second


def furthest(task: Rounded, observer: Observer) -> tuple[Person | None, Person]:
    """Of some pairs that the observer must not tell apart, the one that moves the second moments furthest."""
    whole = at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    others = [owner for owner in task.owners if owner not in observer.names]
    mixed, elsewhere = list(whole), at_bounds(task, column=1)
    for owner in others:
        mixed[task.span(owner)] = elsewhere[task.span(owner)]
    turned = [at_bounds(task, others[: k + 1]) for k in range(min(len(others), _MOST_TURNED))]
    return whole, max([tuple(mixed), *turned], key=lambda person: _distance(task, whole, person))


def at_bounds(task: Bounded, turned: Collection[str] = (), column: int = 0) -> Person:
    """A person whose value in one column of each owner is the owner's clip, with a minus at the owners ``turned``."""
    row: list[float] = []
    for block in task.blocks:
        own = [0.0] * len(block.columns)
        if own:
            own[min(column, len(own) - 1)] = -block.clip if block.owner in turned else block.clip
        row += own
    return tuple(row)


def _with_constant(task: Rounded, person: Person | None) -> NDArray[np.float64]:
    return np.zeros(task.width) if person is None else np.array([*person, task.constant / task.gamma])


def _distance(task: Rounded, first: Person, second: Person) -> float:
    """The squared distance between the second moments of two people."""
    a, b = _with_constant(task, first), _with_constant(task, second)
    return float((a @ a) ** 2 + (b @ b) ** 2 - 2 * (a @ b) ** 2)
