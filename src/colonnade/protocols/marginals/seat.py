"""A committee member's work: factors of the label and somebody's column, and products between owners."""

from __future__ import annotations

import numpy as np

from colonnade.mpc import Shares
from colonnade.protocols.marginals.integers import block_cells, joined
from colonnade.protocols.marginals.layout import MADE, ONES, Factors
from colonnade.protocols.marginals.task import Marginals
from colonnade.protocols.roles import Role


class Seat:
    """Takes in one block of rows after the other; nothing is left of it but sums."""

    def __init__(self, me: Role, task: Marginals) -> None:
        self.me, self.task, self.hand = me, task, me.hand
        primes, products = len(me.hand.system.primes), task.layout.shared
        self.sums = [np.zeros((primes, product.left.width, product.right.width)) for product in products]
        self.spans = {number: factors.spans() for number, factors in task.layout.dealt.items()}
        self.spans[MADE] = task.layout.made.spans()

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

    def received(self, rows: int, mine: Shares | None) -> dict[int, Shares]:
        """What every owner dealt, by its number."""
        owners, dealt = self.task.owners, self.task.layout.dealt
        sources = {number: self.me.dealt_by(owners[number], (rows, dealt[number].width), mine) for number in dealt}
        return sources | {ONES: self.ones(rows)}

    def ones(self, rows: int) -> Shares:
        """A public column of ones: the polynomial that is one everywhere."""
        residues = self.hand.system.constant(1, 3)
        return Shares(np.broadcast_to(residues, (len(residues), rows, 1)), 0)

    def make(self, sources: dict[int, Shares]) -> Shares:
        """The factors of the label and a column, in the order of the layout."""
        made = self.task.layout.made
        label = self.column(sources, made.names[0][1])
        with self.me.meter.phase("multiply"):
            found = self.times([self.column(sources, column) for column, _ in made.names], label)
        if not self.task.lowered:
            return found
        with self.me.meter.phase("lower degree"):
            return self.hand.lower(found)

    def times(self, columns: list[Shares], label: Shares) -> Shares:
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

    def total(self, part: range, mine: Shares | None) -> Shares:
        """The numbers that one part opens: products between owners, own blocks and noise, added up on shares."""
        task, system = self.task, self.hand.system
        begin, end = task.starts[part.start], task.starts[part.stop]
        found = np.zeros((len(system.primes), end - begin))
        for product, sums in zip(task.layout.shared, self.sums, strict=True):
            for index, cells in block_cells(task, product, sums, part):
                at = task.starts[index] - begin
                weighted = system.reduce(cells) * system.constant(task.asked[index].weight, 2)
                found[:, at : at + cells.shape[1]] = system.reduce(weighted)
        dealt = [self.me.dealt_by(owner, (end - begin,), mine) for owner in task.owners]
        return self.hand.add([Shares(found, task.degree), *dealt])
