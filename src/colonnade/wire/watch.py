"""Who is present, what went wrong, and how long to wait.

No thread watches clocks. Whoever waits wakes up in time to see that a deadline has passed, and whoever comes
later sees it at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NoReturn

from colonnade.errors import ColonnadeError, ConnectError, PeerLost, PeerStopped, ProtocolError

_NEVER = float("inf")
_STOPPED = " stopped the study: "
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class Limits:
    """How long to wait, and how much to keep."""

    timeout: float = 600.0
    """Seconds of silence from a peer that is present, or that has never joined."""
    reconnect_grace: float = 30.0
    """Seconds in which a lost peer, or a lost hub, may come back."""
    window: int = 1 << 26
    """Bytes sent to one peer that it has not yet consumed."""


@dataclass
class Standing:
    """What is known of one peer."""

    incarnation: int | None = None
    """Which process it is; None until it joins."""
    heard_at: float = 0.0
    departed: bool = False
    error: ColonnadeError | None = None


class Watch:
    """The shared state of an endpoint and its one lock, ``changed``, which all methods expect to be held."""

    def __init__(self, name: str, peers: Iterable[str], limits: Limits) -> None:
        self._name, self._limits = name, limits
        self.changed = threading.Condition()
        self.peers = {peer: Standing() for peer in peers}
        self._absent: dict[str, float] = {}  # since when; of many peers seldom any
        self._failure: ColonnadeError | None = None
        self._down: tuple[float, str] | None = None
        self._spare: set[str] = set()
        self.lost: dict[str, PeerLost] = {}
        """Spare peers that the study goes on without, and why."""
        self.closed = False

    # News

    def carrier_up(self, present: Mapping[str, int]) -> list[str]:
        """The hub can be reached, and these are there; who of them is to be sent to again."""
        self._down = None
        for name in self.peers.keys() - present.keys():
            self.gone(name)
        return [name for name in present if self.here(name, present[name])]

    def carrier_down(self, reason: str) -> None:
        """The hub cannot be reached; nothing is known of anybody until it can."""
        self._down = (self._down[0] if self._down else monotonic(), reason)
        self._absent.clear()
        self.changed.notify_all()

    def here(self, name: str, incarnation: int) -> bool:
        """A participant has connected; whether it counts."""
        peer = self.peers.get(name)
        if peer is None or peer.departed:
            return False
        if peer.incarnation not in (None, incarnation):
            self._lose(name, PeerLost(f"{name} was restarted and has lost its place; the study cannot go on"))
            return False
        peer.incarnation, peer.heard_at = incarnation, monotonic()
        self._absent.pop(name, None)
        self.changed.notify_all()
        return True

    def gone(self, name: str) -> None:
        """A participant's connection broke."""
        peer = self.peers.get(name)
        if peer and peer.incarnation is not None and not peer.departed and name not in self._absent:
            self._absent[name] = monotonic()
            self.changed.notify_all()

    def departed(self, name: str) -> None:
        """A participant finished; its absence is no loss from now on."""
        self.peers[name].departed = True
        self._absent.pop(name, None)
        self.changed.notify_all()

    def tolerate(self, names: Iterable[str]) -> None:
        """The loss of these peers ends nothing for whoever needs no more from them."""
        self._spare.update(names)

    def fail(self, error: ColonnadeError) -> None:
        """From now on every call raises this; the first error stays."""
        self._failure = self._failure or error
        self.changed.notify_all()

    def spoil(self, name: str, error: ColonnadeError) -> None:
        """From now on every call that concerns this peer raises this."""
        self.peers[name].error = self.peers[name].error or error
        self.changed.notify_all()

    # Questions

    def is_present(self, name: str) -> bool:
        """Whether a peer can be sent to now."""
        peer = self.peers[name]
        known = peer.incarnation is not None and not peer.departed
        return known and name not in self._absent and self._down is None

    def is_calm(self, name: str) -> bool:
        """Whether there is surely nothing to raise; the only method that does not expect the lock."""
        trouble = self.closed or self._failure or self._absent or self._down or self.peers[name].error
        return not trouble

    def check(self, name: str | None = None) -> None:
        """Raise what stands in the way of going on, with a peer or at all."""
        if self.closed:
            raise ProtocolError(f"the endpoint of {self._name} is closed")
        if self._failure is None and (self._absent or self._down) and monotonic() >= self._next_loss():
            self._note_losses()
        error = self._failure or (self.peers[name].error if name else None)
        if error is not None:
            raise_anew(error)

    def wait(self, done: Callable[[], bool], timeout: float, late: Callable[[], ColonnadeError]) -> None:
        """Wait until ``done``, for a fixed time at most."""
        end = monotonic() + timeout
        self._wait(done, None, lambda: end, late)

    def wait_for_peer(self, name: str, done: Callable[[], bool], idle: str) -> None:
        """Wait until ``done``, while the peer gives signs of life; ``idle`` says what it has not done."""
        start = monotonic()
        self._wait(done, name, lambda: self._patience_ends(name, start), lambda: self._silent(name, idle))

    def _wait(
        self,
        done: Callable[[], bool],
        name: str | None,
        deadline: Callable[[], float],
        late: Callable[[], ColonnadeError],
    ) -> None:
        while True:
            self.check(name)
            if done():
                return
            now, end = monotonic(), deadline()
            if now >= end:
                raise late()
            pause = min(end, self._next_loss()) - now
            self.changed.wait(None if pause == _NEVER else max(pause, 0))

    def _patience_ends(self, name: str, start: float) -> float:
        peer = self.peers[name]
        if self.is_present(name) or peer.incarnation is None:
            return max(start, peer.heard_at) + self._limits.timeout
        return _NEVER  # away: the grace decides

    def _next_loss(self) -> float:
        if not self._absent and not self._down:
            return _NEVER
        since = [*self._absent.values(), *([self._down[0]] if self._down else [])]
        return min(since) + self._limits.reconnect_grace

    def _note_losses(self) -> None:
        """Whoever has been away for too long is lost now."""
        grace, now = self._limits.reconnect_grace, monotonic()
        if self._down and now >= self._down[0] + grace:
            self.fail(ConnectError(f"the hub could not be reached for {grace:g} s: {self._down[1]}"))
        for since, name in sorted((since, name) for name, since in self._absent.items()):
            if now >= since + grace:
                self._lose(name, PeerLost(f"{name} has not been heard of for {grace:g} s; the study cannot go on"))

    def _lose(self, name: str, error: PeerLost) -> None:
        """End the study, or go on without a spare peer."""
        if name not in self._spare:
            self.fail(error)
            return
        self.lost[name] = marked_spare(error, name)
        self.departed(name)

    def _silent(self, name: str, idle: str) -> PeerLost:
        error = silent_peer(name, idle, self._limits.timeout, joined=self.peers[name].incarnation is not None)
        if name in self._spare:
            self._lose(name, error)
        return error

    def left(self, name: str) -> PeerLost:
        """What to raise where more is expected from a peer that is not there any more."""
        if name not in self.lost:
            error = PeerLost(f"{name} has left the study, and more was expected from it")
            if name not in self._spare:
                return error
            self._lose(name, error)
        return marked_spare(PeerLost(*self.lost[name].args), name)


def not_joined(names: Collection[str], timeout: float) -> PeerLost:
    """Who has not come within the time."""
    who, verb = ", ".join(sorted(names)), "has" if len(names) == 1 else "have"
    return PeerLost(f"{who} {verb} not joined the study within {timeout:g} s")


def silent_peer(name: str, idle: str, timeout: float, *, joined: bool) -> PeerLost:
    """A peer that has done nothing for too long; ``idle`` says what."""
    if not joined:
        return not_joined([name], timeout)
    return PeerLost(f"{name} is connected but has {idle} for {timeout:g} s; the study cannot go on")


def marked_spare(error: PeerLost, name: str) -> PeerLost:
    """The same error, of a peer that others can do without."""
    error.spare = name
    return error


def stopped_by(name: str, reason: str) -> PeerStopped:
    """The sentence to show; whoever passes on another's reason is not the one to blame."""
    said = "".join(c if c.isprintable() else " " for c in reason[:_LONGEST_REASON])
    return PeerStopped(said if _STOPPED in said else f"{name}{_STOPPED}{said}")


def raise_anew(error: ColonnadeError) -> NoReturn:
    """Raise a copy: one instance raised in several threads would collect all their tracebacks."""
    raise type(error)(*error.args)
