"""The programs of every joint sum: agree on rows, deal them block by block, multiply, and open the total once.

What computes a sum that nobody sees is a :class:`CommitteeEngine`, one object for one participant: it adds rows up and
releases sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import Shares
from colonnade.mpc.verification.input_proofs import InputProofs
from colonnade.protocols.committee_task import JointSumTask
from colonnade.protocols.iteration import RoundCounter
from colonnade.protocols.joint_sum.declaration import (
    JointSum,
    OwnerSum,
    PartialSums,
    SumOpening,
    Whole,
    use_sum_arithmetic,
)
from colonnade.protocols.joint_sum.seats import CheckedSumSeat, ReplicatedSumSeat, SumSeat
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.randomness import Stream


class CommitteeEngine:
    """A joint sum by the seats of a committee, on shares.

    Rows are dealt to ``me``; ``summing`` is the same participant in the arithmetic of sums, which
    may take fewer primes.
    """

    def __init__(self, me: Role, summing: Role, declared: JointSum[Any]) -> None:
        self.me, self.summing, self.declared = me, summing, declared
        self.task: JointSumTask = declared.task

    def sum_rows(self, table: Rows | None, *, part: bool = False) -> PartialSums:
        """All rows, dealt, multiplied and forgotten; the coordinator has no ``table``."""
        me, task = self.me, self.task
        own = self.declared.own(task, me.name) if table is not None and me.name in task.dealers else None
        rows = self._agree(table, own, part)
        seat = self._seat()
        if not (own or seat):
            return PartialSums(rows)
        blocks = own.blocks(table, Stream.fresh()) if own and table is not None else iter(())
        ends, window = iter(window_ends(rows, task)), list[Whole]()
        for size in RoundCounter(block_sizes(rows, task.rows_per_block), me.progress, "multiply"):
            mine = None
            if own:
                with me.meter.phase("encode"):
                    whole = next(blocks)
                if own.deals:
                    with me.meter.phase("deal"):
                        dealt = own.dealt(whole)
                        mine = me.engine.deal(dealt, parts=True) if task.in_parts else me.engine.deal(dealt)
                    if me.name in task.proven:
                        window.append(self.declared.proof_rows(me.name, dealt))
                with me.meter.phase("own block"):
                    own.add(whole)
            if seat:
                seat.multiply(size, mine)
            if task.trust.active and next(ends):
                self._close(seat, own, window)
                window = []
        return PartialSums(
            rows, own.entries() if own else None, seat.total if seat and self.declared.circuit.products else None
        )

    def _agree(self, table: Rows | None, own: OwnerSum | None, part: bool) -> int:
        """The number of rows, or of slots, that all owners have."""
        hidden = self.task.hidden
        if table is None:
            return compare_rows(self.me, self.task, hidden=hidden, part=part)
        check_places(table, hidden=hidden)
        if own:
            own.check(table)
        return agree_on_rows(self.me, self.task, table, hidden=hidden, part=part)

    def _seat(self) -> SumSeat | None:
        if not self.me.engine.has_seat:
            return None
        kind = CheckedSumSeat if self.task.trust.active else ReplicatedSumSeat if self.task.in_parts else SumSeat
        return kind(self.summing, self.me, self.declared)

    def _close(self, seat: SumSeat | None, own: OwnerSum | None, window: list[Whole]) -> None:
        """End a window: owners prove the bounds of its rows and deal sums of their own columns, seats check."""
        me, mine = self.me, None
        checked = seat if isinstance(seat, CheckedSumSeat) else None
        if self.task.proven and (checked or window):
            with me.meter.phase("prove"):
                InputProofs(me.engine, self.task.proven).window(
                    checked.sizes if checked else [len(block) for block in window],
                    own=window or None,
                    dealt=checked.proven if checked else None,
                )
        if own and self.declared.circuit.own_windows:
            with me.meter.phase("deal"):
                mine = self.summing.engine.deal(own.take_window())
        if seat:
            seat.close(mine)

    def release(self, sums: PartialSums, noise: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Add every owner's noise to the sums and open them, once, some of them at a time."""
        openings, entitled = self.declared.openings(sums.rows), self.summing.name in self.task.everyone
        found = np.zeros(openings[-1].stop, dtype=np.int64)
        for opening in openings:
            here, mine = slice(opening.start, opening.stop), None
            if sums.own is not None and noise is not None:
                mine = self.deal(sums.own[here] + noise[here])
            held = None if sums.shares is None else Shares(sums.shares.values[:, here], sums.shares.degree)
            opened = self.open(opening, self.add_dealt(opening, mine, held))
            if entitled:
                found[here] = opened
        # What is charged without being opened has shaped the columns, so it was revealed with them.
        revealed = self.summing.revealed
        revealed.extend(event for event in self.task.events if event not in revealed)
        return found if entitled else None

    def deal(self, values: NDArray[np.int64]) -> Shares | None:
        """Deal own sums and noise; returns this participant's own shares, if it has a seat."""
        with self.summing.meter.phase("deal"):
            return self.summing.engine.deal(values)

    def add_dealt(self, opening: SumOpening, mine: Shares | None, held: Shares | None = None) -> Shares | None:
        """At a seat, what all owners dealt for an opening, and what it held already."""
        me, shape = self.summing, (opening.stop - opening.start,)
        if not me.engine.has_seat:
            return None
        with me.meter.phase("receive"):
            dealt = [me.dealt_by(owner, shape, mine) for owner in self.task.dealers]
            return me.engine.add(dealt if held is None else [held, *dealt])

    def open(self, opening: SumOpening, total: Shares | None) -> NDArray[np.int64]:
        """Open it, after what it rests on was checked; who may not know the numbers gets zeros."""
        me, task, found = self.summing, self.task, np.zeros(opening.stop - opening.start, dtype=np.int64)
        if me.engine.active and me.engine.has_seat:
            with me.meter.phase("check"):
                # Proofs hold, and what was dealt last is consistent, before spare shares are compared.
                me.engine.settle()
        for event, which in opening.events:
            part, shape = None if total is None else Shares(total.values[:, which], total.degree), found[which].shape
            with me.meter.phase("open"):
                values = me.reveal(
                    part, to=task.everyone, event=event, shape=shape, bound=task.bound, degree=task.opened_degree
                )
            if me.name in task.everyone:
                found[which] = me.require_opened(values).astype(np.int64)
        return found


class JointSumPrograms:
    """The programs of one kind of joint sum, which ``declare`` makes of a public task."""

    def __init__(self, declare: type[JointSum[Any]]) -> None:
        self.declare = declare

    def owner(self, me: Owner, table: Any, task: JointSumTask) -> Any:
        """An owner's program: draw noise, add rows up, release the sums."""
        noise, summing = self.own_noise(me, task, table), use_sum_arithmetic(me, task)
        return self.release(summing, self.sum_rows(me, summing, task, table), task, noise)

    def coordinator(self, me: Coordinator, task: JointSumTask) -> Any:
        """The coordinator's program: it waits for the result and, with two owners, keeps the third seat."""
        summing = use_sum_arithmetic(me, task)
        return self.release(summing, self.sum_rows(me, summing, task), task)

    def own_noise(self, me: Owner, task: JointSumTask, table: Any = None) -> NDArray[np.int64] | None:
        """What an owner adds to the sums; ``None`` if it deals nothing."""
        if me.name not in task.dealers:
            return None
        with me.meter.phase("noise"):
            declared, rows = self.declare(task), 0 if table is None else len(table.ids)
            return declared.noise(Stream.fresh(), declared.openings(rows)[-1].stop)

    def sum_rows(
        self, me: Role, summing: Role, task: JointSumTask, table: Rows | None = None, *, part: bool = False
    ) -> PartialSums:
        """All rows, dealt, multiplied and forgotten; with ``part`` these are some of the rows.

        ``summing`` is the same participant as ``me`` in the arithmetic of sums.
        """
        return CommitteeEngine(me, summing, self.declare(task)).sum_rows(table, part=part)

    def release(self, me: Role, sums: PartialSums, task: JointSumTask, noise: NDArray[np.int64] | None = None) -> Any:
        """Add every owner's noise to the sums and open them, once; ``me`` computes in the arithmetic of sums."""
        declared = self.declare(task)
        opened = CommitteeEngine(me, me, declared).release(sums, noise)
        return None if opened is None else declared.published(task, opened)

    def simulate(self, tables: Mapping[str, Any], task: JointSumTask, stream: Stream) -> Any:
        """What the protocol would publish, computed in one place: the same rounding, integers and noise.

        It is for evaluation on data that may be in one place; a study never calls it. The rows are those of the people
        whom all owners hold, also if members are hidden.
        """
        declared = self.declare(task)
        opened = declared.in_clear(tables, stream)
        for _ in task.dealers:
            opened = opened + declared.noise(stream, len(opened))
        return declared.published(task, opened)


def window_ends(rows: int, task: JointSumTask) -> list[bool]:
    """For each block of rows, whether the window closes after it."""
    blocks = -(-rows // task.rows_per_block)
    return [number % task.blocks_per_window == 0 or number == blocks for number in range(1, blocks + 1)]
