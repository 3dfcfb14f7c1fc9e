"""Who is served next at a busy hub: whoever has had least.

Fair queueing by start times. Each piece of work gets the time at which it would begin if its owner had its fair share
of the hub, and the earliest goes first. One who was idle begins a little before those who were not. So whoever sends
little is served at once, however many others send without end; those share what is left. Between two looks at the
network only so much is done, so that no message waits there for long.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

AT_ONCE = 1 << 20
"""As much work as is begun between two looks at the network, in bytes."""
CREDIT = 1 << 22
"""What one who was idle may have before the others, in bytes."""


class QueueMember:
    """One whose work is counted."""

    next_start = 0.0
    """When its next work may begin, on the clock of those who are served."""

    def add_cost(self, cost: float) -> None:
        """Its work was more than it seemed."""
        self.next_start += cost


class FairQueue:
    """Hands out turns, in one loop."""

    def __init__(self) -> None:
        self._now, self._left, self._count = 0.0, float(AT_ONCE), 0
        self._waiting: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._watching = False

    async def wait(self, tenant: QueueMember, cost: float) -> None:
        """Return when it is this tenant's turn for so much work."""
        begin = max(self._now - CREDIT, tenant.next_start)
        tenant.next_start = begin + cost
        loop = asyncio.get_running_loop()
        if not self._watching:
            self._watching = True
            loop.call_soon(self._next)
        if self._left > 0 and not self._waiting:
            self._begin(begin, cost)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heappush(self._waiting, (begin, self._count, cost, turn))
        await turn

    def _begin(self, begin: float, cost: float) -> None:
        self._now = max(self._now, begin)
        self._left -= cost

    def _next(self) -> None:
        """The loop has looked at the network: as much as fits may begin."""
        self._left = float(AT_ONCE)
        while self._waiting and self._left > 0:
            begin, _, cost, turn = heappop(self._waiting)
            if not turn.done():  # it may have been cancelled
                self._begin(begin, cost)
                turn.set_result(None)
        self._watching = bool(self._waiting) or self._left < AT_ONCE
        if self._watching:
            asyncio.get_running_loop().call_soon(self._next)
