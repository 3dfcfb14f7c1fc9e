"""How much of the hub one identity may take, so that nobody's studies suffer from another's.

A member that sends more than it may is slowed down: the hub reads its streams later. Below that, all have their turns
(:class:`FairQueue`). Whatever cannot be slowed down, such as one more connection, is refused with a sentence.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from time import monotonic
from typing import Any, Literal, Self

from colonnade.errors import ConnectError
from colonnade.wire.packets import MAX_PACKET

AT_ONCE = 1 << 20
"""As much work as is begun between two looks at the network, in bytes."""
CREDIT = 1 << 22
"""What one who was idle may have before the others, in bytes."""


class FairQueue:
    """Hands out turns, in one loop: whoever has had least is served next.

    Fair queueing by start times. Each piece of work gets the time at which it would begin if its owner had its fair
    share of the hub, and the earliest goes first. One who was idle begins a little before those who were not. So
    whoever sends little is served at once, however many others send without end; those share what is left. Between two
    looks at the network only so much is done, so that no message waits there for long.
    """

    def __init__(self) -> None:
        self._now, self._left, self._count = 0.0, float(AT_ONCE), 0
        self._waiting: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._watching = False

    async def wait(self, tenant: HubAccount, cost: float) -> None:
        """Return when it is this tenant's turn for so much work."""
        begin = max(self._now - CREDIT, tenant.next_start)
        tenant.next_start = begin + cost
        loop = asyncio.get_running_loop()
        if not self._watching:
            self._watching = True
            loop.call_soon(self._next)
        if self._left > 0 and not self._waiting:
            self._begin(begin, cost)
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heappush(self._waiting, (begin, self._count, cost, turn))
        await turn

    def _begin(self, begin: float, cost: float) -> None:
        self._now = max(self._now, begin)
        self._left -= cost

    def _next(self) -> None:
        """The loop has looked at the network: as much as fits may begin."""
        self._left = float(AT_ONCE)
        while self._waiting and self._left > 0:
            begin, _, cost, turn = heappop(self._waiting)
            if not turn.done():  # it may have been cancelled
                self._begin(begin, cost)
                turn.set_result(None)
        self._watching = bool(self._waiting) or self._left < AT_ONCE
        if self._watching:
            asyncio.get_running_loop().call_soon(self._next)


PlaceKind = Literal["room", "lane"]
"""The kinds of rooms: lanes have a limit of their own."""
_MIB = 1 << 20
MESSAGE, CALL, JOIN, REFUSAL = 1 << 10, 1 << 16, 1 << 18, 1 << 20
"""What a message, a question, a connection and a refusal cost beside their own bytes: as much as so many bytes."""
_NEWCOMERS = 32
_LONGEST_QUEUE = 8 * _MIB
_BURST = 1.0
_LONGEST_PAUSE = 1.0
_CEILING, _HEADROOM = 2.0, 64 * _MIB
"""Streams are slowed down one by one and stay alive; a connection as a whole only at so many times the rate, after so
many bytes, which nobody reaches who keeps to the rules of HTTP/2."""


class QuotaRefusal(ConnectError):  # noqa: N818 - as those in errors.py that read better so
    """What a caller asks for is not to be had; ``status`` is how gRPC calls that."""

    def __init__(self, reason: str, status: str = "RESOURCE_EXHAUSTED") -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class HubLimits:
    """What one identity may have at a standing hub."""

    connections: int = 16
    """Places in rooms at the same time, lanes not counted."""
    studies: int = 64
    """Open rooms in which it is named."""
    calls: int = 16
    """Questions at the same time."""
    bytes_per_second: int = 64 * _MIB
    """What it sends and what answers bring it; more is slowed down."""
    memory: int = 256 * _MIB
    """Bytes that wait at the hub for it to read them, and those of its questions and their answers."""
    lanes: int = 128
    """Places in lanes at the same time; three megabytes may wait in each of them, beside ``memory``."""

    def __post_init__(self) -> None:
        least = {"bytes_per_second": _MIB, "memory": 4 * MAX_PACKET}
        for field in fields(self):
            if getattr(self, field.name) < least.get(field.name, 1):
                raise ConnectError(f"a hub cannot work with {field.name} below {least.get(field.name, 1)} [CN032]")

    def all_connections(self, members: int) -> int:
        """How many connections so many members may have, with some who come later."""
        return (members + _NEWCOMERS) * (self.connections + 1)

    @property
    def queue(self) -> int:
        """Bytes that may wait for one connection: each has its own part, so that no room takes that of another."""
        return min(_LONGEST_QUEUE, self.memory // (2 * self.connections))


UNLIMITED = HubLimits(1 << 30, 1 << 30, 1 << 30, 1 << 60, 1 << 60, 1 << 30)
"""For a hub of one study, whose participants have nobody else to disturb."""


class TokenBucket:
    """Fills at a steady rate, and says how long to wait once more was taken than was in it."""

    def __init__(self, rate: float, size: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._at = size, monotonic()

    def take(self, amount: float) -> float:
        """Take so much; returns after how many seconds there is something in it again."""
        now = monotonic()
        self._level = min(self._size, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return min(max(0.0, -self._level / self._rate), _LONGEST_PAUSE)


class HubAccount:
    """What one identity has at the hub now."""

    next_start = 0.0
    """When its next work may begin, on the clock of those who are served."""

    def __init__(self, name: str, limits: HubLimits) -> None:
        self.name, self.limits = name, limits
        self.places = Counter[PlaceKind]()
        """Connections in rooms, of each kind."""
        self.calls: set[asyncio.Task[Any]] = set()
        """Questions that are being answered."""
        self.held = 0
        """Bytes of questions and answers."""
        self._share = TokenBucket(limits.bytes_per_second, _BURST * limits.bytes_per_second)
        self.line = TokenBucket(_CEILING * limits.bytes_per_second, _HEADROOM)
        """For all bytes of its connections, whatever they mean."""

    def add_cost(self, cost: float) -> None:
        """Its work was more than it seemed."""
        self.next_start += cost

    async def pay(self, amount: int) -> None:
        """Wait until its share allows for so much more."""
        pause = self._share.take(amount)
        while pause > 0:
            await asyncio.sleep(pause)
            pause = self._share.take(0)

    def check_rooms(self, named: int) -> None:
        """Refuse one more room to somebody who is named in so many."""
        if named >= self.limits.studies:
            raise ConnectError(
                f"{self.name} is in {named} rooms of this hub already, as many as one member may be; wait until one "
                "of its studies has ended [CN033]"
            )

    @contextmanager
    def place(self, kind: PlaceKind, *, instead: bool) -> Iterator[None]:
        """A connection in a room, for as long as this lasts; ``instead`` of one that is about to end."""
        held, most = self.places[kind], self.limits.lanes if kind == "lane" else self.limits.connections
        if held - instead >= most:
            what = "connections in lanes" if kind == "lane" else "connections"
            raise QuotaRefusal(
                f"{self.name} has {held} {what} already, as many as one member may have at this hub; end one, or wait "
                "until one of its studies has ended [CN034]"
            )
        self.places[kind] += 1
        try:
            yield
        finally:
            self.places[kind] -= 1

    @contextmanager
    def call(self) -> Iterator[None]:
        """A question that is being answered, for as long as this lasts."""
        if len(self.calls) >= self.limits.calls:
            raise QuotaRefusal(
                f"{self.name} asks {len(self.calls)} questions at the same time already, as many as one member may; "
                "wait for an answer first [CN035]"
            )
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - gRPC runs every handler as one
        self.calls.add(task)
        try:
            yield
        finally:
            self.calls.discard(task)


class QuestionMemory:
    """What one question and its answer hold of their account's memory; it is given back at the end of the block."""

    def __init__(self, account: HubAccount) -> None:
        self._account = account
        self.pay = account.pay
        self.size = 0

    def hold(self, size: int) -> None:
        """Hold so many more bytes, or refuse them."""
        account = self._account
        if account.held + size > account.limits.memory // 2:
            raise QuotaRefusal(
                f"the questions of {account.name} and their answers take more memory than one member may have at this "
                "hub; ask one after the other [CN036]"
            )
        account.held += size
        self.size += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._account.held -= self.size

    async def add(self, size: int) -> None:
        """Hold so many more bytes, and pay for them."""
        self.hold(size)
        await self.pay(size)
