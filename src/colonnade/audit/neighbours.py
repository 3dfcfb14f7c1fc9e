"""Two tables that differ in one person, and how far they can move a release: for games, and for the probe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy import Observer, Sensitivity
from colonnade.protocols.rows import JointRows
from colonnade.randomness import Stream

Person = tuple[float, ...]
"""One row, in the units of the encoded columns."""
_MOST_TURNED = 8


Public = TypeVar("Public", bound=JointRows)


@dataclass(frozen=True)
class OnePersonSampler(ABC, Generic[Public]):
    """What an observer sees of one person's products, without the noise that it knows.

    ``people`` are the rows of the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    task: Public
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]

    def rows(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The person's integer row with the constant, rounded again by each owner in each of ``count`` runs."""
        task: Any = self.task
        person = self.people[neighbour]
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


def find_furthest(task: JointRows, observer: Observer) -> tuple[Person | None, Person]:
    """Of some pairs that the observer must not tell apart, the one that moves the second moments furthest."""
    whole = rows_at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    others = [owner for owner in task.owners if owner not in observer.names]
    mixed, elsewhere = list(whole), rows_at_bounds(task, column=1)
    for owner in others:
        mixed[task.span(owner)] = elsewhere[task.span(owner)]
    turned = [rows_at_bounds(task, others[: k + 1]) for k in range(min(len(others), _MOST_TURNED))]
    return whole, max([tuple(mixed), *turned], key=lambda person: _distance(task, whole, person))


def rows_at_bounds(task: JointRows, turned: Collection[str] = (), column: int = 0) -> Person:
    """A person whose value in one column of each owner is the owner's clip, with a minus at the owners ``turned``."""
    row: list[float] = []
    for block in task.blocks:
        own = [0.0] * len(block.columns)
        if own:
            own[min(column, len(own) - 1)] = -block.clip if block.owner in turned else block.clip
        row += own
    return tuple(row)


def _with_constant(task: Any, person: Person | None) -> NDArray[np.float64]:
    return np.zeros(task.width) if person is None else np.array([*person, task.constant / task.gamma])


def _distance(task: JointRows, first: Person, second: Person) -> float:
    """The squared distance between the second moments of two people."""
    a, b = _with_constant(task, first), _with_constant(task, second)
    return float((a @ a) ** 2 + (b @ b) ** 2 - 2 * (a @ b) ** 2)


Data = TypeVar("Data")
Rows = NDArray[np.float64]


@dataclass(frozen=True)
class TableChange:
    """An L1 and a squared L2 norm, claimed or realised."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class ProbeReport:
    """The largest realised change of each norm, the pair it belongs to, and the claim."""

    pairs: int
    largest: TableChange
    l1_pair: int
    l2_pair: int
    claimed: TableChange

    @property
    def violated(self) -> bool:
        """Whether some pair moved further than the claim allows."""
        return self.largest.l1 > self.claimed.l1 or self.largest.l2_squared > self.claimed.l2_squared

    @property
    def l1_ratio(self) -> Fraction | None:
        """The largest change over the claim, in L1; ``None`` if the claim is zero."""
        return Fraction(self.largest.l1, self.claimed.l1) if self.claimed.l1 else None

    @property
    def l2_squared_ratio(self) -> Fraction | None:
        """The largest change over the claim, in squared L2; ``None`` if the claim is zero."""
        return Fraction(self.largest.l2_squared, self.claimed.l2_squared) if self.claimed.l2_squared else None


def sensitivity_probe(
    released: Callable[[Data], Any], neighbours: Iterable[tuple[Data, Data]], bound: TableChange | Sensitivity
) -> ProbeReport:
    """Compute what is released for both of each pair and compare the change with the bound, exactly."""
    pairs, l1, l2_squared, l1_pair, l2_pair = 0, 0, 0, 0, 0
    for index, (left, right) in enumerate(neighbours):
        before, after = _whole(released(left)), _whole(released(right))
        if len(before) != len(after):
            raise PrivacyError(f"the two tables of pair {index} give vectors of different lengths [PR008]")
        moves = [abs(a - b) for a, b in zip(before, after, strict=True)]
        here_l1, here_l2 = sum(moves), sum(move * move for move in moves)
        l1, l1_pair = (here_l1, index) if here_l1 > l1 else (l1, l1_pair)
        l2_squared, l2_pair = (here_l2, index) if here_l2 > l2_squared else (l2_squared, l2_pair)
        pairs = index + 1
    if not pairs:
        raise PrivacyError("a probe needs at least one pair of neighbouring tables [PR009]")
    return ProbeReport(pairs, TableChange(l1, l2_squared), l1_pair, l2_pair, TableChange(bound.l1, bound.l2_squared))


def neighbours_in_ball(
    width: int, clip: float, stream: Stream, *, count: int = 200, rows: int = 2, replace: bool = True
) -> Iterator[tuple[Rows, Rows]]:
    """Pairs of tables whose rows have a norm of at most ``clip``: first the corners, then random ones.

    With ``replace`` the last row differs, else only one of the tables has it.
    """
    for first, second in _corner_rows(width, clip):
        yield _pair(np.zeros((0, width)), first, second if replace else None)
    for _ in range(count):
        drawn = _ball(rows + 2, width, clip, stream)
        yield _pair(drawn[:rows], drawn[rows], drawn[rows + 1] if replace else None)


def _corner_rows(width: int, clip: float) -> Iterator[tuple[Rows, Rows]]:
    """Axes, diagonals and their negatives: the whole norm is in one column, or equally in all columns."""
    axes = clip * np.eye(width)
    flat = np.full(width, clip / np.sqrt(width))
    mixed = flat * np.where(np.arange(width) % 2, -1.0, 1.0)
    shapes = [axes[0], -axes[0], axes[-1], flat, -flat, mixed]
    yield from ((left, right) for left in shapes for right in shapes if left is not right)


def _pair(common: Rows, first: Rows, second: Rows | None) -> tuple[Rows, Rows]:
    with_first = np.vstack([common, first[None]])
    return with_first, common if second is None else np.vstack([common, second[None]])


def _ball(rows: int, width: int, clip: float, stream: Stream) -> Rows:
    """Rows in all directions; half of them are as long as they may be."""
    drawn = stream.uint32((rows, width)) * 2.0**-31 - 1.0
    length = np.linalg.norm(drawn, axis=1, keepdims=True)
    reach = np.minimum(1.0, stream.uint32((rows, 1)) * 2.0**-31)
    return np.asarray(drawn / np.maximum(length, 1e-12) * (clip * reach * (1 - 2.0**-40)))


def _whole(values: Any) -> list[int]:
    """A released vector as Python integers, which neither overflow nor round."""
    flat = np.asarray(values).ravel()
    if flat.dtype.kind == "f" and bool((np.abs(flat) < 2.0**53).all()) and bool((flat == np.floor(flat)).all()):
        return [int(value) for value in flat]
    if flat.dtype.kind in "iu" or (flat.dtype.kind == "O" and all(isinstance(value, int) for value in flat)):
        return [int(value) for value in flat]
    raise PrivacyError("a probe compares integers, and what is released here are none: quantise first [PR010]")
