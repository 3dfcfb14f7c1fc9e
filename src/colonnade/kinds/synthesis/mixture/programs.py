"""A mixture of products, fitted by noisy sums over batches of rows whose columns lie with different owners (DPVI, EM).

Parameters are public. In a round each owner computes, of every row in the batch, the densities of its own columns under
every component, and deals them as integers. The committee multiplies the owners' densities, divides by their sum over
components, and so has responsibilities r that nobody sees (:mod:`responsibilities`). With every owner's vectors v of
the rows, it computes on its shares

    N_k = sum over the batch of r_k      and      G_k = sum over the batch of r_k v,

which are opened with the noise of all owners. Everybody takes the next step of the parameters from them. Vectors are
statistics of the rows, dealt once before the rounds, or derivatives at the present parameters, dealt with the
densities. Derivatives that are linear in statistics follow from those on shares: only the factors by which they are
clipped are dealt in a round, and the owner tells the seats the coefficients, which are public. Noise, masks and coins
are made for many rounds ahead.

In active mode the seats draw the batches together, all products are claimed, and everything is settled before sums are
opened; what is opened under masks, before that. That owners deal numbers within their bounds is not proven.

The parts of one round stand here too: the integers that an owner deals, and the weighted sums that a seat computes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.kinds.synthesis.mixture.components import LinearDerivatives, adjacent_spans
from colonnade.kinds.synthesis.mixture.learners import Matrix, MixtureLearner
from colonnade.kinds.synthesis.mixture.responsibilities import (
    NORM_BITS,
    Whole as Whole,
    clip_in_clear,
    clip_on_shares,
    square_norms,
    weigh_in_clear,
    weigh_on_shares,
)
from colonnade.kinds.synthesis.mixture.task import SLOPE_BITS, STATISTIC_BITS, MixturePart, MixtureTask
from colonnade.kinds.synthesis.sensitivity import vector_square
from colonnade.message_schema import ArrayForm, FixedBytes, MessageSchema, receive_message
from colonnade.mpc import Shares
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.mpc.fixed_point.masks import MaskKey
from colonnade.protocols.iteration import RoundCounter, batch_secret, deal_masks_ahead, iterate_batches
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.randomness import KEY_BYTES, Stream, new_key

Reals = NDArray[np.float64]
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


FittedLearner = TypeVar("FittedLearner", bound=MixtureLearner)


@dataclass(frozen=True)
class OwnRows:
    """What an owner has: its rows, the integer statistics of them that it dealt, and the source of its noise."""

    rows: Matrix
    kept: Whole
    stream: Stream


def owner(me: Owner, table: Rows, task: MixtureTask, learner: FittedLearner) -> FittedLearner:
    """An owner's program; ``learner`` holds the public parameters to start from, and is returned fitted."""
    stream = Stream.fresh()
    check_places(table, hidden=False)
    rows = agree_on_rows(me, task, table)
    secret = _draw_together(me, task, rows, table.ids) if task.trust.active else _share_draw(me, table.ids, task)
    held = np.concatenate(list(table.blocks(task.block_rows)))
    summing = me.over(task.for_sums)
    seat = MixtureSeat(me, summing, task, rows) if me.engine.has_seat else None
    kept = np.zeros((rows, task.stored_width(task.part(me.name))), dtype=np.int64)
    if task.vectors != "derivatives":
        for start in range(0, rows, task.block_rows):
            here = slice(start, start + task.block_rows)
            with me.meter.phase("encode"):
                bounded = integer_statistics if task.linear else bound_vectors
                kept[here] = bounded(learner.vectors(me.name, held[here]), task, me.name)
            with me.meter.phase("deal"):
                mine = summing.engine.deal(kept[here])
            if seat:
                seat.store_block(len(kept[here]), mine)
    return _iterate(me, summing, task, learner, rows, seat, secret, OwnRows(held, kept, stream))


def coordinator(me: Coordinator, task: MixtureTask, learner: FittedLearner) -> FittedLearner:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    rows = compare_rows(me, task)
    if not me.engine.has_seat:
        return _share_parameters(me, task, learner)
    secret = _draw_together(me, task, rows, None) if task.trust.active else _receive_draw(me, task, rows)
    summing = me.over(task.for_sums)
    seat = MixtureSeat(me, summing, task, rows)
    if task.vectors != "derivatives":
        for size in block_sizes(rows, task.block_rows):
            seat.store_block(size, None)
    return _iterate(me, summing, task, learner, rows, seat, secret, None)


def reference_sums(dealt: Mapping[str, tuple[Whole, Whole]], task: MixtureTask) -> Whole:
    """One round's integers in the clear, before noise: ``dealt`` are every owner's densities and vectors of a batch.

    Truncations are to the nearest integer; those of the committee differ by a few units.
    """
    weights = weigh_in_clear([dealt[name][0] for name in task.owners], task.precision)
    if task.joint is not None:
        weights = clip_in_clear(weights, joint_square_norms(dealt, task), task.joint)
    counts = (weights.sum(axis=0) << task.vector_bits)[:, None]
    how = "nk,nq->kq" if task.vectors == "statistics" else "nk,nkq->kq"
    return np.hstack([counts, *(np.einsum(how, weights, dealt[name][1]) for name in task.owners)]).reshape(-1)


def joint_square_norms(dealt: Mapping[str, tuple[Whole, Whole]], task: MixtureTask) -> list[Whole]:
    """Every owner's squared norms of its vectors, (n, K), where the committee clips all that a row adds."""
    return [_square_norms(dealt[name][1], task, name) for name in task.owners]


def simulate(
    tables: Mapping[str, Matrix],
    task: MixtureTask,
    learner: FittedLearner,
    stream: Stream,
    *,
    renormalised: bool = True,
) -> FittedLearner:
    """What the protocol would publish, computed in one place: the same integers, batches and noise.

    It is for evaluation on data that may be in one place; a study never calls it. Without ``renormalised``, densities
    are taken as they are, not over the largest of their row, and those below 2^-f are lost.
    """
    rows = len(tables[task.owners[0]])
    ids = [str(index) for index in range(rows)]
    for batch in iterate_batches(task, rows, batch_secret(task, stream.bytes(32), ids)):
        dealt = {}
        for name in task.owners:
            own = tables[name][batch]
            dealt[name] = evaluate_rows(learner, task, name, own)
            if not renormalised:
                raw = unscaled(learner.log_densities(name, own), task, name, learner.log_weights)
                dealt[name] = raw, dealt[name][1]
        noise = sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
        learner.step(scale_to_people(reference_sums(dealt, task) + noise, task))
    return learner


def evaluate_rows(learner: MixtureLearner, task: MixtureTask, name: str, rows: Matrix) -> tuple[Whole, Whole]:
    """An owner's integer densities and vectors of some rows, at the present parameters."""
    found = integer_densities(learner.log_densities(name, rows), task, name, learner.log_weights)
    if not task.linear:
        return found, bound_vectors(learner.vectors(name, rows), task, name)
    raw = integer_slopes(learner.linear(name)).of_rows(integer_statistics(learner.vectors(name, rows), task, name))
    return found, raw * clip_factors(raw, task, name)[:, :, None]


def scale_to_people(opened: Whole, task: MixtureTask) -> Matrix:
    """Opened integers as sums over people, (components, 1 + numbers of all owners)."""
    return np.asarray(opened / task.gamma, dtype=np.float64).reshape(task.components, task.width)


def _iterate(
    me: Role,
    summing: Role,
    task: MixtureTask,
    learner: FittedLearner,
    rows: int,
    seat: MixtureSeat | None,
    secret: bytes,
    own: OwnRows | None,
) -> FittedLearner:
    """All rounds; in each, sums over a batch are computed and opened, and the parameters take a step.

    All batches have the same number of pieces, and the last ones may be empty.
    """
    members, (pieces, size) = iterate_batches(task, rows, secret), task.pieces(rows)
    draw = None if own is None else partial(noise_shares, task, stream=own.stream)
    rounds = RoundCounter(range(task.rounds), me.progress, "iterate", every=task.rounds_ahead)
    for mask in deal_masks_ahead(summing, task.owners, task.entries, rounds, task.rounds_ahead, draw):
        batch, total = next(members), None
        if len(batch) > pieces * size:
            raise ProtocolError(
                "a drawn batch is larger than any that was to be expected; start the study again [MS039]"
            )
        for places in (batch[start : start + size] for start in range(0, pieces * size, size)):
            if seat:
                seat.prepare(size)
            with me.meter.phase("iterate"):
                mine = None if own is None else _deal(me, summing, task, learner, own, places, size)
                if seat:
                    sums = seat.sums(places, size, mine)
                    total = sums if total is None else summing.engine.add([total, sums])
        if seat:
            seat.settle()
        with me.meter.phase("iterate"):
            opened = summing.reveal(
                total, to=task.hearers, event=task.event, shape=(task.entries,), bound=task.bound,
                degree=task.opened_degree, mask=mask, through=task.speaker,
            )  # fmt: skip
            learner.step(scale_to_people(summing.require_opened(opened), task))
    return _share_parameters(me, task, learner)


def _square_norms(vectors: Whole, task: MixtureTask, name: str) -> Whole:
    most = math.ceil(Fraction(task.part(name).clip) ** 2 * (1 << NORM_BITS))
    found = square_norms(vectors, task.vector_bits, most)
    return np.tile(found[:, None], task.components) if found.ndim == 1 else found


def _deal(
    me: Role, summing: Role, task: MixtureTask, learner: MixtureLearner, own: OwnRows, places: Places, size: int
) -> DealtPiece:
    """Deal densities of the people in one piece, and derivatives or by what they are clipped; empty places are zero.

    What is bounded here are the integers that the committee sums: statistics are those that were dealt, and are not
    computed again.
    """
    slopes, rows, vectors = None, own.rows[places], own.kept[places]
    with me.meter.phase("densities"):
        weighed = [integer_densities(learner.log_densities(me.name, rows), task, me.name, learner.log_weights)]
        summed = None
        if task.vectors == "derivatives":
            summed = vectors = bound_vectors(learner.vectors(me.name, rows), task, me.name)
        if task.linear:
            slopes = integer_slopes(learner.linear(me.name))
            raw = slopes.of_rows(vectors)
            weighed.append(clip_factors(raw, task, me.name))
            vectors = raw * weighed[-1][:, :, None] if task.joint is not None else raw
        if task.joint is not None:
            weighed.append(_square_norms(vectors, task, me.name))
        flat = np.stack([pad_rows(one, size) for one in weighed])
    if slopes is not None:
        for seat in task.trust.committee:
            if seat != me.name:
                me.link(seat).send("slopes", **slopes_fields(slopes))
    weighed_shares = me.engine.deal(flat)
    return DealtPiece(weighed_shares, None if summed is None else summing.engine.deal(pad_rows(summed, size)), slopes)


def _share_parameters(me: Role, task: MixtureTask, learner: FittedLearner) -> FittedLearner:
    """Everybody takes over the parameters of the owner that opened the sums, so that all hold the same."""
    speaker = task.speaker
    if me.name == speaker:
        for name in task.everyone:
            if name != speaker:
                me.link(name).send("fitted", state=learner.state)
        me.have_alike(learner.state, task.everyone)
        return learner
    state = receive_message(me.link(speaker), speaker, fitted_message(len(learner.state)))["state"]
    if task.event not in me.revealed:
        me.revealed.append(task.event)  # the parameters follow from it, though others opened it
    learner.restore(np.array(state, dtype=np.float64))
    me.have_alike(learner.state, task.everyone)
    return learner


def _draw_together(me: Role, task: MixtureTask, rows: int, ids: Sequence[str] | None) -> bytes:
    """The secret of all batches from coins of all seats, so that nobody chooses who is in a batch.

    A seat without ids is told in which batch everybody is, and the seats compare it before they open anything. The
    budget is spent before: otherwise whoever dislikes the batches would leave, and have others drawn for nothing.
    """
    me.engine.notify_before_sharing()
    seats, first = task.trust.committee, task.owners[0]
    coin = (
        me.engine.coin([name for name in task.hearers if name not in seats])
        if me.engine.has_seat
        else me.engine.receive_coin()
    )
    key = coin.bytes(KEY_BYTES)
    if task.sampling != "disjoint":
        secret = key
    elif ids is None:
        secret = _receive_draw(me, task, rows)
    else:
        secret = batch_secret(task, key, ids)
        for name in seats:
            if me.name == first and name not in task.owners:
                me.link(name).send("draw", secret=secret)
    me.engine.record_public(secret)
    return secret


def _share_draw(me: Owner, ids: Sequence[str], task: MixtureTask) -> bytes:
    """The secret of all batches: the first owner draws it and sends it to owners and seats."""
    first = task.owners[0]
    if me.name != first:
        return _receive_draw(me, task, len(ids))
    secret = batch_secret(task, new_key(), ids)
    for name in task.hearers:
        if name != first:
            me.link(name).send("draw", secret=secret)
    return secret


def _receive_draw(me: Role, task: MixtureTask, rows: int) -> bytes:
    first = task.owners[0]
    secret: bytes = receive_message(me.link(first), first, batch_draw_message(task, rows))["secret"]
    return secret
