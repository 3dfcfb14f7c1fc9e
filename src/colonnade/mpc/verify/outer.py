"""Claims that every column of one shared matrix, times every column of another one, row by row, is a third matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.mpc.shares import Shares
from colonnade.mpc.verify.claims import _times as times, _turned as turned
from colonnade.mpc.verify.folding import Question, dots
from colonnade.randomness import Stream


@dataclass(frozen=True)
class OuterProducts:
    """The matrices ``lefts`` stand side by side, and the columns of ``right`` count fastest in the product.

    All have the degree of an input. They are kept as they are, and must not change until they are settled.
    """

    lefts: Sequence[Shares]
    right: Shares
    product: Shares

    @property
    def length(self) -> int:
        """An entry for every number of the right matrix."""
        rows, columns = self.right.shape
        return rows * columns

    def asked(self, system: ResidueSystem, coin: Stream, repeated: int) -> Question:
        """Columns of the product, and rows, are multiplied by random numbers and added up."""
        rows, columns = self.right.shape
        by_row = system.uniform((rows, repeated), coin)
        by_column = system.uniform((self.product.shape[1], repeated), coin)
        left = np.empty((len(system.primes), repeated, rows * columns))
        right = np.empty_like(left)
        for column in range(columns):
            combined = times(system, [part.values for part in self.lefts], by_column[:, column::columns])
            here = slice(column * rows, (column + 1) * rows)
            left[:, :, here] = turned(system.reduce(combined * by_row))
            right[:, :, here] = self.right.values[:, None, :, column]
        product: Residues = times(system, [self.product.values], by_column)
        return Question(left, right, dots(system, turned(by_row), turned(product)))
