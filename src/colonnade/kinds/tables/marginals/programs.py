"""Noisy marginals of coded columns that nobody holds together, all in one release.

A column with n values is written as n times its one-hot vector minus one. A block is the sum over people of the tensor
product of such coordinates, times a public weight: the part of a marginal that no smaller marginal tells. All numbers
are integers from the start, so nothing is rounded.

1. Every owner deals the coordinates of its columns to the committee, one block of rows after the other. The owner of
   the label deals the products of the label with its other columns too.
2. The seats multiply the label with columns of others, and lower the degree of these shares if too few seats could
   open products of three. Then every block of columns of several owners is an inner product of two shared matrices.
3. Blocks of one owner's columns never pass through a multiplication: their owner adds them up in the clear.
4. Every owner deals its own blocks and its share of the noise, and the sum of everything is opened, once.

If nobody knows which people all owners hold, the seats compute all products (``hidden``). Where participants may
deviate, products are checked before anything is opened (``checked``), and owners can prove that what they deal are the
coordinates of codes (``proofs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.marginals.integers import Matrix, OwnColumns, noise_share
from colonnade.kinds.tables.marginals.published import NoisyMarginals
from colonnade.kinds.tables.marginals.seat import HiddenSeat, Seat
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.mpc import Shares
from colonnade.mpc.verify.inputs import InputProofs
from colonnade.protocols.moments.checked import window_ends
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rounds import Rounds
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.protocols.sums import Sums, over_sums
from colonnade.randomness import Stream


def owner(me: Owner, table: Rows, task: Marginals) -> NoisyMarginals:
    """An owner's program; the rows of the table are the codes of its columns."""
    noise, summing = own_noise(me, task), over_sums(me, task)
    return release(summing, added_up(me, summing, task, table), task, noise)


def coordinator(me: Coordinator, task: Marginals) -> NoisyMarginals:
    """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
    summing = over_sums(me, task)
    return release(summing, added_up(me, summing, task), task)


def own_noise(me: Owner, task: Marginals) -> NDArray[np.int64]:
    """What an owner adds to the sums."""
    with me.meter.phase("noise"):
        return noise_share(task, Stream.fresh())


def added_up(me: Role, summing: Role, task: Marginals, table: Rows | None = None, *, part: bool = False) -> Sums:
    """All rows, dealt, multiplied and forgotten; the coordinator has no ``table``.

    ``summing`` is the same participant as ``me`` in the arithmetic of sums. With ``part`` these are some of the rows.
    """
    own = None if table is None else OwnColumns(task, me.name)
    rows = _agreed(me, task, table, own, part)
    seat = _seat(summing, me, task)
    if not (own or seat):
        return Sums(rows)
    blocks = own.blocks(table) if own and table is not None else iter(())
    ends, window = iter(window_ends(rows, task)), list[Matrix]()
    for size in Rounds(block_sizes(rows, task.rows_per_block), me.progress, "multiply"):
        mine = None
        if own:
            with me.meter.phase("encode"):
                whole = next(blocks)
            with me.meter.phase("deal"):
                mine = me.hand.deal(own.dealt(whole)) if own.deals else None
            with me.meter.phase("own blocks"):
                own.add(whole)
            if me.name in task.codes:
                window.append(task.codes[me.name].completed(own.dealt(whole)))
        if seat:
            seat.multiply(size, mine)
        if task.trust.active and next(ends):
            _close(me, task, seat, window)
            window = []
    return Sums(rows, own.cells(task.whole) if own else None, seat.total if seat else None)


def release(me: Role, sums: Sums, task: Marginals, noise: NDArray[np.int64] | None = None) -> NoisyMarginals:
    """Add every owner's noise to the sums and open them, once, part by part; ``me`` computes in their arithmetic."""
    found = np.zeros(task.entries, dtype=np.int64)
    for part in task.parts:
        here = task.opened_by(part)
        shape, mine, total = (here.stop - here.start,), None, None
        if sums.own is not None and noise is not None:
            with me.meter.phase("deal"):
                mine = me.hand.deal(sums.own[here] + noise[here])
        if sums.shares:
            held = Shares(sums.shares.values[:, here], sums.shares.degree)
            total = me.hand.add([held, *(me.dealt_by(owner, shape, mine) for owner in task.owners)])
            if me.hand.active:
                with me.meter.phase("check"):
                    # Proofs hold, and what was dealt last is consistent, before spare shares are compared.
                    me.hand.settle()
        with me.meter.phase("open"):
            opened = me.reveal(
                total, to=task.everyone, event=task.event, shape=shape, bound=task.bound, degree=task.degree
            )
        found[here] = me.entitled(opened).astype(np.int64)
    return NoisyMarginals(task, found)


def reference(tables: Mapping[str, NDArray[np.int64]], task: Marginals) -> NDArray[np.int64]:
    """The same integers in the clear, before noise: people are counted cell by cell, and the counts are centred.

    ``tables`` hold codes; if members are hidden, one row per slot, ending in 1 if the slot is taken.
    """
    parts = [np.asarray(tables[owner], dtype=np.int64) for owner in task.owners]
    if task.hidden:
        held = np.logical_and.reduce([part[:, -1] == 1 for part in parts])
        parts = [part[held, :-1] for part in parts]
    codes = np.hstack(parts)
    found = []
    for block in task.asked:
        shape = [task.sizes[column] for column in block.columns]
        cell = np.zeros(len(codes), dtype=np.int64)
        for column, size in zip(block.columns, shape, strict=True):
            cell = cell * size + codes[:, column]
        table = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
        for axis, size in enumerate(shape):
            table = size * table - table.sum(axis=axis, keepdims=True)
            if size == 2:
                table = table.take([0], axis=axis)
        found.append(block.weight * table.reshape(-1))
    return np.concatenate(found)


def simulate(tables: Mapping[str, NDArray[np.int64]], task: Marginals, stream: Stream) -> NoisyMarginals:
    """What the protocol would publish, computed in one place: the same integers and noise.

    It is for evaluation on data that may be in one place; a study never calls it. The rows are those of the people whom
    all owners hold, also if members are hidden.
    """
    cells = reference(tables, replace(task, hidden=False))
    for _ in task.owners:
        cells = cells + noise_share(task, stream)
    return NoisyMarginals(task, cells)


def _agreed(me: Role, task: Marginals, table: Rows | None, own: OwnColumns | None, part: bool) -> int:
    """The number of rows, or of slots, that all owners have."""
    if table is None or own is None:
        return compare_rows(me, task, hidden=task.hidden, part=part)
    check_places(table, hidden=task.hidden)
    own.check(table)
    return agree_on_rows(me, task, table, hidden=task.hidden, part=part)


def _seat(me: Role, wide: Role, task: Marginals) -> Seat | None:
    if not me.hand.seated:
        return None
    return HiddenSeat(me, wide, task) if task.hidden else Seat(me, wide, task)


def _close(me: Role, task: Marginals, seat: Seat | None, window: Sequence[Matrix] = ()) -> None:
    """End a window: owners prove that what they dealt are coordinates of codes, and seats check their products."""
    checked = seat.checked if seat else None
    if task.proven and (checked or window):
        with me.meter.phase("prove"):
            InputProofs(me.hand, task.proven).window(
                checked.sizes if checked else [len(block) for block in window],
                own=window or None,
                dealt=checked.proven if checked else None,
            )
    if seat:
        seat.close()
