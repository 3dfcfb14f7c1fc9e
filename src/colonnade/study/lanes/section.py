"""``[lanes]`` of a study file: in how many partitions people are added up."""

from __future__ import annotations

from pydantic import Field, field_validator

from colonnade.errors import StudyError
from colonnade.protocols.lanes.partitions import MOST_PARTITIONS
from colonnade.protocols.task import Priced
from colonnade.study.keys import Part


class LanesPart(Part):
    """``[lanes]``: without it, people are added up in one part."""

    partitions: int = Field(strict=True)

    @field_validator("partitions")
    @classmethod
    def _power_of_two(cls, count: int) -> int:
        if not 2 <= count <= MOST_PARTITIONS or count & (count - 1):
            raise ValueError(
                f"must be a power of two from 2 to {MOST_PARTITIONS}, such as 64; without [lanes] there is one [VA198]"
            )
        return count


def check_task(task: Priced) -> None:
    """Raise an error if a task cannot be done in lanes."""
    from colonnade.protocols.lanes.lane import why_not  # most studies have no lanes

    if (why := why_not(task)) is not None:
        raise StudyError(f"[lanes] does not work here: the study {why}; delete [lanes], or change that [ST561]")
