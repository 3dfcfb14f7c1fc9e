"""A joint sum: what a kind of study declares of numbers that owners add up over people and open once, with noise.

Every owner deals columns of its rows, block by block. Row by row the seats make further columns of them by products
(:class:`ProductStep`), and add up inner products of columns over all rows (:class:`InnerProduct`). What concerns one
owner's columns alone it adds up itself. In the end every owner deals its own sums and its noise, and the total is
opened. A kind says which products these are, what an owner does alone and what becomes of the total
(:class:`JointSum`); who computes it and how it is checked is the matter of ``joint_sum``.

Sums of several parts of the people are added before noise, so they can be taken part by part (``protocols/lanes``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.privacy import Event
from colonnade.protocols.committee_task import CommitteeTask, JointSumTask
from colonnade.protocols.roles import Role
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream

AnyRole = TypeVar("AnyRole", bound=Role)
AnySum = TypeVar("AnySum", bound=JointSumTask)
Whole = NDArray[Any]
"""Whole numbers, as floats or as int64."""

ONES, MADE, FLAG, BETWEEN = -1, -2, -3, -4
"""Sources of columns beside owners (by number): ones in every row, what the seats make on shares, whether all owners
hold somebody in a row, and what is made on the way."""
Columns = range | tuple[int, ...]
Side = tuple[tuple[int, Columns], ...]
"""Columns of several sources side by side."""
ALL_ONES: Side = ((ONES, range(1)),)
FLAGS: Side = ((FLAG, range(1)),)


@dataclass(frozen=True)
class InnerProduct:
    """Inner products, over all rows, of every left column with every right one."""

    left: Side
    right: Side

    @property
    def shape(self) -> tuple[int, int]:
        """How many columns stand on the left and on the right."""
        left, right = (sum(len(columns) for _, columns in side) for side in (self.left, self.right))
        return left, right


@dataclass(frozen=True)
class ProductStep:
    """Columns that the seats make of others, row by row: a source from then on, in which ``first`` stands before them.

    With ``factors``, every column of one side is multiplied by every column of another, for some pairs of sides. With
    ``groups``, they are the products of columns among those that are made.
    """

    target: int
    first: Side = ()
    factors: tuple[tuple[Side, Side], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    lowered: bool = True
    """Whether the degree of the shares is lowered, unless products of three can be opened."""


@dataclass(frozen=True)
class SumCircuit:
    """What is computed on shares, as it follows from the public task."""

    widths: Mapping[int, int]
    """How many columns each owner deals that deals any, without the flag of hidden members."""
    products: tuple[InnerProduct, ...]
    steps: tuple[ProductStep, ...] = ()
    dealt_products: tuple[tuple[Side, Side, Side], ...] = ()
    """Columns, others, and what an owner dealt as the product of both; where owners prove, the seats claim it."""
    own_windows: Mapping[int, int] | None = None
    """How many sums over its own columns each owner deals after a window of rows that is checked, if any does."""


@dataclass(frozen=True)
class SumOpening:
    """Numbers for which noise is dealt together, and for each event, which of them are opened with it."""

    start: int
    stop: int
    events: tuple[tuple[Event, slice | NDArray[np.intp]], ...]


class OwnerSum(ABC):
    """What one owner computes alone, some rows at a time."""

    deals = True
    """Whether it deals anything of its rows."""

    def check(self, table: Rows) -> None:
        """Refuse a table that no honest owner has, before anything of it is dealt."""
        return

    @abstractmethod
    def blocks(self, table: Rows, stream: Stream) -> Iterator[Whole]:
        """Whole numbers of one block of rows after the other."""

    @abstractmethod
    def add(self, whole: Whole) -> None:
        """Add a block to the sums of own columns, exactly."""

    def dealt(self, whole: Whole) -> Integers:
        """What of a block is dealt."""
        return whole

    def take_window(self) -> NDArray[np.int64]:
        """Sums of own columns since the last call, where they are dealt with every window."""
        raise NotImplementedError

    @abstractmethod
    def entries(self) -> NDArray[np.int64]:
        """This owner's part of the opened numbers, as far as it was not dealt before."""


class JointSum(ABC, Generic[AnySum]):
    """One noisy joint sum, opened once: all that a kind says of it, for one public task."""

    own: Callable[[AnySum, str], OwnerSum]
    """What an owner computes alone."""
    published: Callable[[AnySum, NDArray[np.int64]], Any]
    """The published result, of all opened numbers."""

    def __init__(self, task: AnySum) -> None:
        self.task = task

    def noise(self, stream: Stream, count: int) -> NDArray[np.int64]:
        """One owner's noise on all opened numbers, of which there are so many."""
        return self.task.additive.draw((count,), stream)

    # --- the seats

    @property
    @abstractmethod
    def circuit(self) -> SumCircuit:
        """Which products the seats compute."""

    @abstractmethod
    def collect(self, system: ResidueSystem, sums: Sequence[Residues]) -> Residues:
        """Of the sums of all products, or of what :meth:`window` made of them, the opened numbers without noise."""

    def window(self, system: ResidueSystem, sums: list[Shares], own: Sequence[Shares], rows: int) -> list[Shares]:
        """What is claimed after a window of so many rows, of its sums and of what owners dealt with it."""
        return sums

    @cached_property
    def claims(self) -> Sequence[tuple[Side, Side, Sequence[int]]]:
        """Which of these are claimed together: the columns on the left, on the right, and the numbers of the sums.

        Products that have the same left or the same right columns are one claim.
        """
        groups = [_group_by_side(self.circuit.products, side) for side in ("left", "right")]
        same = "left" if len(groups[0]) <= len(groups[1]) else "right"
        found = []
        for together in groups[same == "right"]:
            products = [self.circuit.products[index] for index in together]
            several = {side: tuple(part for one in products for part in getattr(one, side)) for side in SIDES}
            several[same] = getattr(products[0], same)
            found.append((several["left"], several["right"], together))
        return found

    def proof_rows(
        self, owner: str, dealt: Whole, reduce: Callable[[Whole], Whole] = lambda values: values
    ) -> Sequence[Whole]:
        """Dealt rows, or shares of them, as an owner's proof is about them: matrices that stand side by side.

        ``reduce`` is the reduction modulo primes, for shares.
        """
        return [dealt]

    # --- the result

    def openings(self, rows: int) -> Sequence[SumOpening]:
        """What is opened, one after the other, where so many rows were added up."""
        return [SumOpening(0, self.task.entries, ((self.task.event, slice(None)),))]

    @abstractmethod
    def in_clear(self, tables: Mapping[str, Any], stream: Stream) -> NDArray[np.int64]:
        """The opened integers before noise, of tables as owners hold them; a study never calls it."""


SIDES = ("left", "right")


@dataclass(frozen=True)
class PartialSums:
    """One participant's part of some sums; an owner without a seat has no shares, and a seat without columns no own."""

    rows: int
    """How many rows, or slots of a universe, were added up."""
    own: Integers | None = None
    """What this owner added up in the clear; zeros where products of its own columns are on shares too."""
    shares: Shares | None = None
    """This seat's shares of the rest."""


def use_sum_arithmetic(me: AnyRole, task: CommitteeTask) -> AnyRole:
    """The same participant in the arithmetic of sums, if proofs take more primes."""
    return me.over(task.for_sums) if task.proven else me


def add_partial_sums(engine: ShareEngine, parts: Sequence[PartialSums]) -> PartialSums:
    """The sums of several parts of the people, all of them computed by the same participants."""
    if not parts:
        raise ValueError("nothing was added up [VA152]")
    own = [part.own for part in parts if part.own is not None]
    shares = [part.shares for part in parts if part.shares is not None]
    if len(own) not in (0, len(parts)) or len(shares) not in (0, len(parts)):
        raise ValueError("parts of sums are of the same participant [VA153]")
    if len({part.degree for part in shares}) > 1:
        raise ValueError("parts of sums have the same degree [VA154]")
    return PartialSums(
        sum(part.rows for part in parts),
        sum(own[1:], start=own[0]) if own else None,
        engine.add(shares) if shares else None,
    )


def _group_by_side(products: Sequence[InnerProduct], side: str) -> list[list[int]]:
    """The numbers of products that have the same columns on this side."""
    found: dict[Side, list[int]] = {}
    for index, product in enumerate(products):
        found.setdefault(getattr(product, side), []).append(index)
    return list(found.values())
