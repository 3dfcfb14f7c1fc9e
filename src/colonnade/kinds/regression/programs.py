"""Rounds that are checked after they were opened: all gradients of a group of rounds as one inner product.

A wrong product adds an error to a noised sum that its author knows beforehand, so it tells nothing and may be found
later, as long as all seats go on with the same numbers. For random u and k, one number for every column, and for every
round and class,

    sum over rounds k u'(opened - noise) = <X u, sum over rounds of k times the scores of the round's batch>

holds if every gradient is right. Both vectors have an entry for every row, so their length shows no batch.

Gradients as integers: rounded rows, the scores that multiply them, an owner's noise.

Messages of iterative logistic regression, besides shares.

Logistic regression by noisy gradients of batches (SQM: Algorithm 3, once a round, on shares dealt once).

Each owner scales its rows by gamma, rounds them at random to integers and deals them to the committee; the label is
dealt too. In every round each seat takes the rows of the round's batch and computes, on its shares alone,

    g = sum over the batch of x (2 gamma^2 (1 - 2 y) + <w, x>),                      the sigmoid to degree 1, or
    g = sum over the batch of x (24 gamma^6 (1 - 2 y) + 12 gamma^4 u - u^3), u = <w, x>,           to degree 3,

for the public integer weights w. Every owner has dealt its share of the round's noise; the noisy sum is opened to
the committee, and w takes a step. Noise and masks do not depend on w, so they are dealt for many rounds ahead, and
a round costs local products and one opening. Only degree 3 lowers the degree of shares, twice a round.

In active mode the seats draw the batches together, products that degree 3 lowers are checked before the round's
opening, and gradients afterwards, many rounds at once (``checks``); weights are published after the last check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, ProtocolError
from colonnade.kinds.regression.least_squares import GradientDescent, LearnedWeights
from colonnade.kinds.regression.task import GradientTask
from colonnade.message_schema import ArrayForm, FixedBytes, MessageSchema, receive_message
from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.verification.claims import InnerProductQuestion
from colonnade.privacy.noise.local_mechanisms import round_and_zero_long_rows
from colonnade.protocols.iteration import RoundCounter, RoundProofs, batch_secret, deal_masks_ahead, iterate_batches
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import ColumnBlock, Rows, agree_on_rows, block_sizes, compare_rows
from colonnade.randomness import KEY_BYTES, Stream, new_key

_AT_ONCE = 2**20  # numbers of the rows that are multiplied at a time


class GradientChecks:
    """What a seat keeps of rounds until they are checked; ``kept`` are its shares of all rows."""

    def __init__(self, engine: ShareEngine, task: GradientTask, kept: NDArray[np.int32]) -> None:
        self._engine, self._task, self._rows = engine, task, kept
        self._batches: list[NDArray[np.int64]] = []
        self._scores: list[NDArray[np.int32]] = []
        self._sums: list[Residues] = []

    def add_batch(self, batch: NDArray[np.int64], scores: Residues) -> None:
        """A round multiplies the rows of this batch with these shares of scores, (primes, rows, classes)."""
        self._batches.append(batch)
        self._scores.append(scores[:, : len(batch)].astype(np.int32))

    def opened(self, values: Integers, noise: Shares) -> None:
        """It opened these numbers, with this noise in them; a full group of rounds is checked."""
        system = self._engine.system
        self._sums.append(system.reduce(system.to_residues(values) - noise.values))
        if len(self._sums) == self._task.rounds_checked:
            self.settle()

    def settle(self) -> None:
        """Check the rounds since the last time; raises if a number was not computed as agreed."""
        if self._sums:
            self._engine.claims.add_product(self)
            self._engine.claims.settle()
            self._batches, self._scores, self._sums = [], [], []

    @property
    def length(self) -> int:
        """An entry for every row."""
        return len(self._rows)

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
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
        return InnerProductQuestion(left, right, system.reduce(products.sum(axis=2)))

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


def quantise(
    values: NDArray[np.float64], block: ColumnBlock, task: GradientTask, stream: Stream
) -> NDArray[np.float64]:
    """Algorithm 2: scale and round at random, and enforce the bound on the integers; labels are not changed."""
    width = len(block.columns)
    scaled = values[:, :width] * (float(task.gamma) * task.scale)
    return np.hstack([round_and_zero_long_rows(scaled, task.block_norm_squared(block), stream), values[:, width:]])


def integer_scores(u: NDArray[Any], signs: NDArray[Any], task: GradientTask) -> NDArray[Any]:
    """The factors of rows in a gradient, from their products ``u`` with the weights and ``signs`` = 1 - 2 y."""
    g = task.gamma
    if task.expansion == 1:
        return np.asarray(2 * g**2 * signs + u)
    return np.asarray(24 * g**6 * signs + 12 * g**4 * u - u**3)


def noise_shares(task: GradientTask, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for ``rounds`` rounds; audits attack this function."""
    return task.additive.draw((rounds, task.entries), stream)


def batches_message(task: GradientTask, rows: int) -> MessageSchema:
    """The secret of all batches, for the seats: a seed, or the batch of everyone in four bytes."""
    return MessageSchema("draw", secret=FixedBytes(KEY_BYTES if task.sampling == "poisson" else 4 * rows))


def weights_message(task: GradientTask) -> MessageSchema:
    """The learned weights, for whoever has no seat."""
    most = 2 * task.weight_bound  # they are an average of weights within the ball, and averages are rounded
    return MessageSchema("weights", weights=ArrayForm(np.float64, (task.classes, task.width), -most, most))


def owner(me: Owner, features: Rows, labels: NDArray[np.float64] | None, task: GradientTask) -> LearnedWeights:
    """An owner's program; the owner of the label gives ``labels``, zeros and ones in the order of the ids."""
    stream = Stream.fresh()
    rows = agree_on_rows(me, task, features)
    secret = _share_draw(me, features.ids, task)
    seat = GradientSeat(me, task, rows) if me.engine.has_seat else None
    block, proving = task.block(me.name), RoundProofs(me, task.proven)
    for values in _pieces(features, labels, block, task):
        with me.meter.phase("encode"):
            whole = quantise(values, block, task, stream)
        with me.meter.phase("deal"):
            mine = me.engine.deal(whole)
        proving.add(len(values), whole, seat.take_in(len(values), mine) if seat else {})
    proving.end()
    return _iterate(me, task, seat, secret, stream)


def coordinator(me: Coordinator, task: GradientTask) -> LearnedWeights:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    rows = compare_rows(me, task)
    if not me.engine.has_seat:
        return _iterate(me, task, None, b"", None)
    secret = _drawn(me, task, rows)
    seat, proving = GradientSeat(me, task, rows), RoundProofs(me, task.proven)
    for size in block_sizes(rows, task.block_rows):
        proving.add(size, None, seat.take_in(size, None))
    proving.end()
    return _iterate(me, task, seat, secret, None)


def reference(
    whole: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.int64], task: GradientTask
) -> NDArray[Any]:
    """One round's integers in the clear, before noise: ``whole`` are a batch's rows, the intercept column included."""
    x, y = whole.astype(object), labels.astype(object)
    score = integer_scores(x @ weights.T.astype(object), 1 - 2 * y, task)
    return np.asarray(x.T @ score).reshape(-1)


def simulate(
    tables: Mapping[str, NDArray[np.float64]], labels: NDArray[np.float64], task: GradientTask, stream: Stream
) -> LearnedWeights:
    """What the protocol would publish, computed in one place: the same rounding, integers, batches and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    parts = [quantise(tables[block.owner], block, task, stream)[:, : len(block.columns)] for block in task.blocks]
    x = np.hstack([*parts, np.full((len(labels), 1), float(task.constant))])
    signs = 1 - 2 * np.rint(labels)
    exact = np.float64 if task.largest_sum(len(x)) < 2**53 else object
    descent = GradientDescent(task)
    ids = [str(index) for index in range(len(x))]
    for batch in iterate_batches(task, len(x), batch_secret(task, stream.bytes(32), ids)):
        rows, sign, w = x[batch].astype(exact), signs[batch].astype(exact), descent.integer_weights.astype(exact)
        score = integer_scores(rows @ w.T, sign, task)
        noise = sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
        descent.step((rows.T @ score).reshape(-1) + noise)
    return descent.learned


class GradientSeat:
    """A committee member's work: it keeps the shares of all rows, and computes gradients of batches of them.

    With each row it keeps the part of its score that depends on its label, which is the same in every round.
    """

    def __init__(self, me: Role, task: GradientTask, rows: int) -> None:
        self.me, self.task, self.rows, self.taken = me, task, rows, 0
        primes = len(task.committee.system.primes)
        # A share is below 2^22, so 32 bits are enough; all shares of a person lie together, to be fetched at once.
        self.kept = np.zeros((rows, primes, task.width + task.classes), dtype=np.int32)
        self.kept[:, :, task.width - 1] = task.committee.system.constant(task.constant, 1)
        self._batch = np.zeros((0, primes, task.width + task.classes))
        self._fetched = np.zeros((0, primes, task.width + task.classes), dtype=np.int32)
        # Public factors of a kept row: the weights, and 1 for the part that depends on the label.
        self._factors = np.zeros((task.width + task.classes, task.classes))
        self._factors[task.width :] = np.eye(task.classes)
        # Small integers are their own residues modulo every prime; no weight is longer than Descent allows.
        small = isqrt(task.weights_squared) <= task.committee.system.smallest_half
        self._residues = np.broadcast_to(self._factors, (primes, *self._factors.shape)) if small else None
        self.unchecked = GradientChecks(me.engine, task, self.kept) if me.engine.active else None

    def take_in(self, rows: int, mine: Shares | None) -> dict[str, Shares]:
        """Keep the shares of the next block of rows of every owner; returns what each of them dealt."""
        task, here = self.task, slice(self.taken, self.taken + rows)
        self.taken += rows
        dealt = {}
        with self.me.meter.phase("receive"):
            for block in task.blocks:
                width = len(block.columns)
                whole = width + (task.classes if block.owner == task.label_owner else 0)
                shares = dealt[block.owner] = self.me.dealt_by(block.owner, (rows, whole), mine)
                self.kept[here, :, task.span(block.owner)] = shares.values[:, :, :width].transpose(1, 0, 2)
                if block.owner == task.label_owner:
                    labels = Shares(shares.values[:, :, width:], shares.degree)
                    self.kept[here, :, task.width :] = self._label_part(labels).values.transpose(1, 0, 2)
            if self.unchecked:
                self.me.engine.claims.settle_if_full()
        return dealt

    def gradient(self, batch: NDArray[np.int64], weights: NDArray[np.int64]) -> Shares:
        """The batch's gradient on shares, at the degree of a product of two inputs."""
        engine, t = self.me.engine, self.task.trust.threshold
        rows, width = self._rows(batch), self.task.width
        x = rows[:, :, :width]
        self._factors[:width] = weights.T
        factors = engine.system.to_residues(self._factors) if self._residues is None else self._residues
        if self.task.expansion == 1:
            score = Shares(engine.system.inner(rows.transpose(0, 2, 1), factors), t)
        else:
            u = Shares(engine.system.inner(x.transpose(0, 2, 1), factors[:, :width]), t)
            score = engine.add([Shares(rows[:, :, width:], t), self._cubic(u)])
        if self.unchecked:
            self.unchecked.add_batch(batch, score.values)
        product = engine.inner(Shares(x, t), score)
        return Shares(product.values.reshape(len(product.values), -1), product.degree)

    def _label_part(self, y: Shares) -> Shares:
        """What the label adds to a score: c (1 - 2 y)."""
        engine, gamma = self.me.engine, self.task.gamma
        c = 2 * gamma**2 if self.task.expansion == 1 else 24 * gamma**6
        return engine.shift(engine.scale(y, -2 * c), c)

    def _cubic(self, u: Shares) -> Shares:
        """12 gamma^4 u - u^3, lowered to the degree of an input."""
        engine = self.me.engine
        square = engine.product(u, u)
        rest = engine.shift(engine.scale(square, -1), 12 * self.task.gamma**4)
        cubic = engine.product(u, rest)
        if engine.active:
            engine.claims.settle()  # an error in it would be multiplied with rows
        return cubic

    def _rows(self, batch: NDArray[np.int64]) -> NDArray[np.float64]:
        """The shares of a batch; if messages would show its size, zeros are added up to a fixed size."""
        size = self.task.room(self.rows) if self.task.padded else len(batch)
        if len(batch) > size:
            raise ProtocolError(
                "a drawn batch is larger than any that was to be expected; start the study again [MS024]"
            )
        if size > len(self._batch):
            room = size + min(size // 4, 256)  # the next batches may be a little larger
            self._batch = np.zeros((room, *self.kept.shape[1:]))
            self._fetched = np.empty((room, *self.kept.shape[1:]), dtype=np.int32)
        places = self._batch[:size]
        # Positions are within range; with "clip" numpy fetches rows to where they should lie, without a copy between.
        places[: len(batch)] = self.kept.take(batch, 0, self._fetched[: len(batch)], "clip")
        if self.task.padded:
            places[len(batch) :] = 0.0
        return places.transpose(1, 0, 2)


def _iterate(
    me: Role, task: GradientTask, seat: GradientSeat | None, drawn: bytes, stream: Stream | None
) -> LearnedWeights:
    """All rounds; in each, a gradient is computed and opened, and the weights take a step."""
    descent = GradientDescent(task)
    members = iterate_batches(task, seat.rows, _settled(me, task, drawn)) if seat else iter(())
    draw = None if stream is None else partial(noise_shares, task, stream=stream)
    rounds = RoundCounter(range(task.rounds), me.progress, "iterate", every=task.rounds_ahead)
    for mask in deal_masks_ahead(me, task.owners, task.entries, rounds, task.rounds_ahead, draw):
        if seat and mask:
            with me.meter.phase("iterate"):
                gradient = seat.gradient(next(members), descent.integer_weights)
                opened = _open(me, gradient, mask, task)
                descent.step(opened)
                if seat.unchecked:
                    seat.unchecked.opened(opened, mask)
    if seat and seat.unchecked:
        with me.meter.phase("check"):
            seat.unchecked.settle()
    return _publish(me, task, descent.learned if seat else None)


def _settled(me: Role, task: GradientTask, drawn: bytes) -> bytes:
    """The secret of all batches, after everything that was dealt is checked.

    In active mode a seed comes from all seats, so that nobody chooses who is in a batch; places of people, which
    follow from ids, are the first owner's word, and the seats go on only if it told all of them the same.
    """
    if not me.engine.active:
        return drawn
    with me.meter.phase("check"):
        me.engine.claims.settle()
        if task.seats_draw:
            return me.engine.coin().bytes(KEY_BYTES)
        me.engine.record_public(drawn)
        me.engine.compare_transcripts()
        return drawn


def _open(me: Role, total: Shares, mask: Shares, task: GradientTask) -> NDArray[Any]:
    seats, shape = task.trust.committee, (task.entries,)
    opened = me.reveal(
        total, to=seats, event=task.event, shape=shape, bound=task.bound, mask=mask, through=task.speaker
    )
    return me.require_opened(opened)


def _publish(me: Role, task: GradientTask, learned: LearnedWeights | None) -> LearnedWeights:
    """Whoever has no seat gets the weights from the first owner that has one."""
    speaker = task.speaker
    if learned is None:
        weights = receive_message(me.link(speaker), speaker, weights_message(task))["weights"]
        me.revealed.append(task.event)  # the weights follow from it, though others opened it
        learned = LearnedWeights(task, np.array(weights, dtype=np.float64))
    elif me.name == speaker:
        for name in task.everyone:
            if name not in task.trust.committee:
                me.link(name).send("weights", weights=learned.weights)
    me.have_alike(learned.weights, task.everyone)
    return learned


def _share_draw(me: Owner, ids: Sequence[str], task: GradientTask) -> bytes:
    """The secret of all batches: the first owner draws it and sends it to the committee, unless the seats draw it."""
    first = task.owners[0]
    if me.name != first:
        return _drawn(me, task, len(ids)) if me.engine.has_seat else b""
    if task.seats_draw:
        return b""
    secret = batch_secret(task, new_key(), ids)
    for seat in task.trust.committee:
        if seat != me.name:
            me.link(seat).send("draw", secret=secret)
    return secret


def _drawn(me: Role, task: GradientTask, rows: int) -> bytes:
    if task.seats_draw:
        return b""
    first = task.owners[0]
    secret: bytes = receive_message(me.link(first), first, batches_message(task, rows))["secret"]
    return secret


def _pieces(
    features: Rows, labels: NDArray[np.float64] | None, block: ColumnBlock, task: GradientTask
) -> Iterator[NDArray[np.float64]]:
    """An owner's rows, block by block; at the owner of the label with the labels as last columns."""
    start = 0
    for values in features.blocks(task.block_rows):
        if block.owner == task.label_owner:
            if labels is None or labels.shape[1] != task.classes or not np.isin(labels, (0.0, 1.0)).all():
                raise DataError(
                    f"the label must be {task.classes} columns of zeros and ones in {block.owner}'s table [DA125]"
                )
            values = np.hstack([values, labels[start : start + len(values)]])
        start += len(values)
        yield values
