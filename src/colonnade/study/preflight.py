"""What a study would cost, before it is approved: epsilon for each observer, bytes, rounds, memory, time, bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from colonnade.errors import CapacityError, StudyError
from colonnade.protocols.cost import ParticipantLoad, TotalLoad

if TYPE_CHECKING:
    from colonnade.models.planner import PlanDetails
    from colonnade.models.sample_size import SampleSizeForecast
    from colonnade.privacy import Statement
    from colonnade.privacy.calibrate import BindingBudget
    from colonnade.protocols.task import Task
    from colonnade.study.security_summary import AlignmentEstimate, SecuritySummary
    from colonnade.study.spec import Study


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
    from colonnade.study.security_summary import AlignmentEstimate, SecuritySummary

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
    from colonnade.protocols.lanes.partitions import filled_length

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
