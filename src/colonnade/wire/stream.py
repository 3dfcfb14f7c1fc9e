"""Both directions of the numbered packets between this endpoint and one peer.

Plain bookkeeping without locks or input/output: the endpoint holds its lock around every call.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from colonnade.errors import ProtocolError
from colonnade.wire.packet import Packet

MAX_INBOX = 1 << 29
"""Bytes that a peer may have waiting here, whatever window it works with."""
REPORT_EVERY = 1 << 23
"""After this many consumed bytes the peer is told, asked for or not."""
_KEEPING = 256


@dataclass
class _Sent:
    size: int
    data: bytes | None
    """None once it has arrived: it then only counts towards the window."""


class Outbox:
    """Packets sent that the peer has not acknowledged, or not yet taken."""

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
        """Whether the peer takes that many more bytes; an empty window takes anything."""
        return self._waiting == 0 or self._waiting + size <= self._window

    def add(self, data: bytes) -> None:
        """Keep a packet until it is acknowledged."""
        self._sent.append(_Sent(len(data), data))
        self._waiting += len(data)

    def acknowledge(self, arrived: int, taken: int) -> bool:
        """Note how far the peer got; True if that is news."""
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
        """What must be sent again after a break, in order."""
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
        """File a packet; False for a repeat, or for one past a gap that will be sent again."""
        if packet.sequence != self._arrived:
            return False
        # Every packet costs something to keep, an empty one too.
        if self._bytes + _KEEPING * (len(self._waiting) + 1) + len(packet.body) > MAX_INBOX:
            raise ProtocolError("a peer sends more than it was given room for")
        self._arrived += 1
        self._bytes += len(packet.body)
        self._waiting.append(packet.body)
        return True

    def take(self) -> memoryview | None:
        """The next packet, if there is one."""
        if not self._waiting:
            return None
        body = self._waiting.popleft()
        self._bytes -= len(body)
        self._unreported_bytes += len(body)
        self._taken = max(self._taken, self._arrived - len(self._waiting))
        return body

    def ask(self) -> None:
        """The peer wants to know as soon as there is news."""
        self._asked = True

    def grant(self) -> None:
        """Let the peer go on as if everything had been taken, while memory allows.

        Called while this endpoint cannot send itself: two peers who both send first and read later
        would otherwise wait for each other.
        """
        if self._bytes < MAX_INBOX // 2:
            self._taken = self._arrived

    @property
    def report_due(self) -> bool:
        """Whether the peer should be told the counts now."""
        news = self._last_report != (self._arrived, self._taken)
        return self._unreported_bytes >= REPORT_EVERY or (self._asked and news)

    def report(self) -> tuple[int, int]:
        """Packets arrived and packets taken, for the header of a packet that is about to leave."""
        counts = (self._arrived, self._taken)
        if counts != self._last_report:
            self._last_report, self._asked = counts, False
        self._unreported_bytes = 0
        return counts
