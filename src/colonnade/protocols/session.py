"""One participant's part in one run, over any transport: wait for all, run the program, end together.

If it fails, all are told one sentence. Before a party's first share has left, that sentence is always the same: whether
it takes part, and why not, may depend on one cell of its table. Afterwards it is another fixed sentence. Only a message
that says nothing but what all participants see (who is lost, whose message is malformed) is told as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

from colonnade.errors import CANNOT_GO_ON, NO_PART, ColonnadeError, Interrupted, PeerLost
from colonnade.message_schema import MessageSchema, TextForm, receive_message
from colonnade.mpc import PeerLink, accelerator
from colonnade.privacy.events import Event
from colonnade.protocols import compatibility
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, PhaseTotals, Progress, Role, silent
from colonnade.protocols.task import RunnableTask
from colonnade.wire import TrafficCounters

Result = TypeVar("Result")
_RULES, _VERSIONS = TextForm(400, "[a-z]+=[0-9a-f]+( [a-z]+=[0-9a-f]+)*"), TextForm(200, "[A-Za-z0-9 ,.+_-]*")
READY = MessageSchema("ready", rules=_RULES, has=_VERSIONS)
"""An owner is there: its versions, and the digests of the rules that it follows (:mod:`.compatibility`)."""
GO = MessageSchema("go", rules=_RULES, has=_VERSIONS)
"""Everybody is there, and follows the same rules; the coordinator's are here, so that owners can see that too."""


class SessionEndpoint(Protocol):
    """What a session needs of a transport: a ``wire.Endpoint``, or a ``wire.InMemoryEndpoint``."""

    name: str

    @property
    def peers(self) -> tuple[str, ...]:
        """The other participants."""

    @property
    def counters(self) -> TrafficCounters:
        """Counters of the messages to them."""

    def channel(self, peer: str) -> PeerLink:
        """The channel to one of them."""

    def wait_for_peers(self, names: Iterable[str] | None = None, *, timeout: float | None = None) -> None:
        """Wait until these peers are connected."""

    def tolerate(self, names: Iterable[str]) -> None:
        """Let the study go on when these peers are lost, until somebody waits for a message from them."""

    @property
    def lost_peers(self) -> tuple[str, ...]:
        """The peers that are lost."""

    def abort(self, reason: str) -> None:
        """End the study for everybody, and say why."""

    def close(self) -> None:
        """Leave, after everything sent has arrived."""


@dataclass(frozen=True)
class RunResult(Generic[Result]):
    """What a participant has after a run."""

    result: Result
    revealed: tuple[Event, ...]
    phases: Mapping[str, PhaseTotals]
    lost: tuple[str, ...] = ()
    """The peers without which the study went on."""
    settled: int = 0
    """How many claims about shares were checked with the other seats."""


def run_role(
    place: SessionEndpoint,
    task: RunnableTask,
    program: Callable[[Any], Result],
    progress: Progress = silent,
    *,
    wait: float | None = None,
    before_sharing: Callable[[], None] | None = None,
    aligns: bool = False,
    processor: Callable[[], float] = time.thread_time,
) -> RunResult[Result]:
    """Run one role's program at this place; on failure tell the others one sentence without data.

    ``aligns`` says whether the program looks for common people before it does what the task says.
    ``processor`` is the clock by which its processor time is counted: by default that of this thread, since other
    participants may be threads beside it.
    """
    shares_left = place.name == COORDINATOR  # which has no table, and nothing to keep to itself

    def announce() -> None:
        nonlocal shares_left
        if before_sharing is not None:
            before_sharing()
        shares_left = True

    try:
        accelerator.read_setting()
        told = compatibility.compatibility_record(place.name, aligns=aligns or task.aligns)
        if place.name != COORDINATOR:
            import_module(
                "colonnade.privacy.noise.strip_sampler"
            )  # the samplers take long to load, and nobody waits yet
            task.prepare()
        place.wait_for_peers(partners_of(place.name, place.peers, task), timeout=wait)
        role = _role(place, task, progress, announce, processor)
        owners = [name for name in (place.name, *place.peers) if name != COORDINATOR]
        _assemble(role, owners, told)
        place.tolerate(name for name in spare_owners(task) if name != place.name)
        result = program(role)
        role.compare_results()
        _end_together(role, owners)
    except BaseException as error:
        place.abort(_reason(error, shares_left=shares_left))
        raise
    finally:
        place.close()
    return RunResult(result, tuple(role.revealed), role.meter.phases, place.lost_peers, role.engine.settled_claims)


def spare_owners(task: RunnableTask) -> tuple[str, ...]:
    """The owners without which the others can go on after these have dealt everything.

    These are all owners if the committee has more seats than an opened product of two inputs needs, else none; and
    none where nobody may be left out. A
    participant that still needs a message of a lost owner stops, and each opening checks how many shares are missing.
    """
    committee = task.committee
    enough = len(committee.seats) > 2 * committee.threshold + 1
    return task.owners if enough and task.goes_on_without else ()


def partners_of(name: str, everyone: Iterable[str], task: RunnableTask) -> list[str]:
    """Whom a participant talks to: with a committee, owners without a seat do not talk to each other."""
    if not task.committee.seats:
        return [peer for peer in everyone if peer != name]
    central = {COORDINATOR, *task.committee.seats, *task.owners[:1]}
    return [peer for peer in everyone if peer != name and (name in central or peer in central)]


def _role(
    place: SessionEndpoint,
    task: RunnableTask,
    progress: Progress,
    before_sharing: Callable[[], None],
    processor: Callable[[], float],
) -> Role:
    kind = Coordinator if place.name == COORDINATOR else Owner
    links = {peer: place.channel(peer) for peer in place.peers}
    return kind(
        place.name,
        links,
        task.committee,
        planned=task.openings,
        progress=progress,
        before_sharing=before_sharing,
        tally=place.counters.tally,
        processor=processor,
    )


def _assemble(me: Role, owners: Sequence[str], told: compatibility.CompatibilityRecord) -> None:
    """Wait until everyone has said that it is ready and follows the same rules; before that nothing is spent."""
    if me.name != COORDINATOR:
        me.link(COORDINATOR).send("ready", **told)
        compatibility.compare_records(
            {COORDINATOR: receive_message(me.link(COORDINATOR), COORDINATOR, GO), me.name: told}
        )
        return
    compatibility.compare_records(
        {me.name: told, **{name: receive_message(me.link(name), name, READY) for name in owners}}
    )
    for owner in owners:
        me.link(owner).send("go", **told)


def _end_together(me: Role, owners: Sequence[str]) -> None:
    """Wait until every owner has all that it was to have, so that nobody writes a result down that others refuse.

    The coordinator, which passes messages on, stays until all have said so. Owners that are lost are not waited for,
    if the others could do without them.
    """
    if me.name != COORDINATOR:
        me.link(COORDINATOR).send("done")
        receive_message(me.link(COORDINATOR), COORDINATOR, MessageSchema("all-done"))
        return
    there = []
    for owner in owners:
        try:
            receive_message(me.link(owner), owner, MessageSchema("done"))
            there.append(owner)
        except PeerLost as error:
            if error.spare is None:
                raise
    for owner in there:
        me.link(owner).send("all-done")


def _reason(error: BaseException, *, shares_left: bool) -> str:
    """What the others are told."""
    if isinstance(error, ColonnadeError) and (error.public or shares_left):
        return error.for_peers
    if not shares_left:
        return NO_PART
    return "it was interrupted by its operator" if isinstance(error, KeyboardInterrupt | Interrupted) else CANNOT_GO_ON
