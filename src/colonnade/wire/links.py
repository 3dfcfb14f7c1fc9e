"""Packets go to a peer over a direct connection while there is one, and through the hub otherwise.

Packets are numbered, and whoever receives them keeps only the next one. So each side may change the way on its own at
any time: after every change, what was not acknowledged is sent again, the new way, and nothing is lost or doubled. Who
is present remains the hub's word, and signed notices go through the hub.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.wire.carrier import Carrier, failing_loudly
from colonnade.wire.direct import DIRECTLY, Direct, Told, Way, told_address
from colonnade.wire.link import BrokenError, Link, dial
from colonnade.wire.listener import Listener
from colonnade.wire.offer import Offer
from colonnade.wire.packet import Kind
from colonnade.wire.post import Post
from colonnade.wire.watch import Limits

_PAUSES = (1.0, 5.0, 30.0)
"""Seconds before one dials again; after the last attempt packets go through the hub for good."""
_HEAD_START = 2.0
"""Seconds for which a participant that dials waits for its connections before it begins."""
_LEAST_APART = 0.5
_SILENT_BEATS = 3
_WAITED = 1 / 2
"""The part of ``timeout`` after which one no longer trusts a link to a peer that one waits for."""
_NOTICES = frozenset(map(int, (Kind.STOP, Kind.BYE, Kind.AWAY)))


class LinkCarrier:
    """A carrier with direct connections beside one that reaches everybody."""

    def __init__(
        self, hub: Carrier, name: str, peers: Iterable[str], direct: Direct, limits: Limits, told: Told | None = None
    ) -> None:
        self._hub, self._name, self._direct, self._limits, self._told = hub, name, direct, limits, told
        self._starts = {peer: len(hub.prefix(peer)) for peer in peers}
        self._ways = {peer: Way() for peer in self._starts}
        self._links: dict[str, Link] = {}
        self._next: dict[str, float] = {}
        self._given_up: set[str] = set()
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._dialled: set[str] = set()
        self._closing = threading.Event()
        self._readers: dict[Link, threading.Thread] = {}
        self._receiver: Post | None = None
        self._listener: Listener | None = None
        self._address = ""
        self._offers: dict[str, Offer] = {}
        self._bell: socket.socket | None = None

    def open(self, receiver: Post, incarnation: int) -> None:
        """Listen, if that is wanted and possible, and connect to the hub."""
        self._receiver = receiver
        if self._direct.listen is not None:
            try:
                self._listener = Listener(self._direct.listen, self._carry, self._limits.attempt)
                self._address = told_address(self._direct.listen, self._direct.advertise, self._listener.port)
            except ColonnadeError as error:  # others may still be dialled
                self._tell(self._name, str(error))
        self._offers = {peer: Offer.fresh(self._address) for peer in self._starts}
        if self._listener is not None:
            self._listener.offers.update({offer.name: (peer, offer) for peer, offer in self._offers.items()})
        self._bell, far = socket.socketpair()
        self._spawn(self._keep, receiver, far)
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
            while readers[link].is_alive() and monotonic() < until and not self._silent(link):
                readers[link].join(self._limits.closing)
        for link in readers:
            link.cut("it was closed")

    def _silent(self, link: Link) -> bool:
        return monotonic() - link.heard_at > _SILENT_BEATS * self._limits.heartbeat

    # Called by channels and by the endpoint

    def offer(self, peer: str) -> bytes:
        """What the peer is told inside the sealed session."""
        return self._offers[peer].to_bytes()

    def offered(self, peer: str, raw: bytes) -> None:
        """The peer told this inside the sealed session; never waits."""
        offer = Offer.read(raw, peer)
        if not offer.address:
            self._ways[peer].why = "it has not dialled" if self._address else "neither of the two listens"
        elif not self._direct.dials:
            self._ways[peer].why = "this participant does not dial, and the other has not dialled"
        else:
            if not self._waits_for(peer):
                with self._lock:
                    self._dialled.add(peer)
                    self._ways[peer].dialled = True
            self._spawn(self._call, peer, offer)

    def settle(self, peers: Iterable[str]) -> None:
        """Wait until each of these peers that this participant dials was reached or not, at most for a short while."""
        if not self._direct.patient:
            return
        wanted = set(peers)
        with self._lock:
            self._change.wait_for(lambda: not wanted & self._dialled, _HEAD_START)

    def _waits_for(self, peer: str) -> bool:
        return bool(self._address) and self._name > peer

    def _settled(self, peer: str) -> None:
        with self._lock:
            self._dialled.discard(peer)
            self._change.notify_all()

    @property
    def ways(self) -> dict[str, Way]:
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

    def _call(self, peer: str, offer: Offer) -> None:
        """Dial a peer, carry what comes until the connection ends, and dial again if it broke."""
        seconds = self._limits.attempt
        # Where both listen, the one whose name comes first dials first.
        if self._waits_for(peer) and (self._closing.wait(2 * seconds) or peer in self._links):
            return
        for pause in (*_PAUSES, None):
            try:
                link = dial(offer, seconds)
            except (OSError, UnicodeError, ProtocolError) as error:
                self._settled(peer)
                self._missed(peer, offer.address, _why_not(error))
            else:
                if self._carry(peer, link):
                    return
            if pause is None or self._closing.wait(pause) or peer in self._links or peer in self._given_up:
                return

    def _carry(self, peer: str, link: Link) -> bool:
        """Use a connection until it ends; returns whether it ended well, so that there is no use in a new one."""
        receiver = self._receiver
        assert receiver is not None  # noqa: S101 - open sets it, and offers are made after it
        if not self._takes(peer, link):
            link.close()
            self._settled(peer)
            return self._closing.is_set()
        why, current = "this participant failed", False
        try:
            with failing_loudly(receiver):
                receiver.way_changed(peer)
                self._settled(peer)
                self._tell(peer, DIRECTLY)
                try:
                    link.read(lambda packet: receiver.packet(peer, packet))
                    why = ""
                except BrokenError as error:
                    why = str(error)
        finally:
            link.finish(0.0)
            current = self._drop(peer, link, why)
            link.close()
            with self._lock:
                del self._readers[link]
        if current and not self._closing.is_set():
            receiver.way_changed(peer)
            if why:
                self._tell(peer, f"through the hub, because the direct connection ended: {why}")
        return not why or self._closing.is_set()

    def _takes(self, peer: str, link: Link) -> bool:
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

    def _drop(self, peer: str, link: Link, why: str) -> bool:
        """Use a connection no more; returns whether it was in use."""
        with self._lock:
            if self._links.get(peer) is not link:
                return False
            del self._links[peer]
            self._count(peer, link)
            way = self._ways[peer]
            way.broken += bool(why and not self._closing.is_set())
            way.why = why or "the other end ended the direct connection"
            return True

    def _count(self, peer: str, link: Link) -> None:
        way = self._ways[peer]
        way.sent, way.received = way.sent + link.sent, way.received + link.received

    def _missed(self, peer: str, address: str, reason: str) -> None:
        # The reason is shown to others than the two, so the address is not in it.
        why = f"it was not reached: {reason}"
        with self._lock:
            news = self._ways[peer].why != why
            self._ways[peer].why = why
        if news and not self._closing.is_set() and peer not in self._links:
            self._tell(peer, f"through the hub, because {address} was not reached: {reason}")

    def _keep(self, receiver: Post, bell: socket.socket) -> None:
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
                    if self._silent(link):
                        link.cut(f"nothing was heard on it for {_SILENT_BEATS * beat:g} s")
                    elif receiver.waited(peer) > _WAITED * self._limits.timeout:
                        self._given_up.add(peer)  # before the cut: it is not dialled again
                        link.cut(f"the other was waited for in vain for {_WAITED * self._limits.timeout:g} s")
                    elif monotonic() - link.spoke_at >= beat:
                        link.beat()
            if listener is not None:
                listener.close()

    def _spawn(self, work: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name=f"wire-links-{self._name}", daemon=True).start()

    def _tell(self, peer: str, sentence: str) -> None:
        if self._told is not None:
            with suppress(Exception):  # whoever is told must not break what it is told about
                self._told(peer, sentence)


def _why_not(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "that is no name of a machine"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "timed out"
