"""What a committee member computes in a round of fitting a mixture: responsibilities, and sums weighted by them."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import Shares
from colonnade.mpc.fixed.arithmetic import FixedPoint
from colonnade.mpc.fixed.masks import Key
from colonnade.protocols.mixture.responsibilities import on_shares
from colonnade.protocols.mixture.task import Mixture
from colonnade.protocols.roles import Role

Places = NDArray[np.int64]
_EXACT_ROWS = 512
"""A sum of so many products of residues is an exact float."""
_AHEAD = 1 << 16  # responsibilities whose masks are made at a time


class Seat:
    """It keeps the shares of statistics of all rows, and computes sums over pieces of batches."""

    def __init__(self, me: Role, task: Mixture, rows: int) -> None:
        self.me, self.task, self.taken = me, task, 0
        self.engine = FixedPoint(me.hand, task.fraction)
        primes, width = len(task.committee.system.primes), task.width - 1
        # A share is below 2^22, so 32 bits are enough; all shares of a person lie together, to be fetched at once.
        self.kept = np.zeros((rows if task.vectors == "statistics" else 0, primes, width), dtype=np.int32)
        self._needed: Counter[Key] = Counter()
        self._left, self._ready = task.rounds * task.pieces(rows)[0], 0

    def take_in(self, rows: int, mine: Shares | None) -> None:
        """Keep the shares of the next block of rows of every owner."""
        here, start = slice(self.taken, self.taken + rows), 0
        self.taken += rows
        with self.me.meter.phase("receive"):
            for part in self.task.parts:
                shares = self.me.dealt_by(part.owner, (rows, part.width), mine)
                self.kept[here, :, start : start + part.width] = shares.values.transpose(1, 0, 2)
                start += part.width

    def prepare(self, size: int) -> None:
        """Make masks and coins for the next pieces of ``size`` places, if none are left.

        The first piece makes its own while it is computed, and shows what a piece needs.
        """
        if self._ready or not self._needed:
            return
        self._ready = min(self._left, max(1, _AHEAD // (size * self.task.components)))
        with self.me.meter.phase("ahead"):
            self.engine.masks.prepare({key: self._ready * times for key, times in self._needed.items()})

    def sums(self, places: Places, size: int, mine: Shares | None) -> Shares:
        """The sums over the people at ``places``, one piece of a batch; there are ``size`` places, the rest empty."""
        task, hand = self.task, self.me.hand
        count = size * task.components
        dealt = [self.me.dealt_by(part.owner, dealt_shape(task, part.width, size), mine) for part in task.parts]
        each = [Shares(shares.values[:, :count].reshape(-1, size, task.components), shares.degree) for shares in dealt]
        found = on_shares(
            self.engine, [self.engine.from_shares(one, 1 << task.fraction) for one in each], task.precision
        )
        self._count_used()
        # Everybody with a seat knows which places are empty; nothing of them is summed.
        weights = Shares(found.shares.values[:, : len(places)], found.shares.degree)
        total = hand.system.reduce(weights.values.sum(axis=1))
        counts = hand.scale(Shares(total, weights.degree), 1 << task.vector_bits).values[:, :, None]
        if task.vectors == "statistics":
            vectors = Shares(self.kept[places].transpose(1, 0, 2).astype(np.float64), weights.degree)
            sums = [counts, hand.inner(weights, vectors).values]
        else:
            sums = [counts, *(self._weighted(weights, one.values[:, count:], size) for one in dealt)]
        values = np.concatenate(sums, axis=2)
        return Shares(values.reshape(len(values), -1), 2 * weights.degree)

    def _weighted(self, weights: Shares, flat: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """For every component the sum of its vectors, each times its responsibility."""
        primes, rows, components = weights.values.shape
        vectors = flat.reshape(primes, size, components, -1)[:, :rows].transpose(0, 2, 1, 3)
        factors = weights.values.transpose(0, 2, 1)[:, :, None, :]
        total = np.zeros((primes, components, vectors.shape[3]))
        for start in range(0, rows, _EXACT_ROWS):
            part = slice(start, start + _EXACT_ROWS)
            total += self.me.hand.system.reduce(np.matmul(factors[..., part], vectors[:, :, part])[:, :, 0])
        return self.me.hand.system.reduce(total)

    def _count_used(self) -> None:
        if not self._needed:
            self._needed = Counter(self.engine.masks.used)
        self._left, self._ready = self._left - 1, max(0, self._ready - 1)


def dealt_shape(task: Mixture, width: int, size: int) -> tuple[int]:
    """How many numbers an owner deals for one piece: densities, and derivatives after them."""
    return (size * task.components * (1 if task.vectors == "statistics" else 1 + width),)
