"""Noisy second moments of columns that nobody holds together (SQM: Algorithms 1 to 3 for x -> x x').

Each owner scales its rows by gamma, rounds them at random to integers and deals them to the committee. The
committee multiplies shares; every owner adds its share of the noise; the sum is opened once. Products of
two columns of one owner are not multiplied on shares: their owner computes them in the clear and deals them
together with its noise. A public constant column gives the count and the means in the same release.

The release holds x_i^2 + Sk(mu) on the diagonal and 2 x_i x_j + Sk(2 mu) above it, which is the full matrix
with Sk(mu) on every entry, its two copies of each off-diagonal entry added up. Discrete Gaussian noise is used in the
same way; discrete Laplace noise is added to each x_i x_j once.

Where the owners have three seats and are not checked, they deal parts instead of shares, which takes less (``parted``).
If nobody knows which people all owners hold, the seats compute all products (``hidden``). Where participants may
deviate, products are checked before anything is opened (``checked``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import Shares
from colonnade.mpc.verify.inputs import InputProofs
from colonnade.protocols.moments.checked import CheckedSeat, add_between, pairs_of_owners, window_ends
from colonnade.protocols.moments.hidden import CheckedHiddenSeat, HiddenSeat
from colonnade.protocols.moments.integers import OwnBlock, exact_gram, noise_share
from colonnade.protocols.moments.parted import PartedSeat
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rounds import Rounds
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.protocols.sums import Sums, over_sums
from colonnade.randomness import Stream


def owner(me: Owner, table: Rows, task: Moments) -> NoisyMoments:
    """An owner's program."""
    noise, summing = own_noise(me, task), over_sums(me, task)
    return release(summing, added_up(me, summing, task, table), task, noise)


def coordinator(me: Coordinator, task: Moments) -> NoisyMoments:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    summing = over_sums(me, task)
    return release(summing, added_up(me, summing, task), task)


def own_noise(me: Owner, task: Moments) -> NDArray[np.int64]:
    """What an owner adds to the sums."""
    with me.meter.phase("noise"):
        return noise_share(task, Stream.fresh())


def added_up(me: Role, summing: Role, task: Moments, table: Rows | None = None, *, part: bool = False) -> Sums:
    """All rows, dealt, multiplied and forgotten; the coordinator has no ``table``.

    ``summing`` is the same participant as ``me`` in the arithmetic of sums. With ``part`` these are some of the rows.
    """
    own = None if table is None else OwnBlock(task, me.name)
    rows = _agreed(me, task, table, part)
    seat = _seat(me, summing, task)
    if not (own or seat):
        return Sums(rows)
    blocks = own.blocks(table, Stream.fresh()) if own and table is not None else iter(())
    ends, window = iter(window_ends(rows, task)), list[NDArray[np.float64]]()
    for size in Rounds(block_sizes(rows, task.rows_per_block), me.progress, "multiply"):
        mine = None
        if own:
            with me.meter.phase("encode"):
                whole = next(blocks)
            with me.meter.phase("deal"):
                mine = me.hand.deal(whole, parts=True) if task.in_parts else me.hand.deal(whole)
            if not task.hidden:
                with me.meter.phase("own block"):
                    own.add(whole)
            if task.trust.active:
                window.append(whole)
        if seat:
            seat.multiply(size, mine)
        if task.trust.active and next(ends):
            _close(me, summing, task, seat, window, own)
            window = []
    # Where seats check, products of own columns were dealt with every window.
    held = None if own is None else np.zeros(task.entries, dtype=np.int64) if task.trust.active else own.entries()
    return Sums(rows, held, seat.sums if seat else None)


def release(me: Role, sums: Sums, task: Moments, noise: NDArray[np.int64] | None = None) -> NoisyMoments:
    """Add every owner's noise to the sums and open them, once; ``me`` computes in the arithmetic of sums."""
    mine = None
    if sums.own is not None and noise is not None:
        with me.meter.phase("deal"):
            mine = me.hand.deal(sums.own + noise)
    total = None
    if sums.shares:
        total = me.hand.add([sums.shares, *(me.dealt_by(owner, (task.entries,), mine) for owner in task.owners)])
        if me.hand.active:
            with me.meter.phase("check"):
                # Proofs hold, and what was dealt last is consistent, before spare shares are compared.
                me.hand.settle()
    return _open(me, total, task)


def reference(tables: Mapping[str, NDArray[np.int64]], task: Moments) -> NDArray[np.int64]:
    """The same integers in the clear, before noise.

    ``tables`` hold what owners deal: if members are hidden, one row per slot, ending in 1 if the slot is taken.
    """
    parts = [tables[owner].astype(object) for owner in task.owners]
    held = np.ones((len(parts[0]), 1), dtype=object)
    if task.hidden:
        held = np.prod([part[:, -1:] for part in parts], axis=0)
        parts = [part[:, :-1] for part in parts]
    joint = np.hstack([*parts, np.full(held.shape, task.constant, dtype=object)])
    gram = (held * joint).T @ joint
    return np.array(gram[np.triu_indices(task.width)] * task.weights, dtype=np.int64)


def simulate(tables: Mapping[str, NDArray[np.float64]], task: Moments, stream: Stream) -> NoisyMoments:
    """What the protocol would publish, computed in one place: the same rounding, integers and noise.

    It is for evaluation on data that may be in one place; a study never calls it. The rows are those of the people whom
    all owners hold, also if members are hidden.
    """
    whole = [OwnBlock(task, owner).quantise(tables[owner], stream) for owner in task.owners]
    joint = np.hstack([*whole, np.full((len(whole[0]), 1), float(task.constant))])
    entries = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights
    for _ in task.owners:
        entries += noise_share(task, stream)
    return NoisyMoments(task, entries)


class Seat:
    """A committee member's work: products of shares between every two owners."""

    def __init__(self, me: Role, task: Moments) -> None:
        self.me, self.task = me, task
        primes = len(task.committee.system.primes)
        self.cross = np.zeros((primes, task.width, task.width))
        self.pairs = pairs_of_owners(len(task.owners))

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add its products between owners."""
        hand = self.me.hand
        with self.me.meter.phase("receive"):
            shares = [self.me.dealt_by(block.owner, (rows, len(block.columns)), mine) for block in self.task.blocks]
        with self.me.meter.phase("multiply"):
            add_between(hand, shares, self.pairs, self.task, self.cross)

    @property
    def sums(self) -> Shares:
        """Products between owners, as often as the task opens them."""
        hand, task = self.me.hand, self.task
        rows, columns = np.triu_indices(task.width)
        products = Shares(self.cross[:, rows, columns], 2 * task.trust.threshold)
        return products if task.copies == 1 else hand.scale(products, task.copies)


AnySeat = Seat | PartedSeat | HiddenSeat | CheckedSeat | CheckedHiddenSeat


def _agreed(me: Role, task: Moments, table: Rows | None, part: bool) -> int:
    """The number of rows, or of slots, that all owners have."""
    if table is None:
        return compare_rows(me, task, hidden=task.hidden, part=part)
    check_places(table, hidden=task.hidden)
    return agree_on_rows(me, task, table, hidden=task.hidden, part=part)


def _seat(me: Role, summing: Role, task: Moments) -> AnySeat | None:
    """A seat's work; ``summing`` is the same participant as ``me`` in the arithmetic of sums."""
    if not me.hand.seated:
        return None
    if task.trust.active:
        return CheckedHiddenSeat(me, summing, task) if task.hidden else CheckedSeat(me, summing, task)
    if task.in_parts:
        return PartedSeat(me, task)
    return HiddenSeat(me, task) if task.hidden else Seat(me, task)


def _close(
    me: Role,
    summing: Role,
    task: Moments,
    seat: AnySeat | None,
    window: Sequence[NDArray[np.float64]] = (),
    own: OwnBlock | None = None,
) -> None:
    """End a window: owners prove the bounds of its rows and deal products of their own columns, seats check."""
    checking = seat if isinstance(seat, CheckedSeat | CheckedHiddenSeat) else None
    if task.proven:
        sizes = [len(block) for block in window] if own else checking.sizes if checking else []
        with me.meter.phase("prove"):
            InputProofs(me.hand, task.proven).window(
                sizes, own=window if own else None, dealt=checking.dealt if checking else None
            )
    mine = None
    if own is not None and not task.hidden:
        with me.meter.phase("deal"):
            mine = summing.hand.deal(own.take_window())
    if checking:
        checking.close(mine)


def _open(me: Role, total: Shares | None, task: Moments) -> NoisyMoments:
    entries = np.zeros(task.entries, dtype=np.int64)
    with me.meter.phase("open"):
        for event, here in zip(task.opens, task.opened_together, strict=True):
            part = None if total is None else Shares(total.values[:, here], total.degree)
            opened = me.reveal(
                part, to=task.everyone, event=event, shape=(len(here),), bound=task.bound, degree=task.opened_degree
            )
            entries[here] = me.entitled(opened).astype(np.int64)
    # What is charged without being opened has shaped the columns, so it was revealed with them.
    me.revealed.extend(event for event in task.events if event not in me.revealed)
    return NoisyMoments(task, entries)
