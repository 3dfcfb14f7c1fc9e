"""What an endpoint asks of a transport: a carrier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from colonnade.errors import ColonnadeError, ProtocolError

if TYPE_CHECKING:
    from colonnade.wire.post import Post


class Carrier(Protocol):
    """Carries packets to the other participants. Some are lost only when a connection breaks, or the way changes."""

    def open(self, receiver: Post, incarnation: int) -> None:
        """Connect, or raise an error; from then on call the receiver's methods.

        One thread makes all calls that concern a participant's presence. Packets may come in other threads, after the
        session with their sender is ready.
        """

    def prefix(self, peer: str) -> bytes:
        """The bytes that must come before every packet to this peer."""

    def send(self, peer: str, packet: bytes) -> None:
        """Send one packet, prefix included. Never waits; drops the packet if the peer cannot be reached."""

    def close(self) -> None:
        """Send the packets that are still waiting, then disconnect."""


@contextmanager
def failing_loudly(receiver: Post) -> Iterator[None]:
    """Report every error in a carrier's thread to the receiver; otherwise other threads would wait for ever."""
    try:
        yield
    except ColonnadeError as error:
        receiver.carrier_failed(error)
    except Exception as error:
        receiver.carrier_failed(ProtocolError(f"the transport failed ({type(error).__name__}) [MS054]"))
        raise
