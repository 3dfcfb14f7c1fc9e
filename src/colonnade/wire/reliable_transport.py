"""Numbered packets to and from every peer, over any carrier.

There is one lock, the one of :class:`PeerLiveness`. It is held for a short time only, and never during TLS work. The
lists and counts of packets have no locks and send nothing: the caller holds the lock during every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple, Protocol

from colonnade.errors import ColonnadeError, PeerLost, ProtocolError, StudyError
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.packets import MAX_PACKET, Packet, PacketKind, SignedNotice, pack_packet, unpack_packet
from colonnade.wire.peer_liveness import PeerLiveness, TrafficCounters, WireLimits, not_joined_error, stopped_error


class PacketCarrier(Protocol):
    """Carries packets to the other participants. Some are lost only when a connection breaks, or the way changes."""

    def open(self, receiver: ReliableTransport, incarnation: int) -> None:
        """Connect, or raise an error; from then on call the receiver's methods.

        One thread makes all calls that concern a participant's presence. Packets may come in other threads, after the
        session with their sender is ready.
        """

    def prefix(self, peer: str) -> bytes:
        """The bytes that must come before every packet to this peer."""

    def send(self, peer: str, packet: bytes) -> None:
        """Send one packet, prefix included. Never waits; drops the packet if the peer cannot be reached."""

    def close(self) -> None:
        """Send the packets that are still waiting, then disconnect."""


@contextmanager
def report_failures(receiver: ReliableTransport) -> Iterator[None]:
    """Report every error in a carrier's thread to the receiver; otherwise other threads would wait for ever."""
    try:
        yield
    except ColonnadeError as error:
        receiver.carrier_failed(error)
    except Exception as error:
        receiver.carrier_failed(ProtocolError(f"the transport failed ({type(error).__name__}) [MS054]"))
        raise


REPORT_EVERY = 1 << 23
"""After this many bytes were taken the peer is told, even if it did not ask."""
_PACKET_OVERHEAD = 384
"""Every packet needs some memory beside its bytes, also an empty one; both sides count it."""
_SLACK = MAX_PACKET
"""What an honest peer may send beyond its window: seals, headers and handshakes."""


class FloodError(ProtocolError):
    """A peer sends more than it was given room for."""


@dataclass
class _SentPacket:
    cost: int
    data: bytes | None
    """None after the packet has arrived: then only its cost is needed, for the window."""


class PacketOutbox:
    """Packets that were sent and that the peer has not acknowledged, or has not taken."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._sent: deque[_SentPacket] = deque()
        self._first = 0
        self._arrived = 0
        self.waiting = 0
        """The bytes that the peer has not taken."""

    @property
    def next_sequence(self) -> int:
        """The number of the next packet."""
        return self._first + len(self._sent)

    @property
    def unsettled_count(self) -> int:
        """How many packets have not arrived."""
        return self.next_sequence - self._arrived

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes fit the window; if nothing waits, any size fits."""
        return self.waiting == 0 or self.waiting + size + _PACKET_OVERHEAD <= self._window

    def add(self, data: bytes) -> None:
        """Keep a packet until it is acknowledged."""
        self._sent.append(_SentPacket(len(data) + _PACKET_OVERHEAD, data))
        self.waiting += self._sent[-1].cost

    def acknowledge(self, arrived: int, taken: int) -> bool:
        """Note how many packets arrived and were taken; returns whether this is new."""
        before = (self._arrived, self._first)
        if max(arrived, taken) > self.next_sequence:
            raise ProtocolError("a packet acknowledges what was never sent [MS091]")
        while self._arrived < arrived:
            self._sent[self._arrived - self._first].data = None
            self._arrived += 1
        while self._first < min(taken, self._arrived):
            self.waiting -= self._sent.popleft().cost
            self._first += 1
        return before != (self._arrived, self._first)

    def unacknowledged(self) -> list[bytes]:
        """The packets to send again after the connection broke, in order."""
        return [sent.data for sent in self._sent if sent.data is not None]


class PacketInbox:
    """Packets that arrived in order and wait for the application; an honest peer's never exceed the limits."""

    def __init__(self, limits: WireLimits) -> None:
        self._window, self._backlog = limits.window + _SLACK, limits.backlog
        self._waiting: deque[memoryview] = deque()
        self._held = 0
        self._beyond = 0
        """The part of it for which the peer was not told that it may send more."""
        self.arrived = 0
        """How many packets have arrived."""
        self._taken = 0
        self._asked = False
        self._unreported_bytes = 0
        self._last_report = (0, 0)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, packet: Packet) -> bool:
        """Keep a packet if it is the next one; returns False if it came before, or if one before it is missing."""
        if packet.sequence != self.arrived:
            return False
        cost = len(packet.body) + _PACKET_OVERHEAD
        if self._beyond + cost > self._window or self._held + cost > self._backlog:
            raise FloodError("too much of it would wait unread [MS092]")
        self.arrived += 1
        self._held += cost
        self._beyond += cost
        self._waiting.append(packet.body)
        return True

    def take(self) -> memoryview | None:
        """Remove and return the next packet; None if there is none."""
        if not self._waiting:
            return None
        body = self._waiting.popleft()
        self._held -= len(body) + _PACKET_OVERHEAD
        self._unreported_bytes += len(body)
        taken = self.arrived - len(self._waiting)
        if taken > self._taken:
            self._taken = taken
            self._beyond -= len(body) + _PACKET_OVERHEAD
        return body

    def clear(self) -> None:
        """Forget everything that waits."""
        self._waiting.clear()
        self._held = self._beyond = 0

    def ask(self) -> None:
        """Note that the peer asked to be told when the counts change."""
        self._asked = True

    def grant(self) -> None:
        """Let the peer send more, as if all its packets had been taken, if that much more fits.

        Called while this endpoint itself must wait before it can send. Otherwise two peers that both send first and
        read later would wait for each other.
        """
        if self._held + self._window <= self._backlog:
            self._taken = self.arrived
            self._beyond = 0

    @property
    def report_due(self) -> bool:
        """Whether the peer should be told the counts now."""
        news = self._last_report != (self.arrived, self._taken)
        return self._unreported_bytes >= REPORT_EVERY or (self._asked and news)

    def report(self) -> tuple[int, int]:
        """How many packets arrived and how many were taken, for the header of the next packet to send."""
        counts = (self.arrived, self._taken)
        if counts != self._last_report:
            self._last_report, self._asked = counts, False
        self._unreported_bytes = 0
        return counts


_NOTICE_EVERY = 0.25  # seconds: nobody makes this participant sign and send notices without end
_NOTICES_AT_ONCE = 16


@dataclass
class _PeerQueues:
    outbox: PacketOutbox
    inbox: PacketInbox
    used: bool = False
    asked: bool = False
    shut: bool = False
    """Whether packets of this peer are dropped unread."""
    next_notice: float = 0.0
    """When the next notice is due that it was lost, if they came evenly."""
    last: int | None = None
    """How many packets it has sent in all, once it has said goodbye."""


class PacketHead(NamedTuple):
    """The bytes before a piece of the sealed stream, and the number of the piece."""

    sequence: int
    data: bytes


class ReliableTransport(PeerLiveness):
    """Sends and receives all packets of one endpoint."""

    def __init__(
        self,
        identity: Identity,
        peers: Mapping[str, Certificate],
        carrier: PacketCarrier,
        limits: WireLimits,
        incarnation: int,
        counters: TrafficCounters,
        arrived: Callable[[str], None],
        topic: bytes = b"",
        relay: str = "",
    ) -> None:
        super().__init__(identity.name, peers, limits)
        self._identity, self._certificates, self._carrier = identity, peers, carrier
        self._incarnation, self._counters, self._arrived = incarnation, counters, arrived
        self._boxes = {name: _PeerQueues(PacketOutbox(limits.window), PacketInbox(limits)) for name in peers}
        self._prefixes = {name: carrier.prefix(name) for name in peers}
        self._topic, self._relay = topic, relay
        self._stopped: str | None = None
        self._blocked = 0

    # Called by channels and by the endpoint

    def head(self, name: str) -> PacketHead:
        """What stands before the next piece of the sealed stream, if that is the next one to be dispatched."""
        with self.changed:
            sequence = self._boxes[name].outbox.next_sequence
            return PacketHead(sequence, self._pack(name, PacketKind.DATA, sequence=sequence))

    def dispatch(self, name: str, sealed: bytes, head: PacketHead | None = None) -> None:
        """Number a piece of the sealed stream, keep it, and send it; its ``head`` stands before it, if it has one."""
        with self.changed:
            if self.peers[name].has_departed:
                return
            boxes = self._boxes[name]
            boxes.used = True
            sequence, data = boxes.outbox.next_sequence, sealed
            if head is None or head.sequence != sequence:  # another piece may have been first
                body = sealed if head is None else sealed[len(head.data) :]
                data = self._pack(name, PacketKind.DATA, body, sequence)
            self._hand_over(name, data)
            boxes.outbox.add(data)

    def wait_for_room(self, name: str, size: int) -> None:
        """Wait until the peer can take ``size`` more bytes."""
        standing, outbox = self.peers[name], self._boxes[name].outbox
        # The lock is not needed: only this sender can use up the room.
        if standing.has_departed or outbox.has_room(size):
            self.check(name)
            return
        with self.changed:
            self._blocked += 1
            try:
                self._grant_all()
                self._wait_for_peer(
                    name,
                    lambda: standing.has_departed or outbox.has_room(size) or self._ask(name),
                    "taken nothing",
                    giving=True,
                )
            except PeerLost as error:
                if error.spare is None:  # a spare peer is lost: from now on packets to it are dropped
                    raise
            finally:
                self._blocked -= 1

    def take(self, name: str, since: float) -> memoryview:
        """The next packet from a peer; waits for it; the time counts from ``since`` on its clock."""
        standing, inbox = self.peers[name], self._boxes[name].inbox
        with self.changed:
            if inbox:
                self.check(name)
            else:
                self._wait_for_peer(name, lambda: bool(inbox) or standing.has_departed, "sent nothing", since)
            body = self._take(name)
            if body is None:
                raise self._departed_error(name)
        return body

    def take_if_any(self, name: str) -> memoryview | None:
        """The next packet from a peer, or None if none has arrived."""
        with self.changed:
            return self._take(name)

    def wait_until_open(self, name: str, is_open: Callable[[], bool]) -> None:
        """Wait until the session with a peer is ready."""
        standing = self.peers[name]
        with self.changed:
            self._wait_for_peer(name, lambda: is_open() or standing.has_departed, "not opened a session")
            if not is_open():
                raise self._departed_error(name)

    def wait_for_all(self, names: Iterable[str], is_open: Callable[[str], bool], timeout: float) -> None:
        """Wait until all these peers are present and their sessions are ready."""
        missing = list(names)

        def done() -> bool:
            for name in missing:
                self._check(name)
            missing[:] = [name for name in missing if not (self._is_present(name) and is_open(name))]
            return not missing

        with self.changed:
            self._wait_until(done, timeout, lambda: not_joined_error(missing, timeout))

    def stop(self, reason: str) -> None:
        """End the study here, and tell all peers the reason."""
        with self.changed:
            if self.closed or self._stopped is not None:
                return
            self._stopped = reason
            self.carrier_failed(stopped_error(self._identity.name, reason))
            self._notify_present(PacketKind.STOP, reason)

    def leave(self) -> None:
        """Wait until everything has arrived and all can be told goodbye, and tell them. Raises no error."""
        with self.changed:
            if self.closed:
                return
            with suppress(ColonnadeError):  # a peer that misses something reports it on its own side
                self._flush()
            if self._stopped is None:
                self._notify_present(PacketKind.BYE, "")
            self.closed = True
            self.changed.notify_all()

    # Called by the carrier; see :class:`PacketCarrier`

    def carrier_up(self, present: Mapping[str, int]) -> None:
        """The carrier is connected; these participants are present, each with its incarnation."""
        with self.changed:
            for name in self._note_connected(present):
                self._resume(name)
            self.changed.notify_all()

    def peer_here(self, name: str, incarnation: int) -> None:
        """A participant connected, perhaps again: packets that it has not acknowledged may be lost."""
        with self.changed:
            if self._note_present(name, incarnation):
                self._resume(name)

    def route_changed(self, name: str) -> None:
        """Packets to a participant go another way from now on; those that it has not acknowledged may be lost."""
        with self.changed:
            standing = self.peers[name]
            if standing.incarnation is not None and not standing.has_departed and not self.closed:
                self._resume(name)

    def packet(self, name: str, data: bytes | memoryview) -> None:
        """A packet arrived; packets arrive in the order in which the peer's carrier got them."""
        if name not in self._boxes:
            return
        try:
            packet = unpack_packet(data)
            with self.changed:
                self._counters.peers[name].sealed_received += len(data)
                fresh = self._receive(name, packet)
        except FloodError as flood:  # it fills this participant's memory
            with self.changed:
                self._boxes[name].shut = True
                self._boxes[name].inbox.clear()
                # Nobody has signed it, so it proves nothing about the peer: its place is lost, whoever wrote its name.
                self._mark_lost(
                    name,
                    PeerLost(
                        f"{name}, or the hub in its name, sends more than this participant gave it room for ({flood}); "
                        "the study cannot go on [PE860]"
                    ),
                )
            return
        except StudyError as error:
            self.fail_peer(name, error)
            return
        except ProtocolError as error:
            self.fail_peer(name, ProtocolError(f"the traffic with {name} was damaged on its way: {error} [MS085]"))
            return
        if fresh:
            self._arrived(name)

    # The caller holds the lock

    def _receive(self, name: str, packet: Packet) -> bool:
        """Process a packet; returns whether it has new data."""
        boxes, standing = self._boxes[name], self.peers[name]
        if boxes.shut:
            return False
        if name in self._lost:
            self._refuse_lost_peer(name, packet)
            return False
        if packet.incarnation != standing.incarnation:
            return False
        untaken = boxes.outbox.waiting
        if boxes.outbox.acknowledge(packet.acknowledged, packet.taken):
            boxes.asked = False
            self._note_taken(name, untaken - boxes.outbox.waiting)
        fresh = False
        if packet.kind is PacketKind.DATA:
            boxes.used = True
            if fresh := boxes.inbox.add(packet):
                self._note_sent(name, len(packet.body))
            if self._blocked:
                boxes.inbox.grant()
        elif packet.kind is PacketKind.ASK:
            boxes.inbox.ask()
        elif packet.kind in (PacketKind.STOP, PacketKind.BYE, PacketKind.AWAY):
            self._receive_notice(name, packet)
        if boxes.last is not None and boxes.inbox.arrived >= boxes.last and not standing.has_departed:
            self._mark_departed(name)
        self._report_if_due(name)
        self.changed.notify_all()
        return fresh

    def _receive_notice(self, name: str, packet: Packet) -> None:
        incarnations = (packet.incarnation, self._incarnation)
        notice = SignedNotice(packet.kind, name, self._identity.name, incarnations, self._topic)
        reason = notice.open(self._certificates[name], bytes(packet.body))
        if packet.kind is PacketKind.AWAY:
            self._stopped = reason  # the others go on, and need not be told
        if packet.kind is PacketKind.BYE:
            # It may overtake packets that take another way; one that does not say how many there are has none left.
            self._boxes[name].last = packet.sequence
            return
        self.carrier_failed(stopped_error(name, reason))
        self._mark_departed(name)

    def _refuse_lost_peer(self, name: str, packet: Packet) -> None:
        """Tell a lost peer that it cannot take part again, restarted or not: it has missed too much."""
        # No answer to a notice: otherwise two peers that lost each other would answer for ever.
        boxes, now = self._boxes[name], monotonic()
        due = max(boxes.next_notice, now)
        if (
            packet.kind in (PacketKind.STOP, PacketKind.BYE, PacketKind.AWAY)
            or due > now + _NOTICE_EVERY * _NOTICES_AT_ONCE
        ):
            return
        boxes.next_notice = due + _NOTICE_EVERY
        incarnations = (self._incarnation, packet.incarnation)
        notice = SignedNotice(PacketKind.AWAY, self._identity.name, name, incarnations, self._topic)
        body = notice.seal(self._identity, f"{name} was lost, and the study went on without it")
        # Acknowledges nothing: a restarted process has not sent what the process before it sent.
        self._hand_over(name, pack_packet(PacketKind.AWAY, self._incarnation, 0, 0, 0, body, self._prefixes[name]))

    def _resume(self, name: str) -> None:
        """Send the packets again that may have been lost while a peer was away."""
        boxes = self._boxes[name]
        if self._stopped is not None:
            self._notify(name, PacketKind.STOP, self._stopped)
        elif boxes.used:
            for data in boxes.outbox.unacknowledged():
                self._hand_over(name, data)
            self._send(name, PacketKind.ASK)
            boxes.asked = True

    def _flush(self) -> None:
        """Wait until nobody misses anything, as long as there is progress."""
        end, limit = monotonic() + self._limits.timeout, self._limits.reconnect_grace
        for boxes in self._boxes.values():
            boxes.asked = False
        while before := self._missing():
            rest = min(limit, end - monotonic())
            self._wait_until(
                partial(self._has_progressed, before), rest, lambda: PeerLost("not everything has arrived [PE010]")
            )

    def _has_progressed(self, before: int) -> bool:
        for name, boxes in self._boxes.items():
            if boxes.outbox.unsettled_count and self._is_present(name):
                self._ask(name)
        return self._missing() < before

    def _missing(self) -> int:
        """How many packets have not arrived at peers that can still get them, and how many peers cannot be told now."""
        relay = self.peers.get(self._relay)
        over = relay is not None and relay.has_departed  # what it relays is over with it
        return sum(
            self._boxes[name].outbox.unsettled_count + (not over and not self._is_present(name))
            for name, standing in self.peers.items()
            if standing.incarnation is not None and not standing.has_departed and standing.error is None
        )

    def _take(self, name: str) -> memoryview | None:
        body = self._boxes[name].inbox.take()
        self._report_if_due(name)
        return body

    def _grant_all(self) -> None:
        for name, boxes in self._boxes.items():
            boxes.inbox.grant()
            self._report_if_due(name)

    def _report_if_due(self, name: str) -> None:
        if self._boxes[name].inbox.report_due and not self.peers[name].has_departed:
            self._send(name, PacketKind.ACK)

    def _ask(self, name: str) -> bool:
        """Ask the peer for its counts, if it was not asked yet; returns False, for use in a condition."""
        if not self._boxes[name].asked:
            self._boxes[name].asked = True
            self._send(name, PacketKind.ASK)
        return False

    def _notify_present(self, kind: PacketKind, reason: str) -> None:
        for name in self._boxes:
            if self._is_present(name):
                self._notify(name, kind, reason)

    def _notify(self, name: str, kind: PacketKind, reason: str) -> None:
        incarnations = (self._incarnation, self.peers[name].incarnation or 0)
        notice = SignedNotice(kind, self._identity.name, name, incarnations, self._topic)
        last = self._boxes[name].outbox.next_sequence if kind is PacketKind.BYE else 0
        self._send(name, kind, notice.seal(self._identity, reason), last)

    def _send(self, name: str, kind: PacketKind, body: bytes = b"", sequence: int = 0) -> None:
        self._hand_over(name, self._pack(name, kind, body, sequence))

    def _pack(self, name: str, kind: PacketKind, body: bytes = b"", sequence: int = 0) -> bytes:
        arrived, taken = self._boxes[name].inbox.report()
        return pack_packet(kind, self._incarnation, sequence, arrived, taken, body, self._prefixes[name])

    def _hand_over(self, name: str, data: bytes) -> None:
        self._counters.peers[name].sealed_sent += len(data) - len(self._prefixes[name])
        self._carrier.send(name, data)
