"""What a study does about participants that deviate, and what its alignment costs and tells, before it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from colonnade.models import registry
from colonnade.privacy.events import unwrap
from colonnade.privacy.observers import Inputs
from colonnade.privacy.releases import NonPrivate
from colonnade.protocols.align import AlignmentLeak, AlignmentTask, Mode
from colonnade.protocols.cost import CHECKS, CheckingCost, TotalLoad, checking_cost
from colonnade.protocols.task import Task
from colonnade.tables.keys import Key

if TYPE_CHECKING:
    from colonnade.study.spec import Study

_PROVEN: dict[Inputs, str] = {
    "unproven": "that owners keep the bounds of what they deal is not proven",
    "covert": "owners prove the bounds of what they deal for rows that a coin chooses",
    "proven": "owners prove the bounds of what they deal",
}
_ON_ITS_OWN_SIDE = (
    "nobody holds shares that others could check; each party's figures hold whatever the others send, because every "
    "number that it tells is bounded and noised on its own side; others who deviate can spoil the result"
)
_NOTHING_PROMISED = "nobody holds shares that others could check, and nothing is promised in any case"


@dataclass(frozen=True)
class SecuritySummary:
    """Whether participants may deviate: seats check each other, or nobody does, or parties only send messages."""

    security: Literal["active", "semi-honest", "messages"]
    inputs: Inputs
    sentence: str
    could_be_active: bool = False
    may_be_lost: int | None = None
    """How many seats may be lost once they have dealt everything, where seats check each other."""

    @classmethod
    def of(cls, task: Task) -> SecuritySummary:
        """What this task does."""
        trust = task.trust
        if not trust.committee:
            promised = all(
                not isinstance(once := unwrap(event), NonPrivate) and not _is_unproven(once) for event in task.events
            )
            return cls("messages", "unproven", _ON_ITS_OWN_SIDE if promised else _NOTHING_PROMISED)
        if trust.active:
            checked = (
                f"security is active: seats check what each of them sends, at {_cost(checking_cost(trust))}; a check "
                f"that fails stops the study; {_PROVEN[trust.inputs]}"
            )
            return cls("active", trust.inputs, checked, may_be_lost=task.losses)
        if task.why_not_active is not None:
            return cls("semi-honest", "unproven", f"security is semi-honest: this kind of study {task.why_not_active}")
        possible = (
            'security is semi-honest: nobody checks what others compute or deal; security = "active" does, at '
            f"{_cost(CHECKS[task.possible_proofs[0]])}"
        )
        return cls("semi-honest", "unproven", possible, could_be_active=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def security_line(kind: str) -> str:
    """The line of a new study file by which seats check each other; empty where this is no default of the kind."""
    if not any(task.active_by_default for task in registry.load(kind).tasks):
        return ""
    return (
        'security = "active"  # seats check each other, so that one of them may deviate; "semi-honest": nobody checks\n'
    )


def _is_unproven(event: object) -> bool:
    return bool(getattr(event, "unproven", ""))


def _cost(checks: CheckingCost) -> str:
    return f"about {checks.work - 1:.0%} more work on shares"


_OTHER_EXACT: dict[Mode, Mode] = {"ot": "helper", "dh": "helper", "helper": "dh"}


@dataclass(frozen=True)
class AlignmentLoad:
    """How many bytes one participant sends in an alignment, and how long it works."""

    participant: str
    bytes_sent: int
    seconds: float


@dataclass(frozen=True)
class AlignmentEstimate(TotalLoad):
    """How the parties find the people that all of them hold, who learns what, and what it costs."""

    mode: str
    hidden: bool
    on: tuple[str, ...]
    keys: tuple[Key, ...]
    duplicates: str
    at_least: int
    similarity: float | None
    """How similar keys must be; ``None`` where they must be equal."""
    pad_to: int | None
    reuse: bool
    sentence: str
    leakage: tuple[AlignmentLeak, ...]
    rows: int
    """The length of each party's list, filled up where lists are padded; time and bytes are estimated for it."""
    loads: tuple[AlignmentLoad, ...]
    instead: tuple[str, float] | None
    """Another mode for equal keys, and the seconds that its slowest participant would take for the same lists."""
    partitions: int = 1
    """In how many parts people are found, one in each lane."""

    @classmethod
    def of(cls, study: Study, rows: int) -> AlignmentEstimate | None:
        """The figures for lists of ``rows`` rows; ``None`` where the study aligns nobody."""
        task, part = study.aligning, study.content.align
        if task is None or part is None:
            return None
        listed = task.pad_to or rows
        other = _OTHER_EXACT.get(task.mode)
        # Not every mode can be done in partitions, and what a list takes is the same without them.
        others = _alignment_loads(replace(task, mode=other, partitions=1), study.participants, listed) if other else ()
        return cls(
            mode=task.mode,
            hidden=task.hidden,
            on=tuple(key.name for key in task.keys),
            keys=task.keys,
            duplicates=task.duplicates,
            at_least=task.at_least,
            similarity=task.similarity if task.mode == "fuzzy" else None,
            pad_to=task.pad_to,
            reuse=part.used_again and task.partitions == 1,
            sentence=task.sentence,
            leakage=task.leakage,
            rows=listed,
            loads=_alignment_loads(task, study.participants, listed),
            instead=None if other is None else (other, max(load.seconds for load in others)),
            partitions=task.partitions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self) | self.totals
        if self.partitions == 1:
            del found["partitions"]
        return found


def _alignment_loads(task: AlignmentTask, participants: tuple[str, ...], rows: int) -> tuple[AlignmentLoad, ...]:
    loads = {name: task.load(name, rows) for name in participants}
    return tuple(AlignmentLoad(name, sent, seconds) for name, (seconds, sent) in loads.items())
