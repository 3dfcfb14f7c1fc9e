"""Connections of those who are not recognised yet: where the system listens for them, and how many there may be."""

from __future__ import annotations

import errno
import os
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from ipaddress import ip_network

from colonnade.errors import ConnectError


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
    if os.name != "posix":
        return useful
    import resource

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
