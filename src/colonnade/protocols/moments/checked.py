"""Second moments where participants may deviate: products of shares are checked before anything is opened.

Rows are dealt and multiplied as ever. After every few blocks, a *window*, each owner deals the products of its own
columns over the window, and the seats lower the degree of theirs. Then all seats claim together that this matrix is
X'X of the rows that were dealt; a coin says which combination of their columns they keep. Many windows are settled at
once (:mod:`colonnade.mpc.verify`). What is opened in the end is the sum of matrices that were checked, and noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Protocol

import numpy as np

from colonnade.mpc import Hand, Shares, beside
from colonnade.mpc.residues import Residues
from colonnade.mpc.verify.claims import Block
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Role

_FEW_OWNERS = 8


class Checked:
    """What seats have claimed so far: the upper triangle of the sums of all closed windows.

    Rows are dealt to ``me``, modulo as many primes as proofs need; ``summing`` is the same participant with fewer.
    """

    def __init__(self, me: Role, summing: Role, task: Moments) -> None:
        self.me, self.task, self.hand, self.wide = summing, task, summing.hand, me
        self.upper = np.triu_indices(task.width)
        self.claimed = np.zeros((len(task.for_sums.primes), task.entries))
        self.rows: list[tuple[Shares, ...]] = []
        """The blocks of rows of the open window: columns of every owner, and the constant."""
        self.dealt: dict[str, list[Shares]] = {owner: [] for owner in task.owners}
        """The same as they were dealt, where owners prove something of them."""

    @property
    def sizes(self) -> list[int]:
        """How many rows each block of the open window has."""
        return [block[0].shape[0] for block in self.rows]

    def received(self, rows: int, width: int, mine: Shares | None) -> list[Shares]:
        """What every owner dealt; ``width`` more columns than its own."""
        found = []
        for block in self.task.blocks:
            dealt = self.wide.dealt_by(block.owner, (rows, len(block.columns) + width), mine)
            found.append(Shares(dealt.values[: len(self.claimed)], dealt.degree))
            if self.task.proven:
                self.dealt[block.owner].append(dealt)
        return found

    def constant(self, rows: int) -> Shares:
        """The public constant as a shared column: the polynomial that has this value everywhere."""
        residues = self.hand.system.constant(self.task.constant, 3)
        return Shares(np.broadcast_to(residues, (len(residues), rows, 1)), 0)

    def claim(self, lefts: Sequence[Block], rights: Sequence[Block], product: Shares) -> None:
        """Claim that the sum of left' right is the product, and add it to what was claimed."""
        claims, rows = self.hand.claims, self.wide.hand.claims
        with self.me.meter.phase("check"):
            claims.inner(lefts, rights, product)
            if not claims.ask() or rows.full:
                if self.hand.committee.spare:
                    rows.settle()  # whether products of rows fail may tell something, if these are no rows
                rows.relieve()
                claims.settle()
        self.claimed += product.values[:, self.upper[0], self.upper[1]]
        self.hand.system.reduce(self.claimed)
        self.rows, self.dealt = [], {owner: [] for owner in self.task.owners}

    @property
    def sums(self) -> Shares:
        """All closed windows, as often as the task opens each entry; they are settled before anything is opened."""
        checked = Shares(self.claimed, self.task.trust.threshold)
        return self.hand.multiply(checked, Shares(self.hand.system.split(self.task.weights), 0))


class CheckedSeat(Checked):
    """A committee member's work where all owners hold the same people."""

    def __init__(self, me: Role, summing: Role, task: Moments) -> None:
        super().__init__(me, summing, task)
        owner = np.concatenate([*(np.full(len(b.columns), i) for i, b in enumerate(task.blocks)), [-1]])
        between = (owner[:, None] < owner) & (owner[:, None] >= 0)
        self.between = np.nonzero(between)
        """The entries above the diagonal that are products of columns of two owners."""
        self.cross = np.zeros((len(self.claimed), task.width, task.width))
        self.pairs = pairs_of_owners(len(task.owners))

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every owner and add its products between owners."""
        with self.me.meter.phase("receive"):
            shares = self.received(rows, 0, mine)
        with self.me.meter.phase("multiply"):
            add_between(self.hand, shares, self.pairs, self.task, self.cross)
        self.rows.append((*shares, self.constant(rows)))

    def close(self, mine: Shares | None) -> None:
        """Check the products of the window's rows."""
        task, hand = self.task, self.hand
        rows, columns = self.between
        product = np.zeros_like(self.cross)
        for block in task.blocks:
            span, own = task.span(block.owner), len(block.columns)
            above = np.triu_indices(own)
            dealt = self.me.dealt_by(block.owner, (len(above[0]) + own,), mine).values
            product[:, above[0] + span.start, above[1] + span.start] = dealt[:, : len(above[0])]
            product[:, span, -1] = dealt[:, len(above[0]) :]
        with self.me.meter.phase("lower degree"):
            lowered = hand.lower(Shares(self.cross[:, rows, columns], 2 * task.trust.threshold))
        product[:, rows, columns] = lowered.values
        count = sum(self.sizes)
        product[:, -1:, -1:] = hand.system.constant(task.constant**2 * count, 3)
        above = np.triu_indices(task.width, 1)
        product[:, above[1], above[0]] = product[:, above[0], above[1]]
        self.claim(self.rows, self.rows, Shares(product, task.trust.threshold))
        self.cross = np.zeros_like(self.cross)


class InWindows(Protocol):
    """A task whose rows are checked a window at a time."""

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time."""

    @property
    def blocks_per_window(self) -> int:
        """After how many blocks of rows they are checked."""


def window_ends(rows: int, task: InWindows) -> list[bool]:
    """For each block of rows, whether the window closes after it."""
    blocks = -(-rows // task.rows_per_block)
    return [number % task.blocks_per_window == 0 or number == blocks for number in range(1, blocks + 1)]


def add_between(
    hand: Hand, shares: Sequence[Shares], pairs: Sequence[tuple[slice, slice]], task: Moments, sums: Residues
) -> None:
    """Add the products between owners of one block of rows to the sums; ``shares`` has the rows of every owner."""
    # Groups of owners are copied side by side, so there is memory for one pair of them at a time.
    for few in [pairs] if len(shares) <= _FEW_OWNERS else [[pair] for pair in pairs]:
        sides = [(beside(*shares[left]), beside(*shares[right])) for left, right in few]
        for (left, right), product in zip(few, hand.inners(sides), strict=True):
            sums[:, task.spans(left), task.spans(right)] += product.values
    hand.system.reduce(sums)


def pairs_of_owners(owners: int) -> list[tuple[slice, slice]]:
    """Every pair of owners once: single pairs if there are few owners, else few large groups."""
    if owners > _FEW_OWNERS:
        return list(_halves(0, owners))
    return [(slice(i, i + 1), slice(j, j + 1)) for i, j in combinations(range(owners), 2)]


def _halves(start: int, stop: int) -> Iterator[tuple[slice, slice]]:
    """One half of the owners against the other, then the same within each half."""
    if stop - start < 2:
        return
    middle = (start + stop) // 2
    yield slice(start, middle), slice(middle, stop)
    yield from _halves(start, middle)
    yield from _halves(middle, stop)
