"""What a participant holds: a channel to every other one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from colonnade.errors import IdentityError, ProtocolError
from colonnade.wire.carrier import Carrier
from colonnade.wire.channel import Channel
from colonnade.wire.counters import Counters
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.post import Post
from colonnade.wire.watch import Limits


class Endpoint:
    """One participant's place in a study. Made by ``dial``.

    ``topic`` is what both ends of every session must agree on, such as the digest of the study.
    """

    def __init__(
        self,
        identity: Identity,
        participants: Mapping[str, Certificate],
        carrier: Carrier,
        limits: Limits,
        topic: bytes = b"",
    ) -> None:
        self.name = identity.name
        self.counters = Counters.of(name for name in participants if name != identity.name)
        others = peers_of(identity, participants)
        self._limits, self._carrier = limits, carrier
        incarnation = int.from_bytes(os.urandom(8), "little")
        self._post = Post(identity, others, carrier, limits, incarnation, self.counters, self._arrived)
        self._channels = {
            name: Channel(identity, cert, self._post, self.counters, limits.window, topic)
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
            raise ProtocolError(f"{self.name} has no channel to {peer}, which is not in the study") from None

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Block until all peers, or the named ones, are present and their sealed sessions are up."""
        channels = {name: self.channel(name) for name in (self.peers if names is None else names)}
        for channel in channels.values():
            channel.open()
        limit = self._limits.timeout if timeout is None else timeout
        self._post.wait_for_all(channels, lambda name: channels[name].is_ready, limit)

    def tolerate(self, names: Iterable[str]) -> None:
        """The loss of these peers does not end the study.

        What is sent to one that is lost goes nowhere. Only whoever expects more from it gets a ``PeerLost``, whose
        ``spare`` is its name.
        """
        self._post.tolerate(names)

    @property
    def lost(self) -> tuple[str, ...]:
        """The tolerated peers that were lost, in alphabetical order."""
        return self._post.lost

    def abort(self, reason: str) -> None:
        """End the study for everybody, with one sentence that says why and holds no data."""
        self._post.stop(reason)

    def close(self) -> None:
        """Wait until what was sent has arrived, say goodbye and disconnect."""
        self._post.leave()
        self._carrier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # The type only: a message may hold what others must not see.
            self.abort(f"it met an error ({kind.__name__})")
        self.close()

    def _arrived(self, peer: str) -> None:
        self._channels[peer].advance()


def peers_of(identity: Identity, participants: Mapping[str, Certificate]) -> dict[str, Certificate]:
    """Everybody else, after checking that each certificate is under its own name."""
    for name, certificate in participants.items():
        if certificate.name != name:
            raise IdentityError(f"the certificate given for {name} is that of {certificate.name}")
    own = participants.get(identity.name)
    if own is not None:
        identity.certificate.check_pin(own.fingerprint, f"the identity that {identity.name} runs with")
    return {name: cert for name, cert in participants.items() if name != identity.name}
