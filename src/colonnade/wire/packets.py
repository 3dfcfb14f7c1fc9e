"""The units of transport: a piece of a sealed stream with its number, and the envelope in which a hub forwards it.

The header of a packet is not sealed. A relay that changes it can lose or delay data, but it can do that anyway. It
cannot make up data, because TLS notices every byte that is missing, repeated or changed. An envelope is a packet with
the names of sender and receiver. The hub checks the sender's name and forwards the envelope unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

from colonnade.errors import ProtocolError, StudyError
from colonnade.wire.identity import Certificate, Identity

MAX_PACKET = 1 << 20
MAX_REASON = 1000

_HEADER = struct.Struct("<BQQQQ")
HEADER_BYTES = _HEADER.size
_SIGNATURE_BYTES, _TOPIC_BYTES = 64, 32


class PacketKind(IntEnum):
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


_KINDS = {int(kind): kind for kind in PacketKind}


class Packet(NamedTuple):
    """The parts of one packet."""

    kind: PacketKind
    incarnation: int
    sequence: int
    acknowledged: int
    """How many packets arrived: the peer need not keep these."""
    taken: int
    """How many packets the application took: the peer may send that many more."""
    body: memoryview


def pack_packet(
    kind: PacketKind, incarnation: int, sequence: int, acknowledged: int, taken: int, body: bytes, prefix: bytes = b""
) -> bytes:
    """One packet as bytes, after the carrier's prefix; joined only once, because bodies are large."""
    return b"".join((prefix, _HEADER.pack(kind, incarnation, sequence, acknowledged, taken), body))


def unpack_packet(data: bytes | memoryview) -> Packet:
    """The parts of a packet, without copying its body."""
    if not HEADER_BYTES <= len(data) <= HEADER_BYTES + MAX_PACKET:
        raise ProtocolError("a packet is shorter or longer than packets are [MS082]")
    number, incarnation, sequence, acknowledged, taken = _HEADER.unpack_from(data)
    kind = _KINDS.get(number)
    if kind is None:
        raise ProtocolError(f"a packet has the unknown kind {number} [MS083]")
    return Packet(kind, incarnation, sequence, acknowledged, taken, memoryview(data)[HEADER_BYTES:])


@dataclass(frozen=True)
class SignedNotice:
    """A message outside the sealed stream, so that it need not wait for data before it; therefore it is signed."""

    kind: PacketKind
    sender: str
    receiver: str
    incarnations: tuple[int, int]
    """Those of sender and receiver; a hub tells each that of the other, so they alone do not name the run."""
    topic: bytes = b""
    """That of the sessions of both."""

    def seal(self, identity: Identity, reason: str) -> bytes:
        """The body of a packet with this notice: the signature, the hash of the topic, and the reason."""
        text = reason.encode("utf-8", "replace")[:MAX_REASON]
        about = sha256(self.topic).digest()
        return identity.sign(self._statement(about + text)) + about + text

    def open(self, certificate: Certificate, body: bytes) -> str:
        """The reason in this body; an error if the sender did not sign it, or in a run of another topic."""
        signature, said = body[:_SIGNATURE_BYTES], body[_SIGNATURE_BYTES:]
        about, text = said[:_TOPIC_BYTES], said[_TOPIC_BYTES:]
        if len(text) > MAX_REASON or not certificate.has_signed(signature, self._statement(said)):
            raise ProtocolError(f"a notice in the name of {self.sender} was not signed by {self.sender} [MS084]")
        if about != sha256(self.topic).digest():
            error = StudyError(
                f"{self.sender} holds another version of the study: give everyone the same study file, the same "
                "schemas and the same release of Colonnade, and start again; if they are the same, the hub has passed "
                f"on what {self.sender} said in another run [ST860]"
            )
            error.public = True  # everybody can see it
            raise error
        return text.decode("utf-8", "replace")

    def _statement(self, said: bytes) -> bytes:
        head = f"colonnade notice {self.kind:d} {self.sender} {self.receiver}".encode()
        return b"\0".join((head, struct.pack("<QQ", *self.incarnations), said))


SERVICE = "colonnade.Hub"
METHOD = "Join"
PATH = f"/{SERVICE}/{METHOD}"
INCARNATION_KEY = "colonnade-incarnation"
ROOM_KEY = "colonnade-room"
VERSION_KEY = "colonnade-version"
VERSION = "2"
MAX_ENVELOPE = MAX_PACKET + HEADER_BYTES + 256
MAX_ROSTER = 1 << 19
FULL_BUNDLE = 1 << 16
"""The most bytes of messages in a bundle; a longer message is sent alone and not copied."""

PACKET, ROSTER, HERE, GONE, BUNDLE = b"PRHGB"

_ROSTER_INCARNATION = struct.Struct("<Q")
_BUNDLE_LENGTH = struct.Struct("<I")
_BUNDLED = bytes((BUNDLE,))


def envelope_prefix(sender: str, receiver: str) -> bytes:
    """The bytes that come before a packet in its envelope: the two names."""
    return b"".join((bytes((PACKET,)), _pack_name(sender), _pack_name(receiver)))


def bundle(messages: Sequence[bytes]) -> bytes:
    """Several messages as one, because each message has a fixed cost."""
    if len(messages) == 1:
        return messages[0]
    return b"".join((_BUNDLED, *(part for one in messages for part in (_BUNDLE_LENGTH.pack(len(one)), one))))


def unbundle(message: bytes) -> Iterator[bytes]:
    """The messages in a bundle, or the message itself if it is not a bundle."""
    if message[:1] != _BUNDLED:
        yield message
        return
    at = 1
    while at < len(message):
        start = at + _BUNDLE_LENGTH.size
        if start > len(message):
            raise ProtocolError("a bundle is malformed [MS063]")
        (size,) = _BUNDLE_LENGTH.unpack_from(message, at)
        at = start + size
        if at > len(message):
            raise ProtocolError("a bundle is malformed [MS064]")
        yield message[start:at]


def read_names(envelope: bytes) -> tuple[str, str, int]:
    """Sender, receiver, and the place where the packet begins."""
    sender, at = _read_name(envelope, 1)
    receiver, at = _read_name(envelope, at)
    return sender, receiver, at


def pack_roster(kind: int, present: Mapping[str, int]) -> bytes:
    """A message with names and incarnations; its kind tells who they are: all present, newly present, or gone."""
    rows = (_pack_name(name) + _ROSTER_INCARNATION.pack(incarnation) for name, incarnation in present.items())
    return bytes((kind,)) + b"".join(rows)


def read_first_roster(message: bytes) -> dict[str, int]:
    """The names and incarnations of all who are present, which is the first message of the hub."""
    if message[:1] != bytes((ROSTER,)):
        raise ProtocolError("its first message is no roster [MS065]")
    return read_roster(message)


def read_roster(message: bytes) -> dict[str, int]:
    """The names and incarnations in a roster."""
    present, at = {}, 1
    while at < len(message):
        name, at = _read_name(message, at)
        if at + _ROSTER_INCARNATION.size > len(message):
            raise ProtocolError("a roster is cut short [MS066]")
        (present[name],) = _ROSTER_INCARNATION.unpack_from(message, at)
        at += _ROSTER_INCARNATION.size
    return present


def _pack_name(name: str) -> bytes:
    raw = name.encode()
    return bytes((len(raw),)) + raw


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    try:
        end = at + 1 + message[at]
        raw = message[at + 1 : end]
        if len(raw) == end - at - 1:
            return raw.decode("ascii"), end
    except (IndexError, UnicodeDecodeError):
        pass
    raise ProtocolError("an envelope is malformed [MS067]")
