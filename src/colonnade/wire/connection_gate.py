"""The door of the hub: whoever is let in stays, and strangers cannot use up the room.

A connection is accepted here and passed on, byte by byte, to the port of gRPC on this machine. It belongs to a stranger
until the hub has recognised a participant on it. Strangers have little time and few places, those who say nothing and
those who began TLS each their own; if there is no place left, the oldest of them goes, from the address with the most.
So strangers elsewhere never take the place of a participant, and those at its own address only if they take all places
anew while it shakes hands. gRPC alone would accept connections until there are no descriptors, or refuse participants
as long as strangers hold all places. The listener of direct links has its strangers in the same kind of crowd.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from ipaddress import ip_network
from typing import Any

from colonnade.errors import ConnectError
from colonnade.wire.quota import CALL, TokenBucket


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConnectError(f"{address!r} is not an address: write host:port [CN024]")
    return host.strip("[]"), int(port)


def listen_at_all_addresses(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that do not block, all at one port, which the system chooses for port 0; an OSError if there is none."""
    found: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            at = (address[0], found[0].getsockname()[1] if found and not port else port)
            try:
                found.append(socket.create_server(at, family=family, backlog=backlog))
            except OSError as error:
                # A name may have addresses that this machine has not, such as ::1 where IPv6 is off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if missing is not None and not found:
            raise missing
    except OSError:
        for listener in found:
            listener.close()
        raise
    for listener in found:
        listener.setblocking(False)
    return found


def explain_listen_error(error: OSError, in_use: str, elsewhere: str = "") -> str:
    """Why the system lets nobody listen; ``in_use`` says so of a port that is taken, ``elsewhere`` adds an advice."""
    if error.errno == errno.EADDRINUSE:
        return in_use
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not open the port; choose one above 1023"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"that is no address of this machine{elsewhere}"
    return error.strerror or "the system refuses"


_DESCRIPTORS = 4096
_OWN_DESCRIPTORS = 64
_MOST_STRANGERS = 512
_LEAST_STRANGERS = 4
_STRANGERS_BESIDE_LANES = 32
DESCRIPTORS_EACH = 3
"""Descriptors of a connection that is passed on: this side, and both ends of the way to gRPC."""
_HELLO_HEAD = 6
_HANDSHAKE, _VERSION, _CLIENT_HELLO = 0x16, 0x03, 0x01
_LONGEST_RECORD = 1 << 14


class UnauthenticatedConnection(ABC):
    """A connection that may have to make room."""

    def __init__(self, home: str) -> None:
        self.source_network = home
        self.pool: UnauthenticatedPool | None = None

    @abstractmethod
    def drop(self) -> None:
        """Disconnect now."""

    def leave_pool(self) -> None:
        """Free this one's place among strangers, if it has one."""
        if self.pool is not None:
            self.pool.remove(self)
            self.pool = None


class UnauthenticatedPool:
    """Guests that are not recognised, and a number of places for them."""

    def __init__(self, places: int) -> None:
        self._places, self._count = places, 0
        self._homes: dict[str, dict[UnauthenticatedConnection, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._homes)

    def add(self, guest: UnauthenticatedConnection) -> None:
        """Give a guest a place here, if need be that of another."""
        guest.leave_pool()
        while self._count >= self._places:
            self.make_room()
        self._homes.setdefault(guest.source_network, {})[guest] = None
        self._count += 1
        guest.pool = self

    def remove(self, guest: UnauthenticatedConnection) -> None:
        """Free the place of a guest."""
        neighbours = self._homes[guest.source_network]
        del neighbours[guest]
        if not neighbours:
            del self._homes[guest.source_network]
        self._count -= 1

    def make_room(self) -> None:
        """Disconnect the oldest guest of the address with the most of them."""
        if self._homes:
            fullest = max(self._homes, key=lambda home: len(self._homes[home]))
            oldest = next(iter(self._homes[fullest]))
            oldest.leave_pool()
            oldest.drop()


def unauthenticated_places(participants: int) -> int:
    """How many strangers may talk to gRPC at the same time; if few descriptors are allowed, more are asked for first.

    Three times as many strangers may be connected and say nothing, since each of them takes one descriptor.
    """
    known = _OWN_DESCRIPTORS + 2 * DESCRIPTORS_EACH * participants
    free = _raise_descriptor_limit(max(_DESCRIPTORS, known + 2 * DESCRIPTORS_EACH * _MOST_STRANGERS)) - known
    return max(_LEAST_STRANGERS, min(_MOST_STRANGERS, free // (2 * DESCRIPTORS_EACH)))


def lane_places(known: int, people: int, most: int) -> int:
    """How many lanes of so many people a hub has descriptors for, beside those whom it knows and some strangers."""
    each = 2 * DESCRIPTORS_EACH * people
    others = _OWN_DESCRIPTORS + 2 * DESCRIPTORS_EACH * (known + _STRANGERS_BESIDE_LANES)
    free = _raise_descriptor_limit(max(_DESCRIPTORS, others + most * each)) - others
    return max(1, min(most, free // max(each, 1)))


def _raise_descriptor_limit(useful: int) -> int:
    """How many descriptors this process may have, after raising the limit as far as it is useful and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= useful:
        return useful
    wanted = useful if hard == resource.RLIM_INFINITY else min(useful, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def starts_with_client_hello(said: bytes) -> bool | None:
    """Whether these first bytes are those of a TLS client, with its whole greeting; None if more must come first."""
    expected = (_HANDSHAKE, _VERSION, None, None, None, _CLIENT_HELLO)
    if any(want not in (None, got) for want, got in zip(expected, said, strict=False)):
        return False
    if len(said) < _HELLO_HEAD:
        return None
    length = int.from_bytes(said[3:5], "big")
    if not 0 < length <= _LONGEST_RECORD:
        return False
    return len(said) >= length + 5 or None


def network_of(address: str) -> str:
    """The address, or of IPv6 the network of which one customer usually has all addresses."""
    plain = address.partition("%")[0].removeprefix("::ffff:")
    return str(ip_network((plain, 64), strict=False)) if ":" in plain else plain


_BUSY = "the other side is busy"


class ProxySide(asyncio.Protocol):
    """One of two connections, in the loop that runs; while it has too much to send, the other is not read."""

    def __init__(self, came: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """``came`` is told what comes; ``lost`` is called once, soon after the connection was closed by either end."""
        self._came, self._lost = came, lost
        self._transport: asyncio.Transport
        self.other: ProxySide
        """What is paused while much waits here."""
        self._why_silent: set[str] = set()
        self._open = self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - that of a socket
        self._transport, self._open = transport, True
        if self._gone:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._came(data)

    def pause_writing(self) -> None:
        """Much waits to be sent."""
        self.other.pause_reading(_BUSY)

    def resume_writing(self) -> None:
        """Little waits to be sent."""
        self.other.resume_reading(_BUSY)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        self._lost()

    def pause_reading(self, why: str) -> None:
        """Read nothing, until all reasons for that are gone."""
        self._why_silent.add(why)
        self._transport.pause_reading()

    def resume_reading(self, why: str) -> None:
        """This reason not to read is gone."""
        self._why_silent.discard(why)
        if not self._why_silent:
            self._transport.resume_reading()

    def send(self, data: bytes) -> None:
        """Send these bytes as soon as they can go."""
        self._transport.write(data)

    def close(self) -> None:
        """Read no more, and close the connection after what waits is sent."""
        self._gone = True
        if self._open:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._gone = True
        if self._open:
            self._transport.abort()


LOOPBACK = "127.0.0.1"
_PAUSE = 0.1
_AT_ONCE = 16
_BACKLOG = 512
_MOST_OF_STRANGERS = 1 << 24  # bytes, before one must be recognised
FALSE_CLAIM = _MOST_OF_STRANGERS // 16
"""What it costs to claim to be another: nobody may do so often."""
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
        self._silent, self.talking = UnauthenticatedPool(DESCRIPTORS_EACH * places), UnauthenticatedPool(places)
        self.guests: dict[int, _GatedConnection] = {}
        """By the port from which each reaches gRPC."""
        self._open: set[_GatedConnection] = set()
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

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

    def recognise(self, peer: str, allowance: TokenBucket) -> None:
        """The connection that gRPC calls ``peer`` carries a stream of a participant: it stays, and may say so much."""
        if (guest := self.guests.get(_port_of(peer))) is not None:
            guest.streams += 1
            guest.allowance = allowance
            guest.clear_deadline()
            guest.charge_bytes(CALL)

    def charge(self, peer: str, cost: int) -> None:
        """What came on this connection was as much trouble as so many bytes."""
        if (guest := self.guests.get(_port_of(peer))) is not None:
            guest.charge_bytes(cost)

    def release(self, peer: str) -> None:
        """A stream of a participant has ended; without another one the connection is a stranger's again."""
        if (guest := self.guests.get(_port_of(peer))) is not None:
            guest.streams -= 1
            if not guest.streams:
                guest.allowance, guest.unasked = None, 0
                self.talking.add(guest)
                guest.set_deadline(self._handshake)

    def connection_closed(self, guest: _GatedConnection, port: int | None) -> None:
        """A guest's connection is closed."""
        guest.clear_deadline()
        self._open.discard(guest)
        if port is not None and self.guests.get(port) is guest:
            del self.guests[port]
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
                (self._silent if self._silent else self.talking).make_room()
                loop.remove_reader(listener)
                loop.call_later(_PAUSE, self._attend, listener)
                return
            guest = _GatedConnection(self, network_of(address[0]), self._inner_port, self._closing)
            self._open.add(guest)
            self._empty.clear()
            self._silent.add(guest)
            guest.set_deadline(self._handshake)
            self.spawn(guest.attend(connection))

    def _attend(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)


class _GatedConnection(UnauthenticatedConnection):
    """One connection from outside, and the one to gRPC that belongs to it."""

    def __init__(self, door: ConnectionGate, home: str, inner_port: int, closing: float) -> None:
        super().__init__(home)
        self.streams = 0
        self.allowance: TokenBucket | None = None
        self._outer = ProxySide(self._pass_in, self._outer_closed)
        self._inner: ProxySide | None = None
        self.unasked = 0
        self._again: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._door, self._inner_port, self._closing = door, inner_port, closing
        self._own_port: int | None = None
        self._said = b""
        self._ended = False

    async def attend(self, connection: socket.socket) -> None:
        """Begin to read."""
        try:
            # Otherwise a small message may wait for the receipt of the one before, which is delayed by 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._outer, connection)
        except OSError:
            connection.close()
            self._outer_closed()

    def set_deadline(self, seconds: float) -> None:
        """Close the connection after so many seconds, unless it may stay."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.end)

    def clear_deadline(self) -> None:
        """Let the connection last; the guest needs no place among strangers."""
        self.leave_pool()
        if self._deadline is not None:
            self._deadline.cancel()

    def charge_bytes(self, size: int) -> None:
        """So many bytes came: a participant that says too much is heard later, and a stranger not at all."""
        if self.allowance is None:
            self.unasked += size
            if self.unasked > _MOST_OF_STRANGERS:
                self.drop()
        elif (pause := self.allowance.take(size)) > 0:
            self._pause_reading(pause)

    def _pause_reading(self, seconds: float) -> None:
        self._outer.pause_reading("too much")
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(seconds, self._outer.resume_reading, "too much")

    def _pass_in(self, data: bytes) -> None:
        """Pass on what came; connect to gRPC first, once all first bytes are the greeting of a TLS client."""
        if self._inner is not None:
            self._inner.send(data)
            self.charge_bytes(len(data))
            return
        self._said += data
        greeted = starts_with_client_hello(self._said)
        if greeted is False:
            self.drop()
        elif greeted:
            self._outer.pause_reading("entering")
            self._door.talking.add(self)
            self._door.spawn(self._enter())

    async def _enter(self) -> None:
        inner = ProxySide(self._outer.send, self.end)
        inner.other, self._outer.other = self._outer, inner
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(lambda: inner, LOOPBACK, self._inner_port)
        except OSError:
            self.drop()
            return
        if self._ended:
            inner.abort()
            return
        self._inner, self._own_port = inner, int(transport.get_extra_info("sockname")[1])
        self._door.guests[self._own_port] = self
        inner.send(self._said)
        self._said = b""
        self._outer.resume_reading("entering")

    def end(self) -> None:
        """Close both connections after what was passed on is sent, which may take only a short time."""
        if self._ended:
            return
        self._ended = True
        for side in (self._outer, self._inner):
            if side is not None:
                side.close()
        asyncio.get_running_loop().call_later(self._closing, self.drop)

    def drop(self) -> None:
        """Close both connections now."""
        self._ended = True
        for side in (self._outer, self._inner):
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
