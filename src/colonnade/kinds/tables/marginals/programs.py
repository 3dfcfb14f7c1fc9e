"""Noisy marginals of coded columns that nobody holds together, all in one release.

A column with n values is written as n times its one-hot vector minus one. A block is the sum over people of the tensor
product of such coordinates, times a public weight: the part of a marginal that no smaller marginal tells. All numbers
are integers from the start, so nothing is rounded.

1. Every owner deals the coordinates of its columns to the committee, one block of rows after the other. The owner of
   the label deals the products of the label with its other columns too.
2. The seats multiply the label with columns of others, and lower the degree of these shares if too few seats could
   open products of three. Then every block of columns of several owners is an inner product of two shared matrices.
3. Blocks of one owner's columns never pass through a multiplication: their owner adds them up in the clear.
4. Every owner deals its own blocks and its share of the noise, and the sum of everything is opened, once.

If nobody knows which people all owners hold, the seats compute all products, and every left factor is multiplied by
whether a row counts. Where participants may deviate, products are checked before anything is opened, and owners can
prove that what they deal are the coordinates of codes (``proofs``); the sums over their own columns are their word
about their own people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.marginals.integers import OwnColumns, block_cells, runs
from colonnade.kinds.tables.marginals.layout import Factor
from colonnade.kinds.tables.marginals.published import NoisyMarginals
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.sums import (
    ALL_ONES,
    BETWEEN,
    FLAGS,
    MADE,
    ONES,
    Circuit,
    JointSum,
    Opening,
    Product,
    Side,
    Step,
    Whole,
)
from colonnade.randomness import Stream


class MarginalsSum(JointSum[Marginals]):
    """The joint sum: inner products of factors, which are the asked blocks."""

    own = OwnColumns
    published = NoisyMarginals

    @cached_property
    def circuit(self) -> Circuit:
        """What the layout of the blocks says, in columns."""
        task, layout = self.task, self.task.layout
        owners = range(len(task.owners)) if task.hidden else layout.dealt
        widths = {number: layout.dealt[number].width if number in layout.dealt else 0 for number in owners}
        products = tuple(
            Product(self._side(one.left_source, one.left.names), self._side(one.right_source, one.right.names))
            for one in layout.shared
        )
        return Circuit(widths, products, self._steps, tuple(self._products_dealt(number) for number in self._paired))

    @property
    def _steps(self) -> tuple[Step, ...]:
        """Factors that the seats make: the label times columns; and if members are hidden, all times the flag."""
        task, made = self.task, self.task.layout.made.names
        alone = tuple(part for name in made if len(name) == 1 for part in self._column(name[0]))
        paired = tuple(part for name in made if len(name) == 2 for part in self._column(name[0]))
        label = next((self._column(name[1]) for name in made if len(name) == 2), ())
        if not task.hidden:
            return (Step(MADE, factors=((paired, label),), lowered=task.lowered),) if made else ()
        before = (Step(BETWEEN, factors=((label, FLAGS),)),) if paired else ()
        with_label: Side = ((BETWEEN, range(sum(len(columns) for _, columns in label))),)
        factors = [(alone, FLAGS)] * bool(alone) + [(paired, with_label)] * bool(paired)
        return (*before, Step(MADE, FLAGS, tuple(factors)))

    def _column(self, column: int) -> Side:
        return self._side(self.task.holder[column], [(column,)])

    def _side(self, number: int, names: Sequence[Factor]) -> Side:
        """Factors of one source side by side."""
        if number == ONES:
            return ALL_ONES
        layout = self.task.layout
        spans = (layout.made if number == MADE else layout.dealt[number]).spans()
        return tuple((number, range(run.start, run.stop)) for run in runs([spans[name] for name in names]))

    @property
    def _paired(self) -> list[int]:
        """Owners who deal products with the label."""
        return [n for n, factors in self.task.layout.dealt.items() if any(len(name) > 1 for name in factors.names)]

    def _products_dealt(self, number: int) -> tuple[Side, Side, Side]:
        names = [name for name in self.task.layout.dealt[number].names if len(name) > 1]
        columns = tuple(part for name in names for part in self._side(number, [name[:1]]))
        return columns, self._side(number, [names[0][1:]]), self._side(number, names)

    def collect(self, system: ResidueSystem, sums: Sequence[Residues]) -> Residues:
        """All cells of the blocks that seats computed, each times its weight."""
        task = self.task
        found = np.zeros((len(system.primes), task.entries))
        for product, total in zip(task.layout.shared, sums, strict=True):
            for index, cells in block_cells(task, product, total):
                at = task.starts[index]
                weighted = system.reduce(cells) * system.constant(task.asked[index].weight, 2)
                found[:, at : at + cells.shape[1]] = system.reduce(weighted)
        return found

    def proof_rows(self, owner: str, dealt: Whole, reduce: Callable[[Whole], Whole] = lambda values: values) -> Whole:
        """Coordinates, flag, and the last coordinates, which are not dealt."""
        return self.task.codes[owner].completed(dealt, reduce)

    def openings(self, rows: int) -> Sequence[Opening]:
        """As many blocks at a time as fit a message."""
        starts, whole = self.task.starts, ((self.task.event, slice(None)),)
        return [Opening(starts[part.start], starts[part.stop], whole) for part in self.task.parts]

    def in_clear(self, tables: Mapping[str, NDArray[np.int64]], stream: Stream) -> NDArray[np.int64]:
        """The same integers, computed in one place."""
        return reference(tables, replace(self.task, hidden=False))


_PROGRAMS = JointSumPrograms(MarginalsSum)
owner, coordinator, simulate = _PROGRAMS.owner, _PROGRAMS.coordinator, _PROGRAMS.simulate
sum_rows, own_noise, release = _PROGRAMS.sum_rows, _PROGRAMS.own_noise, _PROGRAMS.release


def reference(tables: Mapping[str, NDArray[np.int64]], task: Marginals) -> NDArray[np.int64]:
    """The same integers in the clear, before noise: people are counted cell by cell, and the counts are centred.

    ``tables`` hold codes; if members are hidden, one row per slot, ending in 1 if the slot is taken.
    """
    parts = [np.asarray(tables[owner], dtype=np.int64) for owner in task.owners]
    if task.hidden:
        held = np.logical_and.reduce([part[:, -1] == 1 for part in parts])
        parts = [part[held, :-1] for part in parts]
    codes = np.hstack(parts)
    found = []
    for block in task.asked:
        shape = [task.sizes[column] for column in block.columns]
        cell = np.zeros(len(codes), dtype=np.int64)
        for column, size in zip(block.columns, shape, strict=True):
            cell = cell * size + codes[:, column]
        table = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
        for axis, size in enumerate(shape):
            table = size * table - table.sum(axis=axis, keepdims=True)
            if size == 2:
                table = table.take([0], axis=axis)
        found.append(block.weight * table.reshape(-1))
    return np.concatenate(found)
