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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.kinds.synthesis.mixture import round_sums
from colonnade.kinds.synthesis.mixture.learners import MixtureLearner
from colonnade.kinds.synthesis.mixture.mixture_model import Matrix
from colonnade.kinds.synthesis.mixture.responsibilities import NORM_BITS, clip_in_clear, square_norms, weigh_in_clear
from colonnade.kinds.synthesis.mixture.round_sums import (
    DealtPiece,
    MixtureSeat,
    Places,
    Whole,
    bound_vectors,
    clip_factors,
    integer_densities,
    integer_slopes,
    integer_statistics,
    noise_shares,
    pad_rows,
    unscaled,
)
from colonnade.kinds.synthesis.mixture.task import MixtureTask
from colonnade.message_schema import receive_message
from colonnade.protocols.iteration import RoundCounter, batch_secret, deal_masks_ahead, iterate_batches
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.randomness import KEY_BYTES, Stream, new_key

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
                me.link(seat).send("slopes", **round_sums.slopes_fields(slopes))
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
    state = receive_message(me.link(speaker), speaker, round_sums.fitted_message(len(learner.state)))["state"]
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
    secret: bytes = receive_message(me.link(first), first, round_sums.batch_draw_message(task, rows))["secret"]
    return secret
