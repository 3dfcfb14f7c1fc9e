"""The hub: it knows who is present in which circle, forwards sealed packets, and answers questions of its members.

One asyncio loop in one thread serves everybody. Connections come in by the :class:`Door`, which keeps strangers from
using up what the hub has. A hub of one study has one circle, whose room has no name. A standing hub opens a room for
each study and closes it; members come and go while it runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from colonnade.errors import ConnectError, IdentityError
from colonnade.wire import envelope
from colonnade.wire.circle import Circle, Connection
from colonnade.wire.door import LOOPBACK, Door
from colonnade.wire.health import Health
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.lanes import is_lane
from colonnade.wire.quota import CALL, JOIN, REFUSAL, UNLIMITED, Account, HubLimits, Place, Refusal
from colonnade.wire.register import Register
from colonnade.wire.rooms import LaneLimits, Rooms
from colonnade.wire.services import MOST_STREAMS, STOP_SECONDS, Service, answered, grpc, question, reply
from colonnade.wire.strangers import places_for_lanes, places_for_strangers
from colonnade.wire.turns import Turns
from colonnade.wire.watch import Limits

T = TypeVar("T")

_PAUSE = 0.05


def grpc_options(heartbeat: float) -> list[tuple[str, int]]:
    """The gRPC settings of the hub and of participants; ``heartbeat`` is in seconds."""
    beat = int(heartbeat * 1000)
    return [
        ("grpc.max_send_message_length", envelope.MAX_ROSTER + envelope.MAX_ENVELOPE),
        ("grpc.max_receive_message_length", envelope.MAX_ROSTER + envelope.MAX_ENVELOPE),
        ("grpc.keepalive_time_ms", beat),
        ("grpc.keepalive_timeout_ms", beat),
        ("grpc.http2.ping_timeout_ms", beat),  # otherwise a lost bandwidth probe delays keepalive by a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", beat // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", beat // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]


@dataclass(frozen=True)
class Traffic:
    """What a hub can tell of itself, for whoever watches it."""

    rooms: int
    """Rooms that are open, lanes not counted."""
    lanes: int
    """Lanes that are open."""
    present: frozenset[str]
    """Members who are connected, in a room or with a question."""
    carried: int
    """Bytes passed on between participants since the hub was started."""
    refused: Mapping[str, int]
    """How often somebody was refused since then, by why."""


class Hub:
    """A gRPC server to which participants connect."""

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        address: str = "127.0.0.1:0",
        *,
        services: Sequence[Service] = (),
        rooms: Mapping[str, Iterable[str]] | None = None,
        lanes: bool | LaneLimits = False,
        limits: HubLimits = UNLIMITED,
        health: str | None = None,
        heartbeat: float = Limits.heartbeat,
        handshake: float = Limits.handshake,
        stall: float = Limits.stall,
        closing: float = Limits.closing,
    ) -> None:
        """``rooms`` are open from the start, each with those who are in it; by default one without a name, for all.

        With ``lanes`` all participants may meet in rooms for lanes too, which open and close as they come and go. With
        ``LaneLimits``, those of rooms that are opened with lanes may.
        A hub with services says whether it serves (``grpc.health.v1``); with ``health``, an address of this machine, it
        does so there in the clear as well.
        """
        self._register = Register(identity, participants)
        self._address, self._heartbeat, self._handshake = address, heartbeat, handshake
        self._stall, self._closing = stall, closing
        self._services, self._limits, self._own_name = tuple(services), limits, identity.name
        self._accounts: dict[str, Account] = {}
        self._refused = Counter[str]()
        self._turns = None if limits is UNLIMITED else Turns()
        self._lanes = (
            lanes if isinstance(lanes, LaneLimits) else LaneLimits(studies=int(lanes), people=len(participants))
        )
        lanes_of = participants if lanes is True else ()
        self._rooms = Rooms(self._register, self._account, self.carry, self._turns, self._lanes, lanes_of)
        self._health_address = health
        self._health: Health | None = None
        self._door: Door | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: Any = None
        self.port = 0
        """The port on which the hub listens after it was started."""
        self._inner_port = 0
        for room, names in ({"": participants} if rooms is None else rooms).items():
            self._rooms.add(room, names)

    @property
    def address(self) -> str:
        """The address to connect to after the hub was started."""
        return f"{self._address.rpartition(':')[0]}:{self.port}"

    @property
    def own_address(self) -> str:
        """The address for whoever runs the hub, on the same machine: strangers elsewhere do not reach it."""
        return f"{LOOPBACK}:{self._inner_port}"

    def start(self) -> Self:
        """Start the hub; returns when participants can connect."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire-hub", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self, grace: float = 0.0) -> None:
        """Disconnect everybody and stop listening; before that, studies have ``grace`` seconds to end."""
        if self._thread is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._close(grace), self._loop).result()
            self._end_loop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Rooms and members, from any thread, before the start or after it

    def open(self, room: str, names: Iterable[str], *, lanes: bool = False) -> None:
        """Open a room for exactly these members, who may meet in lanes too."""
        self._do(lambda: self._rooms.add(room, names, lanes))

    def close(self, room: str, reason: str) -> None:
        """Close a room; whoever is in it, or comes later, is told the reason, which is one sentence."""
        self._do(lambda: self._rooms.shut(room, reason))

    def close_lanes(self, room: str, reason: str) -> None:
        """Close the lanes of a room, and open none there any more."""
        self._do(lambda: self._rooms.shut_lanes(room, reason))

    def most_lanes(self, participants: int) -> int:
        """How many lanes a study of so many participants may have open at the same time, once the hub was started."""
        return self._do(lambda: self._rooms.most_lanes(participants))

    def admit(self, name: str, certificate: Certificate) -> None:
        """Let somebody in from now on; if the name had another certificate, its connections end."""

        def admit() -> None:
            if self._register.add(name, certificate):
                self._disconnect(name, f"{name} has another certificate now")

        self._do(admit)

    def dismiss(self, name: str) -> None:
        """Let somebody in no longer, and end its connections."""

        def dismiss() -> None:
            self._register.remove(name)
            self._disconnect(name, f"{name} is no longer known here")

        self._do(dismiss)

    @property
    def health_port(self) -> int:
        """The port at which health is answered in the clear, or 0."""
        return self._health.port if self._health is not None else 0

    @property
    def traffic(self) -> Traffic:
        """What goes on now, and what has since the start."""
        return self._do(self._traffic)

    @property
    def rooms(self) -> dict[str, frozenset[str]]:
        """The open rooms, each with the members who are present."""
        return self._do(lambda: {room: frozenset(circle.connections) for room, circle in self._rooms.open.items()})

    def carry(self, message: bytes) -> bytes:
        """The envelope as it is forwarded; tests override this."""
        return message

    def _traffic(self) -> Traffic:
        present = frozenset(name for name, account in self._accounts.items() if account.places.total() or account.calls)
        lanes = self._rooms.lanes
        return Traffic(len(self._rooms.open) - lanes, lanes, present, self._rooms.carried, dict(self._refused))

    def _do(self, work: Callable[[], T]) -> T:
        """Do something in the hub's loop, which all its state belongs to."""
        if self._thread is None or not self._thread.is_alive() or threading.current_thread() is self._thread:
            return work()

        async def task() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(task(), self._loop).result()

    def _disconnect(self, name: str, reason: str) -> None:
        for circle in self._rooms.open.values():
            if (connection := circle.connections.get(name)) is not None:
                connection.end(reason)
        account = self._accounts.pop(name, None)
        for call in account.calls if account else ():
            call.cancel()

    def _account(self, name: str) -> Account:
        """What somebody known has here; the hub's own identity is not limited."""
        if name not in self._accounts:
            self._accounts[name] = Account(name, UNLIMITED if name == self._own_name else self._limits)
        return self._accounts[name]

    async def _serve(self) -> None:
        members = len(self._register)
        everybody = members if self._limits is UNLIMITED else self._limits.all_connections(members)
        if self._lanes.studies:
            self._rooms.places = self._lanes.people * places_for_lanes(everybody, self._lanes.people, self._lanes.all)
            everybody += self._rooms.places
        options = [
            *grpc_options(self._heartbeat),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", MOST_STREAMS),
            ("grpc.server_handshake_timeout_ms", int(self._handshake * 1000)),
            ("grpc.max_allowed_incoming_connections", places_for_strangers(everybody) + 2 * everybody),
        ]
        self._server = grpc.aio.server(options=options)
        handlers = {envelope.SERVICE: {envelope.METHOD: self._attend}}
        for service in self._services:
            handlers.setdefault(service.name, {})[service.method] = partial(self._answer, service)
        if self._services or self._health_address:
            self._health = Health.if_installed(self._health_address)
        if self._health is not None:
            self._health.answer_at(self._server)
        self._server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(
                    name, {method: grpc.stream_stream_rpc_method_handler(run) for method, run in methods.items()}
                )
                for name, methods in handlers.items()
            )
        )
        try:
            self._inner_port = self._server.add_secure_port(f"{LOOPBACK}:0", self._register.credentials)
        except RuntimeError:
            raise ConnectError(f"the hub finds no free port on {LOOPBACK} [CN019]") from None
        await self._server.start()
        self._door = Door(self._inner_port, everybody, handshake=self._handshake, closing=self._closing)
        try:
            self.port = self._door.listen(self._address)
            if self._health is not None:
                await self._health.serve(self._health_address)
        except ConnectError:
            self._door.shut()
            await self._server.stop(0)
            raise

    async def _close(self, grace: float) -> None:
        assert self._door is not None  # noqa: S101 - because the hub was started
        self._rooms.ending = True
        if self._health is not None:
            await self._health.ending()
        until = self._loop.time() + grace
        while self._rooms.occupied and self._loop.time() < until:
            await asyncio.sleep(_PAUSE)
        self._door.shut()
        await self._server.stop(min(STOP_SECONDS, self._closing) if self._rooms.occupied else 0)
        await self._door.close()
        if self._health is not None:
            await self._health.stop()
        # gRPC returns before its handlers have ended, and the loop must stay open until then.
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        if handlers:
            await asyncio.wait(handlers, timeout=STOP_SECONDS)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()
        self._loop.close()

    async def _attend(self, messages: AsyncIterator[bytes], context: Any) -> None:
        """Serve one participant for as long as its connection lasts."""
        async with self._known(context, joins=True) as (account, said):
            circle, incarnation = self._circle(account.name, said)
            kind: Place = "lane" if is_lane(_room(said)) else "room"
            with account.place(kind, instead=account.name in circle.connections):
                await account.pay(JOIN)
                if self._accounts.get(account.name) is not account:
                    raise IdentityError(f"{account.name} is no longer known here [ID013]")
                circle, incarnation = self._circle(account.name, said)  # it may have closed meanwhile
                connection = Connection(account.name, incarnation, self._stall, account, circle.queue)
                self._rooms.enter(_room(said), circle)
                try:
                    await self._converse(circle, connection, messages, context)
                finally:
                    self._rooms.leave(_room(said))
        if connection.ended.done():
            await context.abort(grpc.StatusCode.ABORTED, connection.ended.result())

    async def _converse(
        self, circle: Circle, connection: Connection, messages: AsyncIterator[bytes], context: Any
    ) -> None:
        circle.enter(connection)
        reader = asyncio.create_task(circle.read(connection, messages))
        writer = asyncio.create_task(connection.write(context))
        try:
            await asyncio.wait((reader, writer, connection.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            circle.leave(connection)
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _answer(self, service: Service, messages: AsyncIterator[bytes], context: Any) -> None:
        """Answer one question."""
        async with self._known(context, joins=False) as (account, _):
            try:
                with account.call(), account.memory() as memory:
                    await account.pay(CALL)
                    if self._turns is not None:
                        await self._turns.wait(account, CALL)
                    asked = await question(messages, service.most, self._stall, memory)
                    await reply(await answered(service, account.name, asked, context), context, self._stall, memory)
            except asyncio.CancelledError:
                if self._accounts.get(account.name) is account:
                    raise
                raise IdentityError(f"{account.name} is no longer known here [ID014]") from None

    def _circle(self, name: str, said: Mapping[str, Any]) -> tuple[Circle, int]:
        """The circle that a participant asks for, and its incarnation; it is refused what is not open for it."""
        circle = self._rooms.find(_room(said), name)
        try:
            incarnation = int(said[envelope.INCARNATION_KEY], 16)
        except (KeyError, ValueError):
            raise IdentityError("the connection does not say who it is from [ID015]") from None
        return circle, incarnation & (1 << 64) - 1

    @asynccontextmanager
    async def _known(self, context: Any, *, joins: bool) -> AsyncIterator[tuple[Account, dict[str, Any]]]:
        """Who calls, and what it said beside; whoever is refused, now or later, is told so in one sentence."""
        assert self._door is not None  # noqa: S101 - because the hub was started
        peer = context.peer()
        try:
            name, said = self._register.recognise(context, joins=joins)
            account = self._account(name)
            self._door.recognise(peer, account.line)
            try:
                yield account, said
            except (Refusal, IdentityError):
                self._door.charge(peer, REFUSAL)
                raise
            finally:
                self._door.release(peer)
        except IdentityError as refusal:
            self._refused["identity"] += 1
            self._door.refuse(peer)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        except Refusal as refusal:
            self._refused[refusal.status.lower()] += 1
            await context.abort(getattr(grpc.StatusCode, refusal.status), str(refusal))


def _room(said: Mapping[str, Any]) -> str:
    """The room that a caller asks for."""
    return str(said.get(envelope.ROOM_KEY, ""))
