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

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.polynomial.integers import OwnColumns, Whole, combined, evaluate, noise_share
from colonnade.kinds.polynomial.task import NoisySums, Polynomials
from colonnade.mpc import Shares, beside
from colonnade.mpc.residues import Residues
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rounds import Rounds
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, compare_rows
from colonnade.protocols.sums import Sums, over_sums
from colonnade.randomness import Stream


def owner(me: Owner, table: Rows, task: Polynomials) -> NoisySums:
    """An owner's program; the table holds the owner's columns of the task, in that order."""
    noise, summing = own_noise(me, task), over_sums(me, task)
    return release(summing, added_up(me, summing, task, table), task, noise)


def coordinator(me: Coordinator, task: Polynomials) -> NoisySums:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    summing = over_sums(me, task)
    return release(summing, added_up(me, summing, task), task)


def own_noise(me: Owner, task: Polynomials) -> NDArray[np.int64]:
    """What an owner adds to the sums."""
    with me.meter.phase("noise"):
        return noise_share(task, Stream.fresh())


def added_up(me: Role, summing: Role, task: Polynomials, table: Rows | None = None, *, part: bool = False) -> Sums:
    """All rows, dealt, multiplied and forgotten; the coordinator has no ``table``.

    ``summing`` is the same participant as ``me`` in the arithmetic of sums. With ``part`` these are some of the rows.
    """
    own = None if table is None else OwnColumns(task, me.name)
    rows = compare_rows(me, task, part=part) if table is None else agree_on_rows(me, task, table, part=part)
    seat = Seat(summing, task) if me.hand.seated else None
    if not (own or seat):
        return Sums(rows)
    blocks = table.blocks(task.rows_per_block) if table is not None else iter(())
    stream = Stream.fresh()
    for size in Rounds(block_sizes(rows, task.rows_per_block), me.progress, "multiply"):
        mine = None
        if own:
            with me.meter.phase("encode"):
                whole = own.quantise(next(blocks), stream) if own.needed else np.zeros((size, 0), dtype=np.int64)
            with me.meter.phase("own sums"):
                own.add(whole)
            with me.meter.phase("deal"):
                mine = me.hand.deal(own.factors(whole)) if own.dealt else None
        if seat:
            seat.multiply(size, mine)
    return Sums(rows, own.sums if own else None, seat.sums if seat else None)


def release(me: Role, sums: Sums, task: Polynomials, noise: NDArray[np.int64] | None = None) -> NoisySums:
    """Add every owner's noise to the sums and open them, once."""
    shape, mine, total = (len(task.polynomials),), None, None
    if sums.own is not None and noise is not None:
        with me.meter.phase("deal"):
            mine = me.hand.deal(sums.own + noise)
    if sums.shares:
        total = me.hand.add([*(me.dealt_by(owner, shape, mine) for owner in task.owners), sums.shares])
        if me.hand.active:
            with me.meter.phase("check"):
                me.hand.settle()
    with me.meter.phase("open"):
        opened = me.reveal(total, to=task.everyone, event=task.event, shape=shape, bound=task.bound, degree=task.degree)
    return NoisySums(task, me.entitled(opened).astype(np.int64))


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


def simulate(tables: Mapping[str, NDArray[np.float64]], task: Polynomials, stream: Stream) -> NoisySums:
    """What the protocol would publish, computed in one place: the same rounding, integers and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    whole = [OwnColumns(task, owner).quantise(tables[owner], stream) for owner in task.owners]
    joint = np.hstack(whole)
    monomials = {monomial for output in task.program.outputs for monomial in output}
    sums = combined(task, {monomial: int(evaluate(monomial, joint).sum()) for monomial in monomials})
    for _ in task.owners:
        sums += noise_share(task, stream)
    return NoisySums(task, sums)


class Seat:
    """A committee member's work: products of the owners' factors, row by row, and their sums."""

    def __init__(self, me: Role, task: Polynomials) -> None:
        self.me, self.task, self.hand = me, task, me.hand
        self.totals = np.zeros((len(task.committee.system.primes), len(task.layout.cross)))

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add the products between owners."""
        if not self.task.layout.cross:
            return
        with self.me.meter.phase("receive"):
            nodes = self._received(rows, mine)
        for groups in self.task.schedule.levels:
            if self.hand.active:
                left, right = (nodes.columns([group[side] for group in groups]) for side in (0, 1))
                with self.me.meter.phase("multiply"):
                    nodes = beside(nodes, self.hand.product(left, right))
                continue
            with self.me.meter.phase("multiply"):
                products = self._products(nodes, groups)
            with self.me.meter.phase("lower degree"):
                nodes = beside(nodes, self.hand.lower(products))
        with self.me.meter.phase("multiply"):
            self._add(nodes, self.task.schedule.last)
        if self.hand.active:
            with self.me.meter.phase("check"):
                self.hand.claims.relieve()

    def _received(self, rows: int, mine: Shares | None) -> Shares:
        dealt = self.task.layout.factors.items()
        return beside(*(self.me.dealt_by(self.task.owners[index], (rows, len(own)), mine) for index, own in dealt))

    def _products(self, nodes: Shares, groups: Sequence[tuple[int, ...]]) -> Shares:
        """The product of each group of columns; all get the degree of the longest product."""
        product = nodes.columns([group[0] for group in groups])
        longest = max(map(len, groups))
        for place in range(1, longest):
            here = [index for index, group in enumerate(groups) if len(group) > place]
            others = nodes.columns([groups[index][place] for index in here])
            product.values[:, :, here] = self.hand.multiply(product.columns(here), others).values
        return Shares(product.values, longest * nodes.degree)

    def _add(self, nodes: Shares, products: Sequence[tuple[int, ...]]) -> None:
        """Add sums over rows: multiply all factors but the last, then take inner products with each last factor."""
        begun = {product[:-1]: None for product in products}
        lefts = self._products(nodes, list(begun))
        place = {group: index for index, group in enumerate(begun)}
        by_last: dict[int, list[int]] = {}
        for index, product in enumerate(products):
            by_last.setdefault(product[-1], []).append(index)
        sums, claimed = np.zeros((len(self.totals), len(products))), []
        for last, here in by_last.items():
            left, right = lefts.columns([place[products[index][:-1]] for index in here]), nodes.columns([last])
            sums[:, here] = self.hand.inner(left, right).values[:, :, 0]
            claimed.append((left, right, here))
        if self.hand.active:
            sums = self.hand.lower(Shares(sums, lefts.degree + nodes.degree)).values
            for left, right, here in claimed:
                self.hand.claims.inner([left], [right], Shares(sums[:, here, None], nodes.degree))
        self.totals += sums
        self.hand.system.reduce(self.totals)

    @property
    def sums(self) -> Shares:
        """For each polynomial, the products between owners times their coefficients."""
        return Shares(self._weighted(), self.task.degree)

    def _weighted(self) -> Residues:
        """For each polynomial, the totals of its products times their coefficients."""
        place = {monomial: index for index, monomial in enumerate(self.task.layout.cross)}
        outputs = enumerate(self.task.program.outputs)
        terms = [(t, place[m], a) for t, output in outputs for m, a in output.items() if m in place]
        weighted = np.zeros((len(self.totals), len(self.task.polynomials)))
        if terms:
            to, which, coefficients = zip(*terms, strict=True)
            system = self.hand.system
            part = self.totals[:, which] * system.split(np.array(coefficients, dtype=object))
            for row, values in zip(weighted, system.reduce(part), strict=True):
                row += np.bincount(to, weights=values, minlength=row.size)
        return self.hand.system.reduce(weighted)
