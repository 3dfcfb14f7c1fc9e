"""What an endpoint asks of a transport (a carrier), and what a carrier tells an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.wire.direct import Way


class Receiver(Protocol):
    """An endpoint, as a carrier sees it. One thread makes all calls that concern a participant's presence.

    Packets may come in other threads, after the session with their sender is ready.
    """

    def carrier_up(self, present: Mapping[str, int]) -> None:
        """The carrier is connected; these participants are present, each with its incarnation."""

    def carrier_down(self, reason: str) -> None:
        """The connection broke, and the carrier tries to connect again; may be called again with a better reason."""

    def carrier_failed(self, error: ColonnadeError) -> None:
        """The connection broke and will not be restored."""

    def peer_here(self, name: str, incarnation: int) -> None:
        """A participant connected, perhaps again: packets that it has not acknowledged may be lost."""

    def peer_gone(self, name: str) -> None:
        """A participant's connection broke."""

    def packet(self, name: str, data: bytes | memoryview) -> None:
        """A packet arrived; packets arrive in the order in which the peer's carrier got them."""

    def way_changed(self, name: str) -> None:
        """Packets to a participant go another way from now on; those that it has not acknowledged may be lost."""

    def waited(self, name: str) -> float:
        """For how many seconds the endpoint has waited for a participant without progress."""


class Carrier(Protocol):
    """Carries packets to the other participants. Some are lost only when a connection breaks, or the way changes."""

    def open(self, receiver: Receiver, incarnation: int) -> None:
        """Connect, or raise an error; from then on call the receiver's methods."""

    def prefix(self, peer: str) -> bytes:
        """The bytes that must come before every packet to this peer."""

    def send(self, peer: str, packet: bytes) -> None:
        """Send one packet, prefix included. Never waits; drops the packet if the peer cannot be reached."""

    def close(self) -> None:
        """Send the packets that are still waiting, then disconnect."""


class Introductions(Protocol):
    """What two participants tell each other inside their sealed session before anything else."""

    def offer(self, peer: str) -> bytes:
        """What to tell a peer; equally many bytes for everybody."""

    def offered(self, peer: str, raw: bytes) -> None:
        """A peer told this. Never waits."""

    def settle(self, peers: Iterable[str]) -> None:
        """Wait a short while for what follows from what these peers told."""

    @property
    def ways(self) -> dict[str, Way]:
        """By which way packets went to each peer so far."""


@contextmanager
def failing_loudly(receiver: Receiver) -> Iterator[None]:
    """Report every error in a carrier's thread to the receiver; otherwise other threads would wait for ever."""
    try:
        yield
    except ColonnadeError as error:
        receiver.carrier_failed(error)
    except Exception as error:
        receiver.carrier_failed(ProtocolError(f"the transport failed ({type(error).__name__}) [MS054]"))
        raise
