"""Connects a participant to the hub, asks it questions, and says clearly why something failed.

A connection that breaks is made again. gRPC itself only reports that the hub is unavailable, so a probe finds out
why.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, ProtocolError
from colonnade.lazy import LazyModule
from colonnade.sanitize import sanitize
from colonnade.wire import packets
from colonnade.wire.connection_gate import split_address
from colonnade.wire.endpoint import Endpoint, certificate_date_error, clock_text, peers_of
from colonnade.wire.hub import grpc_options, split_pieces
from colonnade.wire.identity import Certificate, HubIdentity, Identity, certificates, load_key
from colonnade.wire.link_offers import DirectLinkSettings, RouteCallback
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.reliable_transport import ReliableTransport, report_failures

_RETRY_PAUSE = 0.3
_IS_IT_THE_HUB = (
    "check that this is the coordinator's address and port, that no other program has the port, and that no proxy "
    "between ends TLS itself"
)
_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


def probe(address: str, identity: HubIdentity, hub: Certificate, timeout: float) -> None:
    """Open and close one TLS connection to the hub; raise an error that explains what is wrong, if anything."""
    identity.certificate.check_dates()
    hub.check_dates()
    # If gRPC refuses a certificate it only closes the connection. A hub that is just stopping does the same, so try
    # twice.
    if _try_handshake(address, identity, hub, timeout) is not None:
        sleep(_RETRY_PAUSE)
        if (since := _try_handshake(address, identity, hub, timeout)) is not None:
            raise IdentityError(
                f"{hub.name} at {address} does not accept the certificate of {identity.name} "
                f"({identity.certificate.fingerprint}); {_what_to_compare(since)} [ID018]"
            )


def _what_to_compare(since: datetime) -> str:
    """What to compare; ``since`` is when the hub began, by its own clock.

    What we issued is valid from a day before our time. So the hub's clock can be to blame, or ours, only where it began
    earlier than that.
    """
    other = "is that the one in the coordinator's study file?"
    if datetime.now(UTC) - certificates.CLOCK_SKEW <= since:
        return other
    return (
        f"by its own clock it began at {since:%Y-%m-%d %H:%M} UTC, and this machine's clock says {clock_text()}: "
        f"compare the clocks first, and set the wrong one right; if both are right, {other}"
    )


def _try_handshake(address: str, identity: HubIdentity, hub: Certificate, timeout: float) -> datetime | None:
    """``None`` if the hub accepts our certificate, else when it began; an error if it is not the right hub."""
    try:
        with socket.create_connection(split_address(address), timeout=timeout) as plain:
            plain.settimeout(timeout)
            return _shake_hands(plain, address, identity, hub)
    except TimeoutError:
        raise ConnectError(
            f"{address} does not answer within {timeout:g} s; check the address, that no firewall blocks it, and that "
            "it is the coordinator's port and not another program's [CN025]"
        ) from None
    except ConnectionRefusedError:
        raise ConnectError(
            f"nothing listens at {address}; check that the coordinator is running and the port is right [CN026]"
        ) from None
    except (ConnectionError, ssl.SSLEOFError):  # which of the two it is depends on how far the handshake had come
        raise ConnectError(f"whatever listens at {address} hangs up; {_IS_IT_THE_HUB} [CN027]") from None
    except OSError as error:
        raise ConnectError(f"{address} cannot be reached: {error.strerror or error} [CN028]") from None


def _shake_hands(plain: socket.socket, address: str, identity: HubIdentity, hub: Certificate) -> datetime | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=hub.der)
    context.set_alpn_protocols(["h2"])
    own = identity.issue_connection_certificate()
    load_key(context, own.key_pem, own.chain_pem)
    since = datetime.now(UTC)
    try:
        with context.wrap_socket(plain, server_hostname=hub.name) as sealed:
            shown = str((sealed.getpeercert() or {})["notBefore"])
            since = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown), UTC) + certificates.CLOCK_SKEW
            # The server checks the client only after the client has finished its part of the handshake.
            return None if sealed.recv(1) else since
    except ssl.SSLEOFError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise certificate_date_error(hub.name, error) or IdentityError(
            f"whoever answers at {address} is not {hub.name} as the study names it "
            f"(expected {hub.fingerprint}): {error.verify_message}; ask the coordinator for its fingerprint: if it has "
            "a new key, pin its new certificate, else check the address [ID019]"
        ) from None
    except ssl.SSLError as error:
        if any(refusal in (error.reason or "") for refusal in _REFUSALS):
            return since
        raise ConnectError(
            f"whatever listens at {address} does not speak TLS as a hub does; {_IS_IT_THE_HUB} [CN030]"
        ) from None


grpc: Any = LazyModule("grpc")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def dial(
    address: str,
    identity: Identity,
    participants: Mapping[str, Certificate],
    *,
    hub_name: str = "coordinator",
    timeout: float = WireLimits.timeout,
    reconnect_grace: float = WireLimits.reconnect_grace,
    window: int = WireLimits.window,
    backlog: int = WireLimits.backlog,
    connect_timeout: float = 30.0,
    attempt: float = WireLimits.attempt,
    heartbeat: float = WireLimits.heartbeat,
    closing: float = WireLimits.closing,
    topic: bytes = b"",
    room: str = "",
    direct: DirectLinkSettings | None = None,
    told: RouteCallback | None = None,
    hub: Certificate | None = None,
    guest: HubIdentity | None = None,
) -> Endpoint:
    """Connect to the hub at ``host:port``; returns the participant's endpoint in the study.

    :class:`WireLimits` has the meaning of the settings. ``connect_timeout`` is how many seconds to go on trying.
    ``room`` is that of the study at a hub that has several. With ``direct``, packets go to a peer over a direct
    connection where there is one, and ``told`` hears by which way; all participants must have it, or none. ``hub`` is
    the certificate of a hub that no participant of these sessions runs, and ``guest`` who shows itself there, if not
    ``identity``.
    """
    relay = hub_name if hub is None else ""
    hub = hub or participants.get(hub_name)
    if hub is None:
        raise IdentityError(f"the study names no certificate for its hub, {hub_name} [ID016]")
    others = peers_of(identity, participants)
    limits = WireLimits(
        timeout, reconnect_grace, window, backlog, attempt=attempt, heartbeat=heartbeat, closing=closing
    )
    carrier = _HubCarrier(address, guest or identity, hub, connect_timeout, limits, room)
    if direct is None:
        return Endpoint(identity, participants, carrier, limits, topic, relay=relay)
    from colonnade.wire.direct_links import LinkCarrier  # only where it is needed: cryptography takes long to load

    links = LinkCarrier(carrier, identity.name, others, direct, limits, told)
    return Endpoint(identity, participants, links, limits, topic, links, relay)


class _HubCarrier:
    """A carrier that uses one bidirectional gRPC stream at a time, and opens a new one when it breaks."""

    def __init__(
        self,
        address: str,
        identity: HubIdentity,
        hub: Certificate,
        connect_timeout: float,
        limits: WireLimits,
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
        self._line: _HubStream | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, receiver: ReliableTransport, incarnation: int) -> None:
        self._incarnation = incarnation
        line = self._connect_patiently()
        self._thread = threading.Thread(
            target=self._stay_connected, args=(receiver, line), name=f"wire-{self._identity.name}", daemon=True
        )
        self._thread.start()

    def prefix(self, peer: str) -> bytes:
        return packets.envelope_prefix(self._identity.name, peer)

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

    def _drain(self, line: _HubStream) -> None:
        """Wait until the line has sent everything, or makes no more progress."""
        backlog = -1
        while self._thread is not None and self._thread.is_alive() and line.backlog != backlog:
            backlog = line.backlog
            self._thread.join(self._closing_seconds)

    def _connect_patiently(self) -> _HubStream:
        deadline = monotonic() + self._connect_timeout
        for pause in _reconnect_pauses():
            try:
                return self._connect()
            except _ExcludedError as end:
                raise ConnectError(str(end)) from None
            except ConnectError:
                if monotonic() + pause >= deadline:
                    raise
            self._closing.wait(pause)
        raise AssertionError("pauses never end")

    def _connect(self) -> _HubStream:
        probe(self._address, self._identity, self._hub, self._attempt)
        line = _HubStream(self._address, self._identity, self._hub, self._incarnation, self._heartbeat, self._room)
        try:
            line.await_roster(self._attempt)
        except BaseException:
            line.cancel()
            raise
        return line

    def _stay_connected(self, receiver: ReliableTransport, line: _HubStream | None) -> None:
        with report_failures(receiver):
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

    def _listen(self, receiver: ReliableTransport, line: _HubStream) -> str | None:
        """Give messages to the receiver until the line breaks; returns the reason, or None if it must not reconnect."""
        try:
            receiver.carrier_up(line.roster)
            for message in line.messages:
                for one in packets.unbundle(message):
                    _dispatch(one, self._identity.name, receiver)
        except ProtocolError as error:
            receiver.carrier_failed(_meaningless_error(self._hub.name, error))
            return None
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                receiver.carrier_failed(ConnectError(_disconnection_text(self._identity.name, error)))
                return None
        return f"the connection to {self._address} broke"

    def _reconnect(self, receiver: ReliableTransport) -> _HubStream | None:
        for pause in _reconnect_pauses():
            if self._closing.wait(pause):
                return None
            try:
                return self._connect()
            except _ExcludedError as end:
                raise ConnectError(str(end)) from None
            except ConnectError as error:
                receiver.carrier_down(str(error))
        return None


class _ExcludedError(ConnectError):
    """The hub will not take this participant any more, so there is no use in trying again."""


class _HubStream:
    """One gRPC connection with one stream."""

    def __init__(
        self, address: str, identity: HubIdentity, hub: Certificate, incarnation: int, heartbeat: float, room: str = ""
    ) -> None:
        self._address, self._own_name, self._hub_name = address, identity.name, hub.name
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._channel = open_channel(address, identity, hub, heartbeat)
        metadata = [(packets.INCARNATION_KEY, f"{incarnation:x}"), (packets.VERSION_KEY, packets.VERSION)]
        if room:
            metadata.append((packets.ROOM_KEY, room))
        join = self._channel.stream_stream(packets.PATH)
        self.messages: Any = join(_bundle_waiting(self._outgoing), metadata=metadata)
        self.messages.add_done_callback(self._release)
        self.roster: dict[str, int] = {}

    def await_roster(self, timeout: float) -> None:
        """Wait for the first message of the hub, which tells who is present."""
        timer = threading.Timer(timeout, self.cancel)
        timer.daemon = True
        timer.start()
        try:
            self.roster = packets.read_first_roster(next(self.messages))
        except ProtocolError as error:
            raise _meaningless_error(self._hub_name, error) from None
        except StopIteration:
            raise ConnectError(f"the hub at {self._address} hung up [CN020]") from None
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise IdentityError(
                    f"the hub at {self._address} refuses: {sanitize(error.details())} [ID017]"
                ) from None
            if error.code() is grpc.StatusCode.ABORTED:
                raise _ExcludedError(_disconnection_text(self._own_name, error)) from None
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise ConnectError(f"the hub at {self._address} says: {sanitize(error.details())} [CN021]") from None
            raise ConnectError(
                f"the hub at {self._address} does not answer ({sanitize(error.details())}) [CN022]"
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


def open_channel(
    address: str, identity: HubIdentity, hub: Certificate, heartbeat: float, *further: tuple[str, int]
) -> Any:
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


def _disconnection_text(name: str, error: Any) -> str:
    return f"the hub disconnected {name}: {sanitize(error.details())} [CN023]"


def _meaningless_error(hub: str, error: ProtocolError) -> ProtocolError:
    return ProtocolError(f"the hub of {hub} sent something that has no meaning: {error} [MS068]")


def _dispatch(message: bytes, own: str, receiver: ReliableTransport) -> None:
    kind = message[0] if message else None
    if kind == packets.PACKET:
        sender, addressee, start = packets.read_names(message)
        if addressee != own or sender == own:
            raise ProtocolError("a packet is not for whom it was sent to [MS069]")
        receiver.packet(sender, memoryview(message)[start:])
    elif kind == packets.HERE:
        for name, incarnation in packets.read_roster(message).items():
            receiver.peer_here(name, incarnation)
    elif kind == packets.GONE:
        for name in packets.read_roster(message):
            receiver.peer_gone(name)
    else:
        raise ProtocolError("a message is of no kind that is due [MS070]")


def _bundle_waiting(waiting: SimpleQueue[bytes | None]) -> Iterator[bytes]:
    """The waiting messages, until None comes; small messages that wait at the same time become one bundle."""
    batch: list[bytes] = []
    size = 0
    while (message := waiting.get()) is not None:
        if batch and size + len(message) > packets.FULL_BUNDLE:
            yield packets.bundle(batch)
            batch, size = [], 0
        batch.append(message)
        size += len(message)
        if waiting.empty():  # a bundle never waits for messages that may not come
            yield packets.bundle(batch)
            batch, size = [], 0
    if batch:
        yield packets.bundle(batch)


def _reconnect_pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


_CHANNEL_SECONDS = 24 * 3600.0
_MOST_ANSWER_BYTES = 1 << 27
_IDLE_MILLISECONDS = int(
    WireLimits.handshake * 500
)  # milliseconds: we hang up before the hub does, so that no question is lost


class HubClient:
    """A member's line for questions to the hub; any thread may ask. It connects when it is asked something."""

    def __init__(
        self, address: str, identity: HubIdentity, hub_certificate: Certificate, *, attempt: float = WireLimits.attempt
    ) -> None:
        self._address, self._identity, self._hub, self._attempt = address, identity, hub_certificate, attempt
        self._lock = threading.Lock()
        self._channel: Any = None
        self._made = 0.0

    def ask(
        self, service: str, method: str, body: bytes, timeout: float = 30.0, most: int = _MOST_ANSWER_BYTES
    ) -> bytes:
        """The hub's answer; a ``ConnectError``, an ``IdentityError`` or a ``ProtocolError`` says why there is none.

        After a ``ConnectError`` the hub may or may not have heard the question. It answers with at most ``most`` bytes.
        """
        channel = self._line()
        parts, size = [], 0
        try:
            call = channel.stream_stream(f"/{service}/{method}")(
                split_pieces(body), metadata=((packets.VERSION_KEY, packets.VERSION),), timeout=timeout
            )
            for part in call:
                size += len(part)
                if size > most:
                    call.cancel()
                    raise ProtocolError(f"the hub at {self._address} sent an answer of more than {most} bytes [MS051]")
                parts.append(part)
        except grpc.RpcError as error:
            raise self._reason(error, channel, timeout) from None
        except ValueError:  # another thread has closed the channel
            raise ConnectError(f"the connection to {self._address} was closed [CN011]") from None
        return b"".join(parts)

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _line(self) -> Any:
        with self._lock:
            if (
                self._channel is None or monotonic() - self._made > _CHANNEL_SECONDS
            ):  # what it shows the hub is valid for days
                former, self._made = self._channel, monotonic()
                idle = ("grpc.client_idle_timeout_ms", _IDLE_MILLISECONDS)
                self._channel = open_channel(self._address, self._identity, self._hub, WireLimits.heartbeat, idle)
                if former is not None:
                    former.close()
            return self._channel

    def _reason(self, error: Any, channel: Any, timeout: float) -> ColonnadeError:
        """The error that says why a question was not answered."""
        status, said = error.code(), sanitize(error.details() or "")
        if status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return IdentityError(f"the hub at {self._address} refuses: {said} [ID011]")
        if status in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
            return ProtocolError(f"the hub at {self._address} refuses: {said} [MS052]")
        if status is grpc.StatusCode.UNIMPLEMENTED:
            return ProtocolError(
                f"the hub at {self._address} does not answer questions of this kind; is it a standing hub of this "
                "release? [MS053]"
            )
        if status in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED, grpc.StatusCode.INTERNAL):
            return ConnectError(f"the hub at {self._address} says: {said} [CN012]")
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ConnectError(f"the hub at {self._address} did not answer within {timeout:g} s [CN013]")
        with self._lock:
            if self._channel is channel:  # the next question must not wait until gRPC tries again
                self._channel = None
        channel.close()
        try:
            probe(self._address, self._identity, self._hub, self._attempt)
        except ColonnadeError as reason:
            return reason
        return ConnectError(f"the connection to {self._address} broke [CN014]")
