"""Rounds of products with directions that are checked after they were opened, all at once.

A wrong product adds an error to a noised sum that its author knows beforehand, so it tells nothing and may be found
later, as long as all seats go on with the same numbers. For random u, and v for every direction of every round,

    sum over rounds u'(opened - noise) v = <Z u, Z g>,  g = sum over rounds of Q v,

holds if all products are right. It takes one pass over the rows, however many rounds there were. The sum of squared
norms is not among them: in active mode every owner adds that of its own columns to its noise, so that what was opened,
less what was dealt and the part of the constant, must be zero.

Products with directions as integers: rounded rows, exact products in one place, and the noise of an owner.

Messages of the search for components, besides shares.

Principal components of wide tables, or weights for a label: products of all second moments with few directions.

Each owner scales its rows by gamma, rounds them at random to integers and deals them to the committee, once. In every
round one participant tells all others which directions Q it wants; everybody checks that they are within reach. Each
seat computes, on its shares alone, first Z Q and then Z'(Z Q), where Z are all rows with a public constant as their
last column. Every owner has dealt its share of the round's noise; the noisy product is opened, and the next directions
follow from it. The first round also opens the sum of all squared norms, for the share of variance that is explained.

In active mode products are checked after they were opened, many rounds at once (``checks``), before anybody has a
result; every seat goes on only with directions and numbers that all were told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.pca import subspace_iteration
from colonnade.kinds.pca.subspace_iteration import DirectionHistory, IntegerDirections, NoisyProducts, random_directions
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.message_schema import ArrayForm, MessageSchema, receive_message
from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.accelerator import expect_work
from colonnade.mpc.residues import ResidentRows, Residues, ResidueSystem
from colonnade.mpc.verification.claims import InnerProductQuestion
from colonnade.privacy.noise.local_mechanisms import round_and_zero_long_rows
from colonnade.protocols.iteration import RoundCounter, RoundProofs, deal_masks_ahead
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import ColumnBlock, Rows, agree_on_rows, block_sizes, compare_rows
from colonnade.randomness import Stream


class ProductChecks:
    """What a seat keeps of rounds until they are checked."""

    def __init__(self, engine: ShareEngine, task: SubspaceIteration) -> None:
        self._engine, self._task = engine, task
        self._rows = ResidentRows(engine.system, (), 1)
        self._asked: list[Residues] = []
        self._sums: list[Residues] = []
        self._totals: list[Residues] = []
        self._begun = False

    def opened(self, directions: IntegerDirections, values: NDArray[np.int64], noise: Shares) -> None:
        """A round asked for these directions and opened these numbers, with this noise in them."""
        task, system = self._task, self._engine.system
        shape = (-1, task.width, task.directions)
        self._asked.append(system.to_residues(directions.astype(np.float64)))
        exact = system.reduce(system.to_residues(values) - noise.values)
        self._sums.append(exact[:, :-1].reshape(shape))
        self._totals.append(exact[:, -1:])

    def settle(self, rows: ResidentRows) -> None:
        """Check the rounds since the last time; ``rows`` are this seat's shares of all rows."""
        self._rows = rows
        self._engine.claims.add_product(self)
        self._engine.claims.zero(self._no_totals())
        self._engine.claims.settle()
        self._asked, self._sums, self._totals, self._begun = [], [], [], True

    def _no_totals(self) -> Shares:
        """What is left of the opened sums of squared norms, which are dealt but for the constant's, asked for once."""
        task, system = self._task, self._engine.system
        totals = np.concatenate(self._totals, axis=1)
        if not self._begun:
            totals[:, :1] -= system.constant(task.total_weight * task.constant**2 * self._rows.count, 2)
        return Shares(system.reduce(totals), task.trust.threshold)

    @property
    def length(self) -> int:
        """An entry for every row."""
        return self._rows.count

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """All rounds as one inner product for every repetition."""
        asked, sums = np.concatenate(self._asked, axis=2), np.concatenate(self._sums, axis=2)
        columns = system.uniform((self._task.width, repeated), coin)
        factors = system.uniform((asked.shape[2], repeated), coin)
        both = np.concatenate([columns, system.inner(asked.transpose(0, 2, 1), factors)], axis=2)
        found = np.concatenate([system.inner(both, rows.transpose(0, 2, 1)) for rows in self._rows.parts()], axis=2)
        products = system.reduce(system.inner(columns, sums) * factors.transpose(0, 2, 1)).sum(axis=2)
        return InnerProductQuestion(found[:, :repeated], found[:, repeated:], system.reduce(products))


def quantise(
    values: NDArray[np.float64], block: ColumnBlock, task: SubspaceIteration, stream: Stream
) -> NDArray[np.float64]:
    """Algorithm 2: scale and round at random, and enforce the bound on the integers themselves."""
    return round_and_zero_long_rows(values * float(task.gamma), task.block_norm_squared(block), stream)


def exact_products(
    joint: NDArray[np.float64], directions: IntegerDirections, task: SubspaceIteration
) -> NDArray[np.int64]:
    """Z'(Z Q) of integer rows, exact because it is computed in blocks whose sums stay below 2^53, or in integers."""
    step = 2**53 // (task.norm_squared * task.reach)
    if not step:
        # The product of one row may be above 2^53. Z Q is not: if sums fit 63 bits, it stays below 2^31 sqrt(reach).
        inner = joint @ directions.astype(np.float64)
        return joint.T.astype(np.int64) @ inner.astype(np.int64)
    total = np.zeros(directions.shape, dtype=np.int64)
    for start in range(0, len(joint), step):
        part = joint[start : start + step]
        total += (part.T @ (part @ directions.astype(np.float64))).astype(np.int64)
    return total


def noise_shares(task: SubspaceIteration, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for ``rounds`` rounds."""
    return entry_noise(task, (rounds, task.entries), stream)


def entry_noise(task: SubspaceIteration, shape: tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for opened numbers of this shape; audits attack this function."""
    return task.additive.draw(shape, stream)


def directions_message(task: SubspaceIteration) -> MessageSchema:
    """The directions of the next round, from the participant that chooses them to all others."""
    return MessageSchema(
        "directions", values=ArrayForm(np.int32, (task.width, task.directions), -task.reach, task.reach)
    )


def owner(me: Owner, table: Rows, task: SubspaceIteration) -> NoisyProducts:
    """An owner's program."""
    stream = Stream.fresh()
    rows = agree_on_rows(me, task, table)
    seat = SubspaceSeat(me, task, rows) if me.engine.has_seat else None
    block, blocks = task.block(me.name), table.blocks(task.rows_dealt)
    squares, proving = 0, RoundProofs(me, task.proven)
    for size in RoundCounter(block_sizes(rows, task.rows_dealt), me.progress, "deal"):
        with me.meter.phase("encode"):
            whole = quantise(next(blocks), block, task, stream)
            squares += int(np.square(whole).sum(axis=1).astype(np.int64).sum())
        with me.meter.phase("deal"):
            mine = me.engine.deal(whole)
        proving.add(size, whole, seat.take_in(size, mine) if seat else {})
    proving.end()
    return _search(me, task, seat, stream, squares)


def coordinator(me: Coordinator, task: SubspaceIteration) -> NoisyProducts:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    rows = compare_rows(me, task)
    seat = SubspaceSeat(me, task, rows) if me.engine.has_seat else None
    if seat:
        proving = RoundProofs(me, task.proven)
        for size in block_sizes(rows, task.rows_dealt):
            proving.add(size, None, seat.take_in(size, None))
        proving.end()
    return _search(me, task, seat, None)


def reference(
    tables: Mapping[str, NDArray[np.int64]], directions: Sequence[IntegerDirections], task: SubspaceIteration
) -> list[NDArray[np.int64]]:
    """The integers of all rounds in the clear, before noise; ``tables`` hold the rounded rows, without the constant."""
    parts = [tables[owner].astype(object) for owner in task.owners]
    joint = np.hstack([*parts, np.full((len(parts[0]), 1), task.constant, dtype=object)])
    rounds = []
    for number, asked in enumerate(directions):
        products = joint.T @ (joint @ asked.astype(object))
        total = 0 if number else task.total_weight * int((joint * joint).sum())
        rounds.append(np.append(products.reshape(-1), total).astype(np.int64))
    return rounds


def simulate(tables: Mapping[str, NDArray[np.float64]], task: SubspaceIteration, stream: Stream) -> NoisyProducts:
    """What the protocol would publish, computed in one place: the same rounding, integers, directions and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    # What the protocol refuses is not simulated either.
    task.committee  # noqa: B018
    parts = [quantise(tables[block.owner], block, task, stream) for block in task.blocks]
    joint = np.hstack([*parts, np.full((len(parts[0]), 1), float(task.constant))])
    asked = DirectionHistory(task)
    opened: list[NDArray[np.int64]] = []
    for number in range(task.rounds):
        asked.add(_wanted(task, asked, opened, stream))
        exact = exact_products(joint, asked.rounds[-1], task)
        total = 0 if number else task.total_weight * int(np.einsum("ij,ij->i", joint, joint).astype(np.int64).sum())
        noise = sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
        opened.append(np.append(exact.reshape(-1), total) + noise)
    return NoisyProducts(task, tuple(asked.rounds), tuple(opened))


class SubspaceSeat:
    """A committee member's work: it keeps the shares of all rows, and multiplies them by directions."""

    def __init__(self, me: Role, task: SubspaceIteration, rows: int) -> None:
        self.me, self.task = me, task
        # A share is below 2^22, so 32 bits are enough.
        self.kept: list[NDArray[np.int32]] = []
        expect_work(2 * task.rounds * task.directions * rows * task.width * len(task.committee.system.primes))
        self._rows: ResidentRows | None = None
        self.unchecked = ProductChecks(me.engine, task) if me.engine.active else None

    def take_in(self, rows: int, mine: Shares | None) -> dict[str, Shares]:
        """Keep the shares of the next block of rows of every owner; returns what each of them dealt."""
        task, dealt = self.task, {}
        block = np.empty((len(task.committee.system.primes), rows, task.width), dtype=np.int32)
        with self.me.meter.phase("receive"):
            for part in task.blocks:
                shares = dealt[part.owner] = self.me.dealt_by(part.owner, (rows, len(part.columns)), mine)
                block[:, :, task.span(part.owner)] = shares.values
            if self.unchecked:
                self.me.engine.claims.settle_if_full()
        block[:, :, -1:] = task.committee.system.constant(task.constant, 3)
        self.kept.append(block)
        return dealt

    @property
    def held(self) -> ResidentRows:
        """The shares of all rows, after the last of them was taken in."""
        if self._rows is None:
            self._rows = ResidentRows(self.me.engine.system, self.kept, self.task.rows_multiplied)
        return self._rows

    def products(self, directions: IntegerDirections, *, with_total: bool) -> Shares:
        """Shares of Z'(Z Q), and last, if ``with_total``, of the weighted sum of all squared norms.

        In active mode the owners deal this sum for their own columns, and that of the constant is left.
        """
        task, system = self.task, self.me.engine.system
        public = system.to_residues(directions.astype(np.float64))
        total = np.zeros((len(system.primes), task.entries))
        total[:, :-1] = self.held.products(public).reshape(len(total), -1)
        if with_total and self.unchecked:
            total[:, -1:] = system.constant(task.total_weight * task.constant**2 * self.held.count, 2)
        elif with_total:
            for part in self.held.parts():
                squares = system.reduce(part * part).sum(axis=(1, 2))[:, None]
                total[:, -1:] += system.reduce(system.reduce(squares) * system.constant(task.total_weight, 2))
        return Shares(system.reduce(total), 2 * task.trust.threshold)


def _search(
    me: Role, task: SubspaceIteration, seat: SubspaceSeat | None, stream: Stream | None, squares: int = 0
) -> NoisyProducts:
    """All rounds; in each, directions are chosen, products are computed and opened.

    ``squares`` is the sum of squared norms of this owner's own rows.
    """
    asked = DirectionHistory(task)
    opened: list[NDArray[np.int64]] = []

    def draw(rounds: int, stream: Stream) -> NDArray[np.int64]:
        drawn = noise_shares(task, rounds, stream=stream)
        if me.engine.active and not opened:
            drawn[0, -1] += task.total_weight * squares
        return drawn

    rounds = RoundCounter(range(task.rounds), me.progress, "search")
    drawn = None if stream is None else partial(draw, stream=stream)
    checks = seat.unchecked if seat else None
    if checks:
        with me.meter.phase("check"):
            me.engine.claims.settle()
    for mask in deal_masks_ahead(me, task.owners, task.entries, rounds, task.rounds_ahead, drawn):
        with me.meter.phase("search"):
            asked.add(_chosen(me, task, asked, opened))
        products = None
        if seat:
            with me.meter.phase("multiply"):
                products = seat.products(asked.rounds[-1], with_total=not opened)
        with me.meter.phase("open"):
            opened.append(_open(me, products, mask, task))
        if seat and checks and mask:
            checks.opened(asked.rounds[-1], opened[-1], mask)
            if len(opened) == task.rounds or not len(opened) % task.rounds_ahead:
                with me.meter.phase("check"):
                    checks.settle(seat.held)
    return NoisyProducts(task, tuple(asked.rounds), tuple(opened))


def _chosen(
    me: Role, task: SubspaceIteration, asked: DirectionHistory, opened: Sequence[NDArray[np.int64]]
) -> IntegerDirections:
    """The next directions: one participant chooses and sends them, as floats differ between machines."""
    if me.name != task.speaker:
        told = receive_message(me.link(task.speaker), task.speaker, directions_message(task))
        directions: IntegerDirections = told["values"]
    else:
        directions = _wanted(task, asked, opened, Stream.fresh())
        for name in task.everyone:
            if name != me.name:
                me.link(name).send("directions", values=directions)
    me.have_alike(directions, task.everyone)
    return directions


def _wanted(
    task: SubspaceIteration, asked: DirectionHistory, opened: Sequence[NDArray[np.int64]], stream: Stream
) -> IntegerDirections:
    """The directions of the next round, from what was opened; random ones, or the label's, in the first round."""
    if not opened:
        return asked.round_directions(
            subspace_iteration.label_directions(task) if task.labels else random_directions(task, stream)
        )
    if task.labels:
        return asked.round_directions(
            subspace_iteration.LabelledProducts(task, tuple(asked.rounds), tuple(opened)).following()
        )
    return asked.round_directions(NoisyProducts(task, tuple(asked.rounds), tuple(opened)).following())


def _open(me: Role, products: Shares | None, mask: Shares | None, task: SubspaceIteration) -> NDArray[np.int64]:
    shape, to, event = (task.entries,), task.everyone, task.event
    opened = me.reveal(products, to=to, event=event, shape=shape, bound=task.bound, mask=mask, through=task.speaker)
    return me.require_opened(opened).astype(np.int64)
