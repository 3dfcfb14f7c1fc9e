"""What a participant uses to talk to the others: one channel for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from colonnade.errors import CANNOT_GO_ON, IdentityError, ProtocolError
from colonnade.wire.carrier import Carrier
from colonnade.wire.channel import Channel
from colonnade.wire.counters import Counters
from colonnade.wire.direct import Way
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.post import Post
from colonnade.wire.watch import Limits

if TYPE_CHECKING:
    from colonnade.wire.links import LinkCarrier


class Endpoint:
    """One participant's connection to a study. ``dial`` makes it.

    ``topic`` must be the same at both ends of every session; for example, it is the digest of the study.
    """

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        carrier: Carrier,
        limits: Limits,
        topic: bytes = b"",
        introductions: LinkCarrier | None = None,
        relay: str = "",
    ) -> None:
        """``relay`` is the participant that runs the hub, if one does."""
        self.name = identity.name
        self.counters = Counters.of(name for name in participants if name != identity.name)
        others = peers_of(identity, participants)
        self._limits, self._carrier, self._introductions = limits, carrier, introductions
        incarnation = int.from_bytes(os.urandom(8), "little")
        self._post = Post(identity, others, carrier, limits, incarnation, self.counters, self._arrived, relay)
        self._channels = {
            name: Channel(identity, cert, self._post, self.counters, limits.window, topic, introductions)
            for name, cert in others.items()
        }
        carrier.open(self._post, incarnation)

    @property
    def peers(self) -> tuple[str, ...]:
        """The other participants, in alphabetical order."""
        return tuple(sorted(self._channels))

    def channel(self, peer: str) -> Channel:
        """The channel to a peer."""
        try:
            return self._channels[peer]
        except KeyError:
            raise ProtocolError(f"{self.name} has no channel to {peer}, which is not in the study [MS062]") from None

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until all peers, or the named ones, are present and their sealed sessions are ready."""
        channels = {name: self.channel(name) for name in (self.peers if names is None else names)}
        for channel in channels.values():
            channel.open()
        limit = self._limits.timeout if timeout is None else timeout
        self._post.wait_for_all(channels, lambda name: channels[name].is_ready, limit)
        if self._introductions:
            self._introductions.settle(channels)

    def tolerate(self, names: Iterable[str]) -> None:
        """Mark these peers as spare: their loss does not end the study.

        Messages to a lost peer are dropped. A call that needs a message from it raises a ``PeerLost`` whose ``spare``
        is its name.
        """
        self._post.tolerate(names)

    @property
    def lost(self) -> tuple[str, ...]:
        """The spare peers that were lost, in alphabetical order."""
        return self._post.lost

    @property
    def here(self) -> tuple[str, ...]:
        """The peers that are connected now, in alphabetical order."""
        return self._post.here

    @property
    def ways(self) -> dict[str, Way]:
        """By which way packets went to each peer; empty where all go through the hub."""
        return self._introductions.ways if self._introductions else {}

    def abort(self, reason: str) -> None:
        """End the study for everybody; ``reason`` is one sentence without data."""
        self._post.stop(reason)

    def close(self) -> None:
        """Wait until everything that was sent has arrived, tell the peers goodbye, and disconnect."""
        self._post.leave()
        self._carrier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Not the error: its message, and even its type, may depend on data that others must not see.
            self.abort(CANNOT_GO_ON)
        self.close()

    def _arrived(self, peer: str) -> None:
        self._channels[peer].advance()


def peers_of(identity: Identity, participants: Mapping[str, Certificate]) -> dict[str, Certificate]:
    """The other participants; an error if a certificate is listed under another name than its own."""
    for name, certificate in participants.items():
        if certificate.name != name:
            raise IdentityError(f"the certificate given for {name} is that of {certificate.name} [ID012]")
    own = participants.get(identity.name)
    if own is not None:
        identity.certificate.check_pin(own.fingerprint, f"the identity that {identity.name} runs with")
    return {name: cert for name, cert in participants.items() if name != identity.name}
