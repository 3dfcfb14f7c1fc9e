"""What a participant sent and received, and what sealing it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from time import thread_time


@dataclass
class Traffic:
    """Counts for one peer, or for all of them together."""

    messages_sent: int = 0
    messages_received: int = 0
    payload_sent: int = 0
    """Bytes of frames before encryption."""
    payload_received: int = 0
    sealed_sent: int = 0
    """Bytes handed to the transport: sealed records, packet headers, acknowledgements, repeats."""
    sealed_received: int = 0
    cpu_seconds: float = 0.0
    """CPU time of the TLS work in whatever thread did it."""

    def timed(self) -> Timed:
        """Add the CPU time of the block."""
        return Timed(self)


class Timed:
    """A block whose CPU time is added to a count; made for every message, so kept light."""

    __slots__ = ("_start", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def __enter__(self) -> None:
        self._start = thread_time()

    def __exit__(self, *_: object) -> None:
        self._traffic.cpu_seconds += thread_time() - self._start


class Tally:
    """What this participant said to all of its peers together, as far as it goes: read it before and after."""

    __slots__ = ("_spoke", "messages", "payload", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        """How often it began to wait for a message after it had sent one."""
        self.messages = 0
        self.payload = 0
        self._spoke = False

    def sent(self, size: int) -> None:
        """A message left."""
        self.messages += 1
        self.payload += size
        self._spoke = True

    def waits(self) -> None:
        """A message is asked for."""
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
        """Zeroes for each of the peers."""
        return cls({name: Traffic() for name in names})

    @property
    def total(self) -> Traffic:
        """The sum over all peers."""
        total = Traffic()
        for traffic in self.peers.values():
            for entry in fields(Traffic):
                setattr(total, entry.name, getattr(total, entry.name) + getattr(traffic, entry.name))
        return total
