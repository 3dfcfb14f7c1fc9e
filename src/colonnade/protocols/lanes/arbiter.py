"""Which run of a partition counts: the rules by which the coordinator decides, and those by which all check it.

There is one sequence of lanes: the first attempt of every partition in ascending order, then lanes that were lost, each
under its next attempt, as they come. Every participant begins them in this order as its workers become free, so the
oldest lane that is not settled has, or will get, a worker of everybody: nothing waits forever. A lane is kept when all
participants have said that they hold its result. One that says that it lost the lane is enough for another attempt.

Nothing here sends or waits. :class:`LaneArbiter` takes what participants say and gives orders, the same to all of them.
Each of them refuses orders that do not fit what it was ordered before (``LaneWorkers`` in ``lane.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from colonnade.errors import DisagreementError, PeerLost, ProtocolError
from colonnade.protocols.lanes.partitions import check_count

LONGEST_INTRODUCTION = 1 << 13
"""No introduction of a worker has more bytes."""
MOST_HUBS = 256
MOST_ATTEMPTS = 8
"""A partition that was lost so often ends the study."""
MOST_LOST = 127
"""How many lanes may be lost in all; a check that somebody escapes by being lost counts (docs/theory/lanes.md)."""
RUNS_THAT_MAY_CHEAT = MOST_LOST + 1
"""Any of so many runs may be the one whose wrong claim passes."""
_FAILING = 4
"""After how many lanes in a row that were lost a hub gets no more of them, while there is another."""


@dataclass(frozen=True, order=True)
class LaneAttempt:
    """One run of one partition; attempts are counted from 1."""

    partition: int
    attempt: int = 1

    @property
    def again(self) -> LaneAttempt:
        """The next run of this partition."""
        return LaneAttempt(self.partition, self.attempt + 1)

    def __str__(self) -> str:
        return f"lane {self.partition}-{self.attempt}"


@dataclass(frozen=True)
class LaneOrder:
    """What the coordinator orders all participants to do.

    ``meet``: everybody has a worker for this lane, and they meet at this hub, each as it was introduced. ``kept``:
    everybody holds the result of this lane. ``again``: the run before this one was lost, so everybody gives it up; this
    one is now the last in the sequence. ``over``: a lane of every partition was kept.
    """

    what: Literal["meet", "kept", "again", "over"]
    lane: LaneAttempt = LaneAttempt(0)
    hub: int = 0
    introductions: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class _Run:
    """What participants have said about one lane."""

    here: dict[str, bytes] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    hub: int | None = None
    """Where it meets, once it does."""


class LaneArbiter:
    """The coordinator's side; ``participants`` are all who have a worker in a lane, itself among them."""

    def __init__(self, participants: Sequence[str], partitions: int, hubs: int = 1) -> None:
        check_count(partitions)
        self._participants, self._partitions, self._hubs = tuple(participants), partitions, hubs
        self._attempts = [1] * partitions
        self._runs: dict[LaneAttempt, _Run] = {}
        self._kept: dict[int, int] = {}
        self._lost = 0
        self._failing: Counter[int] = Counter()

    @property
    def over(self) -> bool:
        """Whether every partition is kept."""
        return len(self._kept) == self._partitions

    def here(self, who: str, lane: LaneAttempt, introduction: bytes) -> list[LaneOrder]:
        """A participant has a worker for a lane."""
        run = self._run(who, lane)
        if who in run.here:
            raise _twice(who)
        run.here[who] = introduction
        if not self._current(lane) or len(run.here) < len(self._participants):
            return []
        run.hub = self._hub(lane)
        return [LaneOrder("meet", lane, run.hub, {name: run.here[name] for name in self._participants})]

    def done(self, who: str, lane: LaneAttempt, rows: int) -> list[LaneOrder]:
        """A participant holds the result of a lane, of so many rows."""
        run = self._run(who, lane)
        if run.hub is None:
            raise ProtocolError(f"{who} said that it holds the result of a lane in which nobody has met yet [MS025]")
        run.done[who] = rows
        if not self._current(lane) or len(run.done) < len(self._participants):
            return []
        if len(set(run.done.values())) > 1:
            raise DisagreementError(
                "participants hold results of one lane that are about different numbers of people, so somebody does "
                "not follow the protocol: nothing was opened [DI003]"
            )
        self._kept[lane.partition] = lane.attempt
        self._failing[run.hub] = 0
        del self._runs[lane]
        return [LaneOrder("kept", lane), *([LaneOrder("over")] if self.over else [])]

    def lost(self, who: str, lane: LaneAttempt) -> list[LaneOrder]:
        """A participant has lost a lane: a worker, or the way to somebody."""
        run = self._run(who, lane)
        run.lost.add(who)
        if not self._current(lane):
            return []
        self._lost += 1
        if run.hub is not None:
            self._failing[run.hub] += 1
        check_attempts(lane, self._lost)
        self._attempts[lane.partition] += 1
        return [LaneOrder("again", lane.again)]

    def _run(self, who: str, lane: LaneAttempt) -> _Run:
        """What was said about a lane, if this participant has something to say about it."""
        if who not in self._participants:
            raise ProtocolError(f"{who} has no part in lanes [MS026]")
        known = 0 <= lane.partition < self._partitions and 1 <= lane.attempt <= self._attempts[lane.partition]
        if not known:
            raise ProtocolError(f"{who} spoke of a lane that there is not [MS027]")
        if self._kept.get(lane.partition) == lane.attempt:
            raise _twice(who)  # all have said what they have to say
        run = self._runs.setdefault(lane, _Run())
        if who in run.done or who in run.lost:
            raise _twice(who)
        return run

    def _current(self, lane: LaneAttempt) -> bool:
        """Whether it can still be kept; what is said about others has crossed an order on its way."""
        return self._attempts[lane.partition] == lane.attempt

    def _hub(self, lane: LaneAttempt) -> int:
        """Lanes go round; a hub that loses one after the other is left out while another works."""
        working = [hub for hub in range(self._hubs) if self._failing[hub] < _FAILING] or list(range(self._hubs))
        return working[(lane.partition + lane.attempt - 1) % len(working)]


def check_attempts(lane: LaneAttempt, lost: int) -> None:
    """Refuse to lose this lane too, if so many were lost then."""
    if lane.attempt >= MOST_ATTEMPTS:
        raise PeerLost(
            f"a partition was lost {MOST_ATTEMPTS} times, one attempt after the other: the study ends here [PE004]"
        )
    if lost > MOST_LOST:
        raise PeerLost(
            f"more than {MOST_LOST} lanes were lost: the study ends here, so look after the workers or hubs [PE005]"
        )


def _twice(who: str) -> ProtocolError:
    return ProtocolError(f"{who} spoke of a lane again of which it had said all before [MS033]")
