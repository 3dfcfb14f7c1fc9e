"""What becomes of a proposal: one pure function from what is known of it to its next step.

Every step is taken from what the desk has stored, so it does not matter when, how often or after how many restarts it
is asked. ``docs/how-to/federation.md`` has the same as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from colonnade.federation.statements import AttemptEnd
from colonnade.protocols.roles import COORDINATOR

State = Literal["open", "running", "done", "declined", "failed", "expired", "cancelled"]
STATES: tuple[State, ...] = get_args(State)
FINAL: frozenset[State] = frozenset({"done", "declined", "failed", "expired", "cancelled"})


@dataclass(frozen=True)
class AttemptTimeouts:
    """How long the desk waits for a report after the first one, and for an attempt as a whole."""

    overdue: timedelta
    longest: timedelta


@dataclass(frozen=True)
class ProposalFacts:
    """All that is known of one proposal."""

    state: State
    analyst: str
    parties: tuple[str, ...]
    deadline: datetime
    answers: Mapping[str, tuple[bool, int]]
    """Of those who have answered: whether yes, and how many further attempts they allow."""
    withdrawn: str | None
    attempt: int
    started: datetime | None
    """When the last attempt was started."""
    first_report: datetime | None
    outcomes: Mapping[tuple[int, str], AttemptEnd]
    """By attempt and participant."""

    @property
    def participants(self) -> tuple[str, ...]:
        """The parties, and the hub's coordinator."""
        return (*self.parties, COORDINATOR)

    @property
    def agreed(self) -> bool:
        """Whether every party has said yes."""
        return all(self.answers.get(party, (False, 0))[0] for party in self.parties)

    def reported(self) -> dict[str, AttemptEnd]:
        """How the last attempt ended, for those who have said so."""
        return {who: ended for (attempt, who), ended in self.outcomes.items() if attempt == self.attempt}


Step = State | Literal["start"] | None
"""A state to go to, an attempt to start, or nothing yet."""


def next_step(case: ProposalFacts, now: datetime, patience: AttemptTimeouts) -> Step:
    """What happens to a proposal now; an attempt is started once there is a place for it and all are present."""
    if case.state in FINAL:
        return None
    if case.state == "open":
        return _step_before_start(case, now, patience)
    finished = {attempt for (attempt, _), ended in case.outcomes.items() if ended == "finished"}
    if finished - {case.attempt}:
        return "done"  # an earlier attempt was not lost after all; nothing may come of this one
    if not _is_over(case, now, patience):
        return None
    if finished:
        return "done"
    if case.withdrawn is not None:
        return "cancelled"
    retries = min(case.answers[party][1] for party in case.parties)
    only_lost = set(case.reported().values()) == {"lost"}  # of whom nothing was heard may still run
    if only_lost and case.attempt <= retries and now < case.deadline + patience.longest:
        return "start"
    return "failed"


def _step_before_start(case: ProposalFacts, now: datetime, patience: AttemptTimeouts) -> Step:
    if case.withdrawn == case.analyst:
        return "cancelled"
    if case.withdrawn is not None or not all(yes for yes, _ in case.answers.values()):
        return "declined"
    if case.agreed:
        return "start" if now < case.deadline + patience.longest else "expired"
    return "expired" if now >= case.deadline else None


def _is_over(case: ProposalFacts, now: datetime, patience: AttemptTimeouts) -> bool:
    """Whether the last attempt is over: all have said how it ended, or the rest is waited for no longer.

    The coordinator stays until every owner is done. So if it has finished, nobody needs the room any more.
    """
    reported = case.reported()
    if set(reported) >= set(case.participants) or reported.get(COORDINATOR) == "finished":
        return True
    if case.first_report is not None and now >= case.first_report + patience.overdue:
        return True
    return case.started is not None and now >= case.started + patience.longest + patience.overdue
