"""Packets go to a peer over a direct connection while there is one, and through the hub otherwise.

Packets are numbered, and whoever receives them keeps only the next one. So each side may change the way on its own at
any time: after every change, what was not acknowledged is sent again, the new way, and nothing is lost or doubled.
Who is present remains the hub's word, and signed notices go through the hub.

What a packet carries is sealed end to end already. On a direct connection each gets a tag, under keys that only the
two ends know (GMAC, with a number for each packet): so whoever is on the way can break the connection, and not the
session. A stranger at the listener hears nothing: it has a few seconds for a greeting of fixed length, and there are
few places for those who have not proven who they are. Where no place is left, the oldest of them goes, from the
address with the most.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from colonnade.errors import ColonnadeError, ConnectError, ProtocolError
from colonnade.wire.connection_gate import (
    UnauthenticatedConnection,
    UnauthenticatedPool,
    explain_listen_error,
    listen_at_all_addresses,
    network_of,
)
from colonnade.wire.link_offers import (
    ANSWER_BYTES,
    DIRECTLY,
    GREETING_BYTES,
    DirectLinkSettings,
    LinkKeys,
    LinkOffer,
    PeerRoute,
    PortRange,
    RouteCallback,
    UnprovenPeerError,
    advertised_address,
    new_nonce,
    offer_name,
    read_exactly,
)
from colonnade.wire.packets import HEADER_BYTES, MAX_PACKET, PacketKind
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.reliable_transport import PacketCarrier, ReliableTransport, report_failures

_LENGTH = struct.Struct("<I")
_TAG_BYTES = 16
_LONGEST_FRAME = HEADER_BYTES + MAX_PACKET
_BEAT, _END = b"", b"\0"
"""What is no packet: a sign of life, and the last word of whoever leaves."""
_BEAT_BYTES = _LENGTH.size + _TAG_BYTES
_SLICE = 1 << 16
_PARTS = 768  # in one system call; a frame has three
_NO_WAIT_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class BrokenLinkError(ProtocolError):
    """A connection is of no more use; the message says why."""


class DirectLink:
    """An open connection whose two ends have proven who they are."""

    def __init__(self, connection: socket.socket, keys: LinkKeys) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sealing, self._checking = AESGCM(keys.sending), AESGCM(keys.receiving)
        self._count_out = self._count_in = 0
        self._lock = threading.RLock()
        self._filled = threading.Condition(self._lock)
        self._waiting: deque[memoryview] = deque()
        self._writer: threading.Thread | None = None
        self._busy = self._over = self._ended = False
        self._written = 0  # bytes that the system took from the writer
        self.sent = self.received = 0
        """Bytes of packets."""
        self.why = ""
        """Why it was cut from this side."""
        self.last_spoke = self.last_heard = monotonic()

    # Sending. None of these waits.

    def put(self, packet: bytes | memoryview = _BEAT) -> None:
        """Send a packet, or a sign of life; what the system does not take at once is sent by a thread of its own."""
        with self._lock:
            if self._over:
                return
            frame = self._frame(packet)
            self.sent += len(packet) if len(packet) > len(_END) else 0
            self.last_spoke = monotonic()
            if not self._busy:
                try:
                    frame = _unsent_parts(frame, self._socket.sendmsg(frame, [], _NO_WAIT_FLAGS))
                except BlockingIOError:
                    pass
                except OSError:
                    self.cut("the connection broke")
                    return
                if not frame:
                    return
            self._waiting.extend(frame)
            self._busy = True
            if self._writer is None:
                writer = threading.Thread(target=self._write, name="wire-link-out", daemon=True)
                try:
                    writer.start()
                except RuntimeError:  # there can be no more threads
                    self.cut("no thread could be started for it")
                    return
                self._writer = writer
            self._filled.notify_all()

    def cut(self, why: str) -> None:
        """Break the connection; whoever reads it is woken."""
        with self._lock:
            self.why = self.why or why
            self._over = True
            self._filled.notify_all()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Say that nothing more will come, after everything that waits."""
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.put(_END)

    def finish(self, seconds: float) -> bool:
        """End, and wait until the system took everything, or nothing for so long; returns whether it took all."""
        self.end()
        with self._lock:
            seen, until = self._written, monotonic() + seconds
            while self._busy and not self._over and monotonic() < until:
                self._filled.wait(until - monotonic())
                if self._written != seen:
                    seen, until = self._written, monotonic() + seconds
            whole = not self._busy and not self._over
            self._over = True
            self._filled.notify_all()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            return whole

    def close(self) -> None:
        """Free what the connection holds; its reader has ended."""
        self.cut("it was closed")
        if self._writer is not None:
            self._writer.join()
        self._socket.close()

    def _frame(self, packet: bytes | memoryview) -> list[memoryview]:
        tag = self._sealing.encrypt(_nonce_of(self._count_out), b"", packet)
        self._count_out += 1
        return [memoryview(part) for part in (_LENGTH.pack(len(packet)), packet, tag) if part]

    def _write(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_WRITE)
            parts: list[memoryview] = []
            while True:
                with self._lock:
                    while not parts and not self._waiting and not self._over:
                        self._busy = False
                        self._filled.notify_all()
                        self._filled.wait()
                    if self._over:
                        return
                    parts += [self._waiting.popleft() for _ in range(min(len(self._waiting), _PARTS - len(parts)))]
                try:
                    sent = self._socket.sendmsg(parts, [], _NO_WAIT_FLAGS)
                except BlockingIOError:
                    selector.select()
                except OSError:
                    self.cut("the connection broke")
                    return
                else:
                    parts = _unsent_parts(parts, sent)
                    self._written += sent

    # Receiving, in one thread

    def read(self, deliver: Callable[[memoryview], None]) -> None:
        """Deliver packets until the peer says that it ends the connection; a BrokenLinkError if it ends otherwise."""
        try:
            for packet in self._frames():
                if len(packet) == len(_END):
                    return
                if packet:
                    self.received += len(packet)
                    deliver(packet)
        except OSError as error:
            raise BrokenLinkError(f"{self.why or error.strerror or 'the connection broke'} [MS071]") from None
        except InvalidTag:
            raise BrokenLinkError("something on it came from somebody else [MS072]") from None

    def _frames(self) -> Iterator[memoryview]:
        """The content of every frame, each in memory of its own."""
        head = memoryview(bytearray(_LENGTH.size))
        while True:
            self._fill(head)
            (size,) = _LENGTH.unpack(head)
            if size > _LONGEST_FRAME:
                raise BrokenLinkError("something on it came from somebody else [MS073]")
            frame = np.empty(size + _TAG_BYTES, np.uint8).data
            self._fill(frame)
            self._check(frame[:size], frame[size:])
            yield frame[:size]

    def _fill(self, target: memoryview) -> None:
        """Receive so many bytes, in slices: a long frame may take long, and each slice is a sign of life."""
        filled = 0
        while filled < len(target):
            count = self._socket.recv_into(target[filled : filled + _SLICE], 0, socket.MSG_WAITALL)
            if not count:
                raise BrokenLinkError(f"{self.why or 'the other end hung up'} [MS074]")
            filled += count
            if count == _SLICE:
                self.last_heard = monotonic()

    def _check(self, content: memoryview | bytes, tag: memoryview | bytes) -> None:
        self._checking.decrypt(_nonce_of(self._count_in), tag, content)
        self._count_in += 1
        self.last_heard = monotonic()  # not before: somebody on the way could let a byte through now and then

    def await_beat(self, deadline: float) -> None:
        """Wait for the first word of whoever dialled, by which it proves that it is no echo of an earlier one."""
        frame = read_exactly(self._socket, _BEAT_BYTES, deadline)
        try:
            if frame[: _LENGTH.size] != _LENGTH.pack(0):
                raise UnprovenPeerError("whoever dialled does not go on as it should [MS075]")
            self._check(b"", frame[_LENGTH.size :])
        except InvalidTag:
            raise UnprovenPeerError("whoever dialled repeats what somebody else said [MS076]") from None
        self._socket.settimeout(None)


def dial_link(offer: LinkOffer, seconds: float) -> DirectLink:
    """Connect to the address of an offer and prove who we are; an OSError or an UnprovenPeerError if that fails."""
    host, _, port = offer.address.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
    try:
        deadline = monotonic() + seconds
        nonce = new_nonce()
        connection.sendall(offer.greeting(nonce))
        theirs = offer.check_answer(read_exactly(connection, ANSWER_BYTES, deadline), nonce)
        link = DirectLink(connection, offer.keys(nonce, theirs, dials=True))
        link.put()
    except BaseException:
        connection.close()
        raise
    return link


def accept_link(
    connection: socket.socket, offers: dict[bytes, tuple[str, LinkOffer]], seconds: float
) -> tuple[str, DirectLink]:
    """The peer that dialled and its connection; an OSError or an UnprovenPeerError if it does not prove who it is.

    Nothing is said before the greeting has proven that whoever dialled knows the secret of an offer.
    """
    deadline = monotonic() + seconds
    greeting = read_exactly(connection, GREETING_BYTES, deadline)
    known = offers.get(offer_name(greeting))
    if known is None:
        raise UnprovenPeerError("whoever dialled does not know the secret [MS077]")
    peer, offer = known
    theirs, nonce = offer.check_greeting(greeting), new_nonce()
    connection.sendall(offer.answer(theirs, nonce))
    link = DirectLink(connection, offer.keys(theirs, nonce, dials=False))
    link.await_beat(deadline)
    return peer, link


def _unsent_parts(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of some parts after so many bytes of them were sent."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def _nonce_of(count: int) -> bytes:
    return count.to_bytes(12, "little")


_PLACES = 16
_BACKLOG = 64
_PAUSE = 0.1


class LinkListener:
    """Listens at an address, and passes on connections of peers."""

    def __init__(self, listen: str, arrived: Callable[[str, DirectLink], object], seconds: float) -> None:
        """``arrived`` is called in a thread of its own for each peer that proved, in so many seconds, who it is."""
        self.sockets, self.port = open_link_sockets(listen)
        self.offers: dict[bytes, tuple[str, LinkOffer]] = {}
        """The peers and the offers that were made to them, by the names of these."""
        self._arrived, self._seconds = arrived, seconds
        self._crowd, self._lock = UnauthenticatedPool(_PLACES), threading.Lock()

    def accept(self, listening: socket.socket) -> None:
        """Let in whoever waits at this socket, until it proves who it is or its time is over."""
        try:
            connection, (host, *_) = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                time.sleep(_PAUSE)  # whoever waits is still there
            return
        guest = _LinkCandidate(connection, network_of(str(host)))
        with self._lock:
            self._crowd.add(guest)
        try:
            threading.Thread(target=self._handshake, args=(guest,), name="wire-link-in", daemon=True).start()
        except RuntimeError:  # there can be no more threads
            self._forget(guest)
            connection.close()

    def close(self) -> None:
        """Listen no more."""
        for listening in self.sockets:
            listening.close()
        with self._lock:
            while self._crowd:
                self._crowd.make_room()

    def _handshake(self, guest: _LinkCandidate) -> None:
        try:
            peer, link = accept_link(guest.connection, self.offers, self._seconds)
        except (OSError, ProtocolError):  # a stranger is told nothing, and nothing is kept of it
            guest.connection.close()
            return
        finally:
            self._forget(guest)
        self._arrived(peer, link)

    def _forget(self, guest: _LinkCandidate) -> None:
        with self._lock:
            guest.leave_pool()


class _LinkCandidate(UnauthenticatedConnection):
    """A connection of somebody who has not proven who it is."""

    def __init__(self, connection: socket.socket, home: str) -> None:
        super().__init__(home)
        self.connection = connection

    def drop(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def open_link_sockets(listen: str) -> tuple[list[socket.socket], int]:
    """Sockets that listen at all addresses of the host, and their port; a ConnectError if that cannot be."""
    ports = PortRange.parse(listen)
    why = "the system refuses"
    for port in range(ports.first, ports.last + 1):
        try:
            return listen_at_all_addresses(ports.host.strip("[]"), port, _BACKLOG), port
        except UnicodeError:
            why = "that is no name of a machine"
            break
        except OSError as error:
            why = explain_listen_error(error, "another program has the port, or all of them")
            if error.errno != errno.EADDRINUSE:
                break
    raise ConnectError(f"this participant cannot listen at {listen}: {why} [CN031]")


_PAUSES = (1.0, 5.0, 30.0)
"""Seconds before one dials again; after the last attempt packets go through the hub for good."""
_SETTLE_SECONDS = 2.0
"""Seconds for which a participant that dials waits for its connections before it begins."""
_LEAST_APART = 0.5
_SILENT_BEATS = 3
_TRUSTED_FRACTION = 1 / 2
"""The part of ``timeout`` after which one no longer trusts a link to a peer that one waits for."""
_NOTICES = frozenset(map(int, (PacketKind.STOP, PacketKind.BYE, PacketKind.AWAY)))


class LinkCarrier:
    """A carrier with direct connections beside one that reaches everybody."""

    def __init__(
        self,
        hub: PacketCarrier,
        name: str,
        peers: Iterable[str],
        direct: DirectLinkSettings,
        limits: WireLimits,
        told: RouteCallback | None = None,
    ) -> None:
        self._hub, self._name, self._direct, self._limits, self._told = hub, name, direct, limits, told
        self._starts = {peer: len(hub.prefix(peer)) for peer in peers}
        self._ways = {peer: PeerRoute() for peer in self._starts}
        self._links: dict[str, DirectLink] = {}
        self._next: dict[str, float] = {}
        self._given_up: set[str] = set()
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._dialled: set[str] = set()
        self._closing = threading.Event()
        self._readers: dict[DirectLink, threading.Thread] = {}
        self._receiver: ReliableTransport | None = None
        self._listener: LinkListener | None = None
        self._address = ""
        self._offers: dict[str, LinkOffer] = {}
        self._bell: socket.socket | None = None

    def open(self, receiver: ReliableTransport, incarnation: int) -> None:
        """Listen, if that is wanted and possible, and connect to the hub."""
        self._receiver = receiver
        if self._direct.listen is not None:
            try:
                self._listener = LinkListener(self._direct.listen, self._use_link, self._limits.attempt)
                self._address = advertised_address(self._direct.listen, self._direct.advertise, self._listener.port)
            except ColonnadeError as error:  # others may still be dialled
                self._tell(self._name, str(error))
        self._offers = {peer: LinkOffer.fresh(self._address) for peer in self._starts}
        if self._listener is not None:
            self._listener.offers.update({offer.name: (peer, offer) for peer, offer in self._offers.items()})
        self._bell, far = socket.socketpair()
        self._spawn(self._maintain, receiver, far)
        try:
            self._hub.open(receiver, incarnation)
        except BaseException:
            self._end()
            raise

    def prefix(self, peer: str) -> bytes:
        """As the hub has it; it is left out on a direct connection."""
        return self._hub.prefix(peer)

    def send(self, peer: str, packet: bytes) -> None:
        """Send one packet, directly if there is a connection. Never waits."""
        link, start = self._links.get(peer), self._starts[peer]
        if link is None or packet[start] in _NOTICES:
            self._hub.send(peer, packet)
        else:
            link.put(memoryview(packet)[start:])

    def close(self) -> None:
        """Send what still waits, then disconnect from everybody."""
        self._end()
        self._hub.close()

    def _end(self) -> None:
        """End all connections, each after what waits on it."""
        self._closing.set()
        if self._bell is not None:
            self._bell.close()  # wakes whoever listens
        with self._lock:
            readers = dict(self._readers)
        for link in readers:
            link.end()
        handed_over = [link for link in readers if link.finish(self._limits.closing)]
        until = monotonic() + self._limits.timeout
        for link in handed_over:
            # The system still sends what it took; closed too early, a connection may lose it.
            while readers[link].is_alive() and monotonic() < until and not self._is_silent(link):
                readers[link].join(self._limits.closing)
        for link in readers:
            link.cut("it was closed")

    def _is_silent(self, link: DirectLink) -> bool:
        return monotonic() - link.last_heard > _SILENT_BEATS * self._limits.heartbeat

    # Called by channels and by the endpoint

    def offer(self, peer: str) -> bytes:
        """What the peer is told inside the sealed session."""
        return self._offers[peer].to_bytes()

    def receive_offer(self, peer: str, raw: bytes) -> None:
        """The peer told this inside the sealed session; never waits."""
        offer = LinkOffer.parse(raw, peer)
        if not offer.address:
            self._ways[peer].reason = "it has not dialled" if self._address else "neither of the two listens"
        elif not self._direct.dials:
            self._ways[peer].reason = "this participant does not dial, and the other has not dialled"
        else:
            if not self._waits_for(peer):
                with self._lock:
                    self._dialled.add(peer)
                    self._ways[peer].is_dialler = True
            self._spawn(self._call, peer, offer)

    def settle(self, peers: Iterable[str]) -> None:
        """Wait until each of these peers that this participant dials was reached or not, at most for a short while."""
        if not self._direct.waits_for_links:
            return
        wanted = set(peers)
        with self._lock:
            self._change.wait_for(lambda: not wanted & self._dialled, _SETTLE_SECONDS)

    def _waits_for(self, peer: str) -> bool:
        return bool(self._address) and self._name > peer

    def _settled(self, peer: str) -> None:
        with self._lock:
            self._dialled.discard(peer)
            self._change.notify_all()

    @property
    def routes(self) -> dict[str, PeerRoute]:
        """By which way packets went to each peer so far."""
        with self._lock:
            found = {}
            for peer, way in self._ways.items():
                link = self._links.get(peer)
                sent, received = (link.sent, link.received) if link else (0, 0)
                found[peer] = replace(
                    way, direct=link is not None, sent=way.sent + sent, received=way.received + received
                )
            return found

    # In threads of their own

    def _call(self, peer: str, offer: LinkOffer) -> None:
        """Dial a peer, carry what comes until the connection ends, and dial again if it broke."""
        seconds = self._limits.attempt
        # Where both listen, the one whose name comes first dials first.
        if self._waits_for(peer) and (self._closing.wait(2 * seconds) or peer in self._links):
            return
        for pause in (*_PAUSES, None):
            try:
                link = dial_link(offer, seconds)
            except (OSError, UnicodeError, ProtocolError) as error:
                self._settled(peer)
                self._note_missed(peer, offer.address, _explain_dial_error(error))
            else:
                if self._use_link(peer, link):
                    return
            if pause is None or self._closing.wait(pause) or peer in self._links or peer in self._given_up:
                return

    def _use_link(self, peer: str, link: DirectLink) -> bool:
        """Use a connection until it ends; returns whether it ended well, so that there is no use in a new one."""
        receiver = self._receiver
        assert receiver is not None  # noqa: S101 - open sets it, and offers are made after it
        if not self._register_link(peer, link):
            link.close()
            self._settled(peer)
            return self._closing.is_set()
        why, current = "this participant failed", False
        try:
            with report_failures(receiver):
                receiver.route_changed(peer)
                self._settled(peer)
                self._tell(peer, DIRECTLY)
                try:
                    link.read(lambda packet: receiver.packet(peer, packet))
                    why = ""
                except BrokenLinkError as error:
                    why = str(error)
        finally:
            link.finish(0.0)
            current = self._drop(peer, link, why)
            link.close()
            with self._lock:
                del self._readers[link]
        if current and not self._closing.is_set():
            receiver.route_changed(peer)
            if why:
                self._tell(peer, f"through the hub, because the direct connection ended: {why}")
        return not why or self._closing.is_set()

    def _register_link(self, peer: str, link: DirectLink) -> bool:
        """Whether this connection is used from now on; it takes the place of an older one."""
        with self._lock:
            now = monotonic()
            if self._closing.is_set() or peer in self._given_up or now < self._next.get(peer, 0.0):
                return False
            self._next[peer] = now + _LEAST_APART
            former = self._links.get(peer)
            self._links[peer] = link
            self._readers[link] = threading.current_thread()
            if former is not None:
                self._count(peer, former)
            self._ways[peer].links += 1
        if former is not None:
            former.cut("another took its place")
        return True

    def _drop(self, peer: str, link: DirectLink, why: str) -> bool:
        """Use a connection no more; returns whether it was in use."""
        with self._lock:
            if self._links.get(peer) is not link:
                return False
            del self._links[peer]
            self._count(peer, link)
            way = self._ways[peer]
            way.broken_links += bool(why and not self._closing.is_set())
            way.reason = why or "the other end ended the direct connection"
            return True

    def _count(self, peer: str, link: DirectLink) -> None:
        way = self._ways[peer]
        way.sent, way.received = way.sent + link.sent, way.received + link.received

    def _note_missed(self, peer: str, address: str, reason: str) -> None:
        # The reason is shown to others than the two, so the address is not in it.
        why = f"it was not reached: {reason}"
        with self._lock:
            news = self._ways[peer].reason != why
            self._ways[peer].reason = why
        if news and not self._closing.is_set() and peer not in self._links:
            self._tell(peer, f"through the hub, because {address} was not reached: {reason}")

    def _maintain(self, receiver: ReliableTransport, bell: socket.socket) -> None:
        """Let peers in, give signs of life, and cut connections on which none come."""
        beat = self._limits.heartbeat
        listener = self._listener
        with selectors.DefaultSelector() as selector, bell:
            selector.register(bell, selectors.EVENT_READ)
            for listening in listener.sockets if listener else ():
                selector.register(listening, selectors.EVENT_READ, listening)
            while not self._closing.is_set():
                for key, _ in selector.select(beat / 2):
                    if listener is not None and key.data is not None:
                        listener.accept(key.data)
                for peer, link in list(self._links.items()):
                    if self._is_silent(link):
                        link.cut(f"nothing was heard on it for {_SILENT_BEATS * beat:g} s")
                    elif receiver.waiting_seconds(peer) > _TRUSTED_FRACTION * self._limits.timeout:
                        self._given_up.add(peer)  # before the cut: it is not dialled again
                        link.cut(f"the other was waited for in vain for {_TRUSTED_FRACTION * self._limits.timeout:g} s")
                    elif monotonic() - link.last_spoke >= beat:
                        link.put()
            if listener is not None:
                listener.close()

    def _spawn(self, work: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name=f"wire-links-{self._name}", daemon=True).start()

    def _tell(self, peer: str, sentence: str) -> None:
        if self._told is not None:
            with suppress(Exception):  # whoever is told must not break what it is told about
                self._told(peer, sentence)


def _explain_dial_error(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "that is no name of a machine"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "timed out"
