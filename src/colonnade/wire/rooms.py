"""The rooms of a hub: opened and closed by whoever runs it or, for lanes, by those who come and go.

The loop of the hub uses this, and nobody else, so nothing here is locked.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.harmless import harmless
from colonnade.wire.circle import Circle
from colonnade.wire.lanes import is_lane
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.quota import Account, Refusal
from colonnade.wire.turns import Turns

MOST_LANES = 128
"""Lanes that a hub has open at the same time: each needs a few descriptors and megabytes for every participant.

Where the system allows few descriptors, there are fewer lanes, so that the study's own room can always be reached.
"""
_LANE_QUEUE = 2 * MAX_PACKET
_ROOM = re.compile(r"[A-Za-z0-9._-]{0,100}")
_REMEMBERED = 4096  # closed rooms of which it is known why they ended


class Rooms:
    """The open rooms, each with its circle."""

    def __init__(
        self,
        known: Container[str],
        account: Callable[[str], Account],
        carry: Callable[[bytes], bytes],
        turns: Turns | None,
        lanes_of: Iterable[str],
    ) -> None:
        """``lanes_of`` are those for whom lanes are opened on demand; without any of them, none is."""
        self.open: dict[str, Circle] = {}
        self.most_lanes = MOST_LANES
        self.ending = False
        """Whether the hub is about to stop, so that no room is opened any more."""
        self._known, self._account, self._carry, self._turns = known, account, carry, turns
        self._lanes_of, self._lanes = frozenset(lanes_of), set[str]()
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

    def add(self, room: str, names: Iterable[str]) -> None:
        """Open a room for exactly these members."""
        if not _ROOM.fullmatch(room):
            raise ProtocolError(
                f"a room cannot be called {harmless(room)!r}: use up to 100 letters, digits, '-', '_', '.'"
            )
        if room in self.open:
            raise ProtocolError(f"the room {room!r} is open already")
        if self.ending:
            raise ConnectError("the hub is about to stop, so it opens no room any more")
        circle = Circle(names, self._carry, self._turns)
        if unknown := sorted(name for name in circle.names if name not in self._known):
            raise IdentityError(f"nobody called {harmless(unknown[0])} is known here, so no room can be opened for it")
        self._check_rooms(circle)
        self._closed.pop(room, None)
        self.open[room] = circle

    def shut(self, room: str, reason: str) -> None:
        """Close a room; whoever is in it, or comes later, is told the reason."""
        circle = self.open.pop(room, None)
        if circle is not None:
            self._lanes.discard(room)
            circle.end(reason)
            self._carried += circle.carried
            self._closed[room] = reason
            while len(self._closed) > _REMEMBERED:
                self._closed.popitem(last=False)

    def find(self, room: str, name: str) -> Circle:
        """The circle in a room, or of a lane that can be opened; whoever it is not open for is refused."""
        if room in self._closed:
            raise Refusal(self._closed[room], "ABORTED")
        circle = self.open.get(room) or self._new_lane(room)
        if circle is None:
            raise Refusal("the room of this study is not open", "NOT_FOUND")
        if name not in circle.names:
            raise IdentityError(f"{name} is not in this study")
        return circle

    def enter(self, room: str, circle: Circle) -> None:
        """Somebody enters the circle that was found for a room: if it is a new lane, it is open from now on."""
        if room not in self.open:
            self.open[room] = circle
            self._lanes.add(room)

    def leave(self, room: str) -> None:
        """Somebody has left a room: a lane in which nobody is left is forgotten."""
        if room in self._lanes and not self.open[room].connections:
            self._lanes.remove(room)
            self._carried += self.open.pop(room).carried

    def _new_lane(self, room: str) -> Circle | None:
        if not self._lanes_of or not is_lane(room) or self.ending:
            return None
        if len(self._lanes) >= self.most_lanes:
            raise Refusal(f"{len(self._lanes)} lanes are open at this hub, as many as it has room for")
        circle = Circle(self._lanes_of, self._carry, self._turns, _LANE_QUEUE)
        try:
            self._check_rooms(circle)
        except ConnectError as full:
            raise Refusal(str(full)) from None
        return circle

    def _check_rooms(self, circle: Circle) -> None:
        for name in sorted(circle.names):
            self._account(name).check_rooms(sum(name in other.names for other in self.open.values()))
