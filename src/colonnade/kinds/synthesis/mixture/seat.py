"""What a committee member computes in a round of fitting a mixture: responsibilities, and sums weighted by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture import vocabulary
from colonnade.kinds.synthesis.mixture.clipping import NORM_BITS, clipped_on_shares
from colonnade.kinds.synthesis.mixture.integers import Slopes
from colonnade.kinds.synthesis.mixture.responsibilities import on_shares
from colonnade.kinds.synthesis.mixture.task import Mixture, Part
from colonnade.message_schema import receive_message
from colonnade.mpc import Shares
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.mpc.fixed_point.masks import MaskKey
from colonnade.protocols.roles import Role

Places = NDArray[np.int64]
_EXACT_ROWS = 512
"""A sum of so many products of residues is an exact float."""
_AHEAD = 1 << 16  # responsibilities whose masks are made at a time


@dataclass(frozen=True)
class Dealt:
    """What one owner dealt for a piece of a batch, as shares of this seat, or ``None`` where it has none.

    ``weighed`` are densities, by what linear derivatives are clipped, and squared norms; ``summed`` are derivatives.
    ``slopes`` are told, and belong to linear derivatives.
    """

    weighed: Shares | None
    summed: Shares | None
    slopes: Slopes | None


class Seat:
    """It keeps the shares of statistics of all rows, and computes sums over pieces of batches.

    ``summing`` is the same participant as ``me`` in the arithmetic of what is only summed.
    """

    def __init__(self, me: Role, summing: Role, task: Mixture, rows: int) -> None:
        self.me, self.summing, self.task, self.taken = me, summing, task, 0
        self.engine = FixedPointEngine(me.engine, task.fraction)
        self._spans = _spans([task.kept(part) for part in task.parts])
        primes, width = len(task.for_sums.primes), self._spans[-1].stop
        # A share is below 2^22, so 32 bits are enough; all shares of a person lie together, to be fetched at once.
        self.kept = np.zeros((rows if width else 0, primes, width), dtype=np.int32)
        self._needed: Counter[MaskKey] = Counter()
        self._left, self._ready = task.rounds * task.pieces(rows)[0], 0

    def take_in(self, rows: int, mine: Shares | None) -> None:
        """Keep the shares of the next block of rows of every owner."""
        here = slice(self.taken, self.taken + rows)
        self.taken += rows
        with self.me.meter.phase("receive"):
            for part, span in zip(self.task.parts, self._spans, strict=True):
                shares = self.summing.dealt_by(part.owner, (rows, self.task.kept(part)), mine)
                self.kept[here, :, span] = shares.values.transpose(1, 0, 2)

    def prepare(self, size: int) -> None:
        """Make masks and coins for the next pieces of ``size`` places, if none are left.

        The first piece makes its own while it is computed, and shows what a piece needs.
        """
        if self._ready or not self._needed:
            return
        self._ready = min(self._left, max(1, _AHEAD // (size * self.task.components)))
        with self.me.meter.phase("ahead"):
            self.engine.masks.prepare({key: self._ready * times for key, times in self._needed.items()})

    def sums(self, places: Places, size: int, mine: Dealt | None) -> Shares:
        """The sums over the people at ``places``, one piece of a batch; there are ``size`` places, the rest empty.

        ``mine`` is what this participant dealt itself.
        """
        task, hand, people = self.task, self.summing.engine, len(places)
        dealt = [mine if mine and part.owner == self.me.name else self._receive(part, size) for part in task.parts]
        for one in dealt:
            if one.slopes is not None:
                hand.record_public(one.slopes.slope, one.slopes.offset, one.slopes.against)
        weighed = [one.weighed for one in dealt if one.weighed is not None]
        found = self._for_sums(self._responsibilities(weighed).shares)
        self._count_used()
        # Everybody with a seat knows which places are empty; nothing of them is summed. Claims are about all places, so
        # that their messages do not tell how many are empty.
        length = size if hand.active else people
        weights = Shares(found.values[:, :length].copy(), found.degree)
        weights.values[:, people:] = 0
        total = hand.system.reduce(weights.values.sum(axis=1))
        counts = hand.scale(Shares(total, weights.degree), 1 << task.vector_bits).values[:, :, None]
        if task.vectors == "derivatives":
            sums = [self._weighted(weights, one.summed.values[:, :length]) for one in dealt if one.summed is not None]
        else:
            vectors = Shares(np.zeros((len(weights.values), length, self._spans[-1].stop)), weights.degree)
            vectors.values[:, :people] = self.kept[places].transpose(1, 0, 2)
            sums = (
                self._linear(found, vectors, weighed, dealt) if task.linear else [self._inner(weights, vectors).values]
            )
        values = np.concatenate([counts, *sums], axis=2)
        if hand.active:
            hand.claims.settle_if_full()
        return Shares(values.reshape(len(values), -1), weights.degree if hand.active else 2 * weights.degree)

    def settle(self) -> None:
        """Check everything that was computed, where seats check each other's work: before sums are opened."""
        if self.me.engine.active:
            with self.me.meter.phase("check"):
                self.engine.settle()
                self.summing.engine.claims.settle()

    def _inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right; where seats check each other's work, lowered to the degree of an input and claimed."""
        hand = self.summing.engine
        found = hand.inner(left, right)
        if not hand.active:
            return found
        lowered = hand.reduce_degree(found)
        hand.claims.inner([left], [right], lowered)
        return lowered

    def _receive(self, part: Part, size: int) -> Dealt:
        """What another owner dealt."""
        task = self.task
        slopes = told_slopes(self.me, task, part) if task.linear else None
        places = (size, task.components)
        weighed = self.me.engine.receive(part.owner, (task.weighed, *places))
        if not task.summed(part):
            return Dealt(weighed, None, slopes)
        return Dealt(weighed, self.summing.engine.receive(part.owner, (*places, part.width)), slopes)

    def _for_sums(self, wide: Shares) -> Shares:
        """The same numbers in the arithmetic of sums, which has the first primes; they are small enough for it."""
        return Shares(np.ascontiguousarray(wide.values[: len(self.task.for_sums.primes)]), wide.degree)

    def _responsibilities(self, dealt: Sequence[Shares]) -> FixedPointShares:
        """Responsibilities from what the owners dealt, made smaller where all that a row adds is clipped."""
        task, engine = self.task, self.engine
        inputs = [Shares(one.values[:, 0], one.degree) for one in dealt]
        found = on_shares(engine, [engine.from_shares(one, 1 << task.fraction) for one in inputs], task.precision)
        if task.joint is None:
            return found
        squares = [
            engine.from_shares(Shares(one.values[:, -1], one.degree), most, NORM_BITS)
            for one, most in zip(dealt, task.joint.squares, strict=True)
        ]
        return clipped_on_shares(engine, found, squares, task.joint)

    def _linear(
        self, weights: Shares, vectors: Shares, weighed: Sequence[Shares], dealt: Sequence[Dealt]
    ) -> list[NDArray[np.float64]]:
        """For every owner the sums of its clipped derivatives, from sums of its statistics."""
        hand, length = self.summing.engine, vectors.shape[0]
        primes = len(hand.system.primes)
        factors = np.stack([one.values[:primes, 1] for one in weighed], axis=1)
        slopes = [one.slopes for one in dealt if one.slopes is not None]
        # All places are multiplied, so that the sizes of messages do not tell how many of them are empty.
        shrunk = hand.product(Shares(weights.values[:, None], weights.degree), Shares(factors, weights.degree))
        out = []
        for place, (span, one) in enumerate(zip(self._spans, slopes, strict=True)):
            mine = Shares(shrunk.values[:, place, :length], weights.degree)
            sums = self._inner(mine, vectors.columns(span)).values
            first = sums[:, :, : len(one.against)] * hand.system.to_residues(one.slope)
            rest = sums[:, :, one.against] * hand.system.to_residues(one.offset)
            out.append(hand.system.reduce(first - rest))
        return out

    def _weighted(self, weights: Shares, dealt: NDArray[np.float64]) -> NDArray[np.float64]:
        """For every component the sum of its vectors, each times its responsibility."""
        primes, rows, components = weights.values.shape
        vectors = dealt.transpose(0, 2, 1, 3)
        factors = weights.values.transpose(0, 2, 1)[:, :, None, :]
        total = np.zeros((primes, components, vectors.shape[3]))
        for start in range(0, rows, _EXACT_ROWS):
            part = slice(start, start + _EXACT_ROWS)
            total += self.summing.engine.system.reduce(np.matmul(factors[..., part], vectors[:, :, part])[:, :, 0])
        self.summing.engine.system.reduce(total)
        return self._claimed(weights, dealt, total) if self.summing.engine.active else total

    def _claimed(self, weights: Shares, dealt: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of vectors, lowered to the degree of an input and claimed for each component."""
        hand, degree = self.summing.engine, weights.degree
        lowered = hand.reduce_degree(Shares(sums, 2 * degree))
        for component in range(sums.shape[1]):
            one = slice(component, component + 1)
            hand.claims.inner(
                [weights.columns(one)], [Shares(dealt[:, :, component], degree)], Shares(lowered.values[:, one], degree)
            )
        return lowered.values

    def _count_used(self) -> None:
        if not self._needed:
            self._needed = Counter(self.engine.masks.used)
        self._left, self._ready = self._left - 1, max(0, self._ready - 1)


def told_slopes(me: Role, task: Mixture, part: Part) -> Slopes:
    """The slopes that another owner told the seats."""
    told = receive_message(me.link(part.owner), part.owner, vocabulary.slopes(task, part))
    return Slopes(*(told[name].astype(np.int64) for name in ("slope", "offset", "against")))


def _spans(widths: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *widths]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]
