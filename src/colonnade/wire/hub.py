"""The meeting point: knows who is present and passes sealed packets on.

One asyncio loop in one thread serves everybody. The hub keeps a few megabytes a participant at most; a
participant that does not read holds up those who write to it, and is disconnected if that lasts.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import grpc
import grpc.aio
from cryptography import x509

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.wire import envelope
from colonnade.wire.identity import Certificate, Identity, common_name

_QUEUE_BYTES = 1 << 23
_STALL_SECONDS = 20.0
_STOP_SECONDS = 1.0


def grpc_options(heartbeat: float) -> list[tuple[str, int]]:
    """Settings that hub and participants share."""
    beat = int(heartbeat * 1000)
    return [
        ("grpc.max_send_message_length", envelope.MAX_ROSTER + envelope.MAX_ENVELOPE),
        ("grpc.max_receive_message_length", envelope.MAX_ROSTER + envelope.MAX_ENVELOPE),
        ("grpc.keepalive_time_ms", beat),
        ("grpc.keepalive_timeout_ms", beat),
        ("grpc.http2.ping_timeout_ms", beat),  # or a lost bandwidth probe holds keepalive up for a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", beat // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", beat // 2),
        ("grpc.http2.max_ping_strikes", 0),
    ]


class Hub:
    """A gRPC server that participants dial."""

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        address: str = "127.0.0.1:0",
        *,
        heartbeat: float = 5.0,
    ) -> None:
        self._identity, self._participants = identity, dict(participants)
        self._address, self._heartbeat = address, heartbeat
        self._seats: dict[str, _Seat] = {}
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: Any = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._port

    @property
    def address(self) -> str:
        """Where to dial, once started."""
        return f"{self._address.rpartition(':')[0]}:{self._port}"

    def start(self) -> Self:
        """Listen; returns when participants can connect."""
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
        """What becomes of an envelope on its way; for tests to override."""
        return message

    async def _serve(self) -> None:
        link = self._identity.issue_link()
        roots = b"".join(certificate.pem for certificate in self._participants.values())
        credentials = grpc.ssl_server_credentials(
            [(link.key_pem, link.chain_pem)], root_certificates=roots, require_client_auth=True
        )
        options = [*grpc_options(self._heartbeat), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        handler = grpc.stream_stream_rpc_method_handler(self._attend)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(envelope.SERVICE, {envelope.METHOD: handler}),)
        )
        try:
            self._port = self._server.add_secure_port(self._address, credentials)
        except RuntimeError:
            raise ConnectError(f"the hub cannot listen on {self._address}; is the port in use?") from None
        await self._server.start()

    async def _close(self) -> None:
        await self._server.stop(_STOP_SECONDS if self._seats else 0)
        # gRPC returns before its handlers have ended; a loop must not be closed under them.
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
        seat = _Seat(name, incarnation)
        self._sit(seat)
        reader = asyncio.create_task(self._read(seat, messages))
        writer = asyncio.create_task(_write(seat, context))
        try:
            await asyncio.wait((reader, writer, seat.ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(seat)
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        if seat.ended.done():
            await context.abort(grpc.StatusCode.ABORTED, seat.ended.result())

    def _admit(self, context: Any) -> tuple[str, int]:
        """The name that the connection has proved, or a reason to refuse it."""
        metadata = dict(context.invocation_metadata() or ())
        if metadata.get(envelope.VERSION_KEY) != envelope.VERSION:
            raise IdentityError("the hub speaks another version of the wire protocol")
        try:
            link = x509.load_pem_x509_certificate(context.auth_context()["x509_pem_cert"][0])
            name = common_name(link)
            incarnation = int(metadata[envelope.INCARNATION_KEY], 16)
        except (KeyError, IndexError, ValueError):
            raise IdentityError("the connection does not say who it is from") from None
        pinned = self._participants.get(name)
        if pinned is None:
            raise IdentityError(f"{name} is not in this study")
        if not pinned.has_issued(link):
            raise IdentityError(
                f"the connection in the name of {name} does not hold the key that the study names for it "
                f"({pinned.fingerprint})"
            )
        return name, incarnation & (1 << 64) - 1

    def _sit(self, seat: _Seat) -> None:
        former = self._seats.get(seat.name)
        if former is not None:
            former.end("another connection took its place")
        self._seats[seat.name] = seat
        others = {name: other.incarnation for name, other in self._seats.items() if name != seat.name}
        seat.announce(envelope.roster(envelope.ROSTER, others))
        self._announce(seat, envelope.HERE)

    def _leave(self, seat: _Seat) -> None:
        if self._seats.get(seat.name) is seat:
            del self._seats[seat.name]
            self._announce(seat, envelope.GONE)

    def _announce(self, seat: _Seat, kind: int) -> None:
        news = envelope.roster(kind, {seat.name: seat.incarnation})
        for name, other in self._seats.items():
            if name != seat.name:
                other.announce(news)

    async def _read(self, seat: _Seat, messages: AsyncIterator[bytes]) -> None:
        try:
            async for bundle in messages:
                for message in envelope.unbundle(bundle):
                    await self._pass_on(seat, message)
        except ProtocolError as error:
            seat.end(str(error))

    async def _pass_on(self, seat: _Seat, message: bytes) -> None:
        sender, receiver, _ = envelope.names(message)
        if message[0] != envelope.PACKET or sender != seat.name or len(message) > envelope.MAX_ENVELOPE:
            raise ProtocolError("it sent an envelope that is not its own")
        target = self._seats.get(receiver)
        if target is not None:
            await target.put(self.carry(message))


class _Seat:
    """One connected participant and what waits to be written to it."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name, self.incarnation = name, incarnation
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
        """Add a small message, whatever the backlog."""
        self._waiting.append(message)
        self._bytes += len(message)
        self._filled.set()

    async def put(self, message: bytes) -> None:
        """Add a message, when there is room."""
        while self._bytes > _QUEUE_BYTES and not self.ended.done():
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), _STALL_SECONDS)
            except TimeoutError:
                self.end("it did not read what was sent to it")
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
        self._bytes -= size
        if self._bytes <= _QUEUE_BYTES // 2:
            self._drained.set()
        return envelope.bundle(batch)

    def _joins(self, first: bytes, size: int) -> bool:
        """Whether the next message fits into the bundle; the roster, which comes first, is waited for alone."""
        return size + len(self._waiting[0]) <= envelope.FULL_BUNDLE and first[0] != envelope.ROSTER


async def _write(seat: _Seat, context: Any) -> None:
    while True:
        await context.write(await seat.get())
