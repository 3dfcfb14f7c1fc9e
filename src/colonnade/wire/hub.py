"""The hub: it knows who is present in which session, forwards sealed packets, and answers questions of its members.

One asyncio loop in one thread serves everybody. Connections come in by the :class:`ConnectionGate`, which keeps
strangers from using up what the hub has. A hub of one study has one session, whose room has no name. A standing hub
opens a room for each study and closes it; members come and go while it runs. Names with their pinned certificates may
change meanwhile. Questions are answered at once, beside the sessions: bytes in, bytes out, from somebody whom the hub
knows. Whether it serves, it says by ``grpc.health.v1``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from time import monotonic
from typing import Any, Self, TypeVar

from colonnade.errors import ColonnadeError, ConnectError, IdentityError
from colonnade.lazy import LazyModule
from colonnade.wire import packets
from colonnade.wire.connection_gate import (
    FALSE_CLAIM,
    LOOPBACK,
    ConnectionGate,
    lane_places,
    split_address,
    unauthenticated_places,
)
from colonnade.wire.identity import CONNECTION_DAYS, Certificate, Identity, certificates
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.quota import (
    CALL,
    JOIN,
    REFUSAL,
    UNLIMITED,
    FairQueue,
    HubAccount,
    HubLimits,
    PlaceKind,
    QuestionMemory,
    QuotaRefusal,
)
from colonnade.wire.study_sessions import LaneLimits, SessionConnection, StudyRooms, StudySession, is_lane

grpc: Any = LazyModule("grpc")

STOP_SECONDS = 1.0
MOST_STREAMS = 8  # of one connection; a participant needs one
PIECE = 1 << 20
"""Questions and answers travel in pieces, so that a long one needs no larger messages than the sessions."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubService:
    """One method that members may call; ``answer`` runs in the hub's loop, so it must not block."""

    name: str
    method: str
    answer: Callable[[str, bytes], Awaitable[bytes]]
    """From the caller's proven name and its question to the answer; a ``ColonnadeError`` is told to the caller."""
    most: int = 1 << 22
    """The longest question, in bytes."""


def split_pieces(body: bytes) -> Iterator[bytes]:
    """The body in pieces that are sent one by one; an empty body is one empty piece."""
    for start in range(0, max(len(body), 1), PIECE):
        yield body[start : start + PIECE]


async def read_question(messages: AsyncIterator[bytes], most: int, stall: float, memory: QuestionMemory) -> bytes:
    """All pieces of a question; an error if it is too long, or does not come."""
    parts: list[bytes] = []
    source = aiter(messages)
    while True:
        try:
            # Not wait_for: the end of the question would be kept by its task, in a circle with the frames it came
            # through, and with them all that the question had, until Python looks for circles.
            async with asyncio.timeout(stall):
                part = await anext(source)
        except StopAsyncIteration:
            return b"".join(parts)
        except TimeoutError:
            raise QuotaRefusal(f"nothing more of the question came for {stall:g} s [CN043]", "ABORTED") from None
        if memory.size + len(part) > most:
            raise QuotaRefusal(f"a question of this kind has at most {most} bytes [CN044]", "INVALID_ARGUMENT")
        await memory.add(len(part))
        parts.append(part)


async def answer_question(service: HubService, caller: str, asked: bytes, context: Any) -> bytes:
    """The answer; a sentence to the caller if there is none."""
    try:
        return await service.answer(caller, asked)
    except IdentityError as refusal:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
    except ColonnadeError as refusal:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
    except Exception:
        _log.exception("a question to %s/%s could not be answered", service.name, service.method)
        await context.abort(grpc.StatusCode.INTERNAL, "the hub failed to answer; its own log says why")
    raise AssertionError("abort always raises")


async def send_reply(answer: bytes, context: Any, stall: float, memory: QuestionMemory) -> None:
    """Send an answer, unless the caller stops reading."""
    memory.hold(len(answer))
    for piece in split_pieces(answer):
        await memory.pay(len(piece))
        try:
            async with asyncio.timeout(stall):
                await context.write(piece)
        except TimeoutError:
            raise QuotaRefusal("it did not read its answer [CN045]", "ABORTED") from None


_MOST_CONNECTIONS = 16


class HealthService:
    """Answers whether the hub serves: to members at the hub's port and, if wanted, in the clear on this machine."""

    def __init__(self) -> None:
        self._messages, self._service = (
            import_module("grpc_health.v1.health_pb2"),
            import_module("grpc_health.v1.health_pb2_grpc"),
        )
        self._answers: Any = import_module("grpc_health.v1.health").aio.HealthServicer()
        self._server: Any = None
        self.port = 0
        """The port in the clear, after it was asked for."""

    @classmethod
    def create_if_installed(cls, address: str | None) -> HealthService | None:
        """None where the package is missing, unless an address was asked for."""
        try:
            return cls()
        except ImportError:
            if address is None:
                return None
            raise ConnectError(
                "health checks need a package that is not installed: run `pip install 'colonnade[console]'` [CN016]"
            ) from None

    def answer_at(self, server: Any) -> None:
        """Answer at a gRPC server that does not run yet."""
        self._service.add_HealthServicer_to_server(self._answers, server)

    async def serve(self, address: str | None) -> None:
        """The hub serves from now on; with an address, answer there in the clear as well."""
        await self._answers.set(packets.SERVICE, self._messages.HealthCheckResponse.SERVING)
        if address is None:
            return
        host, _ = split_address(address)
        if host != "localhost" and not _is_loopback(host):
            raise ConnectError(
                f"health is answered in the clear, so only at an address such as 127.0.0.1, not {host} [CN017]"
            )
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MOST_STREAMS),
                ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
                ("grpc.max_receive_message_length", 1 << 12),
            ]
        )
        self.answer_at(self._server)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            raise ConnectError(
                f"the hub cannot answer health checks on {address}: is the port in use? [CN018]"
            ) from None
        await self._server.start()

    async def announce_end(self) -> None:
        """Say that the hub serves no longer; whoever watches and does not read is not waited for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answers.enter_graceful_shutdown(), STOP_SECONDS)

    async def stop(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            await self._server.stop(0)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


_RENEWAL = CONNECTION_DAYS * 24 * 3600 / 2


class MemberRegister:
    """Names and certificates; gRPC asks here before every handshake what to show and whom to trust."""

    def __init__(self, identity: Identity, members: Mapping[str, Certificate]) -> None:
        self._identity = identity
        self._members = dict(members)
        self._lock = threading.Lock()  # gRPC asks in threads of its own
        self._changed, self._issued = False, 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def add(self, name: str, certificate: Certificate) -> bool:
        """Know somebody by this certificate from now on; whether the name had another one before."""
        if certificate.name != name:
            raise IdentityError(f"the certificate given for {name} is that of {certificate.name} [ID033]")
        with self._lock:
            former = self._members.get(name)
            self._members[name] = certificate
            self._changed = True
        return former is not None and former.fingerprint != certificate.fingerprint

    def remove(self, name: str) -> None:
        """Know somebody no longer."""
        with self._lock:
            self._members.pop(name, None)
            self._changed = True

    @property
    def credentials(self) -> Any:
        """The server's credentials, which follow every change."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._news, require_client_authentication=True
        )

    def _configuration(self) -> Any:
        own = self._identity.issue_connection_certificate()
        self._issued = monotonic()
        with self._lock:
            self._changed = False
            roots = b"".join(certificate.pem for certificate in self._members.values())
        return grpc.ssl_server_certificate_configuration([(own.key_pem, own.chain_pem)], root_certificates=roots)

    def _news(self) -> Any:
        """What has changed since the last handshake, or None."""
        due = self._changed or monotonic() - self._issued > _RENEWAL
        return self._configuration() if due else None

    def recognise(self, context: Any, *, joins: bool) -> tuple[str, dict[str, Any]]:
        """The name of the caller, and what it said beside; an error if its certificate does not prove the name.

        Whoever ``joins`` a lane may be a worker; for everything else the certificate must be its party's own.
        """
        said = dict(context.invocation_metadata() or ())
        if said.get(packets.VERSION_KEY) != packets.VERSION:
            raise IdentityError(
                "the hub speaks another version of the wire protocol: install the same release of "
                "Colonnade everywhere [ID034]"
            )
        try:
            shown = certificates.read(context.auth_context()["x509_pem_cert"][0])
            worker_of = certificates.worker_of(shown)
            name = worker_of or certificates.holder(shown)
        except (KeyError, IndexError, ValueError):
            name = worker_of = ""
        if not name:
            raise IdentityError("the connection does not say who it is from [ID035]")
        pinned = self._members.get(name)
        if pinned is None:
            raise IdentityError(f"{name} is not known here [ID036]")
        if not pinned.has_issued(shown):
            raise IdentityError(
                f"the connection in the name of {name} does not hold the key that the study names for it "
                f"({pinned.fingerprint}) [ID037]"
            )
        if worker_of and not (joins and is_lane(str(said.get(packets.ROOM_KEY, "")))):
            raise IdentityError(f"a worker of {name} may only join lanes, and this is none [ID038]")
        return name, said


T = TypeVar("T")

_PAUSE = 0.05


def grpc_options(heartbeat: float) -> list[tuple[str, int]]:
    """The gRPC settings of the hub and of participants; ``heartbeat`` is in seconds."""
    beat = int(heartbeat * 1000)
    return [
        ("grpc.max_send_message_length", packets.MAX_ROSTER + packets.MAX_ENVELOPE),
        ("grpc.max_receive_message_length", packets.MAX_ROSTER + packets.MAX_ENVELOPE),
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
class HubTraffic:
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
        services: Sequence[HubService] = (),
        rooms: Mapping[str, Iterable[str]] | None = None,
        lanes: bool | LaneLimits = False,
        limits: HubLimits = UNLIMITED,
        health: str | None = None,
        heartbeat: float = WireLimits.heartbeat,
        handshake: float = WireLimits.handshake,
        stall: float = WireLimits.stall,
        closing: float = WireLimits.closing,
    ) -> None:
        """``rooms`` are open from the start, each with those who are in it; by default one without a name, for all.

        With ``lanes`` all participants may meet in rooms for lanes too, which open and close as they come and go. With
        ``LaneLimits``, those of rooms that are opened with lanes may.
        A hub with services says whether it serves (``grpc.health.v1``); with ``health``, an address of this machine, it
        does so there in the clear as well.
        """
        self._register = MemberRegister(identity, participants)
        self._address, self._heartbeat, self._handshake = address, heartbeat, handshake
        self._stall, self._closing = stall, closing
        self._services, self._limits, self._own_name = tuple(services), limits, identity.name
        self._accounts: dict[str, HubAccount] = {}
        self._refused = Counter[str]()
        self._turns = None if limits is UNLIMITED else FairQueue()
        self._lanes = (
            lanes if isinstance(lanes, LaneLimits) else LaneLimits(studies=int(lanes), people=len(participants))
        )
        lanes_of = participants if lanes is True else ()
        self._rooms = StudyRooms(self._register, self._account, self.carry, self._turns, self._lanes, lanes_of)
        self._health_address = health
        self._health: HealthService | None = None
        self._door: ConnectionGate | None = None
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
    def traffic(self) -> HubTraffic:
        """What goes on now, and what has since the start."""
        return self._do(self._traffic)

    @property
    def rooms(self) -> dict[str, frozenset[str]]:
        """The open rooms, each with the members who are present."""
        return self._do(lambda: {room: frozenset(circle.connections) for room, circle in self._rooms.open.items()})

    def carry(self, message: bytes) -> bytes:
        """The envelope as it is forwarded; tests override this."""
        return message

    def _traffic(self) -> HubTraffic:
        present = frozenset(name for name, account in self._accounts.items() if account.places.total() or account.calls)
        lanes = self._rooms.lanes
        return HubTraffic(len(self._rooms.open) - lanes, lanes, present, self._rooms.carried, dict(self._refused))

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

    def _account(self, name: str) -> HubAccount:
        """What somebody known has here; the hub's own identity is not limited."""
        if name not in self._accounts:
            self._accounts[name] = HubAccount(name, UNLIMITED if name == self._own_name else self._limits)
        return self._accounts[name]

    async def _serve(self) -> None:
        members = len(self._register)
        everybody = members if self._limits is UNLIMITED else self._limits.all_connections(members)
        if self._lanes.studies:
            self._rooms.places = self._lanes.people * lane_places(everybody, self._lanes.people, self._lanes.all)
            everybody += self._rooms.places
        options = [
            *grpc_options(self._heartbeat),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", MOST_STREAMS),
            ("grpc.server_handshake_timeout_ms", int(self._handshake * 1000)),
            ("grpc.max_allowed_incoming_connections", unauthenticated_places(everybody) + 2 * everybody),
        ]
        self._server = grpc.aio.server(options=options)
        handlers = {packets.SERVICE: {packets.METHOD: self._attend}}
        for service in self._services:
            handlers.setdefault(service.name, {})[service.method] = partial(self._answer, service)
        if self._services or self._health_address:
            self._health = HealthService.create_if_installed(self._health_address)
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
        self._door = ConnectionGate(self._inner_port, everybody, handshake=self._handshake, closing=self._closing)
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
            await self._health.announce_end()
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
        async with self._authenticated(context, joins=True) as (account, said):
            circle, incarnation = self._circle(account.name, said)
            kind: PlaceKind = "lane" if is_lane(_requested_room(said)) else "room"
            with account.place(kind, instead=account.name in circle.connections):
                await account.pay(JOIN)
                if self._accounts.get(account.name) is not account:
                    raise IdentityError(f"{account.name} is no longer known here [ID013]")
                circle, incarnation = self._circle(account.name, said)  # it may have closed meanwhile
                connection = SessionConnection(account.name, incarnation, self._stall, account, circle.queue)
                self._rooms.enter(_requested_room(said), circle)
                try:
                    await self._converse(circle, connection, messages, context)
                finally:
                    self._rooms.leave(_requested_room(said))
        if connection.end_reason.done():
            await context.abort(grpc.StatusCode.ABORTED, connection.end_reason.result())

    async def _converse(
        self, circle: StudySession, connection: SessionConnection, messages: AsyncIterator[bytes], context: Any
    ) -> None:
        circle.enter(connection)
        reader = asyncio.create_task(circle.read(connection, messages))
        writer = asyncio.create_task(connection.write(context))
        try:
            await asyncio.wait((reader, writer, connection.end_reason), return_when=asyncio.FIRST_COMPLETED)
        finally:
            circle.leave(connection)
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _answer(self, service: HubService, messages: AsyncIterator[bytes], context: Any) -> None:
        """Answer one question."""
        async with self._authenticated(context, joins=False) as (account, _):
            try:
                with account.call(), QuestionMemory(account) as memory:
                    await account.pay(CALL)
                    if self._turns is not None:
                        await self._turns.wait(account, CALL)
                    asked = await read_question(messages, service.most, self._stall, memory)
                    await send_reply(
                        await answer_question(service, account.name, asked, context), context, self._stall, memory
                    )
            except asyncio.CancelledError:
                if self._accounts.get(account.name) is account:
                    raise
                raise IdentityError(f"{account.name} is no longer known here [ID014]") from None

    def _circle(self, name: str, said: Mapping[str, Any]) -> tuple[StudySession, int]:
        """The circle that a participant asks for, and its incarnation; it is refused what is not open for it."""
        circle = self._rooms.find(_requested_room(said), name)
        try:
            incarnation = int(said[packets.INCARNATION_KEY], 16)
        except (KeyError, ValueError):
            raise IdentityError("the connection does not say who it is from [ID015]") from None
        return circle, incarnation & (1 << 64) - 1

    @asynccontextmanager
    async def _authenticated(self, context: Any, *, joins: bool) -> AsyncIterator[tuple[HubAccount, dict[str, Any]]]:
        """Who calls, and what it said beside; whoever is refused, now or later, is told so in one sentence."""
        assert self._door is not None  # noqa: S101 - because the hub was started
        peer = context.peer()
        try:
            name, said = self._register.recognise(context, joins=joins)
            account = self._account(name)
            self._door.recognise(peer, account.line)
            try:
                yield account, said
            except (QuotaRefusal, IdentityError):
                self._door.charge(peer, REFUSAL)
                raise
            finally:
                self._door.release(peer)
        except IdentityError as refusal:
            self._refused["identity"] += 1
            self._door.charge(peer, FALSE_CLAIM)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        except QuotaRefusal as refusal:
            self._refused[refusal.status.lower()] += 1
            await context.abort(getattr(grpc.StatusCode, refusal.status), str(refusal))


def _requested_room(said: Mapping[str, Any]) -> str:
    """The room that a caller asks for."""
    return str(said.get(packets.ROOM_KEY, ""))
