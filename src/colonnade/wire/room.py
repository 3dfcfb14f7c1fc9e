"""Participants as threads of one process.

Nobody can listen in between two threads, and nothing is lost on the way, so messages are neither sealed nor
numbered. They are encoded as ever: what is received is a read-only copy, and what a message cannot carry between
machines it cannot carry here. A :class:`Network` lets it seem that the participants are far apart.
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
from typing import Any, NoReturn, Self

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, PeerLost, ProtocolError, StudyError
from colonnade.wire import codec
from colonnade.wire.channel import message_in
from colonnade.wire.counters import Counters
from colonnade.wire.identity import check_name
from colonnade.wire.stream import MAX_INBOX
from colonnade.wire.watch import Limits, marked_spare, not_joined, raise_anew, silent_peer, stopped_by


@dataclass(frozen=True)
class Network:
    """How far apart the participants seem: seconds to a peer and back, and the bytes that one can send a second."""

    round_trip: float
    bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.round_trip) and self.round_trip >= 0):
            raise StudyError("round_trip of a Network is a finite number of seconds, at least 0")
        if self.bytes_per_second is not None and not (_is_number(self.bytes_per_second) and self.bytes_per_second > 0):
            raise StudyError("bytes_per_second of a Network is a finite number above 0, or None for no limit")


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:
        return False


class Room:
    """Where the participants of one process meet."""

    def __init__(
        self,
        names: Iterable[str],
        network: Network | None = None,
        *,
        timeout: float = Limits.timeout,
        window: int = Limits.window,
    ) -> None:
        self.names = tuple(check_name(name) for name in names)
        self.network, self.timeout, self.window = network, timeout, window
        self.changed = threading.Condition()
        self.failure: ColonnadeError | None = None
        self.places: dict[str, RoomPlace] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}

    def place(self, name: str, peers: Iterable[str] | None = None) -> RoomPlace:
        """Come in as ``name``; ``peers`` is with whom it talks, if not with everybody."""
        if name not in self.names:
            raise IdentityError(f"{name} is not in this study")
        others = [peer for peer in (self.names if peers is None else peers) if peer != name]
        with self.changed:
            if name in self.places:
                raise ConnectError(f"{name} has a place in this study already")
            place = self.places[name] = RoomPlace(self, name, others)
            self.changed.notify_all()
        return place

    def has_left(self, name: str) -> bool:
        """Whether a participant was here and has closed its place."""
        place = self.places.get(name)
        return place is not None and place.closed

    def lane(self, sender: str, receiver: str) -> Lane:
        """The way from one participant to another."""
        with self.changed:
            lane = self._lanes.get((sender, receiver))
            if lane is None:
                lane = self._lanes[sender, receiver] = Lane()
                if self.has_left(sender):
                    lane.end()
            return lane

    def end_lanes(self, of: str | None = None) -> None:
        """Wake whoever waits for a message, or waits for one to be taken; with the lock held."""
        for ends, lane in self._lanes.items():
            if of is None or of in ends:
                lane.end()
        self.changed.notify_all()


class Lane:
    """Messages on their way from one participant to another: one thread puts them in, one takes them out."""

    __slots__ = ("_parcels", "_sent", "_taken", "crowded")

    def __init__(self) -> None:
        self._parcels: SimpleQueue[tuple[bytes, float] | None] = SimpleQueue()
        # Each is written by one thread only, so neither needs a lock.
        self._sent = self._taken = 0
        self.crowded = False

    @property
    def waiting(self) -> int:
        """Bytes that were sent and not yet taken."""
        return self._sent - self._taken

    def put(self, frame: bytes, due: float) -> None:
        """Send a frame that is to be there at a time."""
        self._sent += len(frame)
        self._parcels.put((frame, due))

    def take(self, timeout: float) -> tuple[bytes, float] | None:
        """The next frame and when it is there; None where the lane has ended. Raises Empty in the end."""
        parcel = self._parcels.get(timeout=timeout)
        if parcel is None:
            self.end()  # for whoever asks next
        else:
            self._taken += len(parcel[0])
        return parcel

    def end(self) -> None:
        """After what is in it, nothing comes any more."""
        self._parcels.put(None)


class RoomPlace:
    """One participant's place; made by :meth:`Room.place`, and used as an endpoint is."""

    def __init__(self, room: Room, name: str, peers: Iterable[str]) -> None:
        self.name, self.closed = name, False
        self.peers = tuple(sorted(peers))
        self.counters = Counters.of(self.peers)
        self.blocked = 0
        self._spare: set[str] = set()
        self._lost: dict[str, PeerLost] = {}
        self._room = room
        self._channels: dict[str, RoomChannel] = {}
        self._uplink_free = 0.0

    def channel(self, peer: str) -> RoomChannel:
        """The channel to a peer."""
        channel = self._channels.get(peer)
        if channel is None:
            if peer not in self.counters.peers:
                raise ProtocolError(f"{self.name} has no channel to {peer}, which is not in the study")
            channel = self._channels.setdefault(peer, RoomChannel(self._room, self, peer))
        return channel

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Block until all peers, or the named ones, have come in."""
        room = self._room
        wanted = set(self.peers if names is None else names)
        limit = room.timeout if timeout is None else timeout

        def late() -> PeerLost:
            return not_joined(wanted - room.places.keys(), limit)

        with room.changed:
            self.wait(lambda: wanted <= room.places.keys(), lambda start: start + limit, late)

    def tolerate(self, names: Iterable[str]) -> None:
        """The loss of these peers is a ``PeerLost`` whose ``spare`` is their name; see :meth:`Endpoint.tolerate`."""
        self._spare.update(names)

    @property
    def lost(self) -> tuple[str, ...]:
        """The tolerated peers that were lost, in alphabetical order."""
        with self._room.changed:
            return tuple(sorted(self._lost))

    def has_lost(self, peer: str) -> bool:
        """Whether a tolerated peer was lost."""
        return peer in self._lost

    def lose(self, peer: str, error: PeerLost) -> PeerLost:
        """Note that a peer is lost, if it is a tolerated one; what to raise, which stays the first reason."""
        if peer not in self._spare:
            return error
        with self._room.changed:
            if peer not in self._lost:
                self._lost[peer] = error
                self._room.lane(peer, self.name).end()  # whoever still waits for the peer need not
                self._room.lane(self.name, peer).end()  # nor need the peer wait
                self._room.changed.notify_all()
            return marked_spare(PeerLost(*self._lost[peer].args), peer)

    def abort(self, reason: str) -> None:
        """End the study for everybody, with one sentence that says why and holds no data.

        Whoever was given up for lost ends it for nobody else.
        """
        room = self._room
        with room.changed:
            given_up = any(place.has_lost(self.name) for place in room.places.values())
            if not self.closed and room.failure is None and not given_up:
                room.failure = stopped_by(self.name, reason)
                room.end_lanes()

    def close(self) -> None:
        """Leave; what was sent can still be read."""
        with self._room.changed:
            if not self.closed:
                self.closed = True
                self._room.end_lanes(of=self.name)

    def check(self) -> None:
        """Raise what stands in the way of going on."""
        if self.closed:
            raise ProtocolError(f"the endpoint of {self.name} is closed")
        if self._room.failure is not None:
            raise_anew(self._room.failure)

    def wait(
        self, done: Callable[[], bool], deadline: Callable[[float], float], late: Callable[[], ColonnadeError]
    ) -> None:
        """Wait until ``done``; with the room's lock held."""
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
        """When a message of this size that is sent now will be there: one leaves after the other."""
        network = self._room.network
        if network is None:
            return 0.0
        self._uplink_free = max(self._uplink_free, monotonic())
        if network.bytes_per_second is not None:
            self._uplink_free += size / network.bytes_per_second
        return self._uplink_free + network.round_trip / 2

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # The type only: a message may hold what others must not see.
            self.abort(f"it met an error ({kind.__name__})")
        self.close()


class RoomChannel:
    """Messages to and from one peer. One thread may send while another receives."""

    def __init__(self, room: Room, place: RoomPlace, peer: str) -> None:
        self.peer = peer
        self._room, self._place = room, place
        self._traffic, self._tally = place.counters.peers[peer], place.counters.tally
        self._out, self._in = room.lane(place.name, peer), room.lane(peer, place.name)

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; blocks only while the peer is too far behind."""
        frame = b"".join(codec.encode_parts([kind, fields]))
        self._check()
        size = len(frame)
        if self._out.waiting and self._out.waiting + size > self._room.window:
            self._wait_for_room(size)
        if not self._goes_nowhere():
            self._out.put(frame, self._place.arrival(size))
        traffic = self._traffic
        traffic.messages_sent += 1
        traffic.payload_sent += size
        traffic.sealed_sent += size
        self._tally.sent(size)

    def recv(self, kind: str) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind."""
        self._check()
        self._tally.waits()
        try:
            parcel = self._in.take(self._room.timeout)
        except Empty:
            self._give_up("sent nothing")
        if self._in.crowded:
            with self._room.changed:
                self._room.changed.notify_all()
        if parcel is None:
            self._check()
            left = PeerLost(f"{self.peer} has left the study, and more was expected from it")
            raise self._place.lose(self.peer, left)
        frame, due = parcel
        if due:
            self._travel(due)
        self._place.check()
        traffic = self._traffic
        traffic.messages_received += 1
        traffic.payload_received += len(frame)
        traffic.sealed_received += len(frame)
        return message_in(frame, kind, self.peer)

    def _check(self) -> None:
        """Raise what stands in the way of going on with this peer."""
        self._place.check()
        peer, me = self._room.places.get(self.peer), self._place.name
        if peer is not None and peer.has_lost(me):
            raise stopped_by(self.peer, f"{me} was lost, and the study went on without it")

    def _wait_for_room(self, size: int) -> None:
        """Block until the peer has taken enough; meanwhile others may send to this place as if it read everything.

        Two peers who both send first and read later would otherwise wait for each other.
        """
        room, place, lane = self._room, self._place, self._out

        def has_room() -> bool:
            peer = room.places.get(self.peer)
            limit = MAX_INBOX // 2 if peer is not None and peer.blocked else room.window
            return not lane.waiting or lane.waiting + size <= limit or self._goes_nowhere()

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
                if error.spare is None:  # else what is sent to it goes nowhere from now on
                    raise
            finally:
                place.blocked -= 1
                lane.crowded = False

    def _goes_nowhere(self) -> bool:
        """Whether nobody is there any more to take what is sent."""
        return self._room.has_left(self.peer) or self._place.has_lost(self.peer)

    def _travel(self, due: float) -> None:
        """Wait until a message has come all the way."""
        if monotonic() < due:
            with self._room.changed:
                while self._room.failure is None and (pause := due - monotonic()) > 0:
                    self._room.changed.wait(pause)

    def _give_up(self, idle: str) -> NoReturn:
        self._place.check()
        raise self._place.lose(self.peer, self._silence(idle))

    def _silence(self, idle: str) -> PeerLost:
        return silent_peer(self.peer, idle, self._room.timeout, joined=self.peer in self._room.places)
