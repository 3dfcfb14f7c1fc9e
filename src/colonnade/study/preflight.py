"""What a study would cost and promise, before it is approved: epsilon for each observer, bytes, rounds, memory, time.

Also what is done about participants that deviate, and what the alignment costs and tells.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from colonnade.errors import CapacityError, StudyError
from colonnade.models import registry
from colonnade.privacy.events import unwrap
from colonnade.privacy.noise_laws import NonPrivate
from colonnade.privacy.observers import Inputs
from colonnade.protocols.align import AlignmentTask, Mode
from colonnade.protocols.cost import CHECKS, CheckingCost, ParticipantLoad, TotalLoad, checking_cost
from colonnade.protocols.lanes.partitions import filled_length
from colonnade.protocols.task import Task

if TYPE_CHECKING:
    from colonnade.models.planner import PlanDetails, SampleSizeForecast
    from colonnade.privacy import Statement
    from colonnade.privacy.calibrate import BindingBudget
    from colonnade.study.spec import Study

_PROVEN: dict[Inputs, str] = {
    "unproven": "that owners keep the bounds of what they deal is not proven",
    "proven": "owners prove the bounds of what they deal",
    "needless": "no figure rests on the bounds of what others deal",
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
                not isinstance(once := unwrap(event), NonPrivate) and not getattr(once, "unproven", "")
                for event in task.events
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
            f"{_cost(CHECKS[task.usual_inputs])}"
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

    task: AlignmentTask
    reuse: bool
    rows: int
    """The length of each party's list, filled up where lists are padded; time and bytes are estimated for it."""
    loads: tuple[AlignmentLoad, ...]
    instead: tuple[str, float] | None
    """Another mode for equal keys, and the seconds that its slowest participant would take for the same lists."""

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
        loads = _alignment_loads(task, study.participants, listed)
        instead = None if other is None else (other, max(load.seconds for load in others))
        return cls(task, part.used_again and task.partitions == 1, listed, loads, instead)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        task = self.task
        found = {
            "mode": task.mode,
            "hidden": task.hidden,
            "duplicates": task.duplicates,
            "at_least": task.at_least,
            "pad_to": task.pad_to,
            "sentence": task.sentence,
            "on": [key.name for key in task.keys],
            "keys": [asdict(key) for key in task.keys],
            "similarity": task.similarity if task.mode == "fuzzy" else None,
            "reuse": self.reuse,
            "leakage": [asdict(leak) for leak in task.leakage],
            "rows": self.rows,
            "loads": [asdict(load) for load in self.loads],
            "instead": self.instead,
        }
        return found | ({} if task.partitions == 1 else {"partitions": task.partitions}) | self.totals


def _alignment_loads(task: AlignmentTask, participants: tuple[str, ...], rows: int) -> tuple[AlignmentLoad, ...]:
    loads = {name: task.load(name, rows) for name in participants}
    return tuple(AlignmentLoad(name, sent, seconds) for name, (seconds, sent) in loads.items())


@dataclass(frozen=True)
class RunEstimate(TotalLoad):
    """What a run of the study needs, for lists of ``rows`` people."""

    rows: int
    columns: int
    rounds: int
    value_bits: int
    system_bits: int
    primes: int
    """The number of primes; 0, like ``system_bits``, where nobody holds shares."""
    law: str
    noise_std: float
    noise_on: str
    loads: tuple[ParticipantLoad, ...]

    @classmethod
    def of(cls, task: Task, participants: tuple[str, ...], rows: int, joint: int) -> RunEstimate:
        """The figures of a task whose joint table has ``joint`` rows."""
        system = task.committee.system if task.committee.seats else None
        return cls(
            rows=rows,
            columns=len(task.names),
            rounds=task.waits,
            value_bits=task.bound.bit_length() + 1,
            system_bits=system.bits if system else 0,
            primes=len(system.primes) if system else 0,
            law=task.law,
            noise_std=task.noise_std,
            noise_on=task.noise_on,
            loads=task.loads(participants, joint),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | self.totals


@dataclass(frozen=True)
class Preflight:
    """What a study would cost, and whose budget decides."""

    study: str
    digest: str
    statement: Statement
    binding: BindingBudget | None
    """``None`` where the study has no budget, because the task sets the price."""
    alignment: AlignmentEstimate | None
    """``None`` where the parties do not align people."""
    run: RunEstimate | None
    """``None`` where the study cannot be run."""
    details: PlanDetails
    """What depends on the kind."""
    deviating: SecuritySummary | None = None
    """What is done about participants that deviate; ``None`` where the study cannot be run."""
    direct: bool = False
    """Whether participants that can reach each other connect directly."""
    partitions: int = 1
    """In how many parts people are added up."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in one dictionary with those of the run and of the kind."""
        common: dict[str, Any] = {
            "study": self.study,
            "digest": self.digest,
            "method": self.details.method,
            "statement": self.statement.to_dict(),
            "binding": None if self.binding is None else self.binding.to_dict(),
            "alignment": None if self.alignment is None else self.alignment.to_dict(),
            "security": None if self.deviating is None else self.deviating.to_dict(),
        }
        if self.direct:
            common["links"] = "direct"
        if self.partitions > 1:
            common["partitions"] = self.partitions
        return common | ({} if self.run is None else self.run.to_dict()) | dict(self.details.facts)


def preflight(study: Study, rows: int | None = None) -> Preflight:
    """What a study would cost, for tables of ``rows`` rows (default: the number that it states or allows)."""
    sized = rows_of(study, rows)
    return Preflight(
        study=study.name,
        digest=study.digest,
        statement=study.statement,
        binding=study.binding,
        alignment=AlignmentEstimate.of(study, sized),
        run=_run(study, sized),
        details=study.planner.details(study.task, study.statement),
        deviating=SecuritySummary.of(study.task) if study.planner.why_not_run is None else None,
        direct=study.content.coordinator.links == "direct",
        partitions=study.content.partitions,
    )


def outlook(study: Study, rows: int | None = None) -> SampleSizeForecast | None:
    """Whether there are enough people, if there are so many, or as many as the study says; from public numbers alone.

    ``None`` where there is no such figure for this kind of study, or the study cannot be run.
    """
    if study.planner.why_not_run is not None:
        return None
    known = study.task.rows_stated or study.planner.rows_expected if rows is None else rows
    return study.planner.outlook(study.roster, study.task, known)


def _run(study: Study, rows: int) -> RunEstimate | None:
    if study.planner.why_not_run is not None:
        return None
    joint = rows
    if study.aligning is not None and study.roster.hidden:
        # Nobody knows who matched, so the joint table has as many rows as all lists together, in all partitions.
        partitions = study.aligning.partitions
        joint = len(study.content.parties) * partitions * filled_length(study.aligning.pad_to or rows, partitions)
    return RunEstimate.of(study.task, study.participants, rows, joint)


def rows_of(study: Study, asked: int | None) -> int:
    """How long the parties' lists are taken to be: as asked, as the study expects, or as long as they may be."""
    if study.task.rows_fixed and asked is not None:
        raise StudyError(
            f"the number of rows of kind {study.content.task.kind} stands in the study file, where it decides the "
            "price: change task.rows, or ask `colonnade plan` [ST576]"
        )
    longest = None if study.aligning is None else study.aligning.longest
    if asked is not None:
        if longest is not None and asked > longest:
            raise CapacityError(
                f"the alignment takes lists of at most {longest} rows, not of {asked}: ask for fewer rows [CA034]"
            )
        return asked
    if (expected := study.planner.rows_expected) is not None and study.task.rows_stated is None:
        return max(1, min(expected, longest or expected))
    most = study.task.rows_stated or study.task.rows_limit
    shared = most // (len(study.content.parties) if study.roster.hidden else 1)
    return max(1, min(shared, longest or shared))
