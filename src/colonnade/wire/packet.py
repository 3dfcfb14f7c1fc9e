"""The unit of transport: a piece of a sealed stream, with its number in the stream.

The header is not sealed. A relay that changes it can lose or delay data, but it can do that anyway. It cannot make up
data, because TLS notices every byte that is missing, repeated or changed.
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
    """The next piece of the sealed stream; an empty piece asks the peer to open the session."""
    ACK = 2
    """Nothing but the counts in the header."""
    ASK = 3
    """Asks the peer to acknowledge now, and once more when there is more to acknowledge."""
    STOP = 4
    """A signed notice that the sender ended the study, with the reason."""
    BYE = 5
    """A signed notice that the sender has finished; the number is how many pieces it has sent in all."""
    AWAY = 6
    """A signed notice that the sender goes on without the receiver."""


_KINDS = {int(kind): kind for kind in Kind}


class Packet(NamedTuple):
    """The parts of one packet."""

    kind: Kind
    incarnation: int
    sequence: int
    acknowledged: int
    """How many packets arrived: the peer need not keep these."""
    taken: int
    """How many packets the application took: the peer may send that many more."""
    body: memoryview


def pack(
    kind: Kind, incarnation: int, sequence: int, acknowledged: int, taken: int, body: bytes, prefix: bytes = b""
) -> bytes:
    """One packet as bytes, after the carrier's prefix; joined only once, because bodies are large."""
    return b"".join((prefix, _HEADER.pack(kind, incarnation, sequence, acknowledged, taken), body))


def unpack(data: bytes | memoryview) -> Packet:
    """The parts of a packet, without copying its body."""
    if not HEADER_BYTES <= len(data) <= HEADER_BYTES + MAX_PACKET:
        raise ProtocolError("a packet is shorter or longer than packets are [MS082]")
    number, incarnation, sequence, acknowledged, taken = _HEADER.unpack_from(data)
    kind = _KINDS.get(number)
    if kind is None:
        raise ProtocolError(f"a packet has the unknown kind {number} [MS083]")
    return Packet(kind, incarnation, sequence, acknowledged, taken, memoryview(data)[HEADER_BYTES:])


@dataclass(frozen=True)
class Notice:
    """A message outside the sealed stream, so that it need not wait for data before it; therefore it is signed."""

    kind: Kind
    sender: str
    receiver: str
    incarnations: tuple[int, int]
    """Those of sender and receiver, so that a notice from another run is not valid."""

    def seal(self, identity: Identity, reason: str) -> bytes:
        """The body of a packet with this notice: the signature and the reason."""
        text = reason.encode("utf-8", "replace")[:MAX_REASON]
        return identity.sign(self._statement(text)) + text

    def open(self, certificate: Certificate, body: bytes) -> str:
        """The reason in this body; an error if the sender did not sign it."""
        signature, text = body[:_SIGNATURE_BYTES], body[_SIGNATURE_BYTES:]
        if len(text) > MAX_REASON or not certificate.has_signed(signature, self._statement(text)):
            raise ProtocolError(f"a notice in the name of {self.sender} was not signed by {self.sender} [MS084]")
        return text.decode("utf-8", "replace")

    def _statement(self, text: bytes) -> bytes:
        head = f"colonnade notice {self.kind:d} {self.sender} {self.receiver}".encode()
        return b"\0".join((head, struct.pack("<QQ", *self.incarnations), text))
