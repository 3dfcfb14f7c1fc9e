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
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.moments.integers import OwnBlock, exact_gram, noise_share
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.sums import ALL_ONES, FLAGS, MADE, Circuit, JointSum, Opening, Product, Side, Step
from colonnade.randomness import Stream

_FEW_OWNERS = 8


class MomentsSum(JointSum[Moments]):
    """The joint sum: products of all columns, side by side with a constant."""

    own = OwnBlock
    published = NoisyMoments

    def noise(self, stream: Stream, count: int) -> NDArray[np.int64]:
        """One owner's noise on all entries."""
        return noise_share(self.task, stream)

    @cached_property
    def circuit(self) -> Circuit:
        """Products between owners; of all columns if members are hidden."""
        task, widths = self.task, {n: len(block.columns) for n, block in enumerate(self.task.blocks)}
        if task.hidden:
            columns = self._columns(slice(0, len(widths)))
            masked: Side = ((MADE, range(task.width - 1)), *FLAGS)
            return Circuit(
                widths, (Product(masked, (*columns, *ALL_ONES)),), (Step(MADE, factors=((columns, FLAGS),)),)
            )
        products = tuple(Product(self._columns(left), self._columns(right)) for left, right in self._pairs)
        own = {number: width * (width + 1) // 2 + width for number, width in widths.items()}
        return Circuit(widths, products, own_windows=own if task.trust.active else None)

    @cached_property
    def _pairs(self) -> list[tuple[slice, slice]]:
        return pairs_of_owners(len(self.task.owners))

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
        factors = system.split(task.weights * constant[rows] * constant[columns])
        return system.reduce(matrix[:, rows, columns] * factors)

    def openings(self, rows: int) -> Sequence[Opening]:
        """The entries of each event."""
        return [Opening(0, self.task.entries, tuple(zip(self.task.opens, self.task.opened_together, strict=True)))]

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


def pairs_of_owners(owners: int) -> list[tuple[slice, slice]]:
    """Every pair of owners once: single pairs if there are few owners, else few large groups."""
    if owners > _FEW_OWNERS:
        return list(_halves(0, owners))
    return [(slice(i, i + 1), slice(j, j + 1)) for i, j in combinations(range(owners), 2)]


def _halves(start: int, stop: int) -> Iterator[tuple[slice, slice]]:
    """One half of the owners against the other, then the same within each half."""
    if stop - start < 2:
        return
    middle = (start + stop) // 2
    yield slice(start, middle), slice(middle, stop)
    yield from _halves(start, middle)
    yield from _halves(middle, stop)
