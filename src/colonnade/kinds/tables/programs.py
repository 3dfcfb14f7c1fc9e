"""Marginals as integers: the coordinates of coded columns, what an owner adds up alone, and the noise that it draws.

Noisy marginals of coded columns that nobody holds together, all in one release.

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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.tables.release import NoisyMarginals
from colonnade.kinds.tables.task import Factor, FactorColumns, FactorProduct, Marginals, axes, factor_order
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.protocols.joint_sum.declaration import (
    ALL_ONES,
    BETWEEN,
    FLAGS,
    MADE,
    ONES,
    InnerProduct,
    JointSum,
    OwnerSum,
    ProductStep,
    Side,
    SumCircuit,
    SumOpening,
    Whole,
)
from colonnade.protocols.joint_sum.engine import JointSumPrograms
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables.slots import SlottedRows

Matrix = NDArray[np.float64]
Number = TypeVar("Number", bound="np.int64 | np.float64")


class OwnMarginals(OwnerSum):
    """What an owner computes alone: coordinates of its columns, and the blocks that are all its own."""

    def __init__(self, task: Marginals, owner: str) -> None:
        self.task, self.owner = task, owner
        self.number = task.owners.index(owner)
        self.columns = task.held_by(owner)
        layout = task.layout
        self.products = layout.own.get(self.number, ())
        dealt = layout.dealt.get(self.number, FactorColumns((), ()))
        self.width = dealt.width + task.hidden
        """How many numbers of a row it deals; they come first among all that it computes."""
        self.deals = self.width > 0
        alone = {factor for product in self.products for side in (product.left, product.right) for factor in side.names}
        rest = sorted(alone - set(dealt.names) - {()}, key=factor_order)
        widths = (math.prod(task.sizes[column] - 1 for column in factor) for factor in rest)
        self.factors = FactorColumns((*dealt.names, *rest), (*dealt.widths, *widths))
        self.spans = self.factors.spans()
        self.sums = [np.zeros((product.left.width, product.right.width), dtype=np.int64) for product in self.products]

    def check(self, table: Rows) -> None:
        """Refuse a table with something that is no code, before anything of it is dealt.

        Later, that a party stops and when would tell where in its table it lies.
        """
        for codes in table.blocks(self.task.rows_per_block):
            for column in self.columns:
                self._codes(codes, column)

    def blocks(self, table: Rows, stream: Stream) -> Iterator[Matrix]:
        """All factors of one block of rows after the other; if members are hidden, then whether a slot is taken."""
        step = self.task.rows_per_block
        if table.places is None:
            for codes in table.blocks(step):
                yield self.factors_of(codes)
            return
        for codes, present in SlottedRows(table, table.places, len(self.columns)).blocks(step):
            yield np.column_stack([self.factors_of(codes) * present[:, None], present])

    def factors_of(self, codes: Matrix) -> Matrix:
        """Every factor of these rows: n times one-hot minus one, and products with that of the label."""
        whole = np.empty((len(codes), self.factors.width))
        known: dict[int, Matrix] = {}
        for factor, span in self.spans.items():
            column, *label = factor
            for needed in (column, *label):
                if needed not in known:
                    known[needed] = self._column(codes, needed)
            if label:
                both = known[column][:, :, None] * known[label[0]][:, None, :]
                whole[:, span] = both.reshape(len(codes), -1)
            else:
                whole[:, span] = known[column]
        return whole

    def _column(self, codes: Matrix, column: int) -> Matrix:
        return coordinates(self._codes(codes, column), self.task.sizes[column])

    def _codes(self, codes: Matrix, column: int) -> NDArray[np.float64]:
        size, found = self.task.sizes[column], codes[:, self.columns.index(column)]
        if len(found) and not ((found >= 0) & (found < size) & (found == np.floor(found))).all():
            raise DataError(
                f"a coded column of {self.owner} holds something that is none of its codes: code its table by the "
                "schema of the study [DA130]"
            )
        return found

    def add(self, whole: Matrix) -> None:
        """Add the products of a block of rows, exactly: sums of asked cells stay below 2^22 rows times 2^22."""
        for product, total in zip(self.products, self.sums, strict=True):
            left = self._side(whole, product.left_source, product.left)
            total += (left.T @ self._side(whole, product.right_source, product.right)).astype(np.int64)

    def dealt(self, whole: Matrix) -> Matrix:
        """What of all this is dealt; if members are hidden, also whether a slot is taken."""
        if self.task.hidden:
            return whole  # then all factors are dealt, and the flag is the last column
        return whole[:, : self.width]

    def _side(self, whole: Matrix, source: int, factors: FactorColumns) -> Matrix:
        if source == ONES:
            return np.ones((len(whole), 1))
        return whole[:, join_columns([self.spans[name] for name in factors.names])]

    def entries(self) -> NDArray[np.int64]:
        """What this owner alone knows of the opened numbers."""
        found = np.zeros(self.task.entries, dtype=np.int64)
        for product, total in zip(self.products, self.sums, strict=True):
            for index, cells in block_cells(self.task, product, total[None]):
                at = self.task.starts[index]
                found[at : at + cells.shape[1]] = cells[0] * self.task.asked[index].weight
        return found


def coordinates(codes: NDArray[np.float64], size: int) -> Matrix:
    """The coordinates of a column, n times one-hot minus one; the last is left out, as all of them add up to zero."""
    return np.where(codes[:, None] == np.arange(size - 1), float(size - 1), -1.0)


def block_cells(
    task: Marginals, product: FactorProduct, sums: NDArray[Number]
) -> Iterator[tuple[int, NDArray[Number]]]:
    """The blocks among the sums of a product: along every column the last coordinate is put in again.

    ``sums`` has an axis in front, of residues or of length one, and so has every block. Columns with two values keep
    their one coordinate. Nothing is reduced modulo anything here.
    """
    left_spans, right_spans = product.left.spans(), product.right.spans()
    for index, left, right in product.blocks:
        yield index, complete_block(task, (*left, *right), sums[:, left_spans[left], right_spans[right]])


def complete_block(task: Marginals, columns: Factor, piece: NDArray[Number]) -> NDArray[Number]:
    """A block of sums over all coordinates but the last of each column, as all cells in ascending order of columns."""
    cells = piece.reshape(len(piece), *(task.sizes[column] - 1 for column in columns))
    order = sorted(range(len(columns)), key=columns.__getitem__)
    cells = cells.transpose(0, *(place + 1 for place in order))
    for axis, size in enumerate(axes(sorted(columns), task.sizes), start=1):
        if size > 1:
            cells = np.concatenate([cells, -cells.sum(axis=axis, keepdims=True)], axis=axis)
    return cells.reshape(len(piece), -1)


def join_columns(spans: Sequence[slice]) -> slice | list[int]:
    """Several runs of columns as one slice where they follow each other, else as a list."""
    found = runs(spans)
    if len(found) == 1:
        return found[0]
    return [place for span in found for place in range(span.start, span.stop)]


def runs(spans: Sequence[slice]) -> list[slice]:
    """The same columns in as few slices as can be."""
    found = [spans[0]]
    for span in spans[1:]:
        if span.start == found[-1].stop:
            found[-1] = slice(found[-1].start, span.stop)
        else:
            found.append(span)
    return found


class MarginalsSum(JointSum[Marginals]):
    """The joint sum: inner products of factors, which are the asked blocks."""

    own = OwnMarginals
    published = NoisyMarginals

    @cached_property
    def circuit(self) -> SumCircuit:
        """What the layout of the blocks says, in columns."""
        task, layout = self.task, self.task.layout
        owners = range(len(task.owners)) if task.hidden else layout.dealt
        widths = {number: layout.dealt[number].width if number in layout.dealt else 0 for number in owners}
        products = tuple(
            InnerProduct(self._side(one.left_source, one.left.names), self._side(one.right_source, one.right.names))
            for one in layout.shared
        )
        return SumCircuit(widths, products, self._steps, tuple(self._products_dealt(number) for number in self._paired))

    @property
    def _steps(self) -> tuple[ProductStep, ...]:
        """Factors that the seats make: the label times columns; and if members are hidden, all times the flag."""
        task, made = self.task, self.task.layout.made.names
        alone = tuple(part for name in made if len(name) == 1 for part in self._column(name[0]))
        paired = tuple(part for name in made if len(name) == 2 for part in self._column(name[0]))
        label = next((self._column(name[1]) for name in made if len(name) == 2), ())
        if not task.hidden:
            return (ProductStep(MADE, factors=((paired, label),), lowered=task.lowered),) if made else ()
        before = (ProductStep(BETWEEN, factors=((label, FLAGS),)),) if paired else ()
        with_label: Side = ((BETWEEN, range(sum(len(columns) for _, columns in label))),)
        factors = [(alone, FLAGS)] * bool(alone) + [(paired, with_label)] * bool(paired)
        return (*before, ProductStep(MADE, FLAGS, tuple(factors)))

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

    def proof_rows(
        self, owner: str, dealt: Whole, reduce: Callable[[Whole], Whole] = lambda values: values
    ) -> Sequence[Whole]:
        """Coordinates, flag, and the last coordinates, which are not dealt."""
        return self.task.codes[owner].complete_rows(dealt, reduce)

    def openings(self, rows: int) -> Sequence[SumOpening]:
        """As many blocks at a time as fit a message."""
        starts, whole = self.task.starts, ((self.task.event, slice(None)),)
        return [SumOpening(starts[part.start], starts[part.stop], whole) for part in self.task.parts]

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
