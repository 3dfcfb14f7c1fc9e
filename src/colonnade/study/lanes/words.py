"""What a head and its workers say to each other. All of it is pickled, and none of it holds a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.models.base import Estimator
from colonnade.protocols.lanes.arbiter import Lane
from colonnade.protocols.lanes.lane import Laned
from colonnade.protocols.sums import Sums
from colonnade.tables import Schema
from colonnade.tables.spool.chores import Chore
from colonnade.wire import Certificate
from colonnade.wire.direct import Direct


@dataclass(frozen=True)
class Duty:
    """What a worker is told at its birth: the study, as all participants know it, and for whom it works."""

    name: str
    laned: Laned
    model: Estimator
    """Not fitted: it says what is added up."""
    certificates: Mapping[str, Certificate]
    """Those that the study pins."""
    topic: bytes
    """Of the study's own sessions."""
    settings: Mapping[str, Any]
    """How it dials a hub."""
    wait: float
    """For how many seconds it waits for the other workers of a lane."""
    schema: Schema | None = None
    """Of the party's table; the coordinator has none."""
    direct: Direct | None = None
    """How its head connects to others, where the study asks for direct links."""
    room: str = ""
    """That of the study at a standing hub, whose lanes are those of this room."""


@dataclass(frozen=True)
class Take:
    """Command: this lane is yours; open your partition, if you have one."""

    lane: Lane
    folder: str | None = None
    people: int = 0
    """How many keys there are in all partitions."""


@dataclass(frozen=True)
class Play:
    """Command: meet the others at this hub, and add up."""

    lane: Lane
    address: str
    introductions: Mapping[str, bytes]


@dataclass(frozen=True)
class GiveUp:
    """Command: the lane is of no interest any more."""

    lane: Lane


@dataclass(frozen=True)
class Help:
    """Command, before the first lane: do this part of the work on the party's table."""

    number: int
    chore: Chore


@dataclass(frozen=True)
class Helped:
    """How that ended: with a result, or it failed. Then the head does it, and tells why it cannot be done."""

    number: int
    result: Any = None
    failed: bool = False


@dataclass(frozen=True)
class Ready:
    """A worker's first word; the request is that of its keys, and public."""

    request: bytes


@dataclass(frozen=True)
class Ended:
    """How a lane ended: with sums, by a failure (the name of its class, a sentence without data), or it was lost."""

    lane: Lane
    sums: Sums | None = None
    failure: tuple[str, str] | None = None
    seconds: float = 0.0
    """Processor time."""
    sent: int = 0
    """Bytes, sealed."""
    claims: int = 0
    """How many claims about shares were checked with the other seats."""
    links: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By which way packets went to each peer."""
    through_hub: Mapping[str, str] = field(default_factory=dict)
    """For a peer, in one sentence, why that was the hub."""
