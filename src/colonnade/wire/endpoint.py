"""What a participant uses to talk to the others: one channel for each.

Messages are typed, in order, and sealed end to end, by TLS 1.3 sessions that use memory buffers instead of sockets.
"""

from __future__ import annotations

import os
import ssl
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from colonnade.errors import CANNOT_GO_ON, ColonnadeError, IdentityError, ProtocolError, StudyError
from colonnade.wire import codec
from colonnade.wire.identity import Certificate, Identity, fingerprint_of, load_key
from colonnade.wire.link_offers import PeerRoute
from colonnade.wire.packets import MAX_PACKET
from colonnade.wire.peer_liveness import PROGRESS, TrafficCounters, WireLimits, cpu_timer
from colonnade.wire.reliable_transport import PacketCarrier, ReliableTransport

_WIRE = b"colonnade wire "
_VERSION = _WIRE + b"4"
_ONE_RECORD = 1 << 14
_OUT_OF_DATE = (9, 10)
"""OpenSSL's codes for a certificate that is not valid yet and for one that is not valid any more."""
_REFUSALS = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "ACCESS_DENIED")


class TlsSession:
    """TLS with one peer, whose certificate is known. Only one thread at a time may use it; the channel has a lock."""

    def __init__(self, identity: Identity, peer: Certificate, topic: bytes = b"", said: bytes = b"") -> None:
        """Both ends have the same ``topic``; ``said`` is told to the peer, which tells equally many bytes."""
        identity.certificate.check_dates()
        peer.check_dates()
        self._peer = peer
        self.is_client = identity.name < peer.name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(identity, peer, self.is_client).wrap_bio(
            self._incoming, self._outgoing, server_side=not self.is_client
        )
        self._shaken = False
        self._own_greeting, self._said = _VERSION + sha256(topic).digest(), said
        self._greeting = self.heard = b""
        self.ready = False

    def feed(self, sealed: memoryview) -> None:
        """Take sealed bytes that came from the peer."""
        self._incoming.write(sealed)

    @property
    def has_bytes(self) -> bool:
        """Whether there are bytes to decrypt or to read."""
        return bool(self._incoming.pending or self._tls.pending())

    def drain(self) -> bytes:
        """Sealed bytes to send to the peer; empty if there are none."""
        return self._outgoing.read()

    def advance(self) -> None:
        """Continue the handshake, as far as possible with the bytes that came."""
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._check_peer()
                self._shaken = True
                self._tls.write(self._own_greeting + self._said)
            # In TLS 1.3 a client is ready before the server has checked it: wait for the peer's greeting.
            if len(self._greeting) < len(self._own_greeting):
                self._greeting += self._tls.read(len(self._own_greeting) - len(self._greeting))
            if len(self._greeting) == len(self._own_greeting):
                self._check_greeting()
                if len(self.heard) < len(self._said):
                    self.heard += self._tls.read(len(self._said) - len(self.heard))
                self.ready = len(self.heard) == len(self._said)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._translate(error) from None

    def seal(self, pieces: Sequence[bytes | memoryview], head: bytes = b"") -> bytes:
        """The sealed bytes of some pieces, one after the other; ``head`` comes before them, and is not sealed."""
        if sum(map(len, pieces)) <= _ONE_RECORD:
            pieces = [b"".join(pieces)]
        if head:  # put in here, because a head that is joined to the sealed bytes later costs a copy of them
            self._outgoing.write(head + self._outgoing.read())
        try:
            for piece in pieces:
                self._tls.write(piece)
        except ssl.SSLError as error:
            self._outgoing.read(len(head))  # what is left is for the peer
            raise self._translate(error) from None
        return self._outgoing.read()

    def unseal(self, target: memoryview, *, one_record: bool = False) -> int:
        """Decrypt the bytes that came into ``target``, or one record of them; returns how many bytes were written."""
        filled = 0
        try:
            while filled < len(target):
                # One call returns one record at most.
                count = self._tls.read(len(target) - filled, target[filled:])
                if not count:
                    raise ProtocolError(f"{self._peer.name} ended the sealed session [MS093]")
                filled += int(count)
                if one_record:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._translate(error) from None
        return filled

    def _check_peer(self) -> None:
        found = self._tls.getpeercert(binary_form=True)
        if found != self._peer.der:
            raise IdentityError(
                f"whoever answers as {self._peer.name} is not who the study names: "
                f"expected {self._peer.fingerprint}, found {fingerprint_of(found or b'')} [ID042]"
            )

    def _check_greeting(self) -> None:
        if not self._greeting.startswith(_VERSION):
            theirs = self._greeting[len(_WIRE) : len(_VERSION)]
            known = self._greeting.startswith(_WIRE) and theirs.isdigit()
            raise ProtocolError(
                f"{self._peer.name} speaks another version of the wire protocol ({theirs.decode() if known else '?'}; "
                f"ours is {_VERSION[len(_WIRE) :].decode()}): install the same release of Colonnade "
                "on both machines [MS095]"
            )
        if self._greeting != self._own_greeting:
            error = StudyError(
                f"{self._peer.name} holds another version of the study: give everyone the same study file, the same "
                "schemas and the same release of Colonnade, and start again [ST612]"
            )
            error.public = True  # both sides see it in the greeting
            raise error

    def _translate(self, error: ssl.SSLError) -> ColonnadeError:
        peer, reason = self._peer, error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            if (dated := certificate_date_error(peer.name, error)) is not None:
                return dated
            return IdentityError(
                f"whoever answers as {peer.name} does not hold the certificate that the study names for it "
                f"(expected {peer.fingerprint}): {error.verify_message} [ID043]"
            )
        if "ALERT" in reason and "EXPIRED" in reason:
            return IdentityError(
                f"by the clock of {peer.name} our certificate is not valid; this machine's clock says {clock_text()}: "
                "compare the two, and set the wrong one right [ID044]"
            )
        if "ALERT" in reason and any(refusal in reason for refusal in _REFUSALS):
            return IdentityError(
                f"{peer.name} does not accept our certificate; compare the fingerprints in both study files [ID045]"
            )
        return ProtocolError(f"the sealed session with {peer.name} was damaged on its way ({reason}) [MS096]")


def certificate_date_error(name: str, error: ssl.SSLCertVerificationError) -> IdentityError | None:
    """The error for a certificate that is not valid at this time, by which a wrong clock shows; else ``None``."""
    if error.verify_code not in _OUT_OF_DATE:
        return None
    return IdentityError(
        f"this machine's clock says {clock_text()}, and at that time the certificate with which {name} answers is not "
        f"valid ({error.verify_message}): compare the clocks of both machines, and set the wrong one right [ID046]"
    )


def clock_text() -> str:
    """What this machine takes the time to be, for a person who compares it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _context(identity: Identity, peer: Certificate, is_client: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_client else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False  # the certificate itself is pinned
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=peer.der)
    load_key(context, identity.key_pem, identity.certificate.pem)
    if not is_client:
        context.num_tickets = 0
    return context


if TYPE_CHECKING:
    from colonnade.wire.direct_links import LinkCarrier

_LENGTH = struct.Struct("<Q")
_RECORD = 1 << 14
_OVERHEAD = 64
_MAX_PIECE = MAX_PACKET - (MAX_PACKET // _RECORD + 4) * _OVERHEAD
"""The most bytes whose sealed records always fit into one packet."""


class SealedChannel:
    """Messages to and from one peer. One thread may send while another receives."""

    def __init__(
        self,
        identity: Identity,
        peer: Certificate,
        post: ReliableTransport,
        counters: TrafficCounters,
        window: int,
        topic: bytes,
        introductions: LinkCarrier | None = None,
    ) -> None:
        self.peer = peer.name
        self._topic, self._introductions = topic, introductions
        self._identity, self._certificate = identity, peer
        self._post, self._traffic, self._tally = post, counters.peers[peer.name], counters.tally
        self._piece = min(_MAX_PIECE, max(window // 4, 1024))
        self._tls = threading.Lock()
        self._session: TlsSession | None = None
        self._opened = False
        self.is_ready = False
        """Whether the session is ready: each side has accepted the other."""
        self._start = threading.Lock()
        # A record may hold several small messages; those that were not returned yet wait here.
        self._record: memoryview | None = None
        self._left = memoryview(b"")

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; waits only if the peer has not yet taken enough of the earlier ones."""
        parts = _frame(kind, fields)
        session = self._open_session()
        size = sum(map(len, parts))
        for pieces in [parts] if size <= self._piece else _split_pieces(parts, self._piece):
            self._post.wait_for_room(self.peer, sum(map(len, pieces)))
            with self._tls, cpu_timer(self._traffic), self._guarded(session):
                # Small pieces are copied sooner than the lock is taken twice.
                head = self._post.head(self.peer) if size > _RECORD else None
                self._post.dispatch(self.peer, session.seal(pieces, head.data if head else b""), head)
        size -= _LENGTH.size
        self._traffic.messages_sent += 1
        self._traffic.payload_sent += size
        self._tally.count_sent(size)

    def recv(self, kind: str, most: int = codec.MAX_FRAME) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind and of at most so many bytes."""
        session = self._open_session()
        self._tally.count_wait()
        frame = self._next_frame(session, kind, most)
        self._post.check(self.peer)
        self._traffic.messages_received += 1
        self._traffic.payload_received += len(frame)
        return codec.decode_message(frame, kind, self.peer)

    def open(self) -> None:
        """Start the TLS session without waiting until it is ready."""
        with self._start:
            if self._opened:
                return
            self._opened = True
        if self._identity.name < self.peer:
            self.advance()
        else:
            self._post.dispatch(self.peer, b"")  # an empty packet, so that the peer opens the session

    def advance(self) -> None:
        """Continue the handshake. Runs in the carrier's thread, so that no computation delays it."""
        if self.is_ready:
            return
        try:
            with self._tls, cpu_timer(self._traffic):
                self._step()
        except ColonnadeError as error:
            self._post.fail_peer(self.peer, error)
        if self.is_ready:
            self._post.wake_waiting()

    def _step(self) -> None:
        if self._session is None:
            said = self._introductions.offer(self.peer) if self._introductions else b""
            self._session = TlsSession(self._identity, self._certificate, self._topic, said)
        session = self._session
        try:
            session.advance()
            while not session.ready and (packet := self._post.take_if_any(self.peer)) is not None:
                session.feed(packet)
                session.advance()
            # Once, whichever threads come here: what is offered is dialled.
            if session.ready and not self.is_ready and self._introductions:
                self._introductions.receive_offer(self.peer, session.heard)
            self.is_ready = session.ready
        finally:
            # Also after an error: the TLS alert tells the peer the reason.
            if sealed := session.drain():
                self._post.dispatch(self.peer, sealed)

    @contextmanager
    def _guarded(self, session: TlsSession) -> Iterator[None]:
        """After an error in it the session is not used again, and the peer is told."""
        try:
            yield
        except ColonnadeError as error:
            self._post.fail_peer(self.peer, error)
            if sealed := session.drain():
                self._post.dispatch(self.peer, sealed)
            raise

    def _open_session(self) -> TlsSession:
        if not self.is_ready:
            self.open()
            self._post.wait_until_open(self.peer, lambda: self.is_ready)
        session = self._session
        assert session is not None  # noqa: S101 - because is_ready is true
        return session

    def _next_frame(self, session: TlsSession, kind: str, most: int) -> bytes | memoryview:
        """The next frame; if one small record holds all of it, no other is read."""
        since = self._post.clock(self.peer)
        while not self._left:
            self._receive(session, None, since)
        if len(self._left) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._left)[0]
            if end <= len(self._left):
                codec.check_size(end - _LENGTH.size, kind, self.peer, most)
                frame = bytes(self._left[_LENGTH.size : end])
                self._left = self._left[end:]
                return frame
        since = self._post.clock(self.peer)
        size = _LENGTH.unpack(self._read(session, _LENGTH.size, since))[0]
        codec.check_size(size, kind, self.peer, most)  # before there is any memory for it
        return self._read(session, size, since)

    def _read(self, session: TlsSession, size: int, since: float) -> memoryview:
        """So many bytes; the time to wait for them began at ``since``, and starts anew with every bit of progress."""
        # Not a bytearray, which would be filled with zeros first.
        target = np.empty(size, np.uint8).data
        filled = counted = self._from_record(target)
        while filled < size:
            filled += self._receive(session, target[filled:] if size - filled >= _RECORD else None, since)
            filled += self._from_record(target[filled:])
            if filled - counted >= PROGRESS:
                counted, since = filled, self._post.clock(self.peer)
        return target

    def _receive(self, session: TlsSession, target: memoryview | None, since: float) -> int:
        """Unseal the next bytes into ``target`` and return how many; without a target, keep one record for later."""
        packet = None if session.has_bytes else self._post.take(self.peer, since)
        with self._tls, cpu_timer(self._traffic), self._guarded(session):
            if packet is not None:
                session.feed(packet)
            if target is not None:
                return session.unseal(target)
            self._record = self._record or memoryview(bytearray(_RECORD))
            self._left = self._record[: session.unseal(self._record, one_record=True)]
            return 0

    def _from_record(self, target: memoryview) -> int:
        """Copy the rest of the last small record into ``target``; returns how many bytes."""
        count = min(len(target), len(self._left))
        if count:
            target[:count] = self._left[:count]
            self._left = self._left[count:]
        return count


def _frame(kind: str, fields: dict[str, Any]) -> list[bytes | memoryview]:
    """The bytes of a message in the sealed stream: its length, and its frame."""
    parts = codec.encode_parts([kind, fields])
    return [_LENGTH.pack(sum(map(len, parts))), *parts]


def _split_pieces(parts: Iterable[bytes | memoryview], limit: int) -> Iterator[list[memoryview]]:
    """The same bytes in batches of at most ``limit``, without copying."""
    batch: list[memoryview] = []
    room = limit
    for part in parts:
        rest = memoryview(part)
        while rest:
            piece, rest = rest[:room], rest[room:]
            batch.append(piece)
            room -= len(piece)
            if not room:
                yield batch
                batch, room = [], limit
    if batch:
        yield batch


class Endpoint:
    """One participant's connection to a study. ``dial`` makes it.

    ``topic`` must be the same at both ends of every session; for example, it is the digest of the study.
    """

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        carrier: PacketCarrier,
        limits: WireLimits,
        topic: bytes = b"",
        introductions: LinkCarrier | None = None,
        relay: str = "",
    ) -> None:
        """``relay`` is the participant that runs the hub, if one does."""
        self.name = identity.name
        self.counters = TrafficCounters.for_peers(name for name in participants if name != identity.name)
        others = peers_of(identity, participants)
        self._limits, self._carrier, self._introductions = limits, carrier, introductions
        incarnation = int.from_bytes(os.urandom(8), "little")
        self._post = ReliableTransport(
            identity, others, carrier, limits, incarnation, self.counters, self._advance, topic, relay
        )
        self._channels = {
            name: SealedChannel(identity, cert, self._post, self.counters, limits.window, topic, introductions)
            for name, cert in others.items()
        }
        carrier.open(self._post, incarnation)

    @property
    def peers(self) -> tuple[str, ...]:
        """The other participants, in alphabetical order."""
        return tuple(sorted(self._channels))

    def channel(self, peer: str) -> SealedChannel:
        """The channel to a peer."""
        try:
            return self._channels[peer]
        except KeyError:
            raise ProtocolError(f"{self.name} has no channel to {peer}, which is not in the study [MS062]") from None

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until all peers, or the named ones, are present and their sealed sessions are ready."""
        channels = {name: self.channel(name) for name in (self.peers if names is None else names)}
        for channel in channels.values():
            channel.open()
        limit = self._limits.timeout if timeout is None else timeout
        self._post.wait_for_all(channels, lambda name: channels[name].is_ready, limit)
        if self._introductions:
            self._introductions.settle(channels)

    def tolerate(self, names: Iterable[str]) -> None:
        """Mark these peers as spare: their loss does not end the study.

        Messages to a lost peer are dropped. A call that needs a message from it raises a ``PeerLost`` whose ``spare``
        is its name.
        """
        self._post.tolerate(names)

    @property
    def lost_peers(self) -> tuple[str, ...]:
        """The spare peers that were lost, in alphabetical order."""
        return self._post.lost_peers

    @property
    def present_peers(self) -> tuple[str, ...]:
        """The peers that are connected now, in alphabetical order."""
        return self._post.present_peers

    @property
    def routes(self) -> dict[str, PeerRoute]:
        """By which way packets went to each peer; empty where all go through the hub."""
        return self._introductions.routes if self._introductions else {}

    def abort(self, reason: str) -> None:
        """End the study for everybody; ``reason`` is one sentence without data."""
        self._post.stop(reason)

    def close(self) -> None:
        """Wait until everything that was sent has arrived, tell the peers goodbye, and disconnect."""
        self._post.leave()
        self._carrier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Not the error: its message, and even its type, may depend on data that others must not see.
            self.abort(CANNOT_GO_ON)
        self.close()

    def _advance(self, peer: str) -> None:
        self._channels[peer].advance()


def peers_of(identity: Identity, participants: Mapping[str, Certificate]) -> dict[str, Certificate]:
    """The other participants; an error if a certificate is listed under another name than its own."""
    for name, certificate in participants.items():
        if certificate.name != name:
            raise IdentityError(f"the certificate given for {name} is that of {certificate.name} [ID012]")
    own = participants.get(identity.name)
    if own is not None:
        identity.certificate.check_pin(own.fingerprint, f"the identity that {identity.name} runs with")
    return {name: cert for name, cert in participants.items() if name != identity.name}
