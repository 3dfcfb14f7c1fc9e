"""A committee member's work: factors of the label and somebody's column, and products between owners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.kinds.tables.marginals.checked import Checked
from colonnade.kinds.tables.marginals.integers import block_cells, joined
from colonnade.kinds.tables.marginals.layout import MADE, ONES, Factors
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.mpc import Shares, beside
from colonnade.mpc.residues import Residues
from colonnade.mpc.verify.outer import OuterProducts
from colonnade.protocols.moments.hidden import held_by_all
from colonnade.protocols.roles import Role


class Seat:
    """Takes in one block of rows after the other; nothing is left of it but sums.

    Where participants may deviate, sums are checked a window at a time. Rows are then dealt to ``wide``, the same
    participant with the primes that proofs need.
    """

    def __init__(self, me: Role, wide: Role, task: Marginals) -> None:
        self.me, self.task, self.hand = me, task, me.hand
        self.sums = self._no_sums()
        self.checked = Checked(me, wide, task) if task.trust.active else None
        self.spans = {number: factors.spans() for number, factors in task.layout.dealt.items()}
        self.spans[MADE] = task.layout.made.spans()

    def _no_sums(self) -> list[Residues]:
        primes, products = len(self.hand.system.primes), self.task.layout.shared
        return [np.zeros((primes, product.left.width, product.right.width)) for product in products]

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add its products between owners."""
        with self.me.meter.phase("receive"):
            sources = self.received(rows, mine)
        if self.task.layout.made.names:
            sources[MADE] = self.make(sources)
        with self.me.meter.phase("multiply"):
            for product, total in zip(self.task.layout.shared, self.sums, strict=True):
                left = self._side(sources, product.left_source, product.left)
                right = self._side(sources, product.right_source, product.right)
                total += self.hand.inner(left, right).values
                self.hand.system.reduce(total)
        if self.checked:
            self.checked.keep(sources, rows)

    def close(self) -> None:
        """End a window of rows, where sums are checked."""
        if self.checked:
            self.checked.close(self.sums)
            self.sums = self._no_sums()

    def received(self, rows: int, mine: Shares | None) -> dict[int, Shares]:
        """What every owner dealt, by its number."""
        owners, dealt = self.task.owners, self.task.layout.dealt
        sources = {number: self.dealt_by(owners[number], (rows, dealt[number].width), mine) for number in dealt}
        return sources | {ONES: self.ones(rows)}

    def dealt_by(self, owner: str, shape: tuple[int, int], mine: Shares | None) -> Shares:
        """What one owner dealt of a block of rows."""
        return self.checked.received(owner, shape, mine) if self.checked else self.me.dealt_by(owner, shape, mine)

    def ones(self, rows: int) -> Shares:
        """A public column of ones: the polynomial that is one everywhere."""
        residues = self.hand.system.constant(1, 3)
        return Shares(np.broadcast_to(residues, (len(residues), rows, 1)), 0)

    def make(self, sources: dict[int, Shares]) -> Shares:
        """The factors of the label and a column, in the order of the layout."""
        made = self.task.layout.made
        label = self.column(sources, made.names[0][1])
        columns = [self.column(sources, column) for column, _ in made.names]
        if self.task.lowered:
            return self.products((columns, label))
        with self.me.meter.phase("multiply"):
            return self.times(columns, label)

    def products(self, *factors: tuple[Sequence[Shares], Shares]) -> Shares:
        """Every coordinate of some columns times every one of the factor beside them; claimed if seats check."""
        with self.me.meter.phase("multiply"):
            found = beside(*(self.times(columns, other) for columns, other in factors))
        with self.me.meter.phase("lower degree"):
            found = self.hand.lower(found)
        if self.checked:
            start = 0
            for columns, other in factors:
                stop = start + other.shape[1] * sum(column.shape[1] for column in columns)
                self.hand.claims.combined(OuterProducts(columns, other, found.columns(slice(start, stop))))
                start = stop
        return found

    def times(self, columns: Sequence[Shares], label: Shares) -> Shares:
        """Every coordinate of these columns times every coordinate of the label, which counts fastest."""
        values = np.concatenate([column.values for column in columns], axis=2)
        if label.shape[1] > 1:
            products = values[:, :, :, None] * label.values[:, :, None, :]
            values = products.reshape(*values.shape[:2], -1)
        else:
            values *= label.values
        return Shares(self.hand.system.reduce(values), columns[0].degree + label.degree)

    def column(self, sources: dict[int, Shares], column: int) -> Shares:
        """The shared coordinates of one column."""
        number = self.task.holder[column]
        return sources[number].columns(self.spans[number][(column,)])

    def _side(self, sources: dict[int, Shares], number: int, factors: Factors) -> Shares:
        if number == ONES:
            return sources[ONES]
        return sources[number].columns(joined([self.spans[number][name] for name in factors.names]))

    @property
    def total(self) -> Shares:
        """All that the task opens of products between owners, each times its weight."""
        task, system = self.task, self.hand.system
        found = np.zeros((len(system.primes), task.entries))
        for product, sums in zip(task.layout.shared, self.checked.sums if self.checked else self.sums, strict=True):
            for index, cells in block_cells(task, product, sums, task.whole):
                at = task.starts[index]
                weighted = system.reduce(cells) * system.constant(task.asked[index].weight, 2)
                found[:, at : at + cells.shape[1]] = system.reduce(weighted)
        return Shares(found, task.degree)


class HiddenSeat(Seat):
    """The work of a committee member where it is hidden whose rows count."""

    def received(self, rows: int, mine: Shares | None) -> dict[int, Shares]:
        """The coordinates that every owner dealt, by its number; the bits are kept for :meth:`make`."""
        dealt, bits = self.task.layout.dealt, []
        sources = {ONES: self.ones(rows)}
        for number, owner in enumerate(self.task.owners):
            width = dealt[number].width if number in dealt else 0
            shares = self.dealt_by(owner, (rows, width + 1), mine)
            sources[number] = shares.columns(slice(0, width))
            bits.append(shares.columns(slice(width, None)))
        self._bits = beside(*bits)
        return sources

    def make(self, sources: dict[int, Shares]) -> Shares:
        """Every left factor times whether a row counts, in the order of the layout: none, columns, with the label."""
        hand, made = self.hand, self.task.layout.made.names
        with self.me.meter.phase("match"):
            flag = held_by_all(hand, self._bits)
        with self.me.meter.phase("mask"):
            factors = []
            if alone := [self.column(sources, name[0]) for name in made if len(name) == 1]:
                factors.append((alone, flag))
            if paired := [name for name in made if len(name) == 2]:
                label = self.products(([self.column(sources, paired[0][1])], flag))
                factors.append(([self.column(sources, name[0]) for name in paired], label))
            return beside(flag, self.products(*factors)) if factors else flag
