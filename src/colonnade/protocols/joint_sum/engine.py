"""The programs of every joint sum: agree on rows, deal them block by block, multiply, and open the total once.

What computes a sum that nobody sees is a :class:`SumEngine`, one object for one participant: it adds rows up and
releases sums. A committee of seats is one (:class:`CommitteeEngine`); the programs ask nothing else of it.

A committee member makes columns of columns, adds up inner products, and claims that they are right. If nobody knows
which people all owners hold, every owner deals a bit beside each row, whether it holds somebody there. The seats
multiply the bits, two at a time, and what a kind multiplies by that flag counts only where all of them do.

Where participants may deviate, products are checked before anything is opened. Rows are dealt and multiplied as ever,
and the seats claim that what they make row by row are products. After some blocks of rows, a *window*, they lower the
degree of all sums and claim that these are the inner products of the window's rows; a coin says which combinations of
columns they keep. Many windows are settled at once (:mod:`colonnade.mpc.verification`). What is opened is the sum of
all windows, and what owners deal at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import ShareEngine, Shares, concatenate_columns
from colonnade.mpc.residues import Residues
from colonnade.mpc.shamir import neighbours, to_polynomial_share
from colonnade.mpc.verification.claims import ClaimBlock, OuterProductClaim
from colonnade.mpc.verification.input_proofs import InputProofs
from colonnade.protocols.committee_task import JointSumTask
from colonnade.protocols.iteration import RoundCounter
from colonnade.protocols.joint_sum.declaration import (
    FLAG,
    MADE,
    ONES,
    InnerProduct,
    JointSum,
    OwnerSum,
    PartialSums,
    ProductStep,
    Side,
    SumOpening,
    Whole,
    use_sum_arithmetic,
)
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import Rows, agree_on_rows, block_sizes, check_places, compare_rows
from colonnade.randomness import Stream

_AT_ONCE = 1 << 22
"""Sums whose degree is lowered at a time."""
Sources = dict[int, Shares]


class SumSeat:
    """Takes in one block of rows after the other; nothing is left of it but sums."""

    def __init__(self, me: Role, wide: Role, declared: JointSum[Any]) -> None:
        self.me, self.wide, self.declared, self.engine = me, wide, declared, me.engine
        self.task, self.circuit = declared.task, declared.circuit
        self.sums = self._no_sums()
        self.batches = group_products(self.circuit.products)

    def _no_sums(self) -> list[Residues]:
        primes = len(self.engine.system.primes)
        return [np.zeros((primes, *product.shape)) for product in self.circuit.products]

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add its products."""
        with self.me.meter.phase("receive"):
            sources = self._received(rows, mine)
        for step in self.circuit.steps:
            sources[step.target] = self._make(step, sources)
        with self.me.meter.phase("multiply"):
            for start, stop in self.batches:
                self._add(sources, start, stop)

    def _add(self, sources: Sources, start: int, stop: int) -> None:
        """Add some products; those of columns as they were dealt are taken at once, as each block is read once."""
        some = self.circuit.products[start:stop]
        sides = [(self._gather(sources, one.left), self._gather(sources, one.right)) for one in some]
        for total, product in zip(self.sums[start:stop], self.engine.inner_products(sides), strict=True):
            total += product.values
            self.engine.system.reduce(total)

    # --- rows

    def _received(self, rows: int, mine: Shares | None) -> Sources:
        """What every owner dealt, by its number; and if members are hidden, whether all of them hold somebody."""
        residues, hidden = self.engine.system.constant(1, 3), self.task.hidden
        sources = {ONES: Shares(np.broadcast_to(residues, (len(residues), rows, 1)), 0)}
        for number, width in self.circuit.widths.items():
            sources[number] = self._dealt_by(self.task.owners[number], (rows, width + hidden), mine)
        if hidden:
            own = self.circuit.widths.items()
            bits = concatenate_columns(*(sources[number].columns(slice(width, None)) for number, width in own))
            sources |= {number: sources[number].columns(slice(0, width)) for number, width in own}
            with self.me.meter.phase("match"):
                sources[FLAG] = multiply_bits(self.engine, bits)
        return sources

    def _dealt_by(self, owner: str, shape: tuple[int, int], mine: Shares | None) -> Shares:
        return self.me.dealt_by(owner, shape, mine)

    def _make(self, step: ProductStep, sources: Sources) -> Shares:
        found = [self._gather(sources, step.first)] if step.first else []
        if step.factors:
            found.append(self._outer(sources, step.factors, lowered=step.lowered))
        elif step.groups:
            found.append(self._level(sources[MADE], step.groups, lowered=step.lowered))
        return concatenate_columns(*found)

    def _gather(self, sources: Sources, side: Side) -> Shares:
        """Columns side by side."""
        return concatenate_columns(*select_columns(sources, side))

    def _outer(self, sources: Sources, factors: Sequence[tuple[Side, Side]], *, lowered: bool) -> Shares:
        """Every one of some columns times every one of the columns beside them, which count fastest."""
        pairs = [(select_columns(sources, left), self._gather(sources, right)) for left, right in factors]
        with self.me.meter.phase("multiply"):
            found = concatenate_columns(*(self._times(columns, other) for columns, other in pairs))
        if not lowered:
            return found
        with self.me.meter.phase("lower degree"):
            found = self.engine.reduce_degree(found)
        if self.engine.active:
            start = 0
            for columns, other in pairs:
                stop = start + other.shape[1] * sum(column.shape[1] for column in columns)
                self.engine.claims.add_product(OuterProductClaim(columns, other, found.columns(slice(start, stop))))
                start = stop
        return found

    def _times(self, columns: Sequence[Shares], other: Shares) -> Shares:
        values = np.concatenate([column.values for column in columns], axis=2)
        if other.shape[1] > 1:
            products = values[:, :, :, None] * other.values[:, :, None, :]
            values = products.reshape(*values.shape[:2], -1)
        else:
            values *= other.values
        return Shares(self.engine.system.reduce(values), columns[0].degree + other.degree)

    def _level(self, nodes: Shares, groups: Sequence[tuple[int, ...]], *, lowered: bool) -> Shares:
        """The product of each group of columns; all get the degree of the longest product, unless it is lowered."""
        if lowered and self.engine.active:  # then groups are pairs
            left, right = (nodes.columns([group[side] for group in groups]) for side in (0, 1))
            with self.me.meter.phase("multiply"):
                return self.engine.product(left, right)
        with self.me.meter.phase("multiply"):
            product = nodes.columns([group[0] for group in groups])
            longest = max(map(len, groups))
            for place in range(1, longest):
                here = [index for index, group in enumerate(groups) if len(group) > place]
                others = nodes.columns([groups[index][place] for index in here])
                product.values[:, :, here] = self.engine.multiply(product.columns(here), others).values
            product = Shares(product.values, longest * nodes.degree)
        if not lowered:
            return product
        with self.me.meter.phase("lower degree"):
            return self.engine.reduce_degree(product)

    # --- sums

    def close(self, mine: Shares | None) -> None:
        """End a window of rows, where sums are checked; ``mine`` is what this owner dealt with it."""

    @property
    def total(self) -> Shares:
        """All that the task opens of products that seats computed."""
        return Shares(self.declared.collect(self.engine.system, self.sums), self.task.opened_degree)


class CheckedSumSeat(SumSeat):
    """The same where participants may deviate: what it keeps of the open window, and the sums of all closed ones.

    Rows are dealt to ``wide``, modulo as many primes as proofs need; ``me`` is the same participant with fewer.
    """

    def __init__(self, me: Role, wide: Role, declared: JointSum[Any]) -> None:
        super().__init__(me, wide, declared)
        self.own = self.circuit.own_windows or {}
        primes, degree = len(me.engine.system.primes), me.engine.committee.threshold
        none = [Shares(np.zeros((primes, count)), degree) for count in self.own.values()]
        nothing = declared.window(me.engine.system, [Shares(one, degree) for one in self._no_sums()], none, 0)
        self.closed = [one.values for one in nothing]
        self._begin()

    def _begin(self) -> None:
        self.blocks: list[Sources] = []
        self.proven: dict[str, list[ClaimBlock]] = {owner: [] for owner in self.task.proven}
        """What owners prove something of, block by block."""

    @property
    def sizes(self) -> list[int]:
        """How many rows each block of the open window has."""
        return [block[ONES].shape[0] for block in self.blocks]

    def _dealt_by(self, owner: str, shape: tuple[int, int], mine: Shares | None) -> Shares:
        dealt = self.wide.dealt_by(owner, shape, mine)
        if owner in self.proven:
            parts = self.declared.proof_rows(owner, dealt.values, self.wide.engine.system.reduce)
            self.proven[owner].append([Shares(values, dealt.degree) for values in parts])
        return Shares(dealt.values[: len(self.engine.system.primes)], dealt.degree)

    def _received(self, rows: int, mine: Shares | None) -> Sources:
        sources = super()._received(rows, mine)
        self.blocks.append(sources)
        return sources

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows, and claim that products which its owners dealt are such."""
        super().multiply(rows, mine)
        sources = self.blocks[-1]
        for sides in self.circuit.dealt_products if self.task.proven else ():
            columns, other, product = (select_columns(sources, side) for side in sides)
            self.engine.claims.add_product(
                OuterProductClaim(columns, concatenate_columns(*other), concatenate_columns(*product))
            )

    def close(self, mine: Shares | None) -> None:
        """Claim of the window that its sums are those of its products, and settle what is too much to keep."""
        engine, rows = self.engine, self.wide.engine.claims
        dealt = [self.me.dealt_by(self.task.owners[number], (count,), mine) for number, count in self.own.items()]
        with self.me.meter.phase("lower degree"):
            lowered = self._lowered()
        found = self.declared.window(engine.system, lowered, dealt, sum(self.sizes))
        with self.me.meter.phase("check"):
            for left, right, together in self.declared.claims:
                lefts = [select_columns(block, left) for block in self.blocks]
                rights = lefts if left is right else [select_columns(block, right) for block in self.blocks]
                side_by_side = 1 if len(together) > 1 and left != self.circuit.products[together[0]].left else 2
                product = np.concatenate([found[index].values for index in together], axis=side_by_side)
                engine.claims.inner(lefts, rights, Shares(product, engine.committee.threshold))
            if not engine.claims.ask() or rows.is_full:
                if engine.committee.spare:
                    rows.settle()  # whether products of rows fail may tell something, if these are no rows
                rows.settle_if_full()
                engine.claims.settle()
        for total, sums in zip(self.closed, found, strict=True):
            total += sums.values
            engine.system.reduce(total)
        self.sums = self._no_sums()
        self._begin()

    def _lowered(self) -> list[Shares]:
        """The sums of the open window at the degree of an input."""
        if not self.sums:
            return []
        threshold = self.engine.committee.threshold
        flat = np.concatenate([one.reshape(len(one), -1) for one in self.sums], axis=1)
        for start in range(0, flat.shape[1], _AT_ONCE):
            here = flat[:, start : start + _AT_ONCE]
            here[...] = self.engine.reduce_degree(Shares(here, 2 * threshold)).values
        parts = np.split(flat, np.cumsum([one[0].size for one in self.sums])[:-1], axis=1)
        return [Shares(part.reshape(one.shape), threshold) for part, one in zip(parts, self.sums, strict=True)]

    @property
    def total(self) -> Shares:
        """All closed windows; they are settled before anything is opened."""
        return Shares(self.declared.collect(self.engine.system, self.closed), self.task.opened_degree)


class ReplicatedSumSeat(SumSeat):
    """The same by three seats that follow the protocol, where every owner has a seat: rows are dealt in parts.

    What a participant deals and sends has the same form as on polynomials. A seat holds U of the owner before it and V
    of the owner after it, and of its own rows X and V. It adds up V' V with the owner after it, U' X with the owner
    before it, and V' U between these two. All three seats together have then added up the products of every two owners.
    """

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every other owner and add this seat's products."""
        me = self.me
        owners = self.task.owners
        with me.meter.phase("receive"):
            widths = {owners[number]: width for number, width in self.circuit.widths.items()}
            parts = {owner: me.dealt_by(owner, (rows, width), mine).values for owner, width in widths.items()}
        with me.meter.phase("multiply"):
            before, after = neighbours(me.engine.committee, me.name)
            own = me.engine.replicated_secret if me.name in parts else None
            due: list[tuple[str, Residues, str, Residues]] = []
            if own is not None and after in parts:
                due.append((me.name, parts[me.name], after, parts[after]))
            if own is not None and before in parts:
                due.append((before, parts[before], me.name, own))
            if before in parts and after in parts:
                due.append((after, parts[after], before, parts[before]))
            self._sum(due)

    def _sum(self, due: list[tuple[str, Residues, str, Residues]]) -> None:
        """Add products of two owners' columns, the first owner's on the left."""
        order, system = self.task.owners.index, self.engine.system
        places = {(one.left[0][0], one.right[0][0]): index for index, one in enumerate(self.circuit.products)}
        sides = [
            (order(a), order(b), x, y) if order(a) < order(b) else (order(b), order(a), y, x) for a, x, b, y in due
        ]
        for (a, b, _, _), product in zip(sides, system.inner_products([(x, y) for _, _, x, y in sides]), strict=True):
            total = self.sums[places[a, b]]
            total += product
            system.reduce(total)

    @property
    def total(self) -> Shares:
        """This seat's part of the products, as its share in a polynomial."""
        system, point = self.engine.system, self.engine.committee.point(self.me.name)
        return Shares(
            to_polynomial_share(system, self.declared.collect(system, self.sums), point), self.task.opened_degree
        )


def select_columns(sources: Sources, side: Side) -> list[Shares]:
    """Columns of several sources, without copies where they stand next to each other."""
    return [
        sources[number].columns(slice(here.start, here.stop) if isinstance(here, range) else here)
        for number, here in side
    ]


def _needs_no_copy(product: InnerProduct) -> bool:
    """Whether nothing must be copied to multiply."""
    return all(len(side) == 1 and isinstance(side[0][1], range) for side in (product.left, product.right))


def group_products(products: Sequence[InnerProduct]) -> list[tuple[int, int]]:
    """Runs of products: where columns must be copied side by side, there is memory for one product at a time."""
    found = [(0, 0)]
    for index, product in enumerate(products):
        begin, end = found[-1]
        if end and _needs_no_copy(product) and _needs_no_copy(products[begin]):
            found[-1] = (begin, index + 1)
        else:
            found.append((index, index + 1))
    return found[1:]


def multiply_bits(engine: ShareEngine, bits: Shares) -> Shares:
    """The product of all columns: multiply one half of them by the other half until one column is left."""
    while (count := bits.shape[1]) > 1:
        half = count // 2
        pairs = engine.product(bits.columns(slice(0, half)), bits.columns(slice(half, 2 * half)))
        bits = concatenate_columns(pairs, bits.columns(slice(2 * half, count)))
    return bits


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
        sizes, window = block_sizes(rows, task.rows_per_block), list[Whole]()
        for number, size in enumerate(RoundCounter(sizes, me.progress, "multiply"), start=1):
            mine = None
            if own:
                with me.meter.phase("encode"):
                    whole = next(blocks)
                if own.deals:
                    with me.meter.phase("deal"):
                        dealt = own.dealt(whole)
                        mine = me.engine.deal(dealt, parts=True) if task.in_parts else me.engine.deal(dealt)
                    if me.name in task.proven:
                        parts = self.declared.proof_rows(me.name, dealt)
                        window.append(np.hstack(parts) if len(parts) > 1 else parts[0])
                with me.meter.phase("own block"):
                    own.add(whole)
            if seat:
                seat.multiply(size, mine)
            if task.trust.active and (number % task.blocks_per_window == 0 or number == len(sizes)):
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


class SumEngine(Protocol):
    """What adds up the rows of all owners for one participant and opens noisy sums, and shows nothing else."""

    def sum_rows(self, table: Rows | None, *, part: bool = False) -> PartialSums:
        """All rows, dealt, multiplied and forgotten; with ``part`` these are some of the rows, or none."""

    def release(self, sums: PartialSums, noise: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Add every owner's noise to the sums and open them, once; ``None`` for who may not know the result."""


class JointSumPrograms:
    """The programs of one kind of joint sum, which ``declare`` makes of a public task and ``engine`` computes."""

    def __init__(
        self, declare: type[JointSum[Any]], engine: Callable[[Role, Role, JointSum[Any]], SumEngine] = CommitteeEngine
    ) -> None:
        self.declare, self.engine = declare, engine

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
        return self.engine(me, summing, self.declare(task)).sum_rows(table, part=part)

    def release(self, me: Role, sums: PartialSums, task: JointSumTask, noise: NDArray[np.int64] | None = None) -> Any:
        """Add every owner's noise to the sums and open them, once; ``me`` computes in the arithmetic of sums."""
        declared = self.declare(task)
        opened = self.engine(me, me, declared).release(sums, noise)
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
