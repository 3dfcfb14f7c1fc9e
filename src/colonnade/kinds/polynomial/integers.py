"""Polynomial sums as integers: what an owner rounds, multiplies and adds up alone, and the noise that it draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.polynomial.sensitivity import Monomial, monomial_maximum
from colonnade.kinds.polynomial.task import Polynomials
from colonnade.mpc.residues import Integers
from colonnade.privacy.noise.rounding import beyond, round_rows
from colonnade.protocols.rows import Rows, block_sizes
from colonnade.protocols.sums import OwnPart
from colonnade.randomness import Stream

Whole = NDArray[np.int64]
"""int64 computes modulo 2^64, so a final result that is bounded by ``task.bound`` is exact."""


class OwnColumns(OwnPart):
    """What an owner computes alone: its rounded rows, its factors, and sums of monomials of its own columns."""

    def __init__(self, task: Polynomials, owner: str) -> None:
        index = task.owners.index(owner)
        held, layout = task.holdings[index], task.layout
        self.task = task
        self.limit = task.norm_squared(index)
        self.low = np.where(held.unsigned, 0.0, -float(task.gamma))
        self.needed = bool(held.columns)
        self._start = task.span(owner).start
        factors = layout.factors.get(index, ())
        self._small = all(monomial_maximum(factor, task.domain) < 2**20 for factor in factors)
        self._factors = [self._shifted(monomial) for monomial in factors]
        self.deals = bool(factors)
        """Whether any factor of this owner meets another owner's."""
        self._alone = (*layout.own.get(index, ()), *([()] if index == 0 else []))  # the first one counts the rows
        self._totals = np.zeros(len(self._alone), dtype=np.int64)

    def _shifted(self, monomial: Monomial) -> Monomial:
        return tuple((variable - self._start, power) for variable, power in monomial)

    def blocks(self, table: Rows, stream: Stream) -> Iterator[Whole]:
        """The rounded rows, some at a time; of an owner whose columns nobody names, no columns."""
        step = self.task.rows_per_block
        if self.needed:
            yield from (self.quantise(rows, stream) for rows in table.blocks(step))
        else:
            yield from (np.zeros((size, 0), dtype=np.int64) for size in block_sizes(len(table.ids), step))

    def quantise(self, rows: NDArray[np.float64], stream: Stream) -> Whole:
        """Algorithm 2: scale and round, and enforce the bounds on the integers themselves."""
        gamma = float(self.task.gamma)
        inside = np.clip(rows * gamma, self.low, gamma)  # its ends are integers, so no rounding leaves it
        whole = round_rows(inside, self.task.rounding, self.limit, stream)
        whole[beyond(whole, self.limit)] = 0.0  # only for rows that the encoder failed to clip
        return whole.astype(np.int64)

    def dealt(self, whole: Whole) -> Integers:
        """This owner's factor of every monomial between owners, one column each."""
        columns = np.column_stack([evaluate(monomial, whole) for monomial in self._factors])
        return columns.astype(np.float64) if self._small else columns  # small residues are the numbers themselves

    def add(self, whole: Whole) -> None:
        """Add a block of rows to the sums of monomials of own columns."""
        for index, monomial in enumerate(self._alone):
            self._totals[index : index + 1] += evaluate(self._shifted(monomial), whole).sum()

    def entries(self) -> Whole:
        """This owner's part of the released vector, without noise."""
        return combined(self.task, dict(zip(self._alone, self._totals.tolist(), strict=True)))


def evaluate(monomial: Monomial, rows: Whole) -> Whole:
    """A monomial of each row."""
    product = np.ones(len(rows), dtype=np.int64)
    for variable, power in monomial:
        product *= rows[:, variable] ** power
    return product


def combined(task: Polynomials, sums: Mapping[Monomial, int]) -> Whole:
    """The sums of polynomials from the sums of their monomials; monomials that are not given count as 0."""
    totals = [sum(a * sums.get(m, 0) for m, a in output.items()) for output in task.program.outputs]
    return np.array([(total + 2**63) % 2**64 - 2**63 for total in totals], dtype=np.int64)
