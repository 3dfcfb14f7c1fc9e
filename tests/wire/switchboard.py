"""Endpoints in threads of one process: everything is as over the network, except the network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from colonnade.errors import ConnectError, IdentityError
from colonnade.wire.carrier import Receiver, failing_loudly
from colonnade.wire.endpoint import Endpoint
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.watch import Limits

_JOIN_SECONDS = 5.0


class Switchboard:
    """Connects the endpoints of one process."""

    def __init__(self, certificates: Iterable[Certificate]) -> None:
        self._certificates = {certificate.name: certificate for certificate in certificates}
        self._lock = threading.Lock()
        self._plugged: dict[str, _Cord] = {}
        self._cords: dict[str, _Cord] = {}

    def endpoint(
        self,
        identity: Identity,
        *,
        participants: Iterable[Certificate] | None = None,
        timeout: float = Limits.timeout,
        reconnect_grace: float = Limits.reconnect_grace,
        window: int = Limits.window,
        topic: bytes = b"",
    ) -> Endpoint:
        """A participant's endpoint; ``participants`` is whom it knows, if not everybody."""
        if identity.name not in self._certificates:
            raise IdentityError(f"{identity.name} is not in this study")
        pins = participants if participants is not None else self._certificates.values()
        limits = Limits(timeout, reconnect_grace, window)
        return Endpoint(identity, {pin.name: pin for pin in pins}, _Cord(self, identity.name), limits, topic)

    def cut(self, name: str) -> None:
        """Break a participant's connection."""
        self._unplug(self._cords[name])
        self._cords[name].tell(lambda receiver: receiver.carrier_down("the connection was cut"))

    def restore(self, name: str) -> None:
        """Mend a broken connection."""
        self._plug(self._cords[name])

    def carry(self, sender: str, receiver: str, packet: bytes) -> bytes:
        """What becomes of a packet on its way; for tests to override."""
        return packet

    def _join(self, cord: _Cord) -> None:
        with self._lock:
            former = self._cords.get(cord.name)
            self._cords[cord.name] = cord
        if former is not None:
            former.tell(lambda receiver: receiver.carrier_failed(_replaced(cord.name)))
        self._plug(cord)

    def _plug(self, cord: _Cord) -> None:
        with self._lock:
            others = {name: other.incarnation for name, other in self._plugged.items() if name != cord.name}
            self._plugged[cord.name] = cord
            cord.tell(lambda receiver: receiver.carrier_up(others))
            self._tell_others(cord, lambda receiver: receiver.peer_here(cord.name, cord.incarnation))

    def _unplug(self, cord: _Cord) -> None:
        with self._lock:
            if self._plugged.get(cord.name) is cord:
                del self._plugged[cord.name]
                self._tell_others(cord, lambda receiver: receiver.peer_gone(cord.name))

    def _tell_others(self, cord: _Cord, news: Callable[[Receiver], None]) -> None:
        for name, other in self._plugged.items():
            if name != cord.name:
                other.tell(news)

    def _route(self, sender: _Cord, peer: str, packet: bytes) -> None:
        target = self._plugged.get(peer)
        if target is not None and self._plugged.get(sender.name) is sender:
            carried = self.carry(sender.name, peer, packet)
            target.tell(lambda receiver: receiver.packet(sender.name, carried))


def _replaced(name: str) -> ConnectError:
    return ConnectError(f"{name} was disconnected: another connection took its place [CN023]")


class _Cord:
    """A carrier: one thread that delivers what the others put into its queue."""

    def __init__(self, board: Switchboard, name: str) -> None:
        self._board = board
        self.name = name
        self.incarnation = 0
        self._news: SimpleQueue[Callable[[Receiver], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def open(self, receiver: Receiver, incarnation: int) -> None:
        self.incarnation = incarnation
        self._thread = threading.Thread(target=self._deliver, args=(receiver,), daemon=True)
        self._thread.name = f"wire-{self.name}"
        self._thread.start()
        self._board._join(self)

    def prefix(self, peer: str) -> bytes:
        return b""

    def send(self, peer: str, packet: bytes) -> None:
        self._board._route(self, peer, packet)

    def tell(self, news: Callable[[Receiver], None]) -> None:
        self._news.put(news)

    def close(self) -> None:
        self._board._unplug(self)
        self._news.put(None)
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _deliver(self, receiver: Receiver) -> None:
        while (news := self._news.get()) is not None:
            with failing_loudly(receiver):
                news(receiver)
