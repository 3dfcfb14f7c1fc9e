"""Rows that owners deal block by block and whose bounds they prove, some blocks together.

Whoever deals rows or holds shares of them calls :meth:`Proving.add` after every block and :meth:`Proving.end` after the
last one. Where a task proves nothing, nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.errors import CapacityError
from colonnade.mpc import Shares
from colonnade.mpc.residues import Integers
from colonnade.mpc.verify.inputs import InputProofs
from colonnade.mpc.verify.ranges import WINDOW_ROWS, Group, Ranges
from colonnade.privacy import Trust
from colonnade.protocols.roles import Role

_HELD = 2**28  # bytes of shares of rows that a seat keeps until their bounds are proven
_RESIDUES = 32  # bytes of a number, modulo as many primes as there mostly are


def ranges(trust: Trust, groups: Mapping[str, list[Group]], rows: int, block_rows: int) -> dict[str, Ranges]:
    """What each owner proves of its rows, by ``groups`` of its columns, if there are at most so many rows.

    Owners without columns prove nothing. Windows are as long as memory allows, and shorter where that takes fewer
    primes; all owners have the same.
    """
    if trust.inputs == "unproven":
        return {}
    width = sum(group.columns for own in groups.values() for group in own)
    longest = min(WINDOW_ROWS, _HELD // (_RESIDUES * max(1, width)))
    found = []
    for blocks in {max(1, (longest >> less) // block_rows) for less in range(4)}:
        most = min(rows, blocks * block_rows)
        proofs, covert = len(groups) * -(-rows // most), trust.inputs == "covert"
        found.append({owner: Ranges(tuple(own), most, proofs, covert) for owner, own in groups.items() if own})
    return min(found, key=lambda each: max((one.primes, -one.rows) for one in each.values()))


class Proving:
    """The window that is open: blocks that were dealt since the last proof."""

    def __init__(self, me: Role, proven: Mapping[str, Ranges]) -> None:
        self._me, self._proven = me, proven
        self._takes_part = bool(proven) and (me.hand.seated or me.name in proven)
        self._ended = 0
        self._most = min((each.rows for each in proven.values()), default=0)
        self._begin()

    def _begin(self) -> None:
        self._sizes: list[int] = []
        self._own: list[Integers] = []
        self._dealt: dict[str, list[Shares]] = {owner: [] for owner in self._proven}

    def add(self, rows: int, own: Integers | None, dealt: Mapping[str, Shares]) -> None:
        """A block was dealt: this owner's own whole numbers, and at a seat the shares of all owners."""
        if not self._takes_part:
            return
        if sum(self._sizes) + rows > self._most:
            self.end()
        self._sizes.append(rows)
        if own is not None:
            self._own.append(own)
        for owner, blocks in self._dealt.items():
            if owner in dealt:
                blocks.append(dealt[owner])

    def end(self) -> None:
        """Prove, and verify at a seat, what was dealt since the last proof; seats settle their claims later."""
        if not self._sizes:
            return
        self._ended += 1
        if self._ended * len(self._proven) > min(each.proofs for each in self._proven.values()):
            raise CapacityError(
                "there are more rows than the proofs of their bounds were planned for: state their number [CA028]"
            )
        hand = self._me.hand
        own = self._own if hand.name in self._proven else None
        with self._me.meter.phase("prove"):
            InputProofs(hand, self._proven).window(self._sizes, own=own, dealt=self._dealt if hand.seated else None)
            if hand.seated:
                hand.claims.relieve()
        self._begin()
