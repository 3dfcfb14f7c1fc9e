"""How much a participant sent and received, and the CPU time of the encryption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import thread_time


@dataclass
class PeerTraffic:
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


class CpuTimer:
    """A ``with`` block whose CPU time is added to the counts; small, because there is one for every message."""

    __slots__ = ("_start", "_traffic")

    def __init__(self, traffic: PeerTraffic) -> None:
        self._traffic = traffic

    def __enter__(self) -> None:
        self._start = thread_time()

    def __exit__(self, *_: object) -> None:
        self._traffic.cpu_seconds += thread_time() - self._start


class TaskTally:
    """Counts of what this participant sent to all peers; the cost of a task is the difference of two readings."""

    __slots__ = ("_spoke", "messages", "payload", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        """How often it waited for a message after it had sent one."""
        self.messages = 0
        self.payload = 0
        self._spoke = False

    def count_sent(self, size: int) -> None:
        """Count a message of this size that was sent."""
        self.messages += 1
        self.payload += size
        self._spoke = True

    def count_wait(self) -> None:
        """Count a round if something was sent since the last wait."""
        if self._spoke:
            self.rounds += 1
            self._spoke = False


@dataclass
class TrafficCounters:
    """Traffic by peer."""

    peers: dict[str, PeerTraffic] = field(default_factory=dict)
    tally: TaskTally = field(default_factory=TaskTally)

    @classmethod
    def for_peers(cls, names: Iterable[str]) -> TrafficCounters:
        """Counters for these peers, all zero."""
        return cls({name: PeerTraffic() for name in names})

    @property
    def total(self) -> PeerTraffic:
        """The sum over all peers."""
        total = PeerTraffic()
        sums = vars(total)
        for traffic in self.peers.values():
            for name, count in vars(traffic).items():
                sums[name] += count
        return total
