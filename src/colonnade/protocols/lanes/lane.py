"""One lane at one worker: a session of its own, in which a partition is aligned and its people are added up.

Nothing is planned to be revealed, so nothing can be opened. Everything that seats claim of their shares is settled
before the lane ends. Nobody goes on without a participant that is lost: what a seat lacks of one lane, it could not
add.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from colonnade.errors import ConnectError, PeerLost, PeerStopped, StudyError
from colonnade.mpc import Committee
from colonnade.privacy import Trust
from colonnade.privacy.events import Event
from colonnade.protocols import align
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.joint_sum.declaration import PartialSums, use_sum_arithmetic
from colonnade.protocols.lanes.arbiter import LaneAttempt
from colonnade.protocols.roles import COORDINATOR, Progress, Role, silent
from colonnade.protocols.rows import Rows, check_count
from colonnade.protocols.session import RunResult, SessionEndpoint, run_role
from colonnade.protocols.task import PricedTask, RunnableTask, TaskPrograms
from colonnade.tables import Table


@dataclass(frozen=True)
class LanePlan:
    """A study in lanes, as all participants know it: its task, its alignment, and the digest of what they agreed to."""

    task: CommitteeTask
    aligning: AlignmentTask
    run: bytes
    hubs: int = 1

    def __post_init__(self) -> None:
        if (why := why_no_lanes(self.task)) is not None:
            raise StudyError(f"this study cannot be done in lanes: it {why} [ST455]")
        if self.aligning.hidden and self.aligning.pad_to is not None:
            slots = self.partitions * len(self.task.owners) * self.aligning.listed_length(0)
            check_count(slots, self.task, hidden=True)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self.aligning.partitions

    @property
    def participants(self) -> tuple[str, ...]:
        """Who has a worker in every lane."""
        return (*self.task.owners, COORDINATOR)

    def run_of(self, lane: LaneAttempt) -> bytes:
        """What is agreed on of one lane, so that messages of another are no messages of this one."""
        return hashlib.sha256(self.run + f" {lane}".encode()).digest()


def why_no_lanes(task: PricedTask) -> str | None:
    """Why a task cannot be done in lanes, as the end of a sentence; ``None``: it can."""
    if task.why_not_lanes is not None:
        return task.why_not_lanes
    if task.trust.inputs == "covert":
        return (
            'has inputs = "covert": an owner that leaves when it sees which rows are looked at is not found out, and '
            'in lanes it may try again; use "unproven"'
        )
    if task.trust.inputs == "proven":
        return 'has inputs = "proven": its proofs are counted for one run over all rows; use "unproven"'
    return None


@dataclass(frozen=True)
class LaneTask(RunnableTask):
    """What the session of a lane needs: the same participants and arithmetic, and nothing that may be revealed."""

    trust: Trust
    seats: Committee
    aligns, goes_on_without = True, False

    @classmethod
    def of(cls, task: CommitteeTask) -> LaneTask:
        """That of one of the lanes of a task."""
        return cls(task.trust, task.committee)

    @property
    def committee(self) -> Committee:
        """The seats of the task."""
        return self.seats

    @property
    def events(self) -> tuple[Event, ...]:
        """Nothing is revealed."""
        return ()


@dataclass(frozen=True)
class LanePart:
    """An owner's part of one partition: its rows with their keys, and how many keys it has in all partitions.

    ``summands`` makes of aligned rows what is added up.
    """

    table: Table
    people: int
    summands: Callable[[Table], Rows]


def run_lane(
    place: SessionEndpoint,
    laned: LanePlan,
    lane: LaneAttempt,
    programs: TaskPrograms,
    part: LanePart | None = None,
    progress: Progress = silent,
    *,
    wait: float | None = None,
) -> RunResult[PartialSums]:
    """Play one participant's side of a lane; the coordinator has no part of a table."""
    if (part is None) != (place.name == COORDINATOR):
        raise ValueError("owners have a part of a table in every lane, and the coordinator has none [VA136]")

    def program(me: Any) -> PartialSums:
        rows = _aligned(me, laned, lane, part)
        summing = use_sum_arithmetic(me, laned.task)
        sums: PartialSums = programs.sum_rows(me, summing, laned.task, rows, part=True)
        _settle(summing)
        return sums

    return run_role(place, LaneTask.of(laned.task), program, progress, wait=wait)


def is_loss(error: BaseException) -> bool:
    """Whether a lane that ended so may be run again: somebody is gone, or has stopped and will say why elsewhere."""
    return isinstance(error, PeerLost | PeerStopped | ConnectError)


def _aligned(me: Any, laned: LanePlan, lane: LaneAttempt, part: LanePart | None) -> Rows | None:
    """The rows of the people of this partition whom all owners hold, or at their slots."""
    with me.meter.phase("align"):
        if part is None:
            align.coordinator(me, laned.aligning)
            return None
        if part.table.keys is None:
            raise StudyError(
                "a table without keys cannot be divided into lanes: name what people are recognised by [ST456]"
            )
        found = align.owner(me, part.table.keys, laned.aligning, run=laned.run_of(lane), people=part.people)
    return part.summands(found.table(part.table))


def _settle(me: Role) -> None:
    """Check everything that was claimed: nothing of a lane is left to be checked when it counts."""
    if me.engine.active and me.engine.has_seat:
        with me.meter.phase("check"):
            me.engine.settle()
