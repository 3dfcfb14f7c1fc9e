"""Numbered packets to and from every peer.

There is one lock, the one of the watch. It is held for a short time only, and never during TLS work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple

from colonnade.errors import ColonnadeError, PeerLost, ProtocolError
from colonnade.wire.carrier import Carrier
from colonnade.wire.counters import Counters
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.packet import Kind, Notice, Packet, pack, unpack
from colonnade.wire.stream import FloodError, Inbox, Outbox
from colonnade.wire.watch import Limits, Watch, not_joined, stopped_by

_NOTICE_EVERY = 0.25  # seconds: nobody makes this participant sign and send notices without end
_NOTICES_AT_ONCE = 16


@dataclass
class _Boxes:
    outbox: Outbox
    inbox: Inbox
    used: bool = False
    asked: bool = False
    shut: bool = False
    """Whether packets of this peer are dropped unread."""
    next_notice: float = 0.0
    """When the next notice is due that it was lost, if they came evenly."""
    last: int | None = None
    """How many packets it has sent in all, once it has said goodbye."""


class Head(NamedTuple):
    """The bytes before a piece of the sealed stream, and the number of the piece."""

    sequence: int
    data: bytes


class Post(Watch):
    """Sends and receives all packets of one endpoint."""

    def __init__(
        self,
        identity: Identity,
        peers: Mapping[str, Certificate],
        carrier: Carrier,
        limits: Limits,
        incarnation: int,
        counters: Counters,
        arrived: Callable[[str], None],
        relay: str = "",
    ) -> None:
        super().__init__(identity.name, peers, limits)
        self._identity, self._certificates, self._carrier = identity, peers, carrier
        self._incarnation, self._counters, self._arrived = incarnation, counters, arrived
        self._boxes = {name: _Boxes(Outbox(limits.window), Inbox(limits)) for name in peers}
        self._prefixes = {name: carrier.prefix(name) for name in peers}
        self._relay = relay
        self._stopped: str | None = None
        self._blocked = 0

    # Called by channels and by the endpoint

    def head(self, name: str) -> Head:
        """What stands before the next piece of the sealed stream, if that is the next one to be dispatched."""
        with self.changed:
            sequence = self._boxes[name].outbox.next_sequence
            return Head(sequence, self._pack(name, Kind.DATA, sequence=sequence))

    def dispatch(self, name: str, sealed: bytes, head: Head | None = None) -> None:
        """Number a piece of the sealed stream, keep it, and send it; its ``head`` stands before it, if it has one."""
        with self.changed:
            if self.peers[name].departed:
                return
            boxes = self._boxes[name]
            boxes.used = True
            sequence, data = boxes.outbox.next_sequence, sealed
            if head is None or head.sequence != sequence:  # another piece may have been first
                body = sealed if head is None else sealed[len(head.data) :]
                data = self._pack(name, Kind.DATA, body, sequence)
            self._hand_over(name, data)
            boxes.outbox.add(data)

    def wait_for_room(self, name: str, size: int) -> None:
        """Wait until the peer can take ``size`` more bytes."""
        standing, outbox = self.peers[name], self._boxes[name].outbox
        # The lock is not needed: only this sender can use up the room.
        if standing.departed or outbox.has_room(size):
            self.check(name)
            return
        with self.changed:
            self._blocked += 1
            try:
                self._grant_all()
                self._wait_for_peer(
                    name,
                    lambda: standing.departed or outbox.has_room(size) or self._ask(name),
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
                self._wait_for_peer(name, lambda: bool(inbox) or standing.departed, "sent nothing", since)
            body = self._take(name)
            if body is None:
                raise self._left(name)
        return body

    def take_if_any(self, name: str) -> memoryview | None:
        """The next packet from a peer, or None if none has arrived."""
        with self.changed:
            return self._take(name)

    def wait_until_open(self, name: str, is_open: Callable[[], bool]) -> None:
        """Wait until the session with a peer is ready."""
        standing = self.peers[name]
        with self.changed:
            self._wait_for_peer(name, lambda: is_open() or standing.departed, "not opened a session")
            if not is_open():
                raise self._left(name)

    def wait_for_all(self, names: Iterable[str], is_open: Callable[[str], bool], timeout: float) -> None:
        """Wait until all these peers are present and their sessions are ready."""
        missing = list(names)

        def done() -> bool:
            for name in missing:
                self._check(name)
            missing[:] = [name for name in missing if not (self._is_present(name) and is_open(name))]
            return not missing

        with self.changed:
            self._wait_until(done, timeout, lambda: not_joined(missing, timeout))

    def stop(self, reason: str) -> None:
        """End the study here, and tell all peers the reason."""
        with self.changed:
            if self.closed or self._stopped is not None:
                return
            self._stopped = reason
            self.carrier_failed(stopped_by(self._identity.name, reason))
            self._notify_present(Kind.STOP, reason)

    def leave(self) -> None:
        """Wait until everything has arrived and all can be told goodbye, and tell them. Raises no error."""
        with self.changed:
            if self.closed:
                return
            with suppress(ColonnadeError):  # a peer that misses something reports it on its own side
                self._flush()
            if self._stopped is None:
                self._notify_present(Kind.BYE, "")
            self.closed = True
            self.changed.notify_all()

    # Called by the carrier; see :class:`Carrier`

    def carrier_up(self, present: Mapping[str, int]) -> None:
        """The carrier is connected; these participants are present, each with its incarnation."""
        with self.changed:
            for name in self._reached(present):
                self._resume(name)
            self.changed.notify_all()

    def peer_here(self, name: str, incarnation: int) -> None:
        """A participant connected, perhaps again: packets that it has not acknowledged may be lost."""
        with self.changed:
            if self._joins(name, incarnation):
                self._resume(name)

    def way_changed(self, name: str) -> None:
        """Packets to a participant go another way from now on; those that it has not acknowledged may be lost."""
        with self.changed:
            standing = self.peers[name]
            if standing.incarnation is not None and not standing.departed and not self.closed:
                self._resume(name)

    def packet(self, name: str, data: bytes | memoryview) -> None:
        """A packet arrived; packets arrive in the order in which the peer's carrier got them."""
        if name not in self._boxes:
            return
        try:
            packet = unpack(data)
            with self.changed:
                self._counters.peers[name].sealed_received += len(data)
                fresh = self._receive(name, packet)
        except FloodError as flood:
            self._shut_out(name, flood)
            return
        except ProtocolError as error:
            self.spoil(name, ProtocolError(f"the traffic with {name} was damaged on its way: {error} [MS085]"))
            return
        if fresh:
            self._arrived(name)

    def _shut_out(self, name: str, flood: FloodError) -> None:
        """End the study: a peer fills this participant's memory."""
        with self.changed:
            self._boxes[name].shut = True
            self._boxes[name].inbox.clear()
            self.carrier_failed(
                ProtocolError(
                    f"{name} sends more than this participant gave it room for ({flood}); the "
                    "study cannot go on [MS086]"
                )
            )

    # The caller holds the lock

    def _receive(self, name: str, packet: Packet) -> bool:
        """Process a packet; returns whether it has new data."""
        boxes, standing = self._boxes[name], self.peers[name]
        if boxes.shut:
            return False
        if name in self._lost:
            self._turn_away(name, packet)
            return False
        if packet.incarnation != standing.incarnation:
            return False
        untaken = boxes.outbox.waiting
        if boxes.outbox.acknowledge(packet.acknowledged, packet.taken):
            boxes.asked = False
            self._took(name, untaken - boxes.outbox.waiting)
        fresh = False
        if packet.kind is Kind.DATA:
            boxes.used = True
            if fresh := boxes.inbox.add(packet):
                self._gave(name, len(packet.body))
            if self._blocked:
                boxes.inbox.grant()
        elif packet.kind is Kind.ASK:
            boxes.inbox.ask()
        elif packet.kind in (Kind.STOP, Kind.BYE, Kind.AWAY):
            self._heed(name, packet)
        if boxes.last is not None and boxes.inbox.arrived >= boxes.last and not standing.departed:
            self._departed(name)
        self._report_if_due(name)
        self.changed.notify_all()
        return fresh

    def _heed(self, name: str, packet: Packet) -> None:
        incarnations = (packet.incarnation, self._incarnation)
        notice = Notice(packet.kind, name, self._identity.name, incarnations)
        reason = notice.open(self._certificates[name], bytes(packet.body))
        if packet.kind is Kind.AWAY:
            self._stopped = reason  # the others go on, and need not be told
        if packet.kind is Kind.BYE:
            # It may overtake packets that take another way; one that does not say how many there are has none left.
            self._boxes[name].last = packet.sequence
            return
        self.carrier_failed(stopped_by(name, reason))
        self._departed(name)

    def _turn_away(self, name: str, packet: Packet) -> None:
        """Tell a lost peer that it cannot take part again, restarted or not: it has missed too much."""
        # No answer to a notice: otherwise two peers that lost each other would answer for ever.
        boxes, now = self._boxes[name], monotonic()
        due = max(boxes.next_notice, now)
        if packet.kind in (Kind.STOP, Kind.BYE, Kind.AWAY) or due > now + _NOTICE_EVERY * _NOTICES_AT_ONCE:
            return
        boxes.next_notice = due + _NOTICE_EVERY
        notice = Notice(Kind.AWAY, self._identity.name, name, (self._incarnation, packet.incarnation))
        body = notice.seal(self._identity, f"{name} was lost, and the study went on without it")
        # Acknowledges nothing: a restarted process has not sent what the process before it sent.
        self._hand_over(name, pack(Kind.AWAY, self._incarnation, 0, 0, 0, body, self._prefixes[name]))

    def _resume(self, name: str) -> None:
        """Send the packets again that may have been lost while a peer was away."""
        boxes = self._boxes[name]
        if self._stopped is not None:
            self._notify(name, Kind.STOP, self._stopped)
        elif boxes.used:
            for data in boxes.outbox.unacknowledged():
                self._hand_over(name, data)
            self._send(name, Kind.ASK)
            boxes.asked = True

    def _flush(self) -> None:
        """Wait until nobody misses anything, as long as there is progress."""
        end, limit = monotonic() + self._limits.timeout, self._limits.reconnect_grace
        for boxes in self._boxes.values():
            boxes.asked = False
        while before := self._missing():
            rest = min(limit, end - monotonic())
            self._wait_until(partial(self._fewer, before), rest, lambda: PeerLost("not everything has arrived [PE010]"))

    def _fewer(self, before: int) -> bool:
        for name, boxes in self._boxes.items():
            if boxes.outbox.unsettled and self._is_present(name):
                self._ask(name)
        return self._missing() < before

    def _missing(self) -> int:
        """How many packets have not arrived at peers that can still get them, and how many peers cannot be told now."""
        relay = self.peers.get(self._relay)
        over = relay is not None and relay.departed  # what it relays is over with it
        return sum(
            self._boxes[name].outbox.unsettled + (not over and not self._is_present(name))
            for name, standing in self.peers.items()
            if standing.incarnation is not None and not standing.departed and standing.error is None
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
        if self._boxes[name].inbox.report_due and not self.peers[name].departed:
            self._send(name, Kind.ACK)

    def _ask(self, name: str) -> bool:
        """Ask the peer for its counts, if it was not asked yet; returns False, for use in a condition."""
        if not self._boxes[name].asked:
            self._boxes[name].asked = True
            self._send(name, Kind.ASK)
        return False

    def _notify_present(self, kind: Kind, reason: str) -> None:
        for name in self._boxes:
            if self._is_present(name):
                self._notify(name, kind, reason)

    def _notify(self, name: str, kind: Kind, reason: str) -> None:
        incarnations = (self._incarnation, self.peers[name].incarnation or 0)
        notice = Notice(kind, self._identity.name, name, incarnations)
        last = self._boxes[name].outbox.next_sequence if kind is Kind.BYE else 0
        self._send(name, kind, notice.seal(self._identity, reason), last)

    def _send(self, name: str, kind: Kind, body: bytes = b"", sequence: int = 0) -> None:
        self._hand_over(name, self._pack(name, kind, body, sequence))

    def _pack(self, name: str, kind: Kind, body: bytes = b"", sequence: int = 0) -> bytes:
        arrived, taken = self._boxes[name].inbox.report()
        return pack(kind, self._incarnation, sequence, arrived, taken, body, self._prefixes[name])

    def _hand_over(self, name: str, data: bytes) -> None:
        self._counters.peers[name].sealed_sent += len(data) - len(self._prefixes[name])
        self._carrier.send(name, data)
