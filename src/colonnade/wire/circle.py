"""The closed circle of one study at the hub: who is in it, who is present, and what waits for each.

One loop serves all circles, so nothing here is locked. The hub keeps at most a few megabytes for each connection. If a
participant does not read, those who send to it must wait; after some time it is disconnected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.wire import envelope
from colonnade.wire.quota import MESSAGE, UNLIMITED, Account
from colonnade.wire.turns import Turns
from colonnade.wire.watch import Limits

_KEEPING = 64  # bytes of memory beside those of a message
_READS_NOTHING = "it did not read what was sent to it"
_ALWAYS = 1 << 20
_AT_ONCE = 64  # messages of one participant, before others have their turn


class Circle:
    """The participants of one study, and the connections of those who are present."""

    def __init__(
        self, names: Iterable[str], carry: Callable[[bytes], bytes], turns: Turns | None = None, queue: int = 1 << 60
    ) -> None:
        """At most ``queue`` bytes wait for each of them, and not more than its account allows."""
        self.names, self.queue = frozenset(names), queue
        self.connections: dict[str, Connection] = {}
        self.carried = 0
        """Bytes that were passed on."""
        self._carry, self._turns = carry, turns

    def end(self, reason: str) -> None:
        """Disconnect everybody, with one sentence."""
        for connection in self.connections.values():
            connection.end(reason)

    def enter(self, connection: Connection) -> None:
        """Tell a participant who is present, and the others that it is; its former connection ends."""
        former = self.connections.get(connection.name)
        if former is not None:
            former.end("another connection took its place")
        self.connections[connection.name] = connection
        others = {name: other.incarnation for name, other in self.connections.items() if name != connection.name}
        connection.announce(envelope.roster(envelope.ROSTER, others))
        self._announce(connection, envelope.HERE)

    def leave(self, connection: Connection) -> None:
        """Tell the others that a participant's connection has ended, unless another one took its place."""
        if self.connections.get(connection.name) is connection:
            del self.connections[connection.name]
            self._announce(connection, envelope.GONE)

    def _announce(self, connection: Connection, kind: int) -> None:
        news = envelope.roster(kind, {connection.name: connection.incarnation})
        for name, other in self.connections.items():
            if name != connection.name:
                other.announce(news)

    async def read(self, connection: Connection, messages: AsyncIterator[bytes]) -> None:
        """Pass on what a participant sends, for as long as it does."""
        try:
            async for bundle in messages:
                if self._turns is not None:
                    await self._turns.wait(connection.account, len(bundle) + MESSAGE)
                count = 0
                for count, message in enumerate(envelope.unbundle(bundle), 1):
                    await self._pass_on(connection, message)
                    if not count % _AT_ONCE:
                        await asyncio.sleep(0)
                connection.account.owes((count - 1) * MESSAGE)
                await connection.account.pay(len(bundle) + count * MESSAGE)
        except ProtocolError as error:
            connection.end(str(error))

    async def _pass_on(self, connection: Connection, message: bytes) -> None:
        sender, receiver, _ = envelope.names(message)
        if message[0] != envelope.PACKET or sender != connection.name or len(message) > envelope.MAX_ENVELOPE:
            raise ProtocolError("it sent an envelope that is not its own [MS059]")
        target = self.connections.get(receiver)
        if target is not None:
            self.carried += len(message)
            await target.put(self._carry(message))


class Connection:
    """The connection of one participant, and the messages that wait to be sent to it."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        stall: float = Limits.stall,
        account: Account | None = None,
        queue: int = 1 << 60,
    ) -> None:
        self.name, self.incarnation = name, incarnation
        self.account = account or Account(name, UNLIMITED)
        self._stall, self._queue_bytes = stall, min(queue, self.account.limits.queue)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._filled, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()

    def end(self, reason: str) -> None:
        """Disconnect."""
        if not self.ended.done():
            self.ended.set_result(reason)
        self._drained.set()

    def announce(self, message: bytes) -> None:
        """Add a small message without waiting for room."""
        self._waiting.append(message)
        self._bytes += len(message) + _KEEPING
        self._filled.set()
        if self._bytes > 4 * self._queue_bytes + _ALWAYS:  # others may come and go for as long as it does not read
            self.end(_READS_NOTHING)

    async def put(self, message: bytes) -> None:
        """Wait until there is room, then add a message."""
        while self._bytes > self._queue_bytes and not self.ended.done():
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), self._stall)
            except TimeoutError:
                self.end(_READS_NOTHING)
        if not self.ended.done():
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
        while self._waiting and self._joins(batch[0], size):
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._bytes -= size + _KEEPING * len(batch)
        if self._bytes <= self._queue_bytes // 2:
            self._drained.set()
        return envelope.bundle(batch)

    def _joins(self, first: bytes, size: int) -> bool:
        """Whether the next message fits into the bundle; the roster, which comes first, is sent alone."""
        return size + len(self._waiting[0]) <= envelope.FULL_BUNDLE and first[0] != envelope.ROSTER
