"""What workers that were killed have cost, by the records of all participants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Events = Sequence[Mapping[str, Any]]


def now() -> datetime:
    return datetime.now(UTC)


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of a record; another process may be writing the last one."""
    file = folder / "events.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@dataclass(frozen=True)
class Kill:
    """One worker of one participant, and when it was killed."""

    moment: datetime
    who: str
    worker: int


@dataclass(frozen=True)
class Cost:
    """Seconds since a kill, and those of the lane that was run again; 0 where no lane was lost."""

    noticed: float
    replaced: float
    """Until another worker said its first word, or none was needed any more."""
    freed: float
    """Until the last of the others was told to give the lane up."""
    repeated: float
    """Of the run that was kept, from when everybody had a worker for it until everybody had the result."""
    waited: float
    """Until everybody had begun the lane again; those that waited before the loss come first."""
    lane: tuple[int, int] | None

    @property
    def seconds(self) -> float:
        """For how long somebody had a worker less, and what it took to repeat the lane."""
        return max(self.replaced, self.freed) + self.repeated


def cost_of(kill: Kill, records: Mapping[str, Events]) -> Cost:
    """What one kill has cost; an AssertionError if a record does not say what became of it."""

    def times(who: str, what: str, **fields: Any) -> list[float]:
        wanted = {"what": what, **fields}
        return [
            (datetime.fromisoformat(event["time"]) - kill.moment).total_seconds()
            for event in records[who]
            if wanted.items() <= event.items()
        ]

    def last(what: str, partition: int, attempt: int) -> float:
        each = [times(who, what, partition=partition, attempt=attempt) for who in records]
        assert all(len(found) == 1 for found in each), f"{what} in {partition}-{attempt}: not once at everybody"
        return max(found[0] for found in each)

    (noticed,) = times(kill.who, "worker lost", worker=kill.worker)
    replaced, *_ = *times(kill.who, "worker replaced", worker=kill.worker), *times(kill.who, "revealed")
    lost = {"what": "worker lost", "worker": kill.worker}
    (event,) = (each for each in records[kill.who] if lost.items() <= each.items())
    if "partition" not in event:
        return Cost(noticed, replaced, 0.0, 0.0, 0.0, None)
    partition, attempt = event["partition"], event["attempt"]
    freed = [
        found
        for who in records
        for what in ("lane given up", "lane lost")  # its own worker may find out first
        for found in times(who, what, partition=partition, attempt=attempt)
        if who != kill.who
    ]
    kept = max(
        event["attempt"]
        for event in records[kill.who]
        if event["what"] == "repeated lane done" and event["partition"] == partition
    )
    begun = last("lane begun again", partition, kept)
    done = last("repeated lane done", partition, kept)
    waited = last("lane begun again", partition, attempt + 1) if kept == attempt + 1 else begun
    return Cost(noticed, replaced, max(freed, default=0.0), done - begun, waited, (partition, attempt))
