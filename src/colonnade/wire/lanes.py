"""Lanes, as hubs see them: the room of one run of a partition, what its sessions are about, and which hub has it."""

from __future__ import annotations

import re

_LANE = re.compile(r"lane-(0|[1-9][0-9]{0,6})-([1-9][0-9]{0,3})")


def lane_room(partition: int, attempt: int) -> str:
    """The room in which the workers of one run of a partition meet; attempts count from 1."""
    room = f"lane-{partition}-{attempt}"
    if not is_lane(room):
        raise ValueError(f"there is no lane of partition {partition} and attempt {attempt}")
    return room


def is_lane(room: str) -> bool:
    """Whether a room has the name of a lane, written in the one way there is."""
    return _LANE.fullmatch(room) is not None


def lane_topic(topic: bytes, partition: int, attempt: int) -> bytes:
    """What both ends of a lane's sessions must have alike, where ``topic`` is that of the study's own sessions.

    So whoever is passed on to the wrong lane, or to the right one of another attempt, is refused in the handshake.
    """
    return b" ".join((topic, lane_room(partition, attempt).encode()))


def hub_of(partition: int, attempt: int, hubs: int) -> int:
    """Which of so many hubs has this lane, counted from 0; one that is repeated goes to the next."""
    if hubs < 1:
        raise ValueError("lanes need a hub")
    return (partition + attempt - 1) % hubs
