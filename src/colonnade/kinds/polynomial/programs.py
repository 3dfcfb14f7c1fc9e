"""Polynomial sums as integers: what an owner rounds, multiplies and adds up alone, and the noise that it draws.

Noisy sums of polynomials in columns that nobody holds together (SQM, Algorithms 1 to 3).

Coefficients are brought to one public scale (``circuit``). Each owner scales its rows by gamma, rounds
them to integers and computes its own factor of every monomial in the clear; factors are dealt to the committee and
multiplied on shares, and the degree of the shares is lowered only where it would become too high to be opened.
Monomials of one owner's columns alone never pass through a multiplication: their owner sums them up and deals the
sums together with its share of the noise. What is opened, once, is one noisy integer for each polynomial.

In active mode the degree is lowered after every product of two, and all products are checked before the opening. Owners
that prove their bounds deal the columns of their factors too, and the seats check that the factors are their products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.polynomial.sensitivity import IndexedMonomial, monomial_maximum
from colonnade.kinds.polynomial.task import NoisySums, Polynomials, split_factor
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.privacy.noise.local_mechanisms import round_rows, rows_beyond
from colonnade.protocols.joint_sum.declaration import (
    BETWEEN,
    MADE,
    InnerProduct,
    JointSum,
    OwnerSum,
    ProductStep,
    Side,
    SumCircuit,
)
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.rows import Rows, block_sizes
from colonnade.randomness import Stream

Whole = NDArray[np.int64]
"""int64 computes modulo 2^64, so a final result that is bounded by ``task.bound`` is exact."""


class OwnMonomials(OwnerSum):
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

    def _shifted(self, monomial: IndexedMonomial) -> IndexedMonomial:
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
        whole[rows_beyond(whole, self.limit)] = 0.0  # only for rows that the encoder failed to clip
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
        return combine_monomials(self.task, dict(zip(self._alone, self._totals.tolist(), strict=True)))


def evaluate(monomial: IndexedMonomial, rows: Whole) -> Whole:
    """A monomial of each row."""
    product = np.ones(len(rows), dtype=np.int64)
    for variable, power in monomial:
        product *= rows[:, variable] ** power
    return product


def combine_monomials(task: Polynomials, sums: Mapping[IndexedMonomial, int]) -> Whole:
    """The sums of polynomials from the sums of their monomials; monomials that are not given count as 0."""
    totals = [sum(a * sums.get(m, 0) for m, a in output.items()) for output in task.program.outputs]
    return np.array([(total + 2**63) % 2**64 - 2**63 for total in totals], dtype=np.int64)


class MonomialsSum(JointSum[Polynomials]):
    """The joint sum: products of the owners' factors, row by row."""

    own = OwnMonomials
    published = NoisySums

    @cached_property
    def circuit(self) -> SumCircuit:
        """All factors but the last of each product are multiplied; then inner products are taken with each last one."""
        widths = {number: len(own) for number, own in self.task.layout.factors.items()}
        if not widths:
            return SumCircuit({}, ())
        schedule, dealt = self.task.schedule, tuple((number, range(width)) for number, width in widths.items())
        begun = list(dict.fromkeys(product[:-1] for product in schedule.last))
        place = {group: index for index, group in enumerate(begun)}
        products = []
        for last, here in self._by_last.items():
            left: Side = ((BETWEEN, tuple(place[schedule.last[index][:-1]] for index in here)),)
            products.append(InnerProduct(left, ((MADE, (last,)),)))
        steps, nodes = [ProductStep(MADE, dealt)], sum(widths.values())
        for groups in schedule.levels:
            steps.append(ProductStep(MADE, ((MADE, range(nodes)),), groups=groups))
            nodes += len(groups)
        steps.append(ProductStep(BETWEEN, groups=tuple(begun), lowered=False))
        return SumCircuit(widths, tuple(products), tuple(steps), tuple(self._products_dealt()))

    def _products_dealt(self) -> Iterator[tuple[Side, Side, Side]]:
        """What an owner deals as products of what it deals, for each variable that it multiplies by."""
        for number, factors in self.task.layout.factors.items() if self.task.proof_groups else ():
            place, found = {factor: index for index, factor in enumerate(factors)}, dict[int, list[tuple[int, int]]]()
            for factor in factors:
                left, variable = split_factor(factor)
                if left:
                    found.setdefault(variable, []).append((place[left], place[factor]))
            for variable, pairs in found.items():
                columns, made = zip(*pairs, strict=True)
                yield ((number, columns),), ((number, (place[((variable, 1),)],)),), ((number, made),)

    def proof_rows(
        self, owner: str, dealt: Whole, reduce: Callable[[Whole], Whole] = lambda values: values
    ) -> Sequence[Whole]:
        """Of what is dealt, the columns alone, as their proofs are about them."""
        return [self.task.dealt_columns[owner].of_rows(dealt, reduce)]

    @cached_property
    def _by_last(self) -> dict[int, list[int]]:
        """For each last factor, the numbers of the products that it ends."""
        found: dict[int, list[int]] = {}
        for index, product in enumerate(self.task.schedule.last):
            found.setdefault(product[-1], []).append(index)
        return found

    def collect(self, system: ResidueSystem, sums: Sequence[Residues]) -> Residues:
        """For each polynomial, the totals of its products times their coefficients."""
        task, primes = self.task, len(system.primes)
        totals = np.zeros((primes, len(task.layout.cross)))
        for here, found in zip(self._by_last.values(), sums, strict=True):
            totals[:, here] = found[:, :, 0]
        place = {monomial: index for index, monomial in enumerate(task.layout.cross)}
        outputs = enumerate(task.program.outputs)
        terms = [(t, place[m], a) for t, output in outputs for m, a in output.items() if m in place]
        weighted = np.zeros((primes, task.entries))
        if terms:
            to, which, coefficients = zip(*terms, strict=True)
            part = totals[:, which] * system.to_residues(np.array(coefficients, dtype=object))
            for row, values in zip(weighted, system.reduce(part), strict=True):
                row += np.bincount(to, weights=values, minlength=row.size)
        return system.reduce(weighted)

    def in_clear(self, tables: Mapping[str, NDArray[np.float64]], stream: Stream) -> Whole:
        """The same rounding and integers, computed in one place."""
        task = self.task
        joint = np.hstack([self.own(task, owner).quantise(tables[owner], stream) for owner in task.owners])
        monomials = {monomial for output in task.program.outputs for monomial in output}
        return combine_monomials(task, {monomial: int(evaluate(monomial, joint).sum()) for monomial in monomials})


_PROGRAMS = JointSumPrograms(MonomialsSum)
owner, coordinator, simulate = _PROGRAMS.owner, _PROGRAMS.coordinator, _PROGRAMS.simulate
sum_rows, own_noise, release = _PROGRAMS.sum_rows, _PROGRAMS.own_noise, _PROGRAMS.release


def reference(tables: Mapping[str, Whole], task: Polynomials) -> list[int]:
    """The same integers in the clear, before noise, computed row by row and monomial by monomial."""
    joint = np.hstack([tables[owner] for owner in task.owners]).astype(object)
    totals = [0] * len(task.polynomials)
    for row in joint:
        for index, output in enumerate(task.program.outputs):
            for monomial, coefficient in output.items():
                value = coefficient
                for variable, power in monomial:
                    value *= int(row[variable]) ** power
                totals[index] += value
    return totals
