"""The rooms of a hub: opened and closed by whoever runs it or, for lanes, by those who come and go.

The loop of the hub uses this, and nobody else, so nothing here is locked.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.harmless import harmless
from colonnade.wire.circle import Circle
from colonnade.wire.lanes import home_of, is_lane
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.quota import Account, Refusal
from colonnade.wire.turns import Turns

_LANE_QUEUE = 2 * MAX_PACKET
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


class Rooms:
    """The open rooms, each with its circle."""

    def __init__(
        self,
        known: Container[str],
        account: Callable[[str], Account],
        carry: Callable[[bytes], bytes],
        turns: Turns | None,
        lanes: LaneLimits,
        lanes_of: Iterable[str] = (),
    ) -> None:
        """``lanes_of`` are those for whom lanes are opened that belong to no room, at a hub of one study."""
        self.open: dict[str, Circle] = {}
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
                f"a room cannot be called {harmless(room)!r}: use up to 100 letters, digits, '-', '_', '.' [MS089]"
            )
        if room in self.open:
            raise ProtocolError(f"the room {room!r} is open already [MS090]")
        if self.ending:
            raise ConnectError("the hub is about to stop, so it opens no room any more [CN038]")
        if lanes and len(self._homes) >= self._limits.studies:
            raise ConnectError(f"{len(self._homes)} studies have lanes at this hub, as many as it has room for [CN039]")
        circle = Circle(names, self._carry, self._turns)
        if unknown := sorted(name for name in circle.names if name not in self._known):
            raise IdentityError(
                f"nobody called {harmless(unknown[0])} is known here, so no room can be opened for it [ID040]"
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

    def find(self, room: str, name: str) -> Circle:
        """The circle in a room, or of a lane that can be opened; whoever it is not open for is refused."""
        home = home_of(room)
        for place in (room, home):
            if place is not None and place in self._closed:
                raise Refusal(f"{self._closed[place]} [CN040]", "ABORTED")
        circle = self.open.get(room)
        if circle is not None:
            names = circle.names
        elif home in self._homes and not self.ending:
            names = self._homes[home]
        else:
            raise Refusal("the room of this study is not open [CN041]", "NOT_FOUND")
        if name not in names:
            raise IdentityError(f"{name} is not in this study [ID041]")
        return circle or self._new_lane(home, names)

    def enter(self, room: str, circle: Circle) -> None:
        """Somebody enters the circle that was found for a room: if it is a new lane, it is open from now on."""
        if room not in self.open:
            self.open[room] = circle
            self._lanes[room] = home_of(room) or ""

    def leave(self, room: str) -> None:
        """Somebody has left a room: a lane in which nobody is left is forgotten."""
        if room in self._lanes and not self.open[room].connections:
            del self._lanes[room]
            self._carried += self.open.pop(room).carried

    def _new_lane(self, home: str | None, names: frozenset[str]) -> Circle:
        count = sum(other == home for other in self._lanes.values())
        if count >= self.most_lanes(len(names)):
            raise Refusal(f"{count} lanes of this study are open at this hub, as many as one study may have [CN042]")
        return Circle(names, self._carry, self._turns, _LANE_QUEUE)

    def _named(self, name: str) -> int:
        """In how many rooms somebody is named; lanes have limits of their own."""
        return sum(name in circle.names for room, circle in self.open.items() if room not in self._lanes)

    def _end(self, room: str, reason: str) -> bool:
        """End a circle; whether there was one."""
        circle = self.open.pop(room, None)
        if circle is None:
            return False
        self._lanes.pop(room, None)
        circle.end(reason)
        self._carried += circle.carried
        return True
