"""The message that is due from a peer: a frame that is something else is refused, whichever way it came."""

from __future__ import annotations

from typing import Any

from colonnade.errors import ProtocolError
from colonnade.harmless import harmless
from colonnade.wire.codec import decode
from colonnade.wire.values import MAX_FRAME

_LONGEST_KIND = 40


def check_size(size: int, kind: str, peer: str, most: int) -> None:
    """Refuse a frame that is longer than the message that is due."""
    if size > min(most, MAX_FRAME):
        raise ProtocolError(f"{peer} sent something longer than the message {kind!r} that was due can be [MS055]")


def message_in(frame: bytes | memoryview, kind: str, peer: str) -> dict[str, Any]:
    """The fields of the message in a frame from this peer, which must be of this kind."""
    try:
        value = decode(frame)
    except ProtocolError as error:
        raise ProtocolError(f"{peer} sent something else than the message {kind!r}: {error} [MS056]") from None
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str or type(value[1]) is not dict:
        raise ProtocolError(f"{peer} sent something that is not a message, and {kind!r} was due [MS057]")
    got: str = value[0]
    fields: dict[str, Any] = value[1]
    check_kind(got, kind, peer)
    return fields


def check_kind(got: str, kind: str, peer: str) -> None:
    """Refuse a message of another kind than the one that is due."""
    if got != kind:
        raise ProtocolError(f"expected {kind!r} from {peer}, got {harmless(got, _LONGEST_KIND)!r} [MS058]")
