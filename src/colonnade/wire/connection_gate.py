"""The door of the hub: whoever is let in stays, and strangers cannot use up the room.

A connection is accepted here and passed on, byte by byte, to the port of gRPC on this machine. It belongs to a stranger
until the hub has recognised a participant on it. Strangers have little time and few places, those who say nothing and
those who began TLS each their own; if there is no place left, the oldest of them goes, from the address with the most.
So strangers elsewhere never take the place of a participant, and those at its own address only if they take all places
anew while it shakes hands. gRPC alone would accept connections until there are no descriptors, or refuse participants
as long as strangers hold all places.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from colonnade.errors import ConnectError
from colonnade.wire.quota import CALL, TokenBucket
from colonnade.wire.tcp_proxy import ProxySocket, SocketMover
from colonnade.wire.unauthenticated import (
    DESCRIPTORS_EACH,
    UnauthenticatedConnection,
    UnauthenticatedPool,
    explain_listen_error,
    listen_at_all_addresses,
    network_of,
    split_address,
    starts_with_client_hello,
    unauthenticated_places,
)

LOOPBACK = "127.0.0.1"
_PAUSE = 0.1
_AT_ONCE = 16
_BACKLOG = 512
_MOST_OF_STRANGERS = 1 << 24  # bytes, before one must be recognised
_MOST_FALSE_CLAIMS = 16
_FIRST_WORDS = 1 << 16
_PORT_IN_USE = (
    "another program has the port, perhaps a coordinator that still runs; end that one, or write another port "
    "into the study file of every participant"
)
_LISTEN_ELSEWHERE = "; let the coordinator listen at one that it has (--listen 0.0.0.0:PORT)"


class ConnectionGate:
    """Listens at an address, and passes connections on to a port of this machine."""

    def __init__(self, inner_port: int, participants: int, *, handshake: float, closing: float) -> None:
        self._inner_port, self._handshake, self._closing = inner_port, handshake, closing
        places = unauthenticated_places(participants)
        self._silent, self._talking = UnauthenticatedPool(DESCRIPTORS_EACH * places), UnauthenticatedPool(places)
        self._guests: dict[int, _GatedConnection] = {}
        self._open: set[_GatedConnection] = set()
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self.mover = SocketMover()
        """Carries the bytes of all connections."""

    def listen(self, address: str) -> int:
        """Start to listen; returns the port."""
        try:
            self._listeners = _open_listeners(*split_address(address))
        except OSError as error:
            why = explain_listen_error(error, _PORT_IN_USE, _LISTEN_ELSEWHERE)
            raise ConnectError(f"the hub cannot listen on {address}: {why} [CN015]") from None
        for listener in self._listeners:
            self._attend(listener)
        return int(self._listeners[0].getsockname()[1])

    def shut(self) -> None:
        """Listen no longer; connections stay."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    async def close(self) -> None:
        """Wait until the connections that gRPC has ended are closed, and close the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._closing)
        for guest in list(self._open):
            guest.end()
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), self._closing)
        for guest in list(self._open):
            guest.drop()
        self.mover.close()

    def recognise(self, peer: str, allowance: TokenBucket) -> None:
        """The connection that gRPC calls ``peer`` carries a stream of a participant: it stays, and may say so much."""
        if (guest := self._guests.get(_port_of(peer))) is not None:
            guest.streams += 1
            guest.allowance = allowance
            guest.clear_deadline()
            guest.charge_bytes(CALL)

    def charge(self, peer: str, cost: int) -> None:
        """What came on this connection was as much trouble as so many bytes."""
        if (guest := self._guests.get(_port_of(peer))) is not None:
            guest.charge_bytes(cost)

    def refuse(self, peer: str) -> None:
        """Somebody on this connection claimed to be another: it may not do so often."""
        self.charge(peer, _MOST_OF_STRANGERS // _MOST_FALSE_CLAIMS)

    def release(self, peer: str) -> None:
        """A stream of a participant has ended; without another one the connection is a stranger's again."""
        if (guest := self._guests.get(_port_of(peer))) is not None:
            guest.streams -= 1
            if not guest.streams:
                guest.reset_allowance()
                self._talking.add(guest)
                guest.set_deadline(self._handshake)

    def move_to_talking(self, guest: _GatedConnection) -> None:
        """A guest has begun TLS."""
        self._talking.add(guest)

    def register_inner_port(self, guest: _GatedConnection, port: int) -> None:
        """This guest reaches gRPC from this local port."""
        self._guests[port] = guest

    def connection_closed(self, guest: _GatedConnection, port: int | None) -> None:
        """A guest's connection is closed."""
        guest.clear_deadline()
        self._open.discard(guest)
        if port is not None and self._guests.get(port) is guest:
            del self._guests[port]
        if not self._open:
            self._empty.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # most likely no descriptor is left: look again when there may be one
                (self._silent if self._silent else self._talking).make_room()
                loop.remove_reader(listener)
                loop.call_later(_PAUSE, self._attend, listener)
                return
            guest = _GatedConnection(self, network_of(address[0]), connection, self._inner_port, self._closing)
            self._open.add(guest)
            self._empty.clear()
            self._silent.add(guest)
            guest.set_deadline(self._handshake)

    def _attend(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)


class _GatedConnection(UnauthenticatedConnection):
    """One connection from outside, and the one to gRPC that belongs to it."""

    def __init__(
        self, door: ConnectionGate, home: str, connection: socket.socket, inner_port: int, closing: float
    ) -> None:
        super().__init__(home)
        self.streams = 0
        self.allowance: TokenBucket | None = None
        self.outer = ProxySocket(connection, self._outer_closed)
        self._inner: ProxySocket | None = None
        self._unasked = 0
        self._again: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._door, self._inner_port, self._closing = door, inner_port, closing
        self._own_port: int | None = None
        self._said = b""
        self._ended = False
        self.outer.on_readable(self._read_client_hello)

    def set_deadline(self, seconds: float) -> None:
        """Close the connection after so many seconds, unless it may stay."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.end)

    def clear_deadline(self) -> None:
        """Let the connection last; the guest needs no place among strangers."""
        self.leave_pool()
        if self._deadline is not None:
            self._deadline.cancel()

    def reset_allowance(self) -> None:
        """The guest is a stranger again."""
        self.allowance, self._unasked = None, 0

    def charge_bytes(self, size: int) -> None:
        """So many bytes came: a participant that says too much is heard later, and a stranger not at all."""
        if self.allowance is None:
            self._unasked += size
            if self._unasked > _MOST_OF_STRANGERS:
                self.drop()
        elif (pause := self.allowance.take(size)) > 0:
            self._pause_reading(pause)

    def _pause_reading(self, seconds: float) -> None:
        self.outer.pause_reading("too much")
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(seconds, self.outer.resume_reading, "too much")

    def _read_client_hello(self) -> None:
        """Connect to gRPC, once all first bytes are the greeting of a TLS client."""
        data = self.outer.read(_FIRST_WORDS)
        if not data:
            return
        self._said += data
        greeted = starts_with_client_hello(self._said)
        if greeted is False:
            self.drop()
        elif greeted:
            self.outer.pause_reading("entering")
            self._door.move_to_talking(self)
            self._door.spawn(self._enter())

    async def _enter(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (LOOPBACK, self._inner_port))
        except OSError:
            connection.close()
            self.drop()
            return
        if self._ended:
            connection.close()
            return
        self._inner = ProxySocket(connection, self.end)
        self._own_port = int(connection.getsockname()[1])
        self._door.register_inner_port(self, self._own_port)
        self._inner.send(self._said, self.outer)
        self._said = b""
        self._inner.on_readable(partial(self._pass_out, self._inner))
        self.outer.on_readable(partial(self._pass_in, self._inner))
        self.outer.resume_reading("entering")

    def _pass_out(self, inner: ProxySocket) -> None:
        inner.forward(self.outer, self._door.mover)

    def _pass_in(self, inner: ProxySocket) -> None:
        if came := self.outer.forward(inner, self._door.mover):
            self.charge_bytes(came)

    def end(self) -> None:
        """Close both connections after what was passed on is sent, which may take only a short time."""
        if self._ended:
            return
        self._ended = True
        for side in (self.outer, self._inner):
            if side is not None:
                side.close()
        asyncio.get_running_loop().call_later(self._closing, self.drop)

    def drop(self) -> None:
        """Close both connections now."""
        self._ended = True
        for side in (self.outer, self._inner):
            if side is not None:
                side.abort()

    def _outer_closed(self) -> None:
        """The connection from outside is closed."""
        self.end()
        self._door.connection_closed(self, self._own_port)


def _open_listeners(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host; a wildcard means IPv4 and IPv6."""
    if host in ("0.0.0.0", "::") and socket.has_dualstack_ipv6():  # noqa: S104 - recognised, as its operator wrote it
        with suppress(OSError):
            both = socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
            both.setblocking(False)
            return [both]
    return listen_at_all_addresses(host, port, _BACKLOG)


def _port_of(peer: str) -> int:
    """The port in gRPC's name of a connection, such as ``ipv4:127.0.0.1:4711``; 0 if there is none."""
    port = peer.rpartition(":")[2]
    return int(port) if port.isdigit() else 0
