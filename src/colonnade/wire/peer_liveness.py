"""Which peers are present, what errors there were, how long to wait, and how much was sent to each.

No thread watches the clock. A waiting thread wakes up when a deadline has passed, and a later call notices it at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import NoReturn

from colonnade.errors import ColonnadeError, ConnectError, PeerLost, PeerStopped, ProtocolError
from colonnade.sanitize import sanitize

_NEVER = float("inf")
_STOPPED = " stopped the study: "
_LONGEST_REASON = 800
PROGRESS = 1 << 18
"""Bytes with which the time to wait for a peer starts anew; one that sends a byte now and then is given up."""


@dataclass(frozen=True)
class WireLimits:
    """How long to wait, and how much to keep."""

    timeout: float = 600.0
    """The most seconds to wait for progress of a peer that is present or has never joined."""
    reconnect_grace: float = 30.0
    """The most seconds in which a peer, or the hub, may come back after its connection broke."""
    window: int = 1 << 26
    """The most bytes sent to one peer that it has not taken yet; the same for everybody."""
    backlog: int = 5 << 26
    """The most bytes of one peer that wait here while this participant itself waits before it can send."""
    attempt: float = 5.0
    """The most seconds for each step of one attempt to reach the hub."""
    handshake: float = 10.0
    """The most seconds in which a connection to the hub must become that of a participant."""
    heartbeat: float = 5.0
    """The seconds between two signs of life on a connection, and the most for the answer to one."""
    stall: float = 20.0
    """The most seconds for which a participant may read nothing of what the hub has for it."""
    closing: float = 3.0
    """The most seconds at the end without progress in sending what is left."""


@dataclass
class PeerState:
    """What is known about one peer."""

    incarnation: int | None = None
    """A number that identifies its process; None until it joins."""
    took_at: float = 0.0
    """When it joined, or had last taken enough of what was sent to it."""
    gave_at: float = 0.0
    """When it had last sent enough."""
    taken: int = 0
    given: int = 0
    """Bytes since then."""
    excused_seconds: float = 0.0
    """For how many seconds it could not be reached, in all."""
    has_departed: bool = False
    error: ColonnadeError | None = None


class PeerLiveness:
    """The state of an endpoint and its lock ``changed``, which may be taken again by whoever holds it.

    It is held for a short time only, and never during TLS work.
    """

    def __init__(self, name: str, peers: Iterable[str], limits: WireLimits) -> None:
        self._name, self._limits = name, limits
        self.changed = threading.Condition()
        self.peers = {peer: PeerState() for peer in peers}
        self._absent: dict[str, float] = {}  # when the connection of a peer broke; usually empty
        self._failure: ColonnadeError | None = None
        self._down: tuple[float, str] | None = None
        self._waits: list[tuple[str, float, bool]] = []  # for whom threads wait, since when, and whether they send
        self._spare: set[str] = set()
        self._lost: dict[str, PeerLost] = {}  # spare peers, each with the reason
        self.closed = False

    # Called from outside, by any thread

    def clock(self, name: str) -> float:
        """The time that counts when a peer is waited for; while it could not be reached, the clock stood still."""
        return monotonic() - self.peers[name].excused_seconds

    def check(self, name: str) -> None:
        """Raise the error that ends the study or the channel of this peer, if there is one."""
        if self.closed or self._failure or self._absent or self._down or self.peers[name].error:
            with self.changed:
                self._check(name)

    def wake_waiting(self) -> None:
        """Wake all waiting threads, so that they check their conditions again."""
        with self.changed:
            self.changed.notify_all()

    def fail_peer(self, name: str, error: ColonnadeError) -> None:
        """Make every later call on this peer's channel raise the error."""
        with self.changed:
            self.peers[name].error = self.peers[name].error or error
            self.changed.notify_all()

    def tolerate(self, names: Iterable[str]) -> None:
        """Mark these peers as spare: if one is lost, only calls that need more from it fail."""
        with self.changed:
            self._spare.update(names)

    @property
    def lost_peers(self) -> tuple[str, ...]:
        """The spare peers that are lost, in alphabetical order."""
        with self.changed:
            return tuple(sorted(self._lost))

    @property
    def present_peers(self) -> tuple[str, ...]:
        """The peers that are connected now, in alphabetical order."""
        with self.changed:
            return tuple(sorted(filter(self._is_present, self.peers)))

    def carrier_down(self, reason: str) -> None:
        """The connection broke, and the carrier tries to connect again; may be called again with a better reason.

        Until it is connected, nothing is known about any peer.
        """
        with self.changed:
            self._down = (self._down[0] if self._down else monotonic(), reason)
            for name in tuple(self._absent):
                self._excuse(name)
            self.changed.notify_all()

    def carrier_failed(self, error: ColonnadeError) -> None:
        """The connection broke and will not be restored: every later call raises this error, or the first of several.

        So it is with whatever else ends the study.
        """
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()

    def peer_gone(self, name: str) -> None:
        """A participant's connection broke."""
        with self.changed:
            peer = self.peers.get(name)
            if peer and peer.incarnation is not None and not peer.has_departed and name not in self._absent:
                self._absent[name] = monotonic()
                self.changed.notify_all()

    def waiting_seconds(self, name: str) -> float:
        """For how many seconds a thread has waited for this peer without progress."""
        with self.changed:
            now, waits = self.clock(name), [wait for wait in self._waits if wait[0] == name]
            return max((now - self._last_progress(*wait) for wait in waits), default=0.0)

    # The caller holds the lock: what happened

    def _note_connected(self, present: Mapping[str, int]) -> list[str]:
        """The hub is reached and these peers are present; returns those to which packets must be sent again."""
        if self._down:
            for peer in self.peers.values():
                peer.excused_seconds += monotonic() - self._down[0]
        self._down = None
        for name in self.peers.keys() - present.keys():
            self.peer_gone(name)
        return [name for name in present if self._note_present(name, present[name])]

    def _note_present(self, name: str, incarnation: int) -> bool:
        """A participant connected; returns whether it is a peer that takes part."""
        peer = self.peers.get(name)
        if peer is None or peer.has_departed:
            return False
        if peer.incarnation not in (None, incarnation):
            self._mark_lost(
                name, PeerLost(f"{name} was restarted and has lost its place; the study cannot go on [PE013]")
            )
            return False
        if peer.incarnation is None:
            peer.incarnation, peer.took_at = incarnation, self.clock(name)
        self._excuse(name)
        self.changed.notify_all()
        return True

    def _excuse(self, name: str) -> None:
        """The time for which a peer was absent does not count; coming back is no progress, and starts nothing anew."""
        if name in self._absent:
            self.peers[name].excused_seconds += monotonic() - self._absent.pop(name)

    def _note_taken(self, name: str, size: int) -> None:
        """A participant has taken so many more of the bytes that were sent to it."""
        peer = self.peers[name]
        peer.taken += size
        if peer.taken >= PROGRESS:
            peer.taken, peer.took_at = 0, self.clock(name)

    def _note_sent(self, name: str, size: int) -> None:
        """A participant has sent so many new bytes."""
        peer = self.peers[name]
        peer.given += size
        if peer.given >= PROGRESS:
            peer.given, peer.gave_at = 0, self.clock(name)

    def _mark_departed(self, name: str) -> None:
        """A participant has finished: from now on it may be absent."""
        self.peers[name].has_departed = True
        self._absent.pop(name, None)
        self.changed.notify_all()

    # The caller holds the lock: questions

    def _is_present(self, name: str) -> bool:
        """Whether packets can be sent to a peer now."""
        peer = self.peers[name]
        known = peer.incarnation is not None and not peer.has_departed
        return known and name not in self._absent and self._down is None

    def _check(self, name: str | None = None) -> None:
        """Raise the error that ends the study, or the one of this peer, if there is one."""
        if self.closed:
            raise ProtocolError(f"the endpoint of {self._name} is closed [MS121]")
        if self._failure is None and (self._absent or self._down) and monotonic() >= self._next_loss():
            self._note_losses()
        error = self._failure or (self.peers[name].error if name else None)
        if error is not None:
            raise_copy(error)

    def _wait_until(self, done: Callable[[], bool], timeout: float, late: Callable[[], ColonnadeError]) -> None:
        """Wait until ``done`` is true; raise the error ``late`` after ``timeout`` seconds."""
        end = monotonic() + timeout
        self._wait(done, None, lambda: end, late)

    def _wait_for_peer(
        self, name: str, done: Callable[[], bool], idle: str, since: float | None = None, *, giving: bool = False
    ) -> None:
        """Wait until ``done`` is true, as long as the peer makes progress; ``idle`` tells what it failed to do.

        The time counts from ``since`` on the peer's clock, if not from now. If ``giving``, what it sends is progress.
        """
        start = self.clock(name) if since is None else since
        self._waits.append((name, start, giving))
        try:
            self._wait(
                done, name, lambda: self._patience_ends(name, start, giving), lambda: self._silent_error(name, idle)
            )
        finally:
            self._waits.remove((name, start, giving))

    def _wait(
        self,
        done: Callable[[], bool],
        name: str | None,
        deadline: Callable[[], float],
        late: Callable[[], ColonnadeError],
    ) -> None:
        while True:
            self._check(name)
            if done():
                return
            now, end = monotonic(), deadline()
            if now >= end:
                raise late()
            pause = min(end, self._next_loss()) - now
            self.changed.wait(None if pause == _NEVER else max(pause, 0))

    def _patience_ends(self, name: str, start: float, giving: bool) -> float:
        peer = self.peers[name]
        if self._is_present(name) or peer.incarnation is None:
            return self._last_progress(name, start, giving) + peer.excused_seconds + self._limits.timeout
        return _NEVER  # its connection broke: ``reconnect_grace`` limits the wait

    def _last_progress(self, name: str, start: float, giving: bool) -> float:
        """When a peer that is waited for from this time on has last made progress, on its clock."""
        peer = self.peers[name]
        return max(start, peer.took_at, peer.gave_at if giving else start)

    def _next_loss(self) -> float:
        if not self._absent and not self._down:
            return _NEVER
        since = [*self._absent.values(), *([self._down[0]] if self._down else [])]
        return min(since) + self._limits.reconnect_grace

    def _note_losses(self) -> None:
        """Note as lost all peers, and the hub, that have been away for too long."""
        grace, now = self._limits.reconnect_grace, monotonic()
        if self._down and now >= self._down[0] + grace:
            self.carrier_failed(ConnectError(f"the hub could not be reached for {grace:g} s: {self._down[1]} [CN046]"))
        for since, name in sorted((since, name) for name, since in self._absent.items()):
            if now >= since + grace:
                self._mark_lost(
                    name, PeerLost(f"{name} has not been heard of for {grace:g} s; the study cannot go on [PE014]")
                )

    def _mark_lost(self, name: str, error: PeerLost) -> None:
        """End the study, or continue without the peer if it is spare."""
        if name not in self._spare:
            self.carrier_failed(error)
            return
        self._lost[name] = mark_spare(error, name)
        self._mark_departed(name)

    def _silent_error(self, name: str, idle: str) -> PeerLost:
        error = silent_peer_error(name, idle, self._limits.timeout, joined=self.peers[name].incarnation is not None)
        if name in self._spare:
            self._mark_lost(name, error)
        return error

    def _departed_error(self, name: str) -> PeerLost:
        """The error to raise if more is expected from a peer that is no longer present."""
        if name not in self._lost:
            error = PeerLost(f"{name} has left the study, and more was expected from it [PE015]")
            if name not in self._spare:
                return error
            self._mark_lost(name, error)
        return mark_spare(PeerLost(*self._lost[name].args), name)


def not_joined_error(names: Collection[str], timeout: float) -> PeerLost:
    """The error for peers that have not joined in time."""
    who, verb = ", ".join(sorted(names)), "has" if len(names) == 1 else "have"
    return PeerLost(f"{who} {verb} not joined the study within {timeout:g} s [PE016]")


def silent_peer_error(name: str, idle: str, timeout: float, *, joined: bool) -> PeerLost:
    """The error for a peer that was silent for too long; ``idle`` tells what it failed to do."""
    if not joined:
        return not_joined_error([name], timeout)
    return PeerLost(f"{name} is connected but has {idle} for {timeout:g} s; the study cannot go on [PE017]")


def mark_spare(error: PeerLost, name: str) -> PeerLost:
    """The same error, marked with the name of the spare peer that is lost."""
    error.spare = name
    return error


def stopped_error(name: str, reason: str) -> PeerStopped:
    """The error that tells who stopped the study; a reason that names a participant already stays as it is."""
    said = sanitize(reason, _LONGEST_REASON)
    return PeerStopped(f"{said} [PE018]" if _STOPPED in said else f"{name}{_STOPPED}{said} [PE019]")


def raise_copy(error: ColonnadeError) -> NoReturn:
    """Raise a copy of an error: one object raised in several threads would collect all their tracebacks."""
    anew = type(error)(*error.args)
    anew.public = error.public
    raise anew


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


@contextmanager
def cpu_timer(traffic: PeerTraffic) -> Iterator[None]:
    """Add the CPU time of what is done inside to the counts; small, because there is one for every message."""
    start = thread_time()
    try:
        yield
    finally:
        traffic.cpu_seconds += thread_time() - start


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
