"""What an owner adds up for expectation maximisation: bounded statistics of its columns, whatever the parameters.

A category or a binned number has its one-hot value less 1/n, a flag its value less 1/2: the counts are released beside
them, so nothing is lost, and a person adds less. A number has its place between its bounds from the middle, y, and
y^2 - 1/8. Where cells may be missing, counts of those present are needed too, so a category is then not centred, and a
number has a third statistic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.cells import Matrix, share
from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.families import Bernoulli, Categorical, Family
from colonnade.tables.columns import Column


class OwnStatistics:
    """The statistics of one owner's columns, ``width`` numbers for each row."""

    def __init__(self, own: OwnComponents) -> None:
        self.own = own
        self.places: dict[str, slice] = {}
        start = 0
        for name, column, family in self._columns():
            self.places[name] = slice(start, start + _width(column, family))
            start = self.places[name].stop
        self.width = start

    @property
    def bound(self) -> float:
        """No row's statistics are longer than this; rounded up."""
        square = sum((_square(column, family) for _, column, family in self._columns()), Fraction(0))
        root = math.sqrt(square)
        return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)

    def read(self, rows: Matrix) -> Matrix:
        """The statistics of encoded rows, (n, ``width``)."""
        found = np.zeros((len(rows), self.width))
        for name, column, family in self._columns():
            part, out = rows[:, self.own.schema.encoded_slices[name]], found[:, self.places[name]]
            known = column.has_value(part)
            if isinstance(family, Bernoulli):
                out[:, 0] = (part[:, 0] > 0.5) - 0.5
            elif isinstance(family, Categorical):
                out[np.arange(len(rows)), _codes(part, column, family)] = 1.0
                if not column.may_be_missing:
                    out -= 1 / family.size
            else:
                out[:, 0] = share(part, column) - 0.5
                out[:, 1] = out[:, 0] ** 2 - 0.125
                out[:, 2:] = 0.5
            out *= known[:, None]
        return found

    def _columns(self) -> Iterator[tuple[str, Column, Family]]:
        for name, family in self.own.families.items():
            yield name, self.own.schema.columns[name], family


def _codes(part: Matrix, column: Column, family: Categorical) -> NDArray[np.int64]:
    if column.quantity:
        return np.minimum((share(part, column) * family.size).astype(np.int64), family.size - 1)
    return np.asarray(part.argmax(axis=1), dtype=np.int64)


def _width(column: Column, family: Family) -> int:
    if isinstance(family, Categorical | Bernoulli):
        return family.width
    return 3 if column.may_be_missing else 2


def _square(column: Column, family: Family) -> Fraction:
    if isinstance(family, Bernoulli):
        return Fraction(1, 4)
    if isinstance(family, Categorical):
        return Fraction(1) if column.may_be_missing else 1 - Fraction(1, family.size)
    return Fraction(1, 4) + Fraction(1, 64) + Fraction(column.may_be_missing, 4)
