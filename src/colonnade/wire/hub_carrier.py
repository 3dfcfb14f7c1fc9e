"""Connects a participant to the hub, and connects again when the connection breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.harmless import harmless
from colonnade.lazy import Later
from colonnade.wire import envelope
from colonnade.wire.carrier import failing_loudly
from colonnade.wire.direct import Direct, Told
from colonnade.wire.endpoint import Endpoint, peers_of
from colonnade.wire.hub import grpc_options
from colonnade.wire.hub_probe import probe
from colonnade.wire.identity import Certificate, Guest, Identity
from colonnade.wire.post import Post
from colonnade.wire.watch import Limits

grpc: Any = Later("grpc")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def dial(
    address: str,
    identity: Identity,
    participants: Mapping[str, Certificate],
    *,
    hub_name: str = "coordinator",
    timeout: float = Limits.timeout,
    reconnect_grace: float = Limits.reconnect_grace,
    window: int = Limits.window,
    backlog: int = Limits.backlog,
    connect_timeout: float = 30.0,
    attempt: float = Limits.attempt,
    heartbeat: float = Limits.heartbeat,
    closing: float = Limits.closing,
    topic: bytes = b"",
    room: str = "",
    direct: Direct | None = None,
    told: Told | None = None,
    hub: Certificate | None = None,
    guest: Guest | None = None,
) -> Endpoint:
    """Connect to the hub at ``host:port``; returns the participant's endpoint in the study.

    :class:`Limits` has the meaning of the settings. ``connect_timeout`` is how many seconds to go on trying. ``room``
    is that of the study at a hub that has several. With ``direct``, packets go to a peer over a direct connection where
    there is one, and ``told`` hears by which way; all participants must have it, or none. ``hub`` is the certificate of
    a hub that no participant of these sessions runs, and ``guest`` who shows itself there, if not ``identity``.
    """
    relay = hub_name if hub is None else ""
    hub = hub or participants.get(hub_name)
    if hub is None:
        raise IdentityError(f"the study names no certificate for its hub, {hub_name} [ID016]")
    others = peers_of(identity, participants)
    limits = Limits(timeout, reconnect_grace, window, backlog, attempt=attempt, heartbeat=heartbeat, closing=closing)
    carrier = _HubCarrier(address, guest or identity, hub, connect_timeout, limits, room)
    if direct is None:
        return Endpoint(identity, participants, carrier, limits, topic, relay=relay)
    from colonnade.wire.links import LinkCarrier  # only where it is needed: cryptography takes long to load

    links = LinkCarrier(carrier, identity.name, others, direct, limits, told)
    return Endpoint(identity, participants, links, limits, topic, links, relay)


class _HubCarrier:
    """A carrier that uses one bidirectional gRPC stream at a time, and opens a new one when it breaks."""

    def __init__(
        self,
        address: str,
        identity: Guest,
        hub: Certificate,
        connect_timeout: float,
        limits: Limits,
        room: str = "",
    ) -> None:
        self._address, self._identity, self._hub, self._room = address, identity, hub, room
        self._connect_timeout, self._heartbeat, self._closing_seconds = (
            connect_timeout,
            limits.heartbeat,
            limits.closing,
        )
        self._attempt = min(limits.attempt, max(connect_timeout, 1.0))
        self._incarnation = 0
        self._line: _Line | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, receiver: Post, incarnation: int) -> None:
        self._incarnation = incarnation
        line = self._connect_patiently()
        self._thread = threading.Thread(
            target=self._stay_connected, args=(receiver, line), name=f"wire-{self._identity.name}", daemon=True
        )
        self._thread.start()

    def prefix(self, peer: str) -> bytes:
        return envelope.prefix(self._identity.name, peer)

    def send(self, peer: str, packet: bytes) -> None:
        line = self._line
        if line is not None:
            line.put(packet)

    def close(self) -> None:
        self._closing.set()
        line = self._line
        if line is not None:
            line.finish()
            self._drain(line)
            line.cancel()
        if self._thread is not None:
            self._thread.join(self._closing_seconds)

    def _drain(self, line: _Line) -> None:
        """Wait until the line has sent everything, or makes no more progress."""
        backlog = -1
        while self._thread is not None and self._thread.is_alive() and line.backlog != backlog:
            backlog = line.backlog
            self._thread.join(self._closing_seconds)

    def _connect_patiently(self) -> _Line:
        deadline = monotonic() + self._connect_timeout
        for pause in _pauses():
            try:
                return self._connect()
            except _OverError as end:
                raise ConnectError(str(end)) from None
            except ConnectError:
                if monotonic() + pause >= deadline:
                    raise
            self._closing.wait(pause)
        raise AssertionError("pauses never end")

    def _connect(self) -> _Line:
        probe(self._address, self._identity, self._hub, self._attempt)
        line = _Line(self._address, self._identity, self._hub, self._incarnation, self._heartbeat, self._room)
        try:
            line.await_roster(self._attempt)
        except BaseException:
            line.cancel()
            raise
        return line

    def _stay_connected(self, receiver: Post, line: _Line | None) -> None:
        with failing_loudly(receiver):
            while line is not None:
                self._line = line
                if self._closing.is_set():
                    line.finish()
                reason = self._listen(receiver, line)
                self._line = None
                line.cancel()
                line = None
                if not self._closing.is_set() and reason is not None:
                    receiver.carrier_down(reason)
                    line = self._reconnect(receiver)

    def _listen(self, receiver: Post, line: _Line) -> str | None:
        """Give messages to the receiver until the line breaks; returns the reason, or None if it must not reconnect."""
        try:
            receiver.carrier_up(line.roster)
            for message in line.messages:
                for one in envelope.unbundle(message):
                    _pass_on(one, self._identity.name, receiver)
        except ProtocolError as error:
            receiver.carrier_failed(_senseless(self._hub.name, error))
            return None
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                receiver.carrier_failed(ConnectError(_disconnected(self._identity.name, error)))
                return None
        return f"the connection to {self._address} broke"

    def _reconnect(self, receiver: Post) -> _Line | None:
        for pause in _pauses():
            if self._closing.wait(pause):
                return None
            try:
                return self._connect()
            except _OverError as end:
                raise ConnectError(str(end)) from None
            except ConnectError as error:
                receiver.carrier_down(str(error))
        return None


class _OverError(ConnectError):
    """The hub will not take this participant any more, so there is no use in trying again."""


class _Line:
    """One gRPC connection with one stream."""

    def __init__(
        self, address: str, identity: Guest, hub: Certificate, incarnation: int, heartbeat: float, room: str = ""
    ) -> None:
        self._address, self._own_name, self._hub_name = address, identity.name, hub.name
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._channel = open_channel(address, identity, hub, heartbeat)
        metadata = [(envelope.INCARNATION_KEY, f"{incarnation:x}"), (envelope.VERSION_KEY, envelope.VERSION)]
        if room:
            metadata.append((envelope.ROOM_KEY, room))
        join = self._channel.stream_stream(envelope.PATH)
        self.messages: Any = join(_bundles(self._outgoing), metadata=metadata)
        self.messages.add_done_callback(self._release)
        self.roster: dict[str, int] = {}

    def await_roster(self, timeout: float) -> None:
        """Wait for the first message of the hub, which tells who is present."""
        timer = threading.Timer(timeout, self.cancel)
        timer.daemon = True
        timer.start()
        try:
            self.roster = envelope.read_first_roster(next(self.messages))
        except ProtocolError as error:
            raise _senseless(self._hub_name, error) from None
        except StopIteration:
            raise ConnectError(f"the hub at {self._address} hung up [CN020]") from None
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise IdentityError(
                    f"the hub at {self._address} refuses: {harmless(error.details())} [ID017]"
                ) from None
            if error.code() is grpc.StatusCode.ABORTED:
                raise _OverError(_disconnected(self._own_name, error)) from None
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise ConnectError(f"the hub at {self._address} says: {harmless(error.details())} [CN021]") from None
            raise ConnectError(
                f"the hub at {self._address} does not answer ({harmless(error.details())}) [CN022]"
            ) from None
        finally:
            timer.cancel()

    @property
    def backlog(self) -> int:
        """How many messages wait to be sent."""
        return self._outgoing.qsize()

    def put(self, message: bytes) -> None:
        """Send a message after those that already wait."""
        self._outgoing.put(message)

    def finish(self) -> None:
        """Close the stream after everything has been sent."""
        self._outgoing.put(None)

    def cancel(self) -> None:
        """Close the connection now."""
        self._outgoing.put(None)
        self.messages.cancel()
        self._channel.close()

    def _release(self, _: object) -> None:
        """Close the connection of a stream that has ended; otherwise gRPC may leave a read of it pending for ever."""
        # Closing waits for gRPC's own thread, which is the one that calls this method.
        with suppress(RuntimeError):  # no thread can be started while the program ends
            threading.Thread(target=self._channel.close, name="wire-release", daemon=True).start()


def open_channel(address: str, identity: Guest, hub: Certificate, heartbeat: float, *further: tuple[str, int]) -> Any:
    """A gRPC channel to the hub, on which each side shows the other a certificate."""
    own = identity.issue_connection_certificate()
    credentials = grpc.ssl_channel_credentials(hub.pem, own.key_pem, own.chain_pem)
    options = [
        *grpc_options(heartbeat),
        ("grpc.ssl_target_name_override", hub.name),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        *further,
    ]
    return grpc.secure_channel(address, credentials, options)


def _disconnected(name: str, error: Any) -> str:
    return f"the hub disconnected {name}: {harmless(error.details())} [CN023]"


def _senseless(hub: str, error: ProtocolError) -> ProtocolError:
    return ProtocolError(f"the hub of {hub} sent something that has no meaning: {error} [MS068]")


def _pass_on(message: bytes, own: str, receiver: Post) -> None:
    kind = message[0] if message else None
    if kind == envelope.PACKET:
        sender, addressee, start = envelope.names(message)
        if addressee != own or sender == own:
            raise ProtocolError("a packet is not for whom it was sent to [MS069]")
        receiver.packet(sender, memoryview(message)[start:])
    elif kind == envelope.HERE:
        for name, incarnation in envelope.read_roster(message).items():
            receiver.peer_here(name, incarnation)
    elif kind == envelope.GONE:
        for name in envelope.read_roster(message):
            receiver.peer_gone(name)
    else:
        raise ProtocolError("a message is of no kind that is due [MS070]")


def _bundles(waiting: SimpleQueue[bytes | None]) -> Iterator[bytes]:
    """The waiting messages, until None comes; small messages that wait at the same time become one bundle."""
    batch: list[bytes] = []
    size = 0
    while (message := waiting.get()) is not None:
        if batch and size + len(message) > envelope.FULL_BUNDLE:
            yield envelope.bundle(batch)
            batch, size = [], 0
        batch.append(message)
        size += len(message)
        if waiting.empty():  # a bundle never waits for messages that may not come
            yield envelope.bundle(batch)
            batch, size = [], 0
    if batch:
        yield envelope.bundle(batch)


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)
