"""Noisy sums of polynomials in columns that nobody holds together (SQM, Algorithms 1 to 3).

Coefficients are brought to one public scale (``circuit``). Each owner scales its rows by gamma, rounds
them to integers and computes its own factor of every monomial in the clear; factors are dealt to the committee and
multiplied on shares, and the degree of the shares is lowered only where it would become too high to be opened.
Monomials of one owner's columns alone never pass through a multiplication: their owner sums them up and deals the
sums together with its share of the noise. What is opened, once, is one noisy integer for each polynomial.

In active mode the degree is lowered after every product of two, and all products are checked before the opening.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.polynomial.integers import OwnColumns, Whole, combined, evaluate
from colonnade.kinds.polynomial.task import NoisySums, Polynomials
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.sums import BETWEEN, MADE, Circuit, JointSum, Product, Side, Step
from colonnade.randomness import Stream


class MonomialsSum(JointSum[Polynomials]):
    """The joint sum: products of the owners' factors, row by row."""

    own = OwnColumns
    published = NoisySums

    @cached_property
    def circuit(self) -> Circuit:
        """All factors but the last of each product are multiplied; then inner products are taken with each last one."""
        widths = {number: len(own) for number, own in self.task.layout.factors.items()}
        if not widths:
            return Circuit({}, ())
        schedule, dealt = self.task.schedule, tuple((number, range(width)) for number, width in widths.items())
        begun = list(dict.fromkeys(product[:-1] for product in schedule.last))
        place = {group: index for index, group in enumerate(begun)}
        products = []
        for last, here in self._by_last.items():
            left: Side = ((BETWEEN, tuple(place[schedule.last[index][:-1]] for index in here)),)
            products.append(Product(left, ((MADE, (last,)),)))
        steps, nodes = [Step(MADE, dealt)], sum(widths.values())
        for groups in schedule.levels:
            steps.append(Step(MADE, ((MADE, range(nodes)),), groups=groups))
            nodes += len(groups)
        steps.append(Step(BETWEEN, groups=tuple(begun), lowered=False))
        return Circuit(widths, tuple(products), tuple(steps))

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
            part = totals[:, which] * system.split(np.array(coefficients, dtype=object))
            for row, values in zip(weighted, system.reduce(part), strict=True):
                row += np.bincount(to, weights=values, minlength=row.size)
        return system.reduce(weighted)

    def in_clear(self, tables: Mapping[str, NDArray[np.float64]], stream: Stream) -> Whole:
        """The same rounding and integers, computed in one place."""
        task = self.task
        joint = np.hstack([self.own(task, owner).quantise(tables[owner], stream) for owner in task.owners])
        monomials = {monomial for output in task.program.outputs for monomial in output}
        return combined(task, {monomial: int(evaluate(monomial, joint).sum()) for monomial in monomials})


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
