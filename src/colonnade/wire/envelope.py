"""The messages between a participant and the hub.

An envelope is a packet with the names of sender and receiver. The hub checks the sender's name and forwards the
envelope unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from colonnade.errors import ProtocolError
from colonnade.wire.packet import HEADER_BYTES, MAX_PACKET

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

_INCARNATION = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
_BUNDLED = bytes((BUNDLE,))


def prefix(sender: str, receiver: str) -> bytes:
    """The bytes that come before a packet in its envelope: the two names."""
    return b"".join((bytes((PACKET,)), _name(sender), _name(receiver)))


def bundle(messages: Sequence[bytes]) -> bytes:
    """Several messages as one, because each message has a fixed cost."""
    if len(messages) == 1:
        return messages[0]
    return b"".join((_BUNDLED, *(part for one in messages for part in (_LENGTH.pack(len(one)), one))))


def unbundle(message: bytes) -> Iterable[bytes]:
    """The messages in a bundle, or the message itself if it is not a bundle."""
    return _opened(message) if message[:1] == _BUNDLED else (message,)


def _opened(message: bytes) -> Iterator[bytes]:
    at = 1
    while at < len(message):
        start = at + _LENGTH.size
        if start > len(message):
            raise ProtocolError("a bundle is malformed [MS063]")
        (size,) = _LENGTH.unpack_from(message, at)
        at = start + size
        if at > len(message):
            raise ProtocolError("a bundle is malformed [MS064]")
        yield message[start:at]


def names(envelope: bytes) -> tuple[str, str, int]:
    """Sender, receiver, and the place where the packet begins."""
    sender, at = _read_name(envelope, 1)
    receiver, at = _read_name(envelope, at)
    return sender, receiver, at


def roster(kind: int, present: Mapping[str, int]) -> bytes:
    """A message with names and incarnations; its kind tells who they are: all present, newly present, or gone."""
    rows = (_name(name) + _INCARNATION.pack(incarnation) for name, incarnation in present.items())
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
        if at + _INCARNATION.size > len(message):
            raise ProtocolError("a roster is cut short [MS066]")
        (present[name],) = _INCARNATION.unpack_from(message, at)
        at += _INCARNATION.size
    return present


def _name(name: str) -> bytes:
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
