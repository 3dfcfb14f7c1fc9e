"""The sessions of studies at a hub: who is in each, what waits for each, and which rooms and lanes are open.

Rooms are opened and closed by whoever runs the hub or, for lanes, by those who come and go. A lane is the room of one
run of a partition. One loop serves all sessions, so nothing here is locked. The hub keeps at most a few megabytes for
each connection. If a participant does not read, those who send to it must wait; after some time it is disconnected.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.sanitize import sanitize
from colonnade.wire import packets
from colonnade.wire.identity import Certificate
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.quota import MESSAGE, UNLIMITED, FairQueue, HubAccount, QuotaRefusal

_MESSAGE_OVERHEAD = 64  # bytes of memory beside those of a message
_READS_NOTHING = "it did not read what was sent to it"
_ALWAYS = 1 << 20
_MESSAGES_AT_ONCE = 64  # messages of one participant, before others have their turn


class StudySession:
    """The participants of one study, and the connections of those who are present."""

    def __init__(
        self,
        names: Iterable[str],
        carry: Callable[[bytes], bytes],
        turns: FairQueue | None = None,
        queue: int = 1 << 60,
    ) -> None:
        """At most ``queue`` bytes wait for each of them, and not more than its account allows."""
        self.names, self.queue = frozenset(names), queue
        self.connections: dict[str, SessionConnection] = {}
        self.carried = 0
        """Bytes that were passed on."""
        self._carry, self._turns = carry, turns

    def enter(self, connection: SessionConnection) -> None:
        """Tell a participant who is present, and the others that it is; its former connection ends."""
        former = self.connections.get(connection.name)
        if former is not None:
            former.end("another connection took its place")
        self.connections[connection.name] = connection
        others = {name: other.incarnation for name, other in self.connections.items() if name != connection.name}
        connection.announce(packets.pack_roster(packets.ROSTER, others))
        self._announce(connection, packets.HERE)

    def leave(self, connection: SessionConnection) -> None:
        """Tell the others that a participant's connection has ended, unless another one took its place."""
        if self.connections.get(connection.name) is connection:
            del self.connections[connection.name]
            self._announce(connection, packets.GONE)

    def _announce(self, connection: SessionConnection, kind: int) -> None:
        news = packets.pack_roster(kind, {connection.name: connection.incarnation})
        for name, other in self.connections.items():
            if name != connection.name:
                other.announce(news)

    async def read(self, connection: SessionConnection, messages: AsyncIterator[bytes]) -> None:
        """Pass on what a participant sends, for as long as it does."""
        try:
            async for bundle in messages:
                if self._turns is not None:
                    await self._turns.wait(connection.account, len(bundle) + MESSAGE)
                count = 0
                for count, message in enumerate(packets.unbundle(bundle), 1):
                    await self._pass_on(connection, message)
                    if not count % _MESSAGES_AT_ONCE:
                        await asyncio.sleep(0)
                connection.account.add_cost((count - 1) * MESSAGE)
                await connection.account.pay(len(bundle) + count * MESSAGE)
        except ProtocolError as error:
            connection.end(str(error))

    async def _pass_on(self, connection: SessionConnection, message: bytes) -> None:
        sender, receiver, _ = packets.read_names(message)
        if message[0] != packets.PACKET or sender != connection.name or len(message) > packets.MAX_ENVELOPE:
            raise ProtocolError("it sent an envelope that is not its own [MS059]")
        target = self.connections.get(receiver)
        if target is not None:
            self.carried += len(message)
            await target.put(self._carry(message))


class SessionConnection:
    """The connection of one participant, and the messages that wait to be sent to it."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        stall: float = WireLimits.stall,
        account: HubAccount | None = None,
        queue: int = 1 << 60,
    ) -> None:
        self.name, self.incarnation = name, incarnation
        self.account = account or HubAccount(name, UNLIMITED)
        self._stall, self._queue_bytes = stall, min(queue, self.account.limits.queue)
        self.end_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()

    def end(self, reason: str) -> None:
        """Disconnect."""
        if not self.end_reason.done():
            self.end_reason.set_result(reason)
        self._drained.set()

    def announce(self, message: bytes) -> None:
        """Add a small message without waiting for room."""
        self._waiting.append(message)
        self._bytes += len(message) + _MESSAGE_OVERHEAD
        self._filled.set()
        if self._bytes > 4 * self._queue_bytes + _ALWAYS:  # others may come and go for as long as it does not read
            self.end(_READS_NOTHING)

    async def put(self, message: bytes) -> None:
        """Wait until there is room, then add a message."""
        while self._bytes > self._queue_bytes and not self.end_reason.done():
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), self._stall)
            except TimeoutError:
                self.end(_READS_NOTHING)
        if not self.end_reason.done():
            self.announce(message)

    async def write(self, context: Any) -> None:
        """Send what waits, for as long as the connection lasts."""
        while True:
            await context.write(await self.get())

    async def get(self) -> bytes:
        """The next message, or a bundle of small ones."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        batch = [self._waiting.popleft()]
        size = len(batch[0])
        # The roster, which comes first, is sent alone.
        while self._waiting and size + len(self._waiting[0]) <= packets.FULL_BUNDLE and batch[0][0] != packets.ROSTER:
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._bytes -= size + _MESSAGE_OVERHEAD * len(batch)
        if self._bytes <= self._queue_bytes // 2:
            self._drained.set()
        return packets.bundle(batch)


_LANE = re.compile(
    r"(?:(?P<home>[A-Za-z0-9._-]{1,100})\.)?"
    r"lane-(?:0|[1-9][0-9]{0,6})-(?:[1-9][0-9]{0,3})-[0-9a-f]{32}"
)  # fmt: skip


def lane_topic(topic: bytes, partition: int, attempt: int, workers: Mapping[str, Certificate]) -> bytes:
    """What both ends of a lane's sessions must have alike, where ``topic`` is that of the study's own sessions.

    So whoever is passed on to the wrong lane, or to the right one of another attempt, or was told of other workers, is
    refused in the handshake. Attempts count from 1.
    """
    crew = sha256(b"".join(sha256(workers[name].der).digest() for name in sorted(workers)))
    return b" ".join((topic, f"lane-{partition}-{attempt}".encode(), crew.hexdigest().encode()))


def lane_room(partition: int, attempt: int, topic: bytes, home: str = "") -> str:
    """The room in which the workers of a lane meet, from the topic of its sessions.

    ``home`` is the room of the study at a hub that has several. It is another room for other workers, so those that an
    earlier run of the study has left at a hub are in nobody's way.
    """
    room = f"lane-{partition}-{attempt}-{sha256(topic).hexdigest()[:32]}"
    room = f"{home}.{room}" if home else room
    if home_room(room) != home:
        raise ValueError(f"there is no lane of partition {partition} and attempt {attempt} [VA272]")
    return room


def home_room(room: str) -> str | None:
    """The room of the study whose lane this is, written in the one way there is; ``None`` if it is no lane."""
    found = _LANE.fullmatch(room)
    return None if found is None else found["home"] or ""


def is_lane(room: str) -> bool:
    """Whether a room has the name of a lane."""
    return home_room(room) is not None


_LANE_QUEUE = 2 * packets.MAX_PACKET
_ROOM = re.compile(r"[A-Za-z0-9._-]{0,100}")
_REMEMBERED = 4096  # closed rooms of which it is known why they ended


@dataclass(frozen=True)
class LaneLimits:
    """Lanes that a hub has open at the same time: each needs a few descriptors and megabytes for every participant.

    Where the system allows few descriptors, there are fewer lanes, so that the rooms of studies can always be reached.
    """

    each: int = 128
    """Lanes of one study."""
    studies: int = 1
    """Studies in lanes at the same time: there is room for the lanes of all of them, so none takes those of another."""
    people: int = 8
    """Participants of a study that can have so many lanes; one with more of them has fewer."""

    @property
    def all(self) -> int:
        """Lanes of all studies."""
        return self.each * self.studies


class StudyRooms:
    """The open rooms, each with its circle."""

    def __init__(
        self,
        known: Container[str],
        account: Callable[[str], HubAccount],
        carry: Callable[[bytes], bytes],
        turns: FairQueue | None,
        lanes: LaneLimits,
        lanes_of: Iterable[str] = (),
    ) -> None:
        """``lanes_of`` are those for whom lanes are opened that belong to no room, at a hub of one study."""
        self.open: dict[str, StudySession] = {}
        self.places = lanes.all * lanes.people
        """Places in all lanes that may be open."""
        self.ending = False
        """Whether the hub is about to stop, so that no room is opened any more."""
        self._known, self._account, self._carry, self._turns = known, account, carry, turns
        self._limits, self._lanes = lanes, dict[str, str]()
        everybody = frozenset(lanes_of)
        self._homes = {"": everybody} if everybody else {}
        """Rooms that have lanes, and who is in them."""
        self._closed: OrderedDict[str, str] = OrderedDict()
        self._carried = 0

    @property
    def carried(self) -> int:
        """Bytes passed on so far, also in rooms that have closed."""
        return self._carried + sum(circle.carried for circle in self.open.values())

    @property
    def occupied(self) -> bool:
        """Whether anybody is in a room."""
        return any(circle.connections for circle in self.open.values())

    @property
    def lanes(self) -> int:
        """How many of the open rooms are lanes."""
        return len(self._lanes)

    def most_lanes(self, participants: int) -> int:
        """How many lanes a study of so many participants may have open."""
        return max(1, min(self._limits.each, self.places // max(1, self._limits.studies * participants)))

    def add(self, room: str, names: Iterable[str], lanes: bool = False) -> None:
        """Open a room for exactly these members; if it has ``lanes``, these open as its members come and go."""
        if not _ROOM.fullmatch(room) or is_lane(room):
            raise ProtocolError(
                f"a room cannot be called {sanitize(room)!r}: use up to 100 letters, digits, '-', '_', '.' [MS089]"
            )
        if room in self.open:
            raise ProtocolError(f"the room {room!r} is open already [MS090]")
        if self.ending:
            raise ConnectError("the hub is about to stop, so it opens no room any more [CN038]")
        if lanes and len(self._homes) >= self._limits.studies:
            raise ConnectError(f"{len(self._homes)} studies have lanes at this hub, as many as it has room for [CN039]")
        circle = StudySession(names, self._carry, self._turns)
        if unknown := sorted(name for name in circle.names if name not in self._known):
            raise IdentityError(
                f"nobody called {sanitize(unknown[0])} is known here, so no room can be opened for it [ID040]"
            )
        for name in sorted(circle.names):
            self._account(name).check_rooms(self._named(name))
        self._closed.pop(room, None)
        self.open[room] = circle
        if lanes:
            self._homes[room] = circle.names

    def shut(self, room: str, reason: str) -> None:
        """Close a room with its lanes; whoever is in one of them, or comes later, is told the reason."""
        self.shut_lanes(room, reason)
        if self._end(room, reason):
            self._closed[room] = reason
            while len(self._closed) > _REMEMBERED:
                self._closed.popitem(last=False)

    def shut_lanes(self, room: str, reason: str) -> None:
        """Close the lanes of a room, which has none from now on."""
        self._homes.pop(room, None)
        for lane in [lane for lane, home in self._lanes.items() if home == room]:
            self._end(lane, reason)

    def find(self, room: str, name: str) -> StudySession:
        """The circle in a room, or of a lane that can be opened; whoever it is not open for is refused."""
        home = home_room(room)
        for place in (room, home):
            if place is not None and place in self._closed:
                raise QuotaRefusal(f"{self._closed[place]} [CN040]", "ABORTED")
        circle = self.open.get(room)
        if circle is not None:
            names = circle.names
        elif home in self._homes and not self.ending:
            names = self._homes[home]
        else:
            raise QuotaRefusal("the room of this study is not open [CN041]", "NOT_FOUND")
        if name not in names:
            raise IdentityError(f"{name} is not in this study [ID041]")
        return circle or self._new_lane(home, names)

    def enter(self, room: str, circle: StudySession) -> None:
        """Somebody enters the circle that was found for a room: if it is a new lane, it is open from now on."""
        if room not in self.open:
            self.open[room] = circle
            self._lanes[room] = home_room(room) or ""

    def leave(self, room: str) -> None:
        """Somebody has left a room: a lane in which nobody is left is forgotten."""
        if room in self._lanes and not self.open[room].connections:
            del self._lanes[room]
            self._carried += self.open.pop(room).carried

    def _new_lane(self, home: str | None, names: frozenset[str]) -> StudySession:
        count = sum(other == home for other in self._lanes.values())
        if count >= self.most_lanes(len(names)):
            raise QuotaRefusal(
                f"{count} lanes of this study are open at this hub, as many as one study may have [CN042]"
            )
        return StudySession(names, self._carry, self._turns, _LANE_QUEUE)

    def _named(self, name: str) -> int:
        """In how many rooms somebody is named; lanes have limits of their own."""
        return sum(name in circle.names for room, circle in self.open.items() if room not in self._lanes)

    def _end(self, room: str, reason: str) -> bool:
        """End a circle; whether there was one."""
        circle = self.open.pop(room, None)
        if circle is None:
            return False
        self._lanes.pop(room, None)
        for connection in circle.connections.values():
            connection.end(reason)
        self._carried += circle.carried
        return True
