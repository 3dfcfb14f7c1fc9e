"""What an endpoint asks of a transport, and what a transport tells an endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from colonnade.errors import ColonnadeError, ProtocolError


class Receiver(Protocol):
    """An endpoint, as a link sees it. All calls come from one thread of the link."""

    def carrier_up(self, present: Mapping[str, int]) -> None:
        """The link works; these participants are present, each with its incarnation."""

    def carrier_down(self, reason: str) -> None:
        """The link broke and is being restored; may be said again with a better reason."""

    def carrier_failed(self, error: ColonnadeError) -> None:
        """The link broke for good."""

    def peer_here(self, name: str, incarnation: int) -> None:
        """A participant connected, or connected again: what it has not acknowledged may be lost."""

    def peer_gone(self, name: str) -> None:
        """A participant's connection broke."""

    def packet(self, name: str, data: bytes | memoryview) -> None:
        """A packet arrived, in the order in which the peer's link took it."""


class Carrier(Protocol):
    """A way to the other participants. Packets are lost only while a link is down."""

    def open(self, receiver: Receiver, incarnation: int) -> None:
        """Connect, or raise; the receiver is told from then on."""

    def prefix(self, peer: str) -> bytes:
        """What must stand before every packet to a peer."""

    def send(self, peer: str, packet: bytes) -> None:
        """Hand over one packet with its prefix. Never blocks, and drops it when there is no way to the peer."""

    def close(self) -> None:
        """Deliver what was handed over, then disconnect."""


@contextmanager
def failing_loudly(receiver: Receiver) -> Iterator[None]:
    """Report whatever goes wrong in a link's thread to those who wait; else they would wait in vain."""
    try:
        yield
    except ColonnadeError as error:
        receiver.carrier_failed(error)
    except Exception as error:
        receiver.carrier_failed(ProtocolError(f"the transport failed ({type(error).__name__})"))
        raise
