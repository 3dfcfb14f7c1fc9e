"""One round of fitting a mixture: the integers that an owner deals, and the weighted sums that a seat computes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.components import LinearDerivatives, adjacent_spans
from colonnade.kinds.synthesis.mixture.responsibilities import NORM_BITS, clip_on_shares, weigh_on_shares
from colonnade.kinds.synthesis.mixture.task import SLOPE_BITS, STATISTIC_BITS, MixturePart, MixtureTask
from colonnade.kinds.synthesis.sensitivity import vector_square
from colonnade.message_schema import ArrayForm, FixedBytes, MessageSchema, receive_message
from colonnade.mpc import Shares
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.mpc.fixed_point.masks import MaskKey
from colonnade.protocols.roles import Role
from colonnade.randomness import KEY_BYTES, Stream

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]
LARGEST_STATISTIC = 8
LARGEST_SLOPE = 1 << 16
LARGEST_OFFSET = 1 << 27
_INSIDE = 1 - 2.0**-40


def integer_densities(logs: Reals, task: MixtureTask, owner: str, log_weights: Reals | None = None) -> Whole:
    """Integers from 0 to 2^f: densities over the largest of the row, not below the owner's part of the floor.

    Of the first owner, weights of components are factors, and the numbers of a row add up to ``precision.whole`` at
    most, whatever floats came in.
    """
    whole = task.precision.whole
    first = owner == task.owners[0]
    with np.errstate(invalid="ignore"):
        ratio = np.exp(np.maximum(logs - logs.max(axis=1, keepdims=True), -task.floor / len(task.owners)))
    if not first:
        return np.asarray(np.floor(_finite(ratio) * float(1 << task.fraction)), dtype=np.int64)
    if log_weights is None:
        raise ValueError("the first owner multiplies the weights of the components in [VA143]")
    weights = np.exp(log_weights - log_weights.max())
    shares = _finite(ratio * (weights / weights.sum()))
    found = np.asarray(np.floor(shares * float(whole)), dtype=np.int64)
    over = found.sum(axis=1) > whole
    found[over] = 0
    return found


def unscaled(logs: Reals, task: MixtureTask, owner: str, log_weights: Reals) -> Whole:
    """Densities as they are, of which those below 2^-f become zero; only to show what comes of that."""
    weights = log_weights if owner == task.owners[0] else 0.0
    whole = task.precision.whole / (task.components if owner == task.owners[0] else 1)
    return np.asarray(np.floor(_finite(np.exp(np.minimum(logs, 0.0) + weights)) * whole), dtype=np.int64)


def bound_vectors(vectors: Reals, task: MixtureTask, owner: str) -> Whole:
    """Integer vectors, along the last axis: clipped, scaled by 2^g and rounded toward zero; their bound is enforced."""
    clip, most = task.part(owner).clip, vector_square(task.vector_bits, task.part(owner).clip)
    unit = float(1 << task.vector_bits)
    finite = np.clip(np.nan_to_num(vectors, nan=0.0), -2 * clip, 2 * clip)
    whole = np.trunc(finite * unit)
    long = _too_long(_square(whole), most)
    norms = np.sqrt(np.maximum(_square(finite), clip**2))
    shorter = np.trunc(finite * (clip * _INSIDE * unit / norms)[..., None])
    whole = np.where(long[..., None], shorter, whole)
    # Never so, unless floats were rounded otherwise than they should be: the sum rests on this bound.
    return np.where(_too_long(_square(whole), most)[..., None], 0.0, whole).astype(np.int64)


def integer_statistics(statistics: Reals, task: MixtureTask, owner: str) -> Whole:
    """Integer statistics of rows from which derivatives follow; the last ones are zeros and ones."""
    width, most = task.part(owner).width, float(LARGEST_STATISTIC << STATISTIC_BITS)
    finite = np.nan_to_num(statistics, nan=0.0)
    scaled = np.clip(np.rint(finite[:, :width] * (1 << STATISTIC_BITS)), -most, most)
    return np.hstack([scaled, finite[:, width:] > 0.5]).astype(np.int64)


def integer_slopes(linear: LinearDerivatives) -> LinearDerivatives:
    """Rounded slopes and offsets, within limits that keep derivatives below 2^28."""
    slope = np.rint(np.nan_to_num(linear.slope, nan=0.0) * (1 << SLOPE_BITS))
    offset = np.rint(np.nan_to_num(linear.offset, nan=0.0) * (1 << (SLOPE_BITS + STATISTIC_BITS)))
    return LinearDerivatives(
        np.clip(slope, -LARGEST_SLOPE, LARGEST_SLOPE).astype(np.int64),
        np.clip(offset, -LARGEST_OFFSET, LARGEST_OFFSET).astype(np.int64),
        np.asarray(linear.against, dtype=np.int64),
    )


def clip_factors(raw: Whole, task: MixtureTask, owner: str) -> Whole:
    """For derivatives (n, K, q) the integer factors, (n, K), with which they are no longer than the owner's clip."""
    most = vector_square(task.vector_bits, task.part(owner).clip)
    norms = np.sqrt(np.maximum(_square(raw.astype(np.float64)), 1.0))
    factor = np.minimum(np.floor(math.sqrt(most) * _INSIDE / norms), 1 << task.shrink_bits)
    # Never too long, unless floats were rounded otherwise than they should be: the sum rests on this bound.
    return np.where(_too_long((factor * norms) ** 2 / _INSIDE, most), 0.0, factor).astype(np.int64)


def pad_rows(values: Whole, size: int) -> Whole:
    """Rows of zeros after the given ones, up to ``size`` rows."""
    out = np.zeros((size, *values.shape[1:]), dtype=np.int64)
    out[: len(values)] = values
    return out


def noise_shares(task: MixtureTask, rounds: int, stream: Stream) -> Whole:
    """One owner's noise for ``rounds`` rounds; audits attack this function."""
    return task.additive.draw((rounds, task.entries), stream)


def _square(vectors: Reals) -> Reals:
    """Squared norms along the last axis; exact for integers whose squares add up to less than 2^53."""
    return np.asarray(np.einsum("...q,...q->...", vectors, vectors))


def _too_long(squares: Reals, most: int) -> NDArray[np.bool_]:
    """Whether squared norms exceed an integer bound, or may, where floats are too coarse to tell."""
    return np.asarray(squares > (most if most < 2**53 else most * (1 - 2.0**-41)))


def _finite(ratio: Reals) -> Reals:
    """Numbers from 0 to 1 in place of whatever came of a density that is not a number."""
    return np.clip(np.nan_to_num(ratio, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


def batch_draw_message(task: MixtureTask, rows: int) -> MessageSchema:
    """The secret of all batches, for owners and seats: a seed, or the batch of everyone in four bytes."""
    return MessageSchema("draw", secret=FixedBytes(4 * rows if task.sampling == "disjoint" else KEY_BYTES))


def slopes_message(task: MixtureTask, part: MixturePart) -> MessageSchema:
    """By what an owner's statistics are multiplied in one piece of a batch: public, and the same at all seats."""
    shape, width = (task.components, part.width), (part.width,)
    return MessageSchema(
        "slopes",
        slope=ArrayForm(np.int32, shape, -LARGEST_SLOPE, LARGEST_SLOPE),
        offset=ArrayForm(np.int32, shape, -LARGEST_OFFSET, LARGEST_OFFSET),
        against=ArrayForm(np.int32, width, part.width, part.statistics - 1),
    )


def slopes_fields(slopes: LinearDerivatives) -> dict[str, NDArray[np.int32]]:
    """The fields of that message: all numbers have less than 32 bits."""
    return {name: getattr(slopes, name).astype(np.int32) for name in ("slope", "offset", "against")}


def fitted_message(size: int) -> MessageSchema:
    """The final parameters, from the owner that opened the sums."""
    return MessageSchema("fitted", state=ArrayForm(np.float64, (size,)))


Places = NDArray[np.int64]
_EXACT_ROWS = 512
"""A sum of so many products of residues is an exact float."""
_AHEAD = 1 << 16  # responsibilities whose masks are made at a time


@dataclass(frozen=True)
class DealtPiece:
    """What one owner dealt for a piece of a batch, as shares of this seat, or ``None`` where it has none.

    ``weighed`` are densities, by what linear derivatives are clipped, and squared norms; ``summed`` are derivatives.
    ``slopes`` are told, and belong to linear derivatives.
    """

    weighed: Shares | None
    summed: Shares | None
    slopes: LinearDerivatives | None


class MixtureSeat:
    """It keeps the shares of statistics of all rows, and computes sums over pieces of batches.

    ``summing`` is the same participant as ``me`` in the arithmetic of what is only summed.
    """

    def __init__(self, me: Role, summing: Role, task: MixtureTask, rows: int) -> None:
        self.me, self.summing, self.task, self.taken = me, summing, task, 0
        self.engine = FixedPointEngine(me.engine, task.fraction)
        self._spans = adjacent_spans(map(task.stored_width, task.parts))
        primes, width = len(task.for_sums.primes), self._spans[-1].stop
        # A share is below 2^22, so 32 bits are enough; all shares of a person lie together, to be fetched at once.
        self.kept = np.zeros((rows if width else 0, primes, width), dtype=np.int32)
        self._needed: Counter[MaskKey] = Counter()
        self._left, self._ready = task.rounds * task.pieces(rows)[0], 0

    def store_block(self, rows: int, mine: Shares | None) -> None:
        """Keep the shares of the next block of rows of every owner."""
        here = slice(self.taken, self.taken + rows)
        self.taken += rows
        with self.me.meter.phase("receive"):
            for part, span in zip(self.task.parts, self._spans, strict=True):
                shares = self.summing.dealt_by(part.owner, (rows, self.task.stored_width(part)), mine)
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

    def sums(self, places: Places, size: int, mine: DealtPiece | None) -> Shares:
        """The sums over the people at ``places``, one piece of a batch; there are ``size`` places, the rest empty.

        ``mine`` is what this participant dealt itself.
        """
        task, summing, people = self.task, self.summing.engine, len(places)
        dealt = [mine if mine and part.owner == self.me.name else self._receive(part, size) for part in task.parts]
        for one in dealt:
            if one.slopes is not None:
                summing.record_public(one.slopes.slope, one.slopes.offset, one.slopes.against)
        weighed = [one.weighed for one in dealt if one.weighed is not None]
        wide = self._responsibilities(weighed).shares
        # The arithmetic of sums has the first primes; responsibilities are small enough for it.
        found = Shares(np.ascontiguousarray(wide.values[: len(task.for_sums.primes)]), wide.degree)
        if not self._needed:
            self._needed = Counter(self.engine.masks.used)
        self._left, self._ready = self._left - 1, max(0, self._ready - 1)
        # Everybody with a seat knows which places are empty; nothing of them is summed. Claims are about all places, so
        # that their messages do not tell how many are empty.
        length = size if summing.active else people
        weights = Shares(found.values[:, :length].copy(), found.degree)
        weights.values[:, people:] = 0
        total = summing.system.reduce(weights.values.sum(axis=1))
        counts = summing.scale(Shares(total, weights.degree), 1 << task.vector_bits).values[:, :, None]
        if task.vectors == "derivatives":
            sums = [self._weighted(weights, one.summed.values[:, :length]) for one in dealt if one.summed is not None]
        else:
            vectors = Shares(np.zeros((len(weights.values), length, self._spans[-1].stop)), weights.degree)
            vectors.values[:, :people] = self.kept[places].transpose(1, 0, 2)
            sums = (
                self._linear(found, vectors, weighed, dealt) if task.linear else [self._inner(weights, vectors).values]
            )
        values = np.concatenate([counts, *sums], axis=2)
        if summing.active:
            summing.claims.settle_if_full()
        return Shares(values.reshape(len(values), -1), weights.degree if summing.active else 2 * weights.degree)

    def settle(self) -> None:
        """Check everything that was computed, where seats check each other's work: before sums are opened."""
        if self.me.engine.active:
            with self.me.meter.phase("check"):
                self.engine.settle()
                self.summing.engine.claims.settle()

    def _inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right; where seats check each other's work, lowered to the degree of an input and claimed."""
        summing = self.summing.engine
        found = summing.inner(left, right)
        if not summing.active:
            return found
        lowered = summing.reduce_degree(found)
        summing.claims.inner([left], [right], lowered)
        return lowered

    def _receive(self, part: MixturePart, size: int) -> DealtPiece:
        """What another owner dealt."""
        task = self.task
        slopes = None
        if task.linear:
            told = receive_message(self.me.link(part.owner), part.owner, slopes_message(task, part))
            slopes = LinearDerivatives(*(told[name].astype(np.int64) for name in ("slope", "offset", "against")))
        places = (size, task.components)
        weighed = self.me.engine.receive(part.owner, (task.weighted_width, *places))
        if not task.summed_width(part):
            return DealtPiece(weighed, None, slopes)
        return DealtPiece(weighed, self.summing.engine.receive(part.owner, (*places, part.width)), slopes)

    def _responsibilities(self, dealt: Sequence[Shares]) -> FixedPointShares:
        """Responsibilities from what the owners dealt, made smaller where all that a row adds is clipped."""
        task, engine = self.task, self.engine
        inputs = [Shares(one.values[:, 0], one.degree) for one in dealt]
        found = weigh_on_shares(engine, [engine.from_shares(one, 1 << task.fraction) for one in inputs], task.precision)
        if task.joint is None:
            return found
        squares = [
            engine.from_shares(Shares(one.values[:, -1], one.degree), most, NORM_BITS)
            for one, most in zip(dealt, task.joint.squares, strict=True)
        ]
        return clip_on_shares(engine, found, squares, task.joint)

    def _linear(
        self, weights: Shares, vectors: Shares, weighed: Sequence[Shares], dealt: Sequence[DealtPiece]
    ) -> list[NDArray[np.float64]]:
        """For every owner the sums of its clipped derivatives, from sums of its statistics."""
        summing, length = self.summing.engine, vectors.shape[0]
        primes = len(summing.system.primes)
        factors = np.stack([one.values[:primes, 1] for one in weighed], axis=1)
        slopes = [one.slopes for one in dealt if one.slopes is not None]
        # All places are multiplied, so that the sizes of messages do not tell how many of them are empty.
        shrunk = summing.product(Shares(weights.values[:, None], weights.degree), Shares(factors, weights.degree))
        out = []
        for place, (span, one) in enumerate(zip(self._spans, slopes, strict=True)):
            mine = Shares(shrunk.values[:, place, :length], weights.degree)
            sums = self._inner(mine, vectors.columns(span)).values
            first = sums[:, :, : len(one.against)] * summing.system.to_residues(one.slope)
            rest = sums[:, :, one.against] * summing.system.to_residues(one.offset)
            out.append(summing.system.reduce(first - rest))
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
        summing, degree = self.summing.engine, weights.degree
        lowered = summing.reduce_degree(Shares(sums, 2 * degree))
        for component in range(sums.shape[1]):
            one = slice(component, component + 1)
            summing.claims.inner(
                [weights.columns(one)], [Shares(dealt[:, :, component], degree)], Shares(lowered.values[:, one], degree)
            )
        return lowered.values
