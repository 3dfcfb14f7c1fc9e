"""Noisy second moments of columns that nobody holds together (SQM: Algorithms 1 to 3 for x -> x x').

Each owner scales its rows by gamma, rounds them at random to integers and deals them to the committee. The
committee multiplies shares; every owner adds its share of Skellam noise; the sum is opened once. Own blocks
never pass through the multiplication: their owner computes them in the clear and deals them as one input
together with its noise. A public constant column gives the count and the means in the same release.

The release holds x_i^2 + Sk(mu) on the diagonal and 2 x_i x_j + Sk(2 mu) above it, which is the full matrix
with Sk(mu) on every entry, its two copies of each off-diagonal entry added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ProtocolError
from colonnade.mpc import Committee, ResidueSystem, Shares
from colonnade.privacy import SkellamRelease, Trust
from colonnade.privacy.noise import TAIL, skellam
from colonnade.privacy.rounding import stochastic_round
from colonnade.privacy.sensitivity import moments_sensitivity, rounded_norm_squared
from colonnade.protocols.align import agree_on_rows
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.randomness import Stream

THEOREM = "moments-sensitivity"
_NOISE_REACH = 16  # deviations; the samplers cut their tails before


class Rows(Protocol):
    """What the protocol needs of an owner's table: ids, and encoded rows in the order of the ids."""

    @property
    def ids(self) -> Sequence[str]:
        """The sorted ids."""

    def blocks(self, rows: int, /) -> Iterator[NDArray[np.float64]]:
        """The encoded rows in that order, some at a time."""


@dataclass(frozen=True)
class Block:
    """The columns of one owner: public names, and the bound on a row's norm that the owner enforces."""

    owner: str
    columns: tuple[str, ...]
    clip: float


@dataclass(frozen=True)
class Moments:
    """The public task. All owners and the coordinator hold an equal one."""

    blocks: tuple[Block, ...]
    trust: Trust
    gamma: int
    constant: int
    rows_at_most: int
    mu: int
    block_rows: int = 8192

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(block.owner for block in self.blocks)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (*self.owners, COORDINATOR)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the joint matrix, without the constant."""
        return tuple(f"{block.owner}.{column}" for block in self.blocks for column in block.columns)

    @property
    def width(self) -> int:
        """The columns of the joint matrix, with the constant as the last one."""
        return len(self.names) + 1

    def span(self, owner: str) -> slice:
        """Where an owner's columns lie."""
        start = 0
        for block in self.blocks:
            if block.owner == owner:
                return slice(start, start + len(block.columns))
            start += len(block.columns)
        raise KeyError(owner)

    def block_norm_squared(self, block: Block) -> int:
        """The largest squared norm of one owner's rounded row."""
        return rounded_norm_squared(self.gamma, [block.clip], [len(block.columns)])

    @cached_property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return sum(self.block_norm_squared(block) for block in self.blocks) + self.constant**2

    @cached_property
    def event(self) -> SkellamRelease:
        """What the one opening reveals."""
        sensitivity = moments_sensitivity(self.norm_squared, self.width)
        share = Fraction(self.mu, len(self.owners))
        return SkellamRelease(
            name="second moments",
            shares=tuple((owner, share) for owner in self.owners),
            dimension=self.width**2,
            l1=sensitivity.l1,
            l2_squared=sensitivity.l2_squared,
            replace_l1=sensitivity.replace_l1,
            replace_l2_squared=sensitivity.replace_l2_squared,
            tail=float(TAIL),
            theorem=THEOREM,
        )

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened entry can have: |2 x_i x_j| <= x_i^2 + x_j^2 <= B^2, plus noise."""
        owners = len(self.owners)
        noise = owners * _NOISE_REACH * (isqrt(4 * self.mu // owners) + 1)
        bound = self.rows_at_most * self.norm_squared + noise
        if bound >= 2**62:
            raise CapacityError(
                f"sums may need {bound.bit_length() + 1} bits and 63 are available: lower gamma ({self.gamma}), "
                f"the row limit ({self.rows_at_most}) or the clips"
            )
        return bound

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the bound needs."""
        system = ResidueSystem.for_bound(self.bound)
        return Committee(self.trust.committee, self.trust.threshold, system)

    @property
    def entries(self) -> int:
        """How many numbers are opened: the upper triangle."""
        return self.width * (self.width + 1) // 2


@dataclass(frozen=True)
class NoisyMoments:
    """The published result: integers as opened, and what follows from them without looking at data again."""

    task: Moments
    opened: NDArray[np.int64]

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy second-moment matrix of (x, constant), in the units of the encoded columns."""
        full = np.zeros((self.task.width, self.task.width))
        upper = np.triu_indices(self.task.width)
        full[upper] = self.opened / (_weights(self.task.width) * float(self.task.gamma) ** 2)
        return full + np.triu(full, 1).T

    @property
    def second_moments(self) -> NDArray[np.float64]:
        """X'X."""
        return self.matrix[:-1, :-1]

    @property
    def count(self) -> float:
        """The noisy number of rows, never below one."""
        return max(1.0, float(self.matrix[-1, -1]) / self._constant**2)

    @property
    def means(self) -> NDArray[np.float64]:
        """The noisy column means."""
        means: NDArray[np.float64] = self.matrix[-1, :-1] / (self._constant * self.count)
        return means

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The noisy covariance matrix: centring after the fact costs nothing."""
        covariance: NDArray[np.float64] = self.second_moments / self.count - np.outer(self.means, self.means)
        return covariance

    def with_label(self, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X'X and X'y, where y is the named column and X the others."""
        index = self.task.names.index(label)
        rest = np.delete(np.arange(len(self.task.names)), index)
        return self.second_moments[np.ix_(rest, rest)], self.second_moments[rest, index]

    @property
    def _constant(self) -> float:
        return self.task.constant / self.task.gamma


def owner(me: Owner, table: Rows, task: Moments) -> NoisyMoments:
    """An owner's program."""
    stream = Stream.fresh()
    with me.meter.phase("noise"):
        noise = noise_share(task, stream)
    rows = agree_on_rows(me, task.owners, table.ids, _listeners(task))
    _check_rows(rows, task)
    own = OwnBlock(task, me.name)
    seat = Seat(me, task) if me.hand.seated else None
    blocks = table.blocks(task.block_rows)
    for index, size in enumerate(_sizes(rows, task)):
        with me.meter.phase("encode"):
            whole = own.quantise(next(blocks), stream)
        with me.meter.phase("deal"):
            mine = me.hand.deal(whole)
        with me.meter.phase("own block"):
            own.add(whole)
        if seat:
            seat.multiply(size, mine)
        me.progress("multiply", index + 1, len(_sizes(rows, task)))
    with me.meter.phase("deal"):
        mine = me.hand.deal(own.entries() + noise)
    return _open(me, seat.total(mine) if seat else None, task)


def coordinator(me: Coordinator, task: Moments) -> NoisyMoments:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    if not me.hand.seated:
        return _open(me, None, task)
    rows = int(me.link(task.owners[0]).recv("rows")["rows"])
    _check_rows(rows, task)
    seat = Seat(me, task)
    for index, size in enumerate(_sizes(rows, task)):
        seat.multiply(size, None)
        me.progress("multiply", index + 1, len(_sizes(rows, task)))
    return _open(me, seat.total(None), task)


def reference(tables: Mapping[str, NDArray[np.int64]], task: Moments) -> NDArray[np.int64]:
    """The same integers in the clear, before noise."""
    parts = [tables[owner].astype(object) for owner in task.owners]
    joint = np.hstack([*parts, np.full((len(parts[0]), 1), task.constant, dtype=object)])
    gram = joint.T @ joint
    return np.array(gram[np.triu_indices(task.width)] * _weights(task.width), dtype=np.int64)


def simulate(tables: Mapping[str, NDArray[np.float64]], task: Moments, stream: Stream) -> NoisyMoments:
    """What the protocol would publish, computed in one place: the same rounding, integers and noise.

    For evaluation on data that may lie in one place; a study never calls it.
    """
    whole = [OwnBlock(task, owner).quantise(tables[owner], stream) for owner in task.owners]
    joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
    entries = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * _weights(task.width)
    for _ in task.owners:
        entries += noise_share(task, stream)
    return NoisyMoments(task, entries)


def exact_gram(whole: NDArray[np.float64], norm_squared: int) -> NDArray[np.int64]:
    """X'X of integer rows of bounded norm, exactly: blocks whose sums stay below 2^53."""
    gram = np.zeros((whole.shape[1], whole.shape[1]), dtype=np.int64)
    step = max(1, 2**53 // max(1, norm_squared))
    for start in range(0, len(whole), step):
        part = whole[start : start + step]
        gram += (part.T @ part).astype(np.int64)
    return gram


def noise_share(task: Moments, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise: Sk(mu/P) on the diagonal and Sk(2 mu/P) above it."""
    share = Fraction(task.mu, len(task.owners))
    diagonal = skellam(share, task.width, stream)
    above = skellam(2 * share, task.entries - task.width, stream)
    noise = np.empty(task.entries, dtype=np.int64)
    on = _weights(task.width) == 1
    noise[on], noise[~on] = diagonal, above
    return noise


class OwnBlock:
    """What an owner computes alone: its rounded rows, its Gram block, its sums."""

    def __init__(self, task: Moments, owner: str) -> None:
        self.task = task
        self.span = task.span(owner)
        self.first = owner == task.owners[0]
        self.limit = task.block_norm_squared(task.blocks[task.owners.index(owner)])
        width = self.span.stop - self.span.start
        self.gram = np.zeros((width, width), dtype=np.int64)
        self.sums = np.zeros(width, dtype=np.int64)
        self.rows = 0

    def quantise(self, rows: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """Algorithm 2: scale and round at random, and enforce the bound on the integers themselves."""
        whole = stochastic_round(rows * float(self.task.gamma), stream)
        over = np.flatnonzero(np.einsum("ij,ij->i", whole, whole) > self.limit)
        if over.size:
            whole[over] = 0.0  # only a row that the encoder failed to clip can get here
        return whole

    def add(self, whole: NDArray[np.float64]) -> None:
        """Add a block of integer rows, exactly."""
        self.gram += exact_gram(whole, self.limit)
        self.sums += whole.sum(axis=0).astype(np.int64)
        self.rows += len(whole)

    def entries(self) -> NDArray[np.int64]:
        """This owner's part of the released vector."""
        width, constant = self.task.width, self.task.constant
        full = np.zeros((width, width), dtype=np.int64)
        full[self.span, self.span] = self.gram
        full[self.span, width - 1] = constant * self.sums
        if self.first:
            full[width - 1, width - 1] = constant**2 * self.rows
        entries: NDArray[np.int64] = full[np.triu_indices(width)] * _weights(width)
        return entries


class Seat:
    """A committee member's work: products of shares between every two owners."""

    def __init__(self, me: Role, task: Moments) -> None:
        self.me, self.task = me, task
        primes = len(task.committee.system.primes)
        self.cross = np.zeros((primes, task.width, task.width))

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add its products between owners."""
        task, system = self.task, self.me.hand.system
        joint = np.empty((len(system.primes), rows, task.width - 1))
        for block in task.blocks:
            if block.owner == self.me.name and mine is not None:
                share = mine
            else:
                with self.me.meter.phase("receive"):
                    share = self.me.hand.receive(block.owner, (rows, len(block.columns)))
            joint[:, :, task.span(block.owner)] = share.values
        with self.me.meter.phase("multiply"):
            for block in task.blocks[:-1]:
                span = task.span(block.owner)
                later = slice(span.stop, task.width - 1)
                self.cross[:, span, later] += system.inner(joint[:, :, span], joint[:, :, later])
            system.reduce(self.cross)

    def total(self, mine: Shares | None) -> Shares:
        """Products between owners, own blocks and noise, added up on shares."""
        me, task = self.me, self.task
        rows, columns = np.triu_indices(task.width)
        products = Shares(self.cross[:, rows, columns], 2 * task.trust.threshold)
        parts = [me.hand.scale(products, 2)]
        for owner in task.owners:
            own = owner == me.name and mine is not None
            parts.append(mine if own and mine else me.hand.receive(owner, (task.entries,)))
        return me.hand.add(parts)


def _open(me: Role, total: Shares | None, task: Moments) -> NoisyMoments:
    with me.meter.phase("open"):
        opened = me.reveal(total, to=task.everyone, event=task.event, shape=(task.entries,), bound=task.bound)
    if opened is None:
        raise ProtocolError(f"{me.name} is not among those who may know the result")
    return NoisyMoments(task, opened.astype(np.int64))


def _weights(width: int) -> NDArray[np.int64]:
    rows, columns = np.triu_indices(width)
    return np.where(rows == columns, 1, 2)


def _sizes(rows: int, task: Moments) -> list[int]:
    return [min(task.block_rows, rows - start) for start in range(0, rows, task.block_rows)]


def _listeners(task: Moments) -> list[str]:
    return [seat for seat in task.trust.committee if seat not in task.owners]


def _check_rows(rows: int, task: Moments) -> None:
    if not 0 < rows <= task.rows_at_most:
        raise CapacityError(
            f"the tables have {rows} rows and the study allows 1 to {task.rows_at_most}: raise rows_at_most"
        )
