"""Second moments by three seats that follow the protocol, where every owner has a seat: rows are dealt in parts.

What a participant deals and sends has the same form as on polynomials. A seat holds U of the owner before it and V of
the owner after it, and of its own rows X and V. It adds up V' V with the owner after it, U' X with the owner before it,
and V' U between these two. All three seats together have then added up the products of every two owners.
"""

from __future__ import annotations

import numpy as np

from colonnade.mpc import Shares
from colonnade.mpc.parts import around, on_polynomial
from colonnade.mpc.residues import Residues
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Role


class PartedSeat:
    """A committee member's work."""

    def __init__(self, me: Role, task: Moments) -> None:
        self.me, self.task, self.system = me, task, me.hand.system
        self.cross = np.zeros((len(self.system.primes), task.width, task.width))

    def multiply(self, rows: int, mine: Shares | None) -> None:
        """Take in one block of rows of every other owner and add this seat's products."""
        me, task = self.me, self.task
        widths = {block.owner: len(block.columns) for block in task.blocks}
        with me.meter.phase("receive"):
            parts = {o: me.dealt_by(o, (rows, width), mine).values for o, width in widths.items()}
        with me.meter.phase("multiply"):
            before, after = around(me.hand.committee, me.name)
            own = me.hand.parted if me.name in parts else None
            due: list[tuple[str, Residues, str, Residues]] = []
            if own is not None and after in parts:
                due.append((me.name, parts[me.name], after, parts[after]))
            if own is not None and before in parts:
                due.append((before, parts[before], me.name, own))
            if before in parts and after in parts:
                due.append((after, parts[after], before, parts[before]))
            self._add(due)

    def _add(self, due: list[tuple[str, Residues, str, Residues]]) -> None:
        """Add products, each above the diagonal."""
        order = self.task.owners.index
        sides = [(a, b, x, y) if order(a) < order(b) else (b, a, y, x) for a, x, b, y in due]
        for (a, b, _, _), product in zip(sides, self.system.inners([(x, y) for _, _, x, y in sides]), strict=True):
            self.cross[:, self.task.span(a), self.task.span(b)] += product
        self.system.reduce(self.cross)

    @property
    def sums(self) -> Shares:
        """Products between owners, as often as the task opens them."""
        task, hand = self.task, self.me.hand
        rows, columns = np.triu_indices(task.width)
        point = hand.committee.point(self.me.name)
        products = Shares(on_polynomial(self.system, self.cross[:, rows, columns], point), 2 * task.trust.threshold)
        return products if task.copies == 1 else hand.scale(products, task.copies)
