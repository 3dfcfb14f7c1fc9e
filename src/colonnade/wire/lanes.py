"""Lanes, as hubs see them: the room of one run of a partition, what its sessions are about, and whose lane it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from colonnade.wire.identity import Certificate

_LANE = re.compile(
    r"(?:(?P<home>[A-Za-z0-9._-]{1,100})\.)?"
    r"lane-(?:0|[1-9][0-9]{0,6})-(?:[1-9][0-9]{0,3})-[0-9a-f]{32}"
)  # fmt: skip


def lane_topic(topic: bytes, partition: int, attempt: int, workers: Mapping[str, Certificate]) -> bytes:
    """What both ends of a lane's sessions must have alike, where ``topic`` is that of the study's own sessions.

    So whoever is passed on to the wrong lane, or to the right one of another attempt, or was told of other workers, is
    refused in the handshake. Attempts count from 1.
    """
    crew = sha256(b"".join(sha256(workers[name].der).digest() for name in sorted(workers)))
    return b" ".join((topic, f"lane-{partition}-{attempt}".encode(), crew.hexdigest().encode()))


def lane_room(partition: int, attempt: int, topic: bytes, home: str = "") -> str:
    """The room in which the workers of a lane meet, from the topic of its sessions.

    ``home`` is the room of the study at a hub that has several. It is another room for other workers, so those that an
    earlier run of the study has left at a hub are in nobody's way.
    """
    room = f"lane-{partition}-{attempt}-{sha256(topic).hexdigest()[:32]}"
    room = f"{home}.{room}" if home else room
    if home_of(room) != home:
        raise ValueError(f"there is no lane of partition {partition} and attempt {attempt} [VA272]")
    return room


def home_of(room: str) -> str | None:
    """The room of the study whose lane this is, written in the one way there is; ``None`` if it is no lane."""
    found = _LANE.fullmatch(room)
    return None if found is None else found["home"] or ""


def is_lane(room: str) -> bool:
    """Whether a room has the name of a lane."""
    return home_of(room) is not None
