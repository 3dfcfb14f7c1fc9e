"""The unit of transport: a piece of a sealed stream with its place in it.

The header is not sealed. A relay that changes it can lose or delay data, which it could do anyway; it cannot
pass anything off as data, because TLS above notices every byte that is missing, doubled or changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from colonnade.errors import ProtocolError
from colonnade.wire.identity import Certificate, Identity

MAX_PACKET = 1 << 20
MAX_REASON = 1000

_HEADER = struct.Struct("<BQQQQ")
HEADER_BYTES = _HEADER.size
_SIGNATURE_BYTES = 64


class Kind(IntEnum):
    """What a packet is for."""

    DATA = 1
    """The next piece of the sealed stream; an empty one asks the peer to open the session."""
    ACK = 2
    """Only the counts in the header."""
    ASK = 3
    """Please acknowledge now, and again as soon as there is more to acknowledge."""
    STOP = 4
    """A signed notice that the sender ended the study, with the reason."""
    BYE = 5
    """A signed notice that the sender has finished."""
    AWAY = 6
    """A signed notice that the sender goes on without the receiver."""


_KINDS = {int(kind): kind for kind in Kind}


class Packet(NamedTuple):
    """One packet, taken apart."""

    kind: Kind
    incarnation: int
    sequence: int
    acknowledged: int
    """Packets that arrived: the peer need not keep them."""
    taken: int
    """Packets that the application took: the peer may send as many more."""
    body: memoryview


def pack(
    kind: Kind, incarnation: int, sequence: int, acknowledged: int, taken: int, body: bytes, prefix: bytes = b""
) -> bytes:
    """One packet as bytes, after what the link wants before it: joined once, since bodies are large."""
    return b"".join((prefix, _HEADER.pack(kind, incarnation, sequence, acknowledged, taken), body))


def unpack(data: bytes | memoryview) -> Packet:
    """Take a packet apart, without copying its body."""
    if not HEADER_BYTES <= len(data) <= HEADER_BYTES + MAX_PACKET:
        raise ProtocolError(f"a packet of {len(data)} bytes is out of bounds")
    number, incarnation, sequence, acknowledged, taken = _HEADER.unpack_from(data)
    kind = _KINDS.get(number)
    if kind is None:
        raise ProtocolError(f"a packet has the unknown kind {number}")
    return Packet(kind, incarnation, sequence, acknowledged, taken, memoryview(data)[HEADER_BYTES:])


@dataclass(frozen=True)
class Notice:
    """Something said outside the sealed stream, so signed: it must overtake data that nobody reads."""

    kind: Kind
    sender: str
    receiver: str
    incarnations: tuple[int, int]
    """Sender's and receiver's: a notice from another run does not count."""

    def seal(self, identity: Identity, reason: str) -> bytes:
        """The body of the packet."""
        text = reason.encode("utf-8", "replace")[:MAX_REASON]
        return identity.sign(self._statement(text)) + text

    def open(self, certificate: Certificate, body: bytes) -> str:
        """The reason, if the sender really signed it."""
        signature, text = body[:_SIGNATURE_BYTES], body[_SIGNATURE_BYTES:]
        if len(text) > MAX_REASON or not certificate.has_signed(signature, self._statement(text)):
            raise ProtocolError(f"a notice in the name of {self.sender} was not signed by {self.sender}")
        return text.decode("utf-8", "replace")

    def _statement(self, text: bytes) -> bytes:
        head = f"colonnade notice {self.kind:d} {self.sender} {self.receiver}".encode()
        return b"\0".join((head, struct.pack("<QQ", *self.incarnations), text))
