"""Rounds of products with directions that are checked after they were opened, all at once.

A wrong product adds an error to a noised sum that its author knows beforehand, so it tells nothing and may be found
later, as long as all seats go on with the same numbers. For random u, and v for every direction of every round,

    sum over rounds u'(opened - noise) v = <Z u, Z g>,  g = sum over rounds of Q v,

holds if all products are right. It takes one pass over the rows, however many rounds there were. The sum of squared
norms is not among them: in active mode every owner adds that of its own columns to its noise, so that what was opened,
less what was dealt and the part of the constant, must be zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.pca.directions.search import IntegerDirections
from colonnade.kinds.pca.directions.task import Directions
from colonnade.mpc import Hand, Shares
from colonnade.mpc.accelerator.held import HeldRows
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.mpc.verify.folding import Question
from colonnade.randomness import Stream


class OpenedProducts:
    """What a seat keeps of rounds until they are checked."""

    def __init__(self, hand: Hand, task: Directions) -> None:
        self._hand, self._task = hand, task
        self._rows = HeldRows(hand.system, (), 1)
        self._asked: list[Residues] = []
        self._sums: list[Residues] = []
        self._totals: list[Residues] = []
        self._begun = False

    def opened(self, directions: IntegerDirections, values: NDArray[np.int64], noise: Shares) -> None:
        """A round asked for these directions and opened these numbers, with this noise in them."""
        task, system = self._task, self._hand.system
        shape = (-1, task.width, task.directions)
        self._asked.append(system.split(directions.astype(np.float64)))
        exact = system.reduce(system.split(values) - noise.values)
        self._sums.append(exact[:, :-1].reshape(shape))
        self._totals.append(exact[:, -1:])

    def settle(self, rows: HeldRows) -> None:
        """Check the rounds since the last time; ``rows`` are this seat's shares of all rows."""
        self._rows = rows
        self._hand.claims.combined(self)
        self._hand.claims.zero(self._no_totals())
        self._hand.claims.settle()
        self._asked, self._sums, self._totals, self._begun = [], [], [], True

    def _no_totals(self) -> Shares:
        """What is left of the opened sums of squared norms, which are dealt but for the constant's, asked for once."""
        task, system = self._task, self._hand.system
        totals = np.concatenate(self._totals, axis=1)
        if not self._begun:
            totals[:, :1] -= system.constant(task.total_weight * task.constant**2 * self._rows.count, 2)
        return Shares(system.reduce(totals), task.trust.threshold)

    @property
    def length(self) -> int:
        """An entry for every row."""
        return self._rows.count

    def asked(self, system: ResidueSystem, coin: Stream, repeated: int) -> Question:
        """All rounds as one inner product for every repetition."""
        asked, sums = np.concatenate(self._asked, axis=2), np.concatenate(self._sums, axis=2)
        columns = system.uniform((self._task.width, repeated), coin)
        factors = system.uniform((asked.shape[2], repeated), coin)
        both = np.concatenate([columns, system.inner(asked.transpose(0, 2, 1), factors)], axis=2)
        found = np.concatenate([system.inner(both, rows.transpose(0, 2, 1)) for rows in self._rows.parts()], axis=2)
        products = system.reduce(system.inner(columns, sums) * factors.transpose(0, 2, 1)).sum(axis=2)
        return Question(found[:, :repeated], found[:, repeated:], system.reduce(products))
