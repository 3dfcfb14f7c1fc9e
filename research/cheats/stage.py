"""A stage on which participants play in turn: each runs until it waits for a message that nobody has sent.

Programs are plain blocking functions, so each has a thread, but only one of them runs at a time. So a run depends on
nothing but its randomness, nobody waits for a clock, and a participant that says nothing is noticed as soon as all
others wait. Whoever is named last runs when nobody else can: it has all messages of a round before it sends its own,
as a rushing adversary would. Messages are encoded as between machines.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from colonnade.errors import ColonnadeError, PeerLost
from colonnade.wire import TrafficCounters, codec
from colonnade.wire.codec import check_size, decode_message
from colonnade.wire.peer_liveness import mark_spare, raise_copy, stopped_error

Part = Callable[["StagePlace"], Any]
Message = tuple[str, dict[str, Any]]
Outgoing = Callable[[str, str, dict[str, Any]], Iterable[Message]]
"""What leaves in place of a message, given its receiver, kind and fields."""


class Stage:
    """Connects the participants of one run."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.failure: ColonnadeError | None = None
        self.left: set[str] = set()
        self.waiting: dict[str, str] = {}
        """Who waits for whom."""
        self.given_up: set[str] = set()
        """Who waits in vain, and is told so."""
        self.boxes: dict[tuple[str, str], deque[bytes]] = {
            (sender, receiver): deque() for sender in self.names for receiver in self.names
        }
        self._gates = {name: threading.Semaphore(0) for name in self.names}
        self._over = threading.Event()

    def run(self, parts: Mapping[str, Part]) -> dict[str, Any]:
        """Everybody's result, or the error with which it ended."""
        ended: dict[str, Any] = {}

        def play(name: str) -> None:
            self._gates[name].acquire()
            try:
                ended[name] = parts[name](StagePlace(self, name))
            except BaseException as error:
                ended[name] = error
            self.left.add(name)
            following = self._following()
            if following is None:
                self._over.set()
            else:
                self._gates[following].release()

        threads = [threading.Thread(target=play, args=(name,), daemon=True) for name in self.names]
        for thread in threads:
            thread.start()
        self._gates[self.names[0]].release()
        self._over.wait()
        for thread in threads:
            thread.join()
        return ended

    def wait(self, name: str, peer: str) -> None:
        """Let others run until there may be news of this peer."""
        self.waiting[name] = peer
        following = self._following()
        if following is not None and following != name:
            self._gates[following].release()
            self._gates[name].acquire()
        del self.waiting[name]

    def _following(self) -> str | None:
        """Who runs next: the first that can, else the one that is told that it waits in vain."""
        there = [name for name in self.names if name not in self.left]
        for name in there:
            if name not in self.waiting or self.has_news(name, self.waiting[name]):
                return name
        if not there:
            return None
        stuck = max(there, key=lambda name: self.names.index(self.waiting[name]))
        self.given_up.add(stuck)
        return stuck

    def has_news(self, name: str, peer: str) -> bool:
        """Whether somebody who waits for this peer need not wait any longer."""
        return bool(self.failure or self.boxes[peer, name] or peer in self.left or name in self.given_up)


class StagePlace:
    """One participant's place, with the methods that a session needs."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name, self.stage = name, stage
        self.peers = tuple(sorted(peer for peer in stage.names if peer != name))
        self.counters = TrafficCounters.for_peers(self.peers)
        self.outgoing: Outgoing = lambda peer, kind, fields: ((kind, fields),)
        """Replaced where the participant deviates."""
        self.silent = False
        """Whether it leaves without a word, so that the others learn nothing from it."""
        self._spare: set[str] = set()
        self._lost: dict[str, PeerLost] = {}

    def channel(self, peer: str) -> StageLink:
        """The channel to a peer."""
        return StageLink(self, peer)

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """All peers are there."""

    def peek(self, peer: str) -> Message | None:
        """The next message of a peer, which is still to be received; ``None`` if the peer sends none."""
        box = self.stage.boxes[peer, self.name]
        while not box:
            if self.stage.has_news(self.name, peer):
                return None
            self.stage.wait(self.name, peer)
        kind, fields = codec.decode(box[0])
        return kind, fields

    def tolerate(self, names: Iterable[str]) -> None:
        """Mark peers as spare: their loss does not end the study."""
        self._spare.update(names)

    @property
    def lost_peers(self) -> tuple[str, ...]:
        """The spare peers that were lost."""
        return tuple(sorted(self._lost))

    def lose(self, peer: str, error: PeerLost) -> PeerLost:
        """Note that a peer is lost, if it is spare; returns the error to raise."""
        if peer not in self._spare:
            return error
        self._lost.setdefault(peer, error)
        return mark_spare(PeerLost(*self._lost[peer].args), peer)

    def abort(self, reason: str) -> None:
        """End the run for everybody."""
        if not self.silent and self.stage.failure is None:
            self.stage.failure = stopped_error(self.name, reason)

    def close(self) -> None:
        """Leave; the stage notes it when the part has ended."""


class StageLink:
    """Messages to and from one peer."""

    def __init__(self, place: StagePlace, peer: str) -> None:
        self.place, self.peer = place, peer
        self._out = place.stage.boxes[place.name, peer]
        self._in = place.stage.boxes[peer, place.name]

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message, or what a deviating participant sends in its place."""
        self._check()
        for instead, given in self.place.outgoing(self.peer, kind, fields):
            self._out.append(b"".join(codec.encode_parts([instead, given])))

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind and of at most so many bytes."""
        place, stage = self.place, self.place.stage
        while True:
            self._check()
            if self._in:
                frame = self._in.popleft()
                check_size(len(frame), kind, self.peer, most)
                return decode_message(frame, kind, self.peer)
            if self.peer in stage.left:
                raise place.lose(
                    self.peer, PeerLost(f"{self.peer} has left the study, and more was expected from it [PE001]")
                )
            if place.name in stage.given_up:
                stage.given_up.discard(place.name)
                raise place.lose(
                    self.peer, PeerLost(f"{self.peer} sent nothing, and more was expected from it [PE002]")
                )
            stage.wait(place.name, self.peer)

    def _check(self) -> None:
        if self.place.stage.failure is not None:
            raise_copy(self.place.stage.failure)
