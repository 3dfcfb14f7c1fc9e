"""Where the participants of a run connect: to a hub of their own, to that of a federation, or to a further one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import IdentityError, StudyError
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.spec import Study
from colonnade.wire import Certificate, Endpoint, Hub, Identity, dial
from colonnade.wire.link_offers import DirectLinkSettings, RouteCallback

_LOOK_SECONDS = 0.5

PresenceCallback = Callable[[dict[str, Any]], None]
"""Is told, as plain values, who is here, who is waited for, and how many rounds and bytes there were."""


@dataclass(frozen=True)
class MeetingPoint:
    """Where the participants of a run meet: at a hub of their own, or in a room of a standing one."""

    hub: str | None = None
    """The address to dial, if not the one that the study names."""
    room: str = ""
    attempt: int = 0

    def topic(self, digest: str) -> bytes:
        """What both ends of every session must have alike, so that messages of two attempts never meet."""
        return f"{digest} {self.room} {self.attempt}".encode() if self.room else digest.encode()

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of a run says of it."""
        return {"room": self.room, "attempt": self.attempt} if self.room else {}


OWN_HUB = MeetingPoint()
NO_DIRECT_LINKS = DirectLinkSettings(dials=False)
"""Neither listens nor dials, and says so to the others."""


def load_identity(key: Path, name: str, certificates: Mapping[str, Certificate]) -> Identity:
    """This participant's key; an error if it does not belong to the certificate that the study pins."""
    identity = Identity.load(key, key.with_suffix(".crt"))
    if identity.name != name:
        raise IdentityError(f"{key} is the key of {identity.name}, and that of {name} is needed here [ID008]")
    identity.certificate.check_pin(certificates[name].fingerprint, str(key.with_suffix(".crt")))
    return identity


def join(
    study: Study,
    identity: Identity,
    certificates: Mapping[str, Certificate],
    place: MeetingPoint = OWN_HUB,
    *,
    wait: float | None = None,
    direct: DirectLinkSettings = NO_DIRECT_LINKS,
    told: RouteCallback | None = None,
) -> Endpoint:
    """Dial the coordinator's hub; ``direct`` says how to connect to the others, if the study says that they do."""
    linked = study.content.coordinator.links == "direct"
    return dial(
        place.hub or study.content.coordinator.address,
        identity,
        certificates,
        hub_name=COORDINATOR,
        topic=place.topic(study.digest),
        room=place.room,
        direct=direct if linked else None,
        told=told,
        **study.content.limits.of_participant(wait),
    )


@contextmanager
def watch_presence(place: Endpoint, watch: PresenceCallback | None) -> Iterator[None]:
    """Tell ``watch`` now and then who is here and what was sent, whenever that has changed."""
    if watch is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        said: dict[str, Any] = {}
        while True:
            ended = over.wait(_LOOK_SECONDS)
            here = list(place.present_peers)
            sent = place.counters.total
            now = {
                "rounds": place.counters.tally.rounds,
                "bytes": sent.sealed_sent + sent.sealed_received,
                "here": here,
                "waited_for": [name for name in place.peers if name not in here],
            }
            if now != said:
                watch(now)
                said = now
            if ended:
                return

    looking = threading.Thread(target=look, name="presence", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join(timeout=_LOOK_SECONDS)


@contextmanager
def serve_lanes(study: Study, key: Path, listen: str | None = None) -> Iterator[Hub]:
    """Serve lanes of a study, for as long as this lasts; ``key`` is the coordinator's.

    It listens at the one further hub that the study names, or at ``listen``.
    """
    hubs = study.content.coordinator.hubs
    if not hubs:
        raise StudyError(
            f"{study.path}: coordinator.hubs is missing, so nobody would come here: write the addresses of further "
            "hubs there, and give everyone the new study file [ST580]"
        )
    if listen is None and len(hubs) > 1:
        raise StudyError(
            f"{study.path}: coordinator.hubs names {len(hubs)} hubs: say with --listen HOST:PORT "
            "which one this is [ST581]"
        )
    certificates = study.certificates()
    identity = load_identity(key, COORDINATOR, certificates)
    limits = study.content.limits.of_hub
    with Hub(identity, certificates, listen or hubs[0], rooms={}, lanes=True, **limits) as hub:
        yield hub
