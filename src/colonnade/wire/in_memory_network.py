"""Participants as threads of one process.

Nobody can read messages between two threads, and none are lost, so they are neither sealed nor numbered. They are
encoded as between machines: the receiver gets a read-only copy, and the same values are allowed. A
:class:`SimulatedNetwork` adds the delays of participants that are far apart.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from queue import Empty, SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Any, Self

from colonnade.errors import (
    CANNOT_GO_ON,
    ColonnadeError,
    ConnectError,
    IdentityError,
    PeerLost,
    ProtocolError,
    StudyError,
)
from colonnade.wire import codec
from colonnade.wire.identity import check_name
from colonnade.wire.peer_liveness import (
    TrafficCounters,
    WireLimits,
    mark_spare,
    not_joined_error,
    raise_copy,
    silent_peer_error,
    stopped_error,
)


@dataclass(frozen=True)
class SimulatedNetwork:
    """A network to imitate: seconds to a peer and back, and how many bytes a participant can send per second."""

    round_trip: float
    bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.round_trip) and self.round_trip >= 0):
            raise StudyError("round_trip of a Network is a finite number of seconds, at least 0 [ST610]")
        if self.bytes_per_second is not None and not (_is_number(self.bytes_per_second) and self.bytes_per_second > 0):
            raise StudyError("bytes_per_second of a Network is a finite number above 0, or None for no limit [ST611]")


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:
        return False


class InMemoryNetwork:
    """Connects the participants of one process."""

    def __init__(
        self,
        names: Iterable[str],
        network: SimulatedNetwork | None = None,
        *,
        timeout: float = WireLimits.timeout,
        window: int = WireLimits.window,
        backlog: int = WireLimits.backlog,
    ) -> None:
        self.names = tuple(check_name(name) for name in names)
        self.network, self.timeout, self.window, self.backlog = network, timeout, window, backlog
        self.changed = threading.Condition()
        self.failure: ColonnadeError | None = None
        self.uneasy = False
        """Whether somebody has left, is lost or has ended the study: before that, messages need not look for it."""
        self.places: dict[str, InMemoryEndpoint] = {}
        self._lanes: dict[tuple[str, str], MessageQueue] = {}

    def place(self, name: str, peers: Iterable[str] | None = None) -> InMemoryEndpoint:
        """The place of participant ``name``, who talks to ``peers`` or, if None, to everybody."""
        if name not in self.names:
            raise IdentityError(f"{name} is not in this study [ID039]")
        others = [peer for peer in (self.names if peers is None else peers) if peer != name]
        with self.changed:
            if name in self.places:
                raise ConnectError(f"{name} has a place in this study already [CN037]")
            place = self.places[name] = InMemoryEndpoint(self, name, others)
            self.changed.notify_all()
        return place

    def has_left(self, name: str) -> bool:
        """Whether a participant has closed its place."""
        place = self.places.get(name)
        return place is not None and place.closed

    def lane(self, sender: str, receiver: str) -> MessageQueue:
        """The lane from one participant to another."""
        with self.changed:
            lane = self._lanes.get((sender, receiver))
            if lane is None:
                lane = self._lanes[sender, receiver] = MessageQueue()
                if self.has_left(sender):
                    lane.end()
            return lane

    def end_lanes(self, of: str | None = None) -> None:
        """End all lanes, or those of one participant, and wake all waiting threads; the caller holds the lock."""
        self.uneasy = True
        for ends, lane in self._lanes.items():
            if of is None or of in ends:
                lane.end()
        self.changed.notify_all()


class MessageQueue:
    """Messages on their way from one participant to another: one thread puts them in, one takes them out."""

    __slots__ = ("_parcels", "_sent", "_taken", "crowded")

    def __init__(self) -> None:
        self._parcels: SimpleQueue[tuple[bytes, float] | None] = SimpleQueue()
        # Only one thread changes each of them, so they need no lock.
        self._sent = self._taken = 0
        self.crowded = False

    @property
    def waiting(self) -> int:
        """Bytes that were sent and not yet taken."""
        return self._sent - self._taken

    def put(self, frame: bytes, due: float) -> None:
        """Send a frame that arrives at the time ``due``."""
        self._sent += len(frame)
        self._parcels.put((frame, due))

    def take(self, timeout: float) -> tuple[bytes, float] | None:
        """The next frame, and when it arrives; None if the lane has ended. Raises Empty after the timeout."""
        parcel = self._parcels.get(timeout=timeout)
        if parcel is None:
            self.end()  # for the next call
        else:
            self._taken += len(parcel[0])
        return parcel

    def end(self) -> None:
        """Mark the end: after the frames that already wait, nothing follows."""
        self._parcels.put(None)


class InMemoryEndpoint:
    """One participant's place, with the methods of an endpoint; :meth:`InMemoryNetwork.place` makes it."""

    def __init__(self, room: InMemoryNetwork, name: str, peers: Iterable[str]) -> None:
        self.name, self.closed = name, False
        self.peers = tuple(sorted(peers))
        self.counters = TrafficCounters.for_peers(self.peers)
        self.blocked = 0
        self._spare: set[str] = set()
        self._lost: dict[str, PeerLost] = {}
        self._room = room
        self._channels: dict[str, InMemoryChannel] = {}
        self._sending_until = 0.0

    def channel(self, peer: str) -> InMemoryChannel:
        """The channel to a peer."""
        channel = self._channels.get(peer)
        if channel is None:
            if peer not in self.counters.peers:
                raise ProtocolError(f"{self.name} has no channel to {peer}, which is not in the study [MS087]")
            channel = self._channels.setdefault(peer, InMemoryChannel(self._room, self, peer))
        return channel

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until all peers, or the named ones, have taken their places."""
        room = self._room
        wanted = set(self.peers if names is None else names)
        limit = room.timeout if timeout is None else timeout

        def late() -> PeerLost:
            return not_joined_error(wanted - room.places.keys(), limit)

        with room.changed:
            self.wait(lambda: wanted <= room.places.keys(), lambda start: start + limit, late)

    def tolerate(self, names: Iterable[str]) -> None:
        """Mark these peers as spare: their loss does not end the study; see :meth:`Endpoint.tolerate`."""
        self._spare.update(names)

    @property
    def lost_peers(self) -> tuple[str, ...]:
        """The spare peers that were lost, in alphabetical order."""
        with self._room.changed:
            return tuple(sorted(self._lost))

    def has_lost(self, peer: str) -> bool:
        """Whether a spare peer was lost."""
        return peer in self._lost

    def lose(self, peer: str, error: PeerLost) -> PeerLost:
        """Note that a peer is lost, if it is spare; returns the error to raise, with the first reason."""
        if peer not in self._spare:
            return error
        with self._room.changed:
            if peer not in self._lost:
                self._lost[peer] = error
                self._room.uneasy = True
                self._room.lane(peer, self.name).end()  # nobody needs to wait for the peer
                self._room.lane(self.name, peer).end()  # and the peer need not wait for us
                self._room.changed.notify_all()
            return mark_spare(PeerLost(*self._lost[peer].args), peer)

    def abort(self, reason: str) -> None:
        """End the study for everybody; ``reason`` is one sentence without data.

        If the others already go on without this participant, it does not end the study for them.
        """
        room = self._room
        with room.changed:
            given_up = any(place.has_lost(self.name) for place in room.places.values())
            if not self.closed and room.failure is None and not given_up:
                room.failure = stopped_error(self.name, reason)
                room.end_lanes()

    def close(self) -> None:
        """Leave the study; messages that were sent can still be read."""
        with self._room.changed:
            if not self.closed:
                self.closed = True
                self._room.end_lanes(of=self.name)

    def check(self) -> None:
        """Raise the error that ended the study, if there is one."""
        if self.closed:
            raise ProtocolError(f"the endpoint of {self.name} is closed [MS088]")
        if self._room.failure is not None:
            raise_copy(self._room.failure)

    def wait(
        self, done: Callable[[], bool], deadline: Callable[[float], float], late: Callable[[], ColonnadeError]
    ) -> None:
        """Wait until ``done`` is true; raise ``late`` after the deadline. The caller holds the room's lock."""
        start = monotonic()
        while True:
            self.check()
            if done():
                return
            pause = deadline(start) - monotonic()
            if pause <= 0:
                raise late()
            self._room.changed.wait(pause)

    def arrival(self, size: int) -> float:
        """When a message of this size arrives if it is sent now; messages are sent one after the other."""
        network = self._room.network
        if network is None:
            return 0.0
        self._sending_until = max(self._sending_until, monotonic())
        if network.bytes_per_second is not None:
            self._sending_until += size / network.bytes_per_second
        return self._sending_until + network.round_trip / 2

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Not the error: its message, and even its type, may depend on data that others must not see.
            self.abort(CANNOT_GO_ON)
        self.close()


class InMemoryChannel:
    """Messages to and from one peer. One thread may send while another receives."""

    def __init__(self, room: InMemoryNetwork, place: InMemoryEndpoint, peer: str) -> None:
        self.peer = peer
        self._room, self._place = room, place
        self._traffic, self._tally = place.counters.peers[peer], place.counters.tally
        self._out, self._in = room.lane(place.name, peer), room.lane(peer, place.name)

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; waits only if the peer has not yet taken enough of the earlier ones."""
        frame = b"".join(codec.encode_parts([kind, fields]))
        size = len(frame)
        room, lane = self._room, self._out
        if room.uneasy:
            self._check()
        if (waiting := lane.waiting) and waiting + size > room.window:
            self._wait_for_room(size)
        if not (room.uneasy and self._peer_is_gone()):
            lane.put(frame, 0.0 if room.network is None else self._place.arrival(size))
        traffic = self._traffic
        traffic.messages_sent += 1
        traffic.payload_sent += size
        traffic.sealed_sent += size
        self._tally.count_sent(size)

    def recv(self, kind: str, most: int = codec.MAX_FRAME) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind and of at most so many bytes."""
        room = self._room
        if room.uneasy:
            self._check()
        self._tally.count_wait()
        try:
            parcel = self._in.take(room.timeout)
        except Empty:
            self._place.check()
            raise self._place.lose(self.peer, self._silence("sent nothing")) from None
        if self._in.crowded:
            with room.changed:
                room.changed.notify_all()
        if parcel is None:
            self._check()
            left = PeerLost(f"{self.peer} has left the study, and more was expected from it [PE011]")
            raise self._place.lose(self.peer, left)
        frame, due = parcel
        if due:
            self._travel(due)
        if room.uneasy:
            self._place.check()
        traffic = self._traffic
        traffic.messages_received += 1
        traffic.payload_received += len(frame)
        traffic.sealed_received += len(frame)
        codec.check_size(len(frame), kind, self.peer, most)
        return codec.decode_message(frame, kind, self.peer)

    def _check(self) -> None:
        """Raise the error that ended the study, also if the peer goes on without this participant."""
        self._place.check()
        peer, me = self._room.places.get(self.peer), self._place.name
        if peer is not None and peer.has_lost(me):
            raise stopped_error(self.peer, f"{me} was lost, and the study went on without it [PE012]")

    def _wait_for_room(self, size: int) -> None:
        """Wait until the peer has taken enough; meanwhile others may send more than usual to this place.

        Otherwise two peers that both send first and read later would wait for each other.
        """
        room, place, lane = self._room, self._place, self._out

        def has_room() -> bool:
            self._check()  # a peer that goes on without this place takes nothing more
            peer = room.places.get(self.peer)
            limit = room.backlog if peer is not None and peer.blocked else room.window
            return not lane.waiting or lane.waiting + size <= limit or self._peer_is_gone()

        heard = [monotonic(), lane.waiting]

        def patience_ends(_: float) -> float:
            if lane.waiting != heard[1]:
                heard[:] = [monotonic(), lane.waiting]
            return heard[0] + room.timeout

        with room.changed:
            place.blocked += 1
            lane.crowded = True
            room.changed.notify_all()
            try:
                place.wait(has_room, patience_ends, lambda: place.lose(self.peer, self._silence("taken nothing")))
            except PeerLost as error:
                if error.spare is None:  # a spare peer is lost: from now on messages to it are dropped
                    raise
            finally:
                place.blocked -= 1
                lane.crowded = False

    def _peer_is_gone(self) -> bool:
        """Whether the peer has left or is lost, so that nobody takes messages to it."""
        return self._room.has_left(self.peer) or self._place.has_lost(self.peer)

    def _travel(self, due: float) -> None:
        """Wait until the time when a message arrives."""
        if monotonic() < due:
            with self._room.changed:
                while self._room.failure is None and (pause := due - monotonic()) > 0:
                    self._room.changed.wait(pause)

    def _silence(self, idle: str) -> PeerLost:
        return silent_peer_error(self.peer, idle, self._room.timeout, joined=self.peer in self._room.places)
