"""How participants of a standing question reach each other: in a room of a standing hub, or at a hub of its own."""

from __future__ import annotations

from pathlib import Path

from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.scores.session import CoordinatorSeat, Join, Stay
from colonnade.standing.scores.settings import Standing
from colonnade.study.meeting import Place as MeetingPlace, join, load_identity
from colonnade.wire import Endpoint, Hub

_DIGITS = 32


def room_of(standing: Standing) -> str:
    """The room of a standing question; sessions in it are about nothing else, and follow from its digest."""
    return f"scores.{standing.study.digest[:_DIGITS]}"


def way_in(standing: Standing, name: str, key: Path, *, hub: str | None = None) -> Join:
    """How a participant gets its place in a new session, at the address that the study names or at another hub."""
    certificates = standing.study.certificates()
    identity = load_identity(key, name, certificates)
    place = MeetingPlace(hub, room_of(standing))

    def enter() -> Endpoint:
        return join(standing.study, identity, certificates, place)

    return enter


def own_hub(standing: Standing, key: Path, *, listen: str | None = None) -> Hub:
    """A hub for this question alone, where no federation has one that stands."""
    study = standing.study
    certificates = study.certificates()
    identity = load_identity(key, COORDINATOR, certificates)
    return Hub(identity, certificates, listen or study.content.coordinator.address, **study.content.limits.of_hub)


def keep_seat(standing: Standing, key: Path, hub: Hub) -> Stay:
    """Open a standing question's room at a hub of this process, and keep the coordinator's seat in it."""
    hub.open(room_of(standing), standing.study.participants)
    enter, wait = way_in(standing, COORDINATOR, key, hub=hub.own_address), standing.study.content.limits.join
    return Stay(enter, CoordinatorSeat(standing), wait=wait).start()
