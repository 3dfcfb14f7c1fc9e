"""How much a participant sent and received, and the CPU time of the encryption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import thread_time


@dataclass
class Traffic:
    """Counts for one peer, or the sum over all peers."""

    messages_sent: int = 0
    messages_received: int = 0
    payload_sent: int = 0
    """Bytes of frames before encryption."""
    payload_received: int = 0
    sealed_sent: int = 0
    """Bytes given to the carrier: sealed records, packet headers, acknowledgements, repeated packets."""
    sealed_received: int = 0
    cpu_seconds: float = 0.0
    """CPU time of the TLS work, in all threads."""


class Timed:
    """A ``with`` block whose CPU time is added to the counts; small, because there is one for every message."""

    __slots__ = ("_start", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def __enter__(self) -> None:
        self._start = thread_time()

    def __exit__(self, *_: object) -> None:
        self._traffic.cpu_seconds += thread_time() - self._start


class Tally:
    """Counts of what this participant sent to all peers; the cost of a task is the difference of two readings."""

    __slots__ = ("_spoke", "messages", "payload", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        """How often it waited for a message after it had sent one."""
        self.messages = 0
        self.payload = 0
        self._spoke = False

    def sent(self, size: int) -> None:
        """Count a message of this size that was sent."""
        self.messages += 1
        self.payload += size
        self._spoke = True

    def waits(self) -> None:
        """Count a round if something was sent since the last wait."""
        if self._spoke:
            self.rounds += 1
            self._spoke = False


@dataclass
class Counters:
    """Traffic by peer."""

    peers: dict[str, Traffic] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    @classmethod
    def of(cls, names: Iterable[str]) -> Counters:
        """Counters for these peers, all zero."""
        return cls({name: Traffic() for name in names})

    @property
    def total(self) -> Traffic:
        """The sum over all peers."""
        total = Traffic()
        sums = vars(total)
        for traffic in self.peers.values():
            for name, count in vars(traffic).items():
                sums[name] += count
        return total
