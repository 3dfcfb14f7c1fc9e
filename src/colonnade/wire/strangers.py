"""Who is at the hub's door and not recognised yet, and how many of them there may be."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from ipaddress import ip_network

_DESCRIPTORS = 4096
_OWN_DESCRIPTORS = 64
_MOST_STRANGERS = 512
_LEAST_STRANGERS = 4
_STRANGERS_BESIDE_LANES = 32
EACH = 3
"""Descriptors of a connection that is passed on: this side, and both ends of the way to gRPC."""
_HELLO_HEAD = 6
_HANDSHAKE, _VERSION, _CLIENT_HELLO = 0x16, 0x03, 0x01
_LONGEST_RECORD = 1 << 14


class Stranger(ABC):
    """A connection that may have to make room."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.crowd: Crowd | None = None

    @abstractmethod
    def drop(self) -> None:
        """Disconnect now."""

    def leave_crowd(self) -> None:
        """Free this one's place among strangers, if it has one."""
        if self.crowd is not None:
            self.crowd.remove(self)
            self.crowd = None


class Crowd:
    """Guests that are not recognised, and a number of places for them."""

    def __init__(self, places: int) -> None:
        self._places, self._count = places, 0
        self._homes: dict[str, dict[Stranger, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._homes)

    def add(self, guest: Stranger) -> None:
        """Give a guest a place here, if need be that of another."""
        guest.leave_crowd()
        while self._count >= self._places:
            self.make_room()
        self._homes.setdefault(guest.home, {})[guest] = None
        self._count += 1
        guest.crowd = self

    def remove(self, guest: Stranger) -> None:
        """Free the place of a guest."""
        neighbours = self._homes[guest.home]
        del neighbours[guest]
        if not neighbours:
            del self._homes[guest.home]
        self._count -= 1

    def make_room(self) -> None:
        """Disconnect the oldest guest of the address with the most of them."""
        if self._homes:
            fullest = max(self._homes, key=lambda home: len(self._homes[home]))
            oldest = next(iter(self._homes[fullest]))
            oldest.leave_crowd()
            oldest.drop()


def places_for_strangers(participants: int) -> int:
    """How many strangers may talk to gRPC at the same time; if few descriptors are allowed, more are asked for first.

    Three times as many strangers may be connected and say nothing, since each of them takes one descriptor.
    """
    known = _OWN_DESCRIPTORS + 2 * EACH * participants
    free = _descriptors(max(_DESCRIPTORS, known + 2 * EACH * _MOST_STRANGERS)) - known
    return max(_LEAST_STRANGERS, min(_MOST_STRANGERS, free // (2 * EACH)))


def places_for_lanes(known: int, people: int, most: int) -> int:
    """How many lanes of so many people a hub has descriptors for, beside those whom it knows and some strangers."""
    each = 2 * EACH * people
    others = _OWN_DESCRIPTORS + 2 * EACH * (known + _STRANGERS_BESIDE_LANES)
    free = _descriptors(max(_DESCRIPTORS, others + most * each)) - others
    return max(1, min(most, free // max(each, 1)))


def _descriptors(useful: int) -> int:
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


def begins_tls(said: bytes) -> bool | None:
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


def neighbourhood(address: str) -> str:
    """The address, or of IPv6 the network of which one customer usually has all addresses."""
    plain = address.partition("%")[0].removeprefix("::ffff:")
    return str(ip_network((plain, 64), strict=False)) if ":" in plain else plain
