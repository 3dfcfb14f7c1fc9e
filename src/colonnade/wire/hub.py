"""The hub: it knows who is present, and forwards sealed packets.

One asyncio loop in one thread serves all participants. The hub keeps at most a few megabytes for each participant. If a
participant does not read, those who send to it must wait; after some time it is disconnected. Connections come in by
the :class:`Door`, which keeps strangers from using up what the hub has.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.lazy import Later
from colonnade.wire import envelope
from colonnade.wire.door import LOOPBACK, Door
from colonnade.wire.identity import Certificate, Identity, certificates
from colonnade.wire.strangers import places_for_strangers
from colonnade.wire.watch import Limits

grpc: Any = Later("grpc")

_QUEUE_BYTES = 1 << 23
_STOP_SECONDS = 1.0
_KEEPING = 64  # bytes of memory beside those of a message
_READS_NOTHING = "it did not read what was sent to it"
_MOST_STREAMS = 8  # of one connection; a participant needs one


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


class Hub:
    """A gRPC server to which participants connect."""

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        address: str = "127.0.0.1:0",
        *,
        heartbeat: float = Limits.heartbeat,
        handshake: float = Limits.handshake,
        stall: float = Limits.stall,
        closing: float = Limits.closing,
    ) -> None:
        self._identity, self._participants = identity, dict(participants)
        self._address, self._heartbeat, self._handshake = address, heartbeat, handshake
        self._stall, self._closing = stall, closing
        self._connections: dict[str, _Connection] = {}
        self._door: Door | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: Any = None
        self.port = 0
        """The port on which the hub listens after it was started."""
        self._inner_port = 0

    @property
    def address(self) -> str:
        """The address to connect to after the hub was started."""
        return f"{self._address.rpartition(':')[0]}:{self.port}"

    @property
    def own_address(self) -> str:
        """The address for whoever runs the hub, in the same process: strangers do not reach it."""
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

    def stop(self) -> None:
        """Disconnect everybody and stop listening."""
        if self._thread is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._end_loop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def carry(self, message: bytes) -> bytes:
        """The envelope as it is forwarded; tests override this."""
        return message

    async def _serve(self) -> None:
        own = self._identity.issue_connection_certificate()
        roots = b"".join(certificate.pem for certificate in self._participants.values())
        credentials = grpc.ssl_server_credentials(
            [(own.key_pem, own.chain_pem)], root_certificates=roots, require_client_auth=True
        )
        everybody = len(self._participants)
        options = [
            *grpc_options(self._heartbeat),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            ("grpc.server_handshake_timeout_ms", int(self._handshake * 1000)),
            ("grpc.max_allowed_incoming_connections", places_for_strangers(everybody) + 2 * everybody),
        ]
        self._server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(envelope.SERVICE, {envelope.METHOD: handler}),)
        )
        try:
            self._inner_port = self._server.add_secure_port(f"{LOOPBACK}:0", credentials)
        except RuntimeError:
            raise ConnectError(f"the hub finds no free port on {LOOPBACK}") from None
        await self._server.start()
        self._door = Door(self._inner_port, everybody, handshake=self._handshake, closing=self._closing)
        try:
            self.port = self._door.listen(self._address)
        except ConnectError:
            await self._server.stop(0)
            raise

    async def _close(self) -> None:
        assert self._door is not None  # noqa: S101 - because the hub was started
        self._door.shut()
        await self._server.stop(min(_STOP_SECONDS, self._closing) if self._connections else 0)
        await self._door.close()
        # gRPC returns before its handlers have ended, and the loop must stay open until then.
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        if handlers:
            await asyncio.wait(handlers, timeout=_STOP_SECONDS)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()
        self._loop.close()

    async def _attend(self, messages: AsyncIterator[bytes], context: Any) -> None:
        """Serve one participant for as long as its connection lasts."""
        try:
            name, incarnation = self._admit(context)
        except IdentityError as refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        assert self._door is not None  # noqa: S101 - because the hub was started
        self._door.recognise(context.peer())
        connection = _Connection(name, incarnation, self._stall)
        self._enter(connection)
        reader = asyncio.create_task(self._read(connection, messages))
        writer = asyncio.create_task(_write(connection, context))
        try:
            await asyncio.wait((reader, writer, connection.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(connection)
            self._door.release(context.peer())
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        if connection.ended.done():
            await context.abort(grpc.StatusCode.ABORTED, connection.ended.result())

    def _admit(self, context: Any) -> tuple[str, int]:
        """The name and incarnation of the participant; an error if the certificate does not prove the name."""
        metadata = dict(context.invocation_metadata() or ())
        if metadata.get(envelope.VERSION_KEY) != envelope.VERSION:
            raise IdentityError(
                "the hub speaks another version of the wire protocol: install the same release of Colonnade everywhere"
            )
        try:
            shown = certificates.read(context.auth_context()["x509_pem_cert"][0])
            name = certificates.common_name(shown)
            incarnation = int(metadata[envelope.INCARNATION_KEY], 16)
        except (KeyError, IndexError, ValueError):
            raise IdentityError("the connection does not say who it is from") from None
        pinned = self._participants.get(name)
        if pinned is None:
            raise IdentityError(f"{name} is not in this study")
        if not pinned.has_issued(shown):
            raise IdentityError(
                f"the connection in the name of {name} does not hold the key that the study names for it "
                f"({pinned.fingerprint})"
            )
        return name, incarnation & (1 << 64) - 1

    def _enter(self, connection: _Connection) -> None:
        former = self._connections.get(connection.name)
        if former is not None:
            former.end("another connection took its place")
        self._connections[connection.name] = connection
        others = {name: other.incarnation for name, other in self._connections.items() if name != connection.name}
        connection.announce(envelope.roster(envelope.ROSTER, others))
        self._announce(connection, envelope.HERE)

    def _leave(self, connection: _Connection) -> None:
        if self._connections.get(connection.name) is connection:
            del self._connections[connection.name]
            self._announce(connection, envelope.GONE)

    def _announce(self, connection: _Connection, kind: int) -> None:
        news = envelope.roster(kind, {connection.name: connection.incarnation})
        for name, other in self._connections.items():
            if name != connection.name:
                other.announce(news)

    async def _read(self, connection: _Connection, messages: AsyncIterator[bytes]) -> None:
        try:
            async for bundle in messages:
                for message in envelope.unbundle(bundle):
                    await self._pass_on(connection, message)
        except ProtocolError as error:
            connection.end(str(error))

    async def _pass_on(self, connection: _Connection, message: bytes) -> None:
        sender, receiver, _ = envelope.names(message)
        if message[0] != envelope.PACKET or sender != connection.name or len(message) > envelope.MAX_ENVELOPE:
            raise ProtocolError("it sent an envelope that is not its own")
        target = self._connections.get(receiver)
        if target is not None:
            await target.put(self.carry(message))


class _Connection:
    """The connection of one participant, and the messages that wait to be sent to it."""

    def __init__(self, name: str, incarnation: int, stall: float = Limits.stall) -> None:
        self.name, self.incarnation = name, incarnation
        self._stall = stall
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
        if self._bytes > 4 * _QUEUE_BYTES:  # others may come and go for as long as it does not read
            self.end(_READS_NOTHING)

    async def put(self, message: bytes) -> None:
        """Wait until there is room, then add a message."""
        while self._bytes > _QUEUE_BYTES and not self.ended.done():
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), self._stall)
            except TimeoutError:
                self.end(_READS_NOTHING)
        if not self.ended.done():
            self.announce(message)

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
        if self._bytes <= _QUEUE_BYTES // 2:
            self._drained.set()
        return envelope.bundle(batch)

    def _joins(self, first: bytes, size: int) -> bool:
        """Whether the next message fits into the bundle; the roster, which comes first, is sent alone."""
        return size + len(self._waiting[0]) <= envelope.FULL_BUNDLE and first[0] != envelope.ROSTER


async def _write(connection: _Connection, context: Any) -> None:
    while True:
        await context.write(await connection.get())
