"""Marginals of the people whom all owners hold, when nobody knows who these people are.

Rows are slots of a common universe, as in second moments of hidden members. Every owner deals, beside the coordinates
of its columns, a bit whether it holds somebody in a slot. The seats multiply the bits to m, which is 1 where all owners
hold the same person, then m with the label, then both with the left factor of every block: each inner product counts
the people with m = 1 and no others. An owner adds up nothing in the clear, as it does not know which of its rows count.
"""

from __future__ import annotations

from colonnade.kinds.tables.marginals.layout import ONES
from colonnade.kinds.tables.marginals.seat import Seat
from colonnade.mpc import Shares, beside
from colonnade.protocols.moments.hidden import held_by_all


class HiddenSeat(Seat):
    """The work of a committee member where it is hidden whose rows count."""

    def received(self, rows: int, mine: Shares | None) -> dict[int, Shares]:
        """The coordinates that every owner dealt, by its number; the bits are kept for :meth:`make`."""
        dealt, bits = self.task.layout.dealt, []
        sources = {ONES: self.ones(rows)}
        for number, owner in enumerate(self.task.owners):
            width = dealt[number].width if number in dealt else 0
            shares = self.dealt_by(owner, (rows, width + 1), mine)
            sources[number] = shares.columns(slice(0, width))
            bits.append(shares.columns(slice(width, None)))
        self._bits = beside(*bits)
        return sources

    def make(self, sources: dict[int, Shares]) -> Shares:
        """Every left factor times whether a row counts, in the order of the layout: none, columns, with the label."""
        hand, made = self.hand, self.task.layout.made.names
        with self.me.meter.phase("match"):
            flag = held_by_all(hand, self._bits)
        with self.me.meter.phase("mask"):
            factors = []
            if alone := [self.column(sources, name[0]) for name in made if len(name) == 1]:
                factors.append((alone, flag))
            if paired := [name for name in made if len(name) == 2]:
                label = self.products(([self.column(sources, paired[0][1])], flag))
                factors.append(([self.column(sources, name[0]) for name in paired], label))
            return beside(flag, self.products(*factors)) if factors else flag
