"""Rounds that are checked after they were opened: all gradients of a group of rounds as one inner product.

A wrong product adds an error to a noised sum that its author knows beforehand, so it tells nothing and may be found
later, as long as all seats go on with the same numbers. For random u and k, one number for every column, and for every
round and class,

    sum over rounds k u'(opened - noise) = <X u, sum over rounds of k times the scores of the round's batch>

holds if every gradient is right. Both vectors have an entry for every row, so their length shows no batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.mpc import Hand, Shares
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.verify.folding import Question
from colonnade.randomness import Stream

_AT_ONCE = 2**20  # numbers of the rows that are multiplied at a time


class OpenedRounds:
    """What a seat keeps of rounds until they are checked; ``kept`` are its shares of all rows."""

    def __init__(self, hand: Hand, task: Gradients, kept: NDArray[np.int32]) -> None:
        self._hand, self._task, self._rows = hand, task, kept
        self._batches: list[NDArray[np.int64]] = []
        self._scores: list[NDArray[np.int32]] = []
        self._sums: list[Residues] = []

    def multiplied(self, batch: NDArray[np.int64], scores: Residues) -> None:
        """A round multiplies the rows of this batch with these shares of scores, (primes, rows, classes)."""
        self._batches.append(batch)
        self._scores.append(scores[:, : len(batch)].astype(np.int32))

    def opened(self, values: Integers, noise: Shares) -> None:
        """It opened these numbers, with this noise in them; a full group of rounds is checked."""
        system = self._hand.system
        self._sums.append(system.reduce(system.split(values) - noise.values))
        if len(self._sums) == self._task.rounds_checked:
            self.settle()

    def settle(self) -> None:
        """Check the rounds since the last time; raises if a number was not computed as agreed."""
        if self._sums:
            self._hand.claims.combined(self)
            self._hand.claims.settle()
            self._batches, self._scores, self._sums = [], [], []

    @property
    def length(self) -> int:
        """An entry for every row."""
        return len(self._rows)

    def asked(self, system: ResidueSystem, coin: Stream, repeated: int) -> Question:
        """All rounds as one inner product for every repetition."""
        task = self._task
        turns, classes = len(self._sums), task.classes
        columns = system.uniform((repeated, task.width), coin)
        factors = system.uniform((repeated, turns, classes), coin)
        right = self._by_row(system, factors)
        left = np.zeros_like(right)
        used = np.unique(np.concatenate(self._batches))
        step = max(1, _AT_ONCE // task.width)
        for start in range(0, len(used), step):
            here = used[start : start + step]
            rows = self._rows[here, :, : task.width].astype(np.float64).transpose(1, 2, 0)
            left[:, :, here] = system.inner(columns.transpose(0, 2, 1), rows)
        sums = np.stack(self._sums, axis=1).reshape(-1, turns, task.width, classes)
        beside = sums.transpose(0, 2, 1, 3).reshape(len(sums), task.width, -1)
        found = system.inner(columns.transpose(0, 2, 1), beside)
        products = system.reduce(found * factors.reshape(found.shape))
        return Question(left, right, system.reduce(products.sum(axis=2)))

    def _by_row(self, system: ResidueSystem, factors: Residues) -> Residues:
        """For each row, the sum of its scores times factors, which are (primes, repetitions, rounds, classes)."""
        primes, repeated, turns, _ = factors.shape
        total = np.zeros((primes, repeated, len(self._rows)))
        several = max(1, _AT_ONCE * turns // max(1, sum(map(len, self._batches)) * repeated))
        for start in range(0, turns, several):
            these = slice(start, start + several)
            batches = self._batches[these]
            places = np.concatenate(batches)
            whose = np.repeat(np.arange(start, start + len(batches)), [len(batch) for batch in batches])
            scores = np.concatenate(self._scores[these], axis=1).astype(np.float64)
            weighted = np.zeros((primes, repeated, len(places)))
            for one in range(scores.shape[2]):
                weighted += system.reduce(factors[:, :, whose, one] * scores[:, None, :, one])
            for out, values in zip(total.reshape(-1, len(self._rows)), weighted.reshape(-1, len(places)), strict=True):
                out += np.bincount(places, values, len(self._rows))
        return system.reduce(total)
