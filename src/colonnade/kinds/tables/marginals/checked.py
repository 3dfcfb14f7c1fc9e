"""Marginals where participants may deviate: products of shares are checked before anything is opened.

Rows are dealt and multiplied as ever, and the seats claim that factors which they make on shares are products. After
every few blocks of rows, a *window*, they lower the degree of all sums and claim that these are the inner products of
the window's rows; a coin says which combinations of columns they keep. Many windows are settled at once
(:mod:`colonnade.mpc.verify`). What is opened is the sum of all windows, and what owners deal at the end: their noise,
and the sums over their own columns, which are their word about their own people.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.kinds.tables.marginals.integers import runs
from colonnade.kinds.tables.marginals.layout import MADE, ONES, Factor, Product
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.mpc import Shares
from colonnade.mpc.residues import Residues
from colonnade.mpc.verify.outer import OuterProducts
from colonnade.protocols.roles import Role

_AT_ONCE = 1 << 22
"""Sums whose degree is lowered at a time."""


class Checked:
    """What a seat keeps of the open window, and the sums of all closed ones.

    Rows are dealt to ``wide``, modulo as many primes as proofs need; ``me`` is the same participant with fewer.
    """

    def __init__(self, me: Role, wide: Role, task: Marginals) -> None:
        self.me, self.wide, self.task, self.hand = me, wide, task, me.hand
        primes = len(me.hand.system.primes)
        self.sums = [np.zeros((primes, one.left.width, one.right.width)) for one in task.layout.shared]
        self.spans = {number: factors.spans() for number, factors in task.layout.dealt.items()}
        self.spans[MADE] = task.layout.made.spans()
        by_left, by_right = (_alike(task.layout.shared, side) for side in ("left", "right"))
        self.same_left = len(by_left) <= len(by_right)
        self.alike = by_left if self.same_left else by_right
        """Products with the same left factors, or the same right ones: one claim, as long as there are rows."""
        self.blocks: list[dict[int, Shares]] = []
        """What was dealt and made of each block of rows, by its source."""
        self.sizes: list[int] = []
        self.proven: dict[str, list[Shares]] = {owner: [] for owner in task.proven}
        """What owners prove something of, block by block."""

    def received(self, owner: str, shape: tuple[int, int], mine: Shares | None) -> Shares:
        """What an owner dealt, modulo the primes of sums."""
        dealt = self.wide.dealt_by(owner, shape, mine)
        if owner in self.proven:
            system = self.wide.hand.system
            values = self.task.codes[owner].completed(dealt.values, system.reduce)
            self.proven[owner].append(Shares(values, dealt.degree))
        return Shares(dealt.values[: len(self.hand.system.primes)], dealt.degree)

    def keep(self, sources: dict[int, Shares], rows: int) -> None:
        """Keep one block of rows until the window is closed."""
        self.blocks.append(sources)
        self.sizes.append(rows)
        if not self.task.proven:
            return
        for number, factors in self.task.layout.dealt.items():
            # Products with the label are dealt by its owner.
            if paired := [name for name in factors.names if len(name) > 1]:
                columns = self._parts(sources, number, [name[:1] for name in paired])
                label, product = (self._parts(sources, number, names)[0] for names in ([paired[0][1:]], paired))
                self.hand.claims.combined(OuterProducts(columns, label, product))

    def _parts(self, sources: dict[int, Shares], number: int, names: Sequence[Factor]) -> list[Shares]:
        """Factors of one source side by side, without copies."""
        if number == ONES:
            return [sources[ONES]]
        return [sources[number].columns(run) for run in runs([self.spans[number][name] for name in names])]

    def close(self, sums: Sequence[Residues]) -> None:
        """Claim of the window that these are the sums of its products, in the order of the layout."""
        hand = self.hand
        with self.me.meter.phase("lower degree"):
            lowered = self._lowered(sums)
        with self.me.meter.phase("check"):
            for together in self.alike:
                sides = (together[:1], together) if self.same_left else (together, together[:1])
                lefts, rights = (
                    [self._beside(block, some, side) for block in self.blocks]
                    for some, side in zip(sides, ("left", "right"), strict=True)
                )
                found = np.concatenate([lowered[index].values for index in together], axis=1 + self.same_left)
                hand.claims.inner(lefts, rights, Shares(found, hand.committee.threshold))
            rows = self.wide.hand.claims
            if not hand.claims.ask() or rows.full:
                if hand.committee.spare:
                    rows.settle()  # whether products of rows fail may tell something, if these are no rows
                rows.relieve()
                hand.claims.settle()
        for total, product in zip(self.sums, lowered, strict=True):
            total += product.values
            hand.system.reduce(total)
        self.blocks, self.sizes, self.proven = [], [], {owner: [] for owner in self.proven}

    def _beside(self, sources: dict[int, Shares], some: Sequence[int], side: str) -> list[Shares]:
        """The left or the right factors of some products, side by side."""
        pairs = [_factors(self.task.layout.shared[index], side) for index in some]
        return [part for pair in pairs for part in self._parts(sources, *pair)]

    def _lowered(self, sums: Sequence[Residues]) -> list[Shares]:
        """The same sums at the degree of an input."""
        if not sums:
            return []
        flat = np.concatenate([one.reshape(len(one), -1) for one in sums], axis=1)
        double = 2 * self.hand.committee.threshold
        for start in range(0, flat.shape[1], _AT_ONCE):
            here = flat[:, start : start + _AT_ONCE]
            here[...] = self.hand.lower(Shares(here, double)).values
        ends = np.cumsum([one[0].size for one in sums])[:-1]
        parts = np.split(flat, ends, axis=1)
        return [
            Shares(part.reshape(one.shape), self.hand.committee.threshold)
            for part, one in zip(parts, sums, strict=True)
        ]


def _factors(product: Product, side: str) -> tuple[int, tuple[Factor, ...]]:
    """Where the factors of one side come from, and which they are."""
    if side == "left":
        return product.left_source, product.left.names
    return product.right_source, product.right.names


def _alike(products: Sequence[Product], side: str) -> list[list[int]]:
    """The numbers of products that have the same factors on this side."""
    found: dict[tuple[int, tuple[Factor, ...]], list[int]] = {}
    for index, product in enumerate(products):
        found.setdefault(_factors(product, side), []).append(index)
    return list(found.values())
