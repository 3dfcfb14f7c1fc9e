"""How two participants come to a direct connection: settings, an offer in their session, and a greeting.

Each tells the other, inside the session that is sealed end to end, where it listens and a secret for that peer alone.
Whoever dials proves that it knows the secret before the listener says a word; the listener proves the same in its
answer. So only the two ends of the sealed session, which know each other's pinned keys, can be the ends of the
connection: a relay can neither make up an address nor answer at one. No certificate of a stranger is ever parsed.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import NamedTuple

from colonnade.errors import ProtocolError

_SECRET_BYTES, _LONGEST_ADDRESS = 32, 255
OFFER_BYTES = _SECRET_BYTES + 1 + _LONGEST_ADDRESS
"""All offers are equally long, so that a relay does not see whether one has an address."""
_MAGIC = b"colonnade link 1"
_NAME_BYTES, _NONCE_BYTES, _PROOF_BYTES = 16, 16, 32
GREETING_BYTES = len(_MAGIC) + _NAME_BYTES + _NONCE_BYTES + _PROOF_BYTES
ANSWER_BYTES = _NONCE_BYTES + _PROOF_BYTES
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
HOST = rf"\[[0-9A-Fa-f:.]{{2,45}}\]|{_LABEL}(?:\.{_LABEL})*"
"""A pattern of names and addresses; no part of a name is empty or longer than 63 letters."""
_ADDRESS = re.compile(rf"(?:{HOST}):([1-9][0-9]{{0,4}})")


class UnprovenPeerError(ProtocolError):
    """Whoever is at the other end does not know the secret."""


class LinkKeys(NamedTuple):
    """The keys of one connection: for what one sends, and for what one receives."""

    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return "Keys(...)"


@dataclass(frozen=True)
class LinkOffer:
    """Where a participant listens for one peer, and what that peer must know; without an address it only dials."""

    secret: bytes = field(repr=False)
    address: str = ""

    @classmethod
    def fresh(cls, address: str = "") -> LinkOffer:
        """An offer with a new secret."""
        return cls(os.urandom(_SECRET_BYTES), address)

    @classmethod
    def parse(cls, raw: bytes, peer: str) -> LinkOffer:
        """The offer in these bytes, which came from this peer."""
        size = raw[_SECRET_BYTES] if len(raw) == OFFER_BYTES else -1
        secret, text = raw[:_SECRET_BYTES], raw[_SECRET_BYTES + 1 :]
        if size < 0 or any(text[size:]) or (size and not is_address(text[:size].decode("ascii", "replace"))):
            raise ProtocolError(f"{peer} says that it listens at something that is no address [MS078]")
        return cls(secret, text[:size].decode("ascii"))

    def to_bytes(self) -> bytes:
        """The offer as bytes, always equally many."""
        text = self.address.encode("ascii")
        return (self.secret + bytes((len(text),)) + text).ljust(OFFER_BYTES, b"\0")

    @property
    def name(self) -> bytes:
        """By what a listener finds the offer again."""
        return self._hash(b"name")[:_NAME_BYTES]

    def greeting(self, nonce: bytes) -> bytes:
        """What whoever dials says first."""
        return b"".join((_MAGIC, self.name, nonce, self._hash(b"dials", nonce)))

    def answer(self, theirs: bytes, nonce: bytes) -> bytes:
        """What the listener answers to a greeting that proved to know the secret."""
        return nonce + self._hash(b"listens", theirs, nonce)

    def check_greeting(self, greeting: bytes) -> bytes:
        """The nonce of a greeting; an error unless it proves to know the secret."""
        nonce = greeting[-_NONCE_BYTES - _PROOF_BYTES : -_PROOF_BYTES]
        if not hmac.compare_digest(greeting, self.greeting(nonce)):
            raise UnprovenPeerError("whoever dialled does not know the secret [MS079]")
        return nonce

    def check_answer(self, answer: bytes, own: bytes) -> bytes:
        """The nonce of an answer; an error unless it proves to know the secret."""
        nonce = answer[:_NONCE_BYTES]
        if not hmac.compare_digest(answer, self.answer(own, nonce)):
            raise UnprovenPeerError("whoever listens there is not who offered it [MS080]")
        return nonce

    def keys(self, dialled: bytes, listened: bytes, *, dials: bool) -> LinkKeys:
        """The keys of the connection that began with these two nonces."""
        there = self._hash(b"from the one that dials", dialled, listened)
        back = self._hash(b"from the one that listens", dialled, listened)
        return LinkKeys(there, back) if dials else LinkKeys(back, there)

    def _hash(self, *parts: bytes) -> bytes:
        return hmac.digest(self.secret, b"\0".join((_MAGIC, *parts)), "sha256")


def offer_name(greeting: bytes) -> bytes:
    """The name of the offer that a greeting means; an error if it is no greeting."""
    if not greeting.startswith(_MAGIC):
        raise UnprovenPeerError("whoever dialled said something else than a greeting [MS081]")
    return greeting[len(_MAGIC) : len(_MAGIC) + _NAME_BYTES]


def new_nonce() -> bytes:
    """A nonce that nobody has used."""
    return os.urandom(_NONCE_BYTES)


def is_address(text: str) -> bool:
    """Whether a text is ``host:port``, and fits into an offer."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and len(text) <= _LONGEST_ADDRESS and int(found[1]) < 1 << 16


def read_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes, all of them before the deadline; an OSError otherwise."""
    data = b""
    while len(data) < size:
        connection.settimeout(max(deadline - monotonic(), 1e-3))
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the other end hung up")
        data += more
        if monotonic() > deadline:
            raise TimeoutError("timed out")
    return data


_LISTEN = re.compile(rf"({HOST}):(\d{{1,5}})(?:-(\d{{1,5}}))?")

RouteCallback = Callable[[str, str], None]
"""Is told the name of a peer, and in one sentence by which way packets go to it now."""


DIRECTLY = "directly"


@dataclass(frozen=True)
class DirectLinkSettings:
    """How a participant takes part in direct links."""

    listen: str | None = None
    """``host:port`` or ``host:first-last``, or ``None`` if it only dials."""
    advertise: str | None = None
    """``host`` or ``host:port`` that peers dial, if not the one it listens at."""
    dials: bool = True
    waits_for_links: bool = True
    """Whether it waits a moment for connections that it dials before it begins."""

    def for_worker(self, host: str | None = None) -> DirectLinkSettings:
        """The same for one worker of several, each of which needs a port of its own.

        ``host`` is the address of its machine, if that is another one than its head's; peers are told the same.
        """
        if self.listen is None:
            return self
        ports = PortRange.parse(self.listen)
        if ports.first == ports.last:  # which its head has
            return replace(self, listen=None, advertise=None)
        if host is None:
            return self
        written = f"[{host}]" if ":" in host else host
        return replace(self, listen=f"{written}:{ports.first}-{ports.last}", advertise=None)


@dataclass
class PeerRoute:
    """By which way packets went to one peer."""

    direct: bool = False
    """Whether there is a direct connection now."""
    is_dialler: bool = False
    """Whether this participant is the one that dials first."""
    links: int = 0
    """How many there were, one after the other."""
    broken_links: int = 0
    """How many of them broke."""
    sent: int = 0
    received: int = 0
    """Bytes of packets on them."""
    reason: str = "it was not reached yet"
    """Why packets go, or went, through the hub."""


@dataclass(frozen=True)
class PortRange:
    """A host, and the ports of which the first free one is taken."""

    host: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """From ``host:port`` or ``host:first-last``; anything else is a ValueError."""
        found = _LISTEN.fullmatch(text)
        if found is None:
            raise ValueError("must be host:port or host:first-last, such as 10.0.0.5:9400 or [::1]:9400-9409 [VA268]")
        first = int(found[2])
        last = int(found[3] or first)
        if not 0 < first <= last < 1 << 16:
            raise ValueError("must end in a port from 1 to 65535, or in two with a dash between them [VA269]")
        return cls(found[1], first, last)

    @property
    def is_wildcard(self) -> bool:
        """Whether the host means every address of the machine, however that is written."""
        try:
            if self.host.startswith("["):
                address = ipaddress.IPv6Address(self.host.strip("[]"))
                return (address.ipv4_mapped or address).is_unspecified
            return socket.inet_aton(self.host) == bytes(4)  # which also reads 0 and 0x0
        except (OSError, ValueError):
            return False


def advertised_address(listen: str, advertise: str | None, port: int) -> str:
    """The address that peers are told, where the port is the one that is listened on."""
    told = advertise or PortRange.parse(listen).host
    return told if is_address(told) else f"{told}:{port}"
