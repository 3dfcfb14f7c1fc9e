"""The numbered packets to and from one peer.

This module only keeps lists and counts. It has no locks and sends nothing: the caller holds a lock during every call.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from colonnade.errors import ProtocolError
from colonnade.wire.packet import Packet

MAX_INBOX = 1 << 29
"""The most bytes from a peer that may wait here, even if the peer's window is larger."""
REPORT_EVERY = 1 << 23
"""After this many bytes were taken the peer is told, even if it did not ask."""
_KEEPING = 256


@dataclass
class _Sent:
    size: int
    data: bytes | None
    """None after the packet has arrived: then only its size is needed, for the window."""


class Outbox:
    """Packets that were sent and that the peer has not acknowledged, or has not taken."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._sent: deque[_Sent] = deque()
        self._first = 0
        self._arrived = 0
        self._waiting = 0

    @property
    def next_sequence(self) -> int:
        """The number of the next packet."""
        return self._first + len(self._sent)

    @property
    def settled(self) -> bool:
        """Whether everything sent has arrived."""
        return self._arrived == self.next_sequence

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes fit the window; if nothing waits, any size fits."""
        return self._waiting == 0 or self._waiting + size <= self._window

    def add(self, data: bytes) -> None:
        """Keep a packet until it is acknowledged."""
        self._sent.append(_Sent(len(data), data))
        self._waiting += len(data)

    def acknowledge(self, arrived: int, taken: int) -> bool:
        """Note how many packets arrived and were taken; returns whether this is new."""
        before = (self._arrived, self._first)
        if max(arrived, taken) > self.next_sequence:
            raise ProtocolError("a packet acknowledges what was never sent")
        while self._arrived < arrived:
            self._sent[self._arrived - self._first].data = None
            self._arrived += 1
        while self._first < min(taken, self._arrived):
            self._waiting -= self._sent.popleft().size
            self._first += 1
        return before != (self._arrived, self._first)

    def unacknowledged(self) -> list[bytes]:
        """The packets to send again after the connection broke, in order."""
        return [sent.data for sent in self._sent if sent.data is not None]


class Inbox:
    """Packets that arrived in order and wait for the application."""

    def __init__(self) -> None:
        self._waiting: deque[memoryview] = deque()
        self._bytes = 0
        self._arrived = 0
        self._taken = 0
        self._asked = False
        self._unreported_bytes = 0
        self._last_report = (0, 0)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, packet: Packet) -> bool:
        """Keep a packet if it is the next one; returns False if it came before, or if one before it is missing."""
        if packet.sequence != self._arrived:
            return False
        # Every packet needs some memory, also an empty one.
        if self._bytes + _KEEPING * (len(self._waiting) + 1) + len(packet.body) > MAX_INBOX:
            raise ProtocolError("a peer sends more than it was given room for")
        self._arrived += 1
        self._bytes += len(packet.body)
        self._waiting.append(packet.body)
        return True

    def take(self) -> memoryview | None:
        """Remove and return the next packet; None if there is none."""
        if not self._waiting:
            return None
        body = self._waiting.popleft()
        self._bytes -= len(body)
        self._unreported_bytes += len(body)
        self._taken = max(self._taken, self._arrived - len(self._waiting))
        return body

    def ask(self) -> None:
        """Note that the peer asked to be told when the counts change."""
        self._asked = True

    def grant(self) -> None:
        """Let the peer send more, as if all its packets had been taken, if there is enough memory.

        Called while this endpoint itself must wait before it can send. Otherwise two peers that both send first and
        read later would wait for each other.
        """
        if self._bytes < MAX_INBOX // 2:
            self._taken = self._arrived

    @property
    def report_due(self) -> bool:
        """Whether the peer should be told the counts now."""
        news = self._last_report != (self._arrived, self._taken)
        return self._unreported_bytes >= REPORT_EVERY or (self._asked and news)

    def report(self) -> tuple[int, int]:
        """How many packets arrived and how many were taken, for the header of the next packet to send."""
        counts = (self._arrived, self._taken)
        if counts != self._last_report:
            self._last_report, self._asked = counts, False
        self._unreported_bytes = 0
        return counts
