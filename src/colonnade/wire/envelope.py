"""What travels between a participant and the hub.

The hub forwards an envelope as it came, so both names are in it; it checks the sender's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from colonnade.errors import ProtocolError
from colonnade.wire.packet import HEADER_BYTES, MAX_PACKET

SERVICE = "colonnade.Hub"
METHOD = "Join"
PATH = f"/{SERVICE}/{METHOD}"
INCARNATION_KEY = "colonnade-incarnation"
VERSION_KEY = "colonnade-version"
VERSION = "1"
MAX_ENVELOPE = MAX_PACKET + HEADER_BYTES + 256
MAX_ROSTER = 1 << 19

PACKET, ROSTER, HERE, GONE = b"PRHG"

_INCARNATION = struct.Struct("<Q")


def wrap(sender: str, receiver: str, packet: bytes) -> bytes:
    """A packet with its two names."""
    return b"".join((bytes((PACKET,)), _name(sender), _name(receiver), packet))


def names(envelope: bytes) -> tuple[str, str, int]:
    """Sender, receiver and where the packet begins."""
    sender, at = _read_name(envelope, 1)
    receiver, at = _read_name(envelope, at)
    return sender, receiver, at


def roster(kind: int, present: Mapping[str, int]) -> bytes:
    """Who is here (all of them, or newly) or gone, with incarnations."""
    rows = (_name(name) + _INCARNATION.pack(incarnation) for name, incarnation in present.items())
    return bytes((kind,)) + b"".join(rows)


def read_roster(message: bytes) -> dict[str, int]:
    """The names and incarnations in a roster."""
    present, at = {}, 1
    while at < len(message):
        name, at = _read_name(message, at)
        if at + _INCARNATION.size > len(message):
            raise ProtocolError("the hub sent a roster that is cut short")
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
    raise ProtocolError("an envelope is malformed")
