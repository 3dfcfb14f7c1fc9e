"""Noisy second moments of columns that nobody holds together (SQM: Algorithms 1 to 3 for x -> x x').

Each owner scales its rows by gamma, rounds them at random to integers and deals them to the committee. The
committee multiplies shares; every owner adds its share of the noise; the sum is opened once. Products of
two columns of one owner are not multiplied on shares: their owner computes them in the clear and deals them
together with its noise. A public constant column gives the count and the means in the same release.

The release holds x_i^2 + Sk(mu) on the diagonal and 2 x_i x_j + Sk(2 mu) above it, which is the full matrix
with Sk(mu) on every entry, its two copies of each off-diagonal entry added up. Discrete Gaussian noise is used in the
same way; discrete Laplace noise is added to each x_i x_j once.

Where the owners have three seats and are not checked, they deal parts instead of shares, which takes less. Where
participants may deviate, each owner deals the products of its own columns over every window, and all seats together
claim X'X of the rows that were dealt.

If nobody knows which people all owners hold, an owner cannot add up its own products, as it does not know which of its
rows count. The seats multiply the rows x by the flag m whether all owners hold somebody: y = m x, and with the public
constant k as a last column add up (y, k m) (x, k)', which is m (x, k) (x, k)'. What is sent depends only on the size of
the universe. docs/theory/hidden-members.md says what this hides, and from whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import Shares
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.privacy.noise.local_mechanisms import round_and_zero_long_rows
from colonnade.protocols.joint_sum.declaration import (
    ALL_ONES,
    FLAGS,
    MADE,
    InnerProduct,
    JointSum,
    OwnerSum,
    ProductStep,
    Side,
    SumCircuit,
    SumOpening,
)
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables.slots import SlottedRows


class OwnMoments(OwnerSum):
    """What an owner computes alone: its rounded rows, its Gram block, its sums."""

    def __init__(self, task: Moments, owner: str) -> None:
        self.task = task
        self.span = task.span(owner)
        self.first = owner == task.owners[0]
        block = task.block(owner)
        self.limit = task.block_norm_squared(block)
        self.groups = task.limits.groups(block) if task.pure else ()
        width = self.span.stop - self.span.start
        self.gram = np.zeros((width, width), dtype=np.int64)
        self.sums = np.zeros(width, dtype=np.int64)
        self.rows = 0

    def blocks(self, table: Rows, stream: Stream) -> Iterator[NDArray[np.float64]]:
        """What is dealt: rounded rows; if members are hidden, one row per slot, the last number 1 if it is taken."""
        step = self.task.rows_per_block
        if table.places is None:
            for rows in table.blocks(step):
                yield self.quantise(rows, stream)
            return
        for rows, present in SlottedRows(table, table.places, len(self.sums)).blocks(step):
            yield np.column_stack([self.quantise(rows, stream), present])

    def quantise(self, rows: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """Algorithm 2: scale and round at random, and enforce the bound on the integers themselves."""
        whole = round_and_zero_long_rows(rows * float(self.task.gamma), self.limit, stream)
        start = 0
        for width, radius in self.groups:
            whole[np.abs(whole[:, start : start + width]).sum(axis=1) > radius] = 0.0
            start += width
        return whole

    def add(self, whole: NDArray[np.float64]) -> None:
        """Add a block of integer rows, exactly; if members are hidden, nobody knows which of them count."""
        if self.task.hidden:
            return
        self.gram += exact_gram(whole, self.limit)
        self.sums += whole.sum(axis=0).astype(np.int64)
        self.rows += len(whole)

    def take_window(self) -> NDArray[np.int64]:
        """The upper triangle of the Gram block and the sums, since the last call."""
        found = np.concatenate([self.gram[np.triu_indices(len(self.gram))], self.sums])
        self.gram, self.sums = np.zeros_like(self.gram), np.zeros_like(self.sums)
        return found

    def entries(self) -> NDArray[np.int64]:
        """This owner's part of the released vector; where seats check, it was dealt with every window."""
        if self.task.trust.active:
            return np.zeros(self.task.entries, dtype=np.int64)
        width, constant = self.task.width, self.task.constant
        full = np.zeros((width, width), dtype=np.int64)
        full[self.span, self.span] = self.gram
        full[self.span, width - 1] = constant * self.sums
        if self.first:
            full[width - 1, width - 1] = constant**2 * self.rows
        return full[np.triu_indices(width)] * self.task.weights


def exact_gram(whole: NDArray[np.float64], norm_squared: int) -> NDArray[np.int64]:
    """X'X of integer rows of bounded norm, exact because it is computed in blocks whose sums stay below 2^53."""
    gram = np.zeros((whole.shape[1], whole.shape[1]), dtype=np.int64)
    step = max(1, 2**53 // max(1, norm_squared))
    for start in range(0, len(whole), step):
        part = whole[start : start + step]
        gram += (part.T @ part).astype(np.int64)
    return gram


def sample_noise_share(task: Moments, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for all entries, such as Sk(mu/P) on the diagonal and Sk(2 mu/P) above it."""
    noise = np.zeros(task.entries, dtype=np.int64)
    for level, here in zip(task.levels, task.opened_together, strict=True):
        noise[here] = sample_entry_noise(task, task.weights[here], stream, level.scale)
    return noise


def sample_entry_noise(task: Moments, copies: NDArray[np.int64], stream: Stream, scale: int = 0) -> NDArray[np.int64]:
    """One owner's noise for entries, each of which stands ``copies`` times in the full matrix; audits attack this.

    ``scale`` is the scale of Laplace noise on these entries; 0 means the noise of the task.
    """
    noise = np.zeros(copies.shape, dtype=np.int64)
    added = task.additive_of(scale)
    for often in np.flatnonzero(np.bincount(copies)).tolist():
        here = copies == often
        noise[here] = added.draw((int(here.sum()),), stream, copies=often)
    return noise


_FEW_OWNERS = 8


class MomentsSum(JointSum[Moments]):
    """The joint sum: products of all columns, side by side with a constant."""

    own = OwnMoments
    published = NoisyMoments

    def noise(self, stream: Stream, count: int) -> NDArray[np.int64]:
        """One owner's noise on all entries."""
        return sample_noise_share(self.task, stream)

    @cached_property
    def circuit(self) -> SumCircuit:
        """Products between owners; of all columns if members are hidden."""
        task, widths = self.task, {n: len(block.columns) for n, block in enumerate(self.task.blocks)}
        if task.hidden:
            columns = self._columns(slice(0, len(widths)))
            masked: Side = ((MADE, range(task.width - 1)), *FLAGS)
            return SumCircuit(
                widths,
                (InnerProduct(masked, (*columns, *ALL_ONES)),),
                (ProductStep(MADE, factors=((columns, FLAGS),)),),
            )
        products = tuple(InnerProduct(self._columns(left), self._columns(right)) for left, right in self._pairs)
        own = {number: width * (width + 1) // 2 + width for number, width in widths.items()}
        return SumCircuit(widths, products, own_windows=own if task.trust.active else None)

    @cached_property
    def _pairs(self) -> list[tuple[slice, slice]]:
        """Every pair of owners once: single pairs if there are few owners, else few large groups."""
        owners = len(self.task.owners)
        if owners > _FEW_OWNERS:
            return list(_halves(0, owners))
        return [(slice(i, i + 1), slice(j, j + 1)) for i, j in combinations(range(owners), 2)]

    def _columns(self, owners: slice) -> Side:
        """The columns of owners next to each other, side by side."""
        blocks = list(enumerate(self.task.blocks))[owners]
        return tuple((number, range(len(block.columns))) for number, block in blocks)

    def window(self, system: ResidueSystem, sums: list[Shares], own: Sequence[Shares], rows: int) -> list[Shares]:
        """The whole matrix: products between owners, of own columns as their owners dealt them, and the count."""
        task = self.task
        if task.hidden:
            return sums
        found = np.zeros((len(system.primes), task.width, task.width))
        for (left, right), product in zip(self._pairs, sums, strict=True):
            found[:, task.spans(left), task.spans(right)] = product.values
        for block, dealt in zip(task.blocks if own else (), own, strict=True):
            span, above = task.span(block.owner), np.triu_indices(len(block.columns))
            found[:, above[0] + span.start, above[1] + span.start] = dealt.values[:, : len(above[0])]
            found[:, span, -1] = dealt.values[:, len(above[0]) :]
        found[:, -1:, -1:] = system.constant(rows, 3)
        above = np.triu_indices(task.width, 1)
        found[:, above[1], above[0]] = found[:, above[0], above[1]]
        return [Shares(found, task.trust.threshold)]

    @cached_property
    def claims(self) -> Sequence[tuple[Side, Side, Sequence[int]]]:
        """That it is X'X of all columns, the constant one among them."""
        if self.task.hidden:
            return super().claims
        everything = (*self._columns(slice(0, len(self.task.blocks))), *ALL_ONES)
        return [(everything, everything, [0])]

    def collect(self, system: ResidueSystem, sums: Sequence[Residues]) -> Residues:
        """The upper triangle, as often as the task opens each entry."""
        task = self.task
        if task.hidden or task.trust.active:
            [matrix] = sums
        else:
            [matrix] = (one.values for one in self.window(system, [Shares(one, 0) for one in sums], (), 0))
        rows, columns = np.triu_indices(task.width)
        constant = np.append(np.ones(task.width - 1, dtype=object), task.constant)
        factors = system.to_residues(task.weights * constant[rows] * constant[columns])
        return system.reduce(matrix[:, rows, columns] * factors)

    def openings(self, rows: int) -> Sequence[SumOpening]:
        """The entries of each event."""
        return [SumOpening(0, self.task.entries, tuple(zip(self.task.events, self.task.opened_together, strict=True)))]

    def in_clear(self, tables: Mapping[str, NDArray[np.float64]], stream: Stream) -> NDArray[np.int64]:
        """The same rounding and integers, computed in one place."""
        task = self.task
        whole = [self.own(task, owner).quantise(tables[owner], stream) for owner in task.owners]
        joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
        return np.asarray(exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights)


_PROGRAMS = JointSumPrograms(MomentsSum)
owner, coordinator, simulate = _PROGRAMS.owner, _PROGRAMS.coordinator, _PROGRAMS.simulate
sum_rows, own_noise, release = _PROGRAMS.sum_rows, _PROGRAMS.own_noise, _PROGRAMS.release


def reference(tables: Mapping[str, NDArray[np.int64]], task: Moments) -> NDArray[np.int64]:
    """The same integers in the clear, before noise.

    ``tables`` hold what owners deal: if members are hidden, one row per slot, ending in 1 if the slot is taken.
    """
    parts = [tables[owner].astype(object) for owner in task.owners]
    held = np.ones((len(parts[0]), 1), dtype=object)
    if task.hidden:
        held = np.prod([part[:, -1:] for part in parts], axis=0)
        parts = [part[:, :-1] for part in parts]
    joint = np.hstack([*parts, np.full(held.shape, task.constant, dtype=object)])
    gram = (held * joint).T @ joint
    return np.array(gram[np.triu_indices(task.width)] * task.weights, dtype=np.int64)


def _halves(start: int, stop: int) -> Iterator[tuple[slice, slice]]:
    """One half of the owners against the other, then the same within each half."""
    if stop - start < 2:
        return
    middle = (start + stop) // 2
    yield slice(start, middle), slice(middle, stop)
    yield from _halves(start, middle)
    yield from _halves(middle, stop)
