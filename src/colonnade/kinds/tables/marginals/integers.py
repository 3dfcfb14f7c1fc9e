"""Marginals as integers: the coordinates of coded columns, what an owner adds up alone, and the noise that it draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.tables.marginals.blocks import axes
from colonnade.kinds.tables.marginals.layout import Factor, Factors, Product, in_order
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.protocols.rows import Rows
from colonnade.protocols.sums import ONES, OwnPart
from colonnade.randomness import Stream
from colonnade.tables.places import Spread

Matrix = NDArray[np.float64]
Number = TypeVar("Number", bound="np.int64 | np.float64")


class OwnColumns(OwnPart):
    """What an owner computes alone: coordinates of its columns, and the blocks that are all its own."""

    def __init__(self, task: Marginals, owner: str) -> None:
        self.task, self.owner = task, owner
        self.number = task.owners.index(owner)
        self.columns = task.held_by(owner)
        layout = task.layout
        self.products = layout.own.get(self.number, ())
        dealt = layout.dealt.get(self.number, Factors((), ()))
        self.width = dealt.width + task.hidden
        """How many numbers of a row it deals; they come first among all that it computes."""
        self.deals = self.width > 0
        alone = {factor for product in self.products for side in (product.left, product.right) for factor in side.names}
        rest = sorted(alone - set(dealt.names) - {()}, key=in_order)
        widths = (math.prod(task.sizes[column] - 1 for column in factor) for factor in rest)
        self.factors = Factors((*dealt.names, *rest), (*dealt.widths, *widths))
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
        for codes, present in Spread(table, table.places, len(self.columns)).blocks(step):
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
            left, right = (self._side(whole, *side) for side in _sides(product))
            total += (left.T @ right).astype(np.int64)

    def dealt(self, whole: Matrix) -> Matrix:
        """What of all this is dealt; if members are hidden, also whether a slot is taken."""
        if self.task.hidden:
            return whole  # then all factors are dealt, and the flag is the last column
        return whole[:, : self.width]

    def _side(self, whole: Matrix, source: int, factors: Factors) -> Matrix:
        if source == ONES:
            return np.ones((len(whole), 1))
        return whole[:, joined([self.spans[name] for name in factors.names])]

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


def block_cells(task: Marginals, product: Product, sums: NDArray[Number]) -> Iterator[tuple[int, NDArray[Number]]]:
    """The blocks among the sums of a product: along every column the last coordinate is put in again.

    ``sums`` has an axis in front, of residues or of length one, and so has every block. Columns with two values keep
    their one coordinate. Nothing is reduced modulo anything here.
    """
    left_spans, right_spans = product.left.spans(), product.right.spans()
    for index, left, right in product.blocks:
        yield index, completed(task, (*left, *right), sums[:, left_spans[left], right_spans[right]])


def completed(task: Marginals, columns: Factor, piece: NDArray[Number]) -> NDArray[Number]:
    """A block of sums over all coordinates but the last of each column, as all cells in ascending order of columns."""
    cells = piece.reshape(len(piece), *(task.sizes[column] - 1 for column in columns))
    order = sorted(range(len(columns)), key=columns.__getitem__)
    cells = cells.transpose(0, *(place + 1 for place in order))
    for axis, size in enumerate(axes(sorted(columns), task.sizes), start=1):
        if size > 1:
            cells = np.concatenate([cells, -cells.sum(axis=axis, keepdims=True)], axis=axis)
    return cells.reshape(len(piece), -1)


def _sides(product: Product) -> tuple[tuple[int, Factors], tuple[int, Factors]]:
    return (product.left_source, product.left), (product.right_source, product.right)


def joined(spans: Sequence[slice]) -> slice | list[int]:
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
