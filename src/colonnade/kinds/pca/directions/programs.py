"""Principal components of wide tables, or weights for a label: products of all second moments with few directions.

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

from colonnade.kinds.pca.directions import labelled, vocabulary
from colonnade.kinds.pca.directions.checks import OpenedProducts
from colonnade.kinds.pca.directions.integers import exact_products, noise_shares, quantise
from colonnade.kinds.pca.directions.search import AskedDirections, IntegerDirections, NoisyProducts, beginning
from colonnade.kinds.pca.directions.task import Directions
from colonnade.mpc import Shares
from colonnade.mpc.accelerator import expect
from colonnade.mpc.accelerator.held import HeldRows
from colonnade.protocols.proving import Proving
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rounds import Rounds, masks_ahead
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, compare_rows
from colonnade.randomness import Stream
from colonnade.received import received


def owner(me: Owner, table: Rows, task: Directions) -> NoisyProducts:
    """An owner's program."""
    stream = Stream.fresh()
    rows = agree_on_rows(me, task, table)
    seat = Seat(me, task, rows) if me.hand.seated else None
    block, blocks = task.block(me.name), table.blocks(task.rows_dealt)
    squares, proving = 0, Proving(me, task.proven)
    for size in Rounds(block_sizes(rows, task.rows_dealt), me.progress, "deal"):
        with me.meter.phase("encode"):
            whole = quantise(next(blocks), block, task, stream)
            squares += int(np.square(whole).sum(axis=1).astype(np.int64).sum())
        with me.meter.phase("deal"):
            mine = me.hand.deal(whole)
        proving.add(size, whole, seat.take_in(size, mine) if seat else {})
    proving.end()
    return _search(me, task, seat, stream, squares)


def coordinator(me: Coordinator, task: Directions) -> NoisyProducts:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    rows = compare_rows(me, task)
    seat = Seat(me, task, rows) if me.hand.seated else None
    if seat:
        proving = Proving(me, task.proven)
        for size in block_sizes(rows, task.rows_dealt):
            proving.add(size, None, seat.take_in(size, None))
        proving.end()
    return _search(me, task, seat, None)


def reference(
    tables: Mapping[str, NDArray[np.int64]], directions: Sequence[IntegerDirections], task: Directions
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


def simulate(tables: Mapping[str, NDArray[np.float64]], task: Directions, stream: Stream) -> NoisyProducts:
    """What the protocol would publish, computed in one place: the same rounding, integers, directions and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    # What the protocol refuses is not simulated either.
    task.committee  # noqa: B018
    parts = [quantise(tables[block.owner], block, task, stream) for block in task.blocks]
    joint = np.hstack([*parts, np.full((len(parts[0]), 1), float(task.constant))])
    asked = AskedDirections(task)
    opened: list[NDArray[np.int64]] = []
    for number in range(task.rounds):
        asked.add(_wanted(task, asked, opened, stream))
        exact = exact_products(joint, asked.rounds[-1], task)
        total = 0 if number else task.total_weight * int(np.einsum("ij,ij->i", joint, joint).astype(np.int64).sum())
        noise = sum(noise_shares(task, 1, stream)[0] for _ in task.owners)
        opened.append(np.append(exact.reshape(-1), total) + noise)
    return NoisyProducts(task, tuple(asked.rounds), tuple(opened))


class Seat:
    """A committee member's work: it keeps the shares of all rows, and multiplies them by directions."""

    def __init__(self, me: Role, task: Directions, rows: int) -> None:
        self.me, self.task = me, task
        # A share is below 2^22, so 32 bits are enough.
        self.kept: list[NDArray[np.int32]] = []
        expect(2 * task.rounds * task.directions * rows * task.width * len(task.committee.system.primes))
        self._rows: HeldRows | None = None
        self.unchecked = OpenedProducts(me.hand, task) if me.hand.active else None

    def take_in(self, rows: int, mine: Shares | None) -> dict[str, Shares]:
        """Keep the shares of the next block of rows of every owner; returns what each of them dealt."""
        task, dealt = self.task, {}
        block = np.empty((len(task.committee.system.primes), rows, task.width), dtype=np.int32)
        with self.me.meter.phase("receive"):
            for part in task.blocks:
                shares = dealt[part.owner] = self.me.dealt_by(part.owner, (rows, len(part.columns)), mine)
                block[:, :, task.span(part.owner)] = shares.values
            if self.unchecked:
                self.me.hand.claims.relieve()
        block[:, :, -1:] = task.committee.system.constant(task.constant, 3)
        self.kept.append(block)
        return dealt

    @property
    def held(self) -> HeldRows:
        """The shares of all rows, after the last of them was taken in."""
        if self._rows is None:
            self._rows = HeldRows(self.me.hand.system, self.kept, self.task.rows_multiplied)
        return self._rows

    def products(self, directions: IntegerDirections, *, with_total: bool) -> Shares:
        """Shares of Z'(Z Q), and last, if ``with_total``, of the weighted sum of all squared norms.

        In active mode the owners deal this sum for their own columns, and that of the constant is left.
        """
        task, system = self.task, self.me.hand.system
        public = system.split(directions.astype(np.float64))
        total = np.zeros((len(system.primes), task.entries))
        total[:, :-1] = self.held.products(public).reshape(len(total), -1)
        if with_total and self.unchecked:
            total[:, -1:] = system.constant(task.total_weight * task.constant**2 * self.held.count, 2)
        elif with_total:
            for part in self.held.parts():
                squares = system.reduce(part * part).sum(axis=(1, 2))[:, None]
                total[:, -1:] += system.reduce(system.reduce(squares) * system.constant(task.total_weight, 2))
        return Shares(system.reduce(total), 2 * task.trust.threshold)


def _search(me: Role, task: Directions, seat: Seat | None, stream: Stream | None, squares: int = 0) -> NoisyProducts:
    """All rounds; in each, directions are chosen, products are computed and opened.

    ``squares`` is the sum of squared norms of this owner's own rows.
    """
    asked = AskedDirections(task)
    opened: list[NDArray[np.int64]] = []

    def draw(rounds: int, stream: Stream) -> NDArray[np.int64]:
        drawn = noise_shares(task, rounds, stream=stream)
        if me.hand.active and not opened:
            drawn[0, -1] += task.total_weight * squares
        return drawn

    rounds = Rounds(range(task.rounds), me.progress, "search")
    drawn = None if stream is None else partial(draw, stream=stream)
    checks = seat.unchecked if seat else None
    if checks:
        with me.meter.phase("check"):
            me.hand.claims.settle()
    for mask in masks_ahead(me, task.owners, task.entries, rounds, task.rounds_ahead, drawn):
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
    me: Role, task: Directions, asked: AskedDirections, opened: Sequence[NDArray[np.int64]]
) -> IntegerDirections:
    """The next directions: one participant chooses and sends them, as floats differ between machines."""
    if me.name != task.speaker:
        told = received(me.link(task.speaker), task.speaker, vocabulary.directions(task))
        directions: IntegerDirections = told["values"]
    else:
        directions = _wanted(task, asked, opened, Stream.fresh())
        for name in task.everyone:
            if name != me.name:
                me.link(name).send("directions", values=directions)
    me.have_alike(directions, task.everyone)
    return directions


def _wanted(
    task: Directions, asked: AskedDirections, opened: Sequence[NDArray[np.int64]], stream: Stream
) -> IntegerDirections:
    """The directions of the next round, from what was opened; random ones, or the label's, in the first round."""
    if not opened:
        return asked.rounded(labelled.beginning(task) if task.labels else beginning(task, stream))
    if task.labels:
        return asked.rounded(labelled.Explored(task, tuple(asked.rounds), tuple(opened)).following())
    return asked.rounded(NoisyProducts(task, tuple(asked.rounds), tuple(opened)).following())


def _open(me: Role, products: Shares | None, mask: Shares | None, task: Directions) -> NDArray[np.int64]:
    shape, to, event = (task.entries,), task.everyone, task.event
    opened = me.reveal(products, to=to, event=event, shape=shape, bound=task.bound, mask=mask, through=task.speaker)
    return me.entitled(opened).astype(np.int64)
