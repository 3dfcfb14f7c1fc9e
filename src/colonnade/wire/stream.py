"""The numbered packets to and from one peer.

This module only keeps lists and counts. It has no locks and sends nothing: the caller holds a lock during every call.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from colonnade.errors import ProtocolError
from colonnade.wire.packet import MAX_PACKET, Packet
from colonnade.wire.watch import Limits

REPORT_EVERY = 1 << 23
"""After this many bytes were taken the peer is told, even if it did not ask."""
_KEEPING = 384
"""Every packet needs some memory beside its bytes, also an empty one; both sides count it."""
_SLACK = MAX_PACKET
"""What an honest peer may send beyond its window: seals, headers and handshakes."""


class FloodError(ProtocolError):
    """A peer sends more than it was given room for."""


@dataclass
class _Sent:
    cost: int
    data: bytes | None
    """None after the packet has arrived: then only its cost is needed, for the window."""


class Outbox:
    """Packets that were sent and that the peer has not acknowledged, or has not taken."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._sent: deque[_Sent] = deque()
        self._first = 0
        self._arrived = 0
        self.waiting = 0
        """The bytes that the peer has not taken."""

    @property
    def next_sequence(self) -> int:
        """The number of the next packet."""
        return self._first + len(self._sent)

    @property
    def unsettled(self) -> int:
        """How many packets have not arrived."""
        return self.next_sequence - self._arrived

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes fit the window; if nothing waits, any size fits."""
        return self.waiting == 0 or self.waiting + size + _KEEPING <= self._window

    def add(self, data: bytes) -> None:
        """Keep a packet until it is acknowledged."""
        self._sent.append(_Sent(len(data) + _KEEPING, data))
        self.waiting += self._sent[-1].cost

    def acknowledge(self, arrived: int, taken: int) -> bool:
        """Note how many packets arrived and were taken; returns whether this is new."""
        before = (self._arrived, self._first)
        if max(arrived, taken) > self.next_sequence:
            raise ProtocolError("a packet acknowledges what was never sent [MS091]")
        while self._arrived < arrived:
            self._sent[self._arrived - self._first].data = None
            self._arrived += 1
        while self._first < min(taken, self._arrived):
            self.waiting -= self._sent.popleft().cost
            self._first += 1
        return before != (self._arrived, self._first)

    def unacknowledged(self) -> list[bytes]:
        """The packets to send again after the connection broke, in order."""
        return [sent.data for sent in self._sent if sent.data is not None]


class Inbox:
    """Packets that arrived in order and wait for the application; an honest peer's never exceed the limits."""

    def __init__(self, limits: Limits) -> None:
        self._window, self._backlog = limits.window + _SLACK, limits.backlog
        self._waiting: deque[memoryview] = deque()
        self._held = 0
        self._beyond = 0
        """The part of it for which the peer was not told that it may send more."""
        self.arrived = 0
        """How many packets have arrived."""
        self._taken = 0
        self._asked = False
        self._unreported_bytes = 0
        self._last_report = (0, 0)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, packet: Packet) -> bool:
        """Keep a packet if it is the next one; returns False if it came before, or if one before it is missing."""
        if packet.sequence != self.arrived:
            return False
        cost = len(packet.body) + _KEEPING
        if self._beyond + cost > self._window or self._held + cost > self._backlog:
            raise FloodError("too much of it would wait unread [MS092]")
        self.arrived += 1
        self._held += cost
        self._beyond += cost
        self._waiting.append(packet.body)
        return True

    def take(self) -> memoryview | None:
        """Remove and return the next packet; None if there is none."""
        if not self._waiting:
            return None
        body = self._waiting.popleft()
        self._held -= len(body) + _KEEPING
        self._unreported_bytes += len(body)
        taken = self.arrived - len(self._waiting)
        if taken > self._taken:
            self._taken = taken
            self._beyond -= len(body) + _KEEPING
        return body

    def clear(self) -> None:
        """Forget everything that waits."""
        self._waiting.clear()
        self._held = self._beyond = 0

    def ask(self) -> None:
        """Note that the peer asked to be told when the counts change."""
        self._asked = True

    def grant(self) -> None:
        """Let the peer send more, as if all its packets had been taken, if that much more fits.

        Called while this endpoint itself must wait before it can send. Otherwise two peers that both send first and
        read later would wait for each other.
        """
        if self._held + self._window <= self._backlog:
            self._taken = self.arrived
            self._beyond = 0

    @property
    def report_due(self) -> bool:
        """Whether the peer should be told the counts now."""
        news = self._last_report != (self.arrived, self._taken)
        return self._unreported_bytes >= REPORT_EVERY or (self._asked and news)

    def report(self) -> tuple[int, int]:
        """How many packets arrived and how many were taken, for the header of the next packet to send."""
        counts = (self.arrived, self._taken)
        if counts != self._last_report:
            self._last_report, self._asked = counts, False
        self._unreported_bytes = 0
        return counts
