"""What a study would cost, before anybody says yes: epsilon per observer, bytes, rounds, memory, time, bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from colonnade.errors import CapacityError, StudyError
from colonnade.models.glm_guarantees import Guarantees
from colonnade.models.glm_plan import multiplier
from colonnade.models.regression import Regression, method_of
from colonnade.models.tuning import suggest
from colonnade.privacy import Statement
from colonnade.privacy.calibrate import Binding, binding
from colonnade.protocols.align import Aligning, Leak, Mode
from colonnade.protocols.align.fuzzy import ROWS_AT_MOST as FUZZY_ROWS_AT_MOST
from colonnade.protocols.exchange_task import Exchange, Side
from colonnade.protocols.sketch_task import Sketch
from colonnade.study.loads import Load, Priced, loads
from colonnade.study.spec import Study
from colonnade.study.tasks import GlmPart
from colonnade.tables.keys import Key

_OTHER_EXACT: dict[Mode, Mode] = {"dh": "helper", "helper": "dh"}


@dataclass(frozen=True)
class AlignLoad:
    """What one participant sends and how long it works to find the common people."""

    participant: str
    bytes_sent: int
    seconds: float


class _Loaded:
    """What all participants take together; time is that of the slowest."""

    loads: tuple[Load | AlignLoad, ...]

    @property
    def bytes_total(self) -> int:
        """Everything on the wire."""
        return sum(load.bytes_sent for load in self.loads)

    @property
    def seconds(self) -> float:
        """How long the slowest participant takes; an estimate."""
        return max(load.seconds for load in self.loads)


@dataclass(frozen=True)
class Alignment(_Loaded):
    """How the parties find the people that they all hold, what that tells to whom, and what it takes."""

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
    leakage: tuple[Leak, ...]
    rows: int
    """The length of each party's list, filled up where lists are padded; time and bytes are estimated for it."""
    loads: tuple[AlignLoad, ...]
    instead: tuple[str, float] | None
    """The other mode for equal keys, and the seconds that its slowest participant would take for the same lists."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"bytes_total": self.bytes_total, "seconds": self.seconds}


@dataclass(frozen=True)
class Preflight:
    """What any study would cost, for whom, and whose budget decides."""

    study: str
    digest: str
    method: str | None
    """How a regression is computed, also where the study leaves the choice to the forecast."""
    statement: Statement
    binding: Binding | None
    """``None`` where the study states no budget: the task sets its own price then."""
    alignment: Alignment | None
    """``None`` where the parties bring equal ids."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        deciding = None if self.binding is None else self.binding.to_dict()
        matching = None if self.alignment is None else self.alignment.to_dict()
        return plain | {"statement": self.statement.to_dict(), "binding": deciding, "alignment": matching}


@dataclass(frozen=True)
class RunPreflight(_Loaded, Preflight):
    """What a study that can be run would cost besides."""

    rows: int
    columns: int
    rounds: int
    value_bits: int
    system_bits: int
    primes: int
    """None, and no bits of them, where nobody holds shares."""
    law: str
    noise_std: float
    noise_on: str
    loads: tuple[Load, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        loads = [asdict(load) for load in self.loads]
        return super().to_dict() | {"loads": loads, "bytes_total": self.bytes_total, "seconds": self.seconds}


@dataclass(frozen=True)
class IterativePreflight(RunPreflight):
    """What a study of many openings would cost besides."""

    steps: int
    sampling: str
    batch: int
    people: int


@dataclass(frozen=True)
class SidePreflight:
    """What one party of an exchange is held to, and what is expected of it."""

    party: str
    ridge: float
    weight_bound: float | None
    """``None`` where fits are not held to a ball."""
    score_clip: float | None
    """``None`` at the party with the label, which sends slopes."""
    noise_std: float
    """Of the noise on each number that it sends."""
    agreement: float | None
    """Squared correlation of its scores with what its columns add, under a public guess; ``None`` without one."""


@dataclass(frozen=True)
class ExchangePreflight(RunPreflight):
    """What a model over noised messages would cost besides, with all that follows from public figures."""

    family: str
    active: str
    epochs: int
    batches: int
    message_clip: float
    learning_rate: float | None
    """``None`` where parties fit and take no steps."""
    release: bool
    sides: tuple[SidePreflight, ...]
    guarantees: Guarantees

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sides = [asdict(side) for side in self.sides]
        return super().to_dict() | {"sides": sides, "guarantees": self.guarantees.to_dict()}


@dataclass(frozen=True)
class SketchPreflight(Preflight):
    """How noisy a sketch is; there is nothing to send or to hold."""

    rounds: int
    sampling: str
    rows: int
    batch: int
    participations: int
    dimension: int
    noise: str
    noise_std: float
    noise_multiplier: float
    error: float


def preflight(study: Study, rows: int | None = None) -> Preflight:
    """Cost of a study, sized for tables of so many rows (default: the number it states, or the most it allows)."""
    task, budgets = study.task, study.budgets
    if isinstance(task, Sketch | Exchange) and rows is not None:
        raise StudyError(
            f"the number of rows of kind {study.content.task.kind} stands in the study file, where it decides the "
            "price: change task.rows, or ask `colonnade plan`"
        )
    sized = _rows(study) if rows is None else _checked(rows, study)
    deciding = binding(study.events, study.trust, budgets) if budgets else None
    common = (study.name, study.digest, _method(study), study.statement, deciding, _alignment(study, sized))
    if isinstance(task, Sketch):
        return _sketch(common, task)
    run = _run(common, task, study, sized)
    if isinstance(task, Exchange):
        return _exchange(run, task, study)
    return _iterative(run, task) if hasattr(task, "batch") else run


def _method(study: Study) -> str | None:
    if isinstance(study.task, Exchange):
        return study.task.method
    return method_of(study.task) if isinstance(study.planner(), Regression) else None


_Common = tuple[str, str, str | None, Statement, Binding | None, Alignment | None]


def _rows(study: Study) -> int:
    """How long the parties' lists may be."""
    most = int(getattr(study.task, "rows", None) or study.task.rows_at_most)
    shared = most // (len(study.content.parties) if study.roster.hidden else 1)
    return max(1, min(shared, _longest(study) or shared))


def _longest(study: Study) -> int | None:
    """The longest list that the alignment takes, where it has a limit."""
    if study.aligning is None:
        return None
    return FUZZY_ROWS_AT_MOST if study.aligning.mode == "fuzzy" else study.aligning.pad_to


def _checked(rows: int, study: Study) -> int:
    longest = _longest(study)
    if longest is not None and rows > longest:
        raise CapacityError(f"the alignment takes lists of at most {longest} rows, not of {rows}: ask for fewer rows")
    return rows


def _joint(study: Study, rows: int) -> int:
    """How long a joint table is: where nobody knows who matched, as long as all lists together."""
    if study.aligning is None or not study.roster.hidden:
        return rows
    return len(study.content.parties) * _length(study.aligning, rows)


def _length(task: Aligning, rows: int) -> int:
    """How long a list is on the wire."""
    return rows if task.pad_to is None else task.pad_to


def _alignment(study: Study, rows: int) -> Alignment | None:
    task, part = study.aligning, study.content.align
    if task is None or part is None:
        return None
    listed = _length(task, rows)
    loads = {name: task.load(name, listed) for name in study.participants}
    other = _OTHER_EXACT.get(task.mode)
    return Alignment(
        mode=task.mode,
        hidden=task.hidden,
        on=tuple(key.name for key in task.keys),
        keys=task.keys,
        duplicates=task.duplicates,
        at_least=task.at_least,
        similarity=task.similarity if task.mode == "fuzzy" else None,
        pad_to=task.pad_to,
        reuse=part.reuse,
        sentence=task.sentence,
        leakage=task.leakage,
        rows=listed,
        loads=tuple(AlignLoad(name, sent, seconds) for name, (seconds, sent) in loads.items()),
        instead=None if other is None else (other, _slowest(replace(task, mode=other), study.participants, listed)),
    )


def _slowest(task: Aligning, participants: tuple[str, ...], rows: int) -> float:
    return max(task.load(name, rows)[0] for name in participants)


def _sketch(common: _Common, task: Sketch) -> SketchPreflight:
    return SketchPreflight(
        *common,
        rounds=task.rounds,
        sampling=task.sampling,
        rows=task.rows,
        batch=task.batch,
        participations=task.participations,
        dimension=task.dimension,
        noise=task.law,
        noise_std=task.deviation,
        noise_multiplier=task.multiplier,
        error=task.error,
    )


def _run(common: _Common, task: Priced, study: Study, rows: int) -> RunPreflight:
    return RunPreflight(
        *common,
        rows=rows,
        columns=len(task.names),
        rounds=task.message_rounds,
        value_bits=task.bound.bit_length() + 1,
        system_bits=task.committee.system.bits if task.committee.seats else 0,
        primes=len(task.committee.system.primes) if task.committee.seats else 0,
        law=task.law,
        noise_std=task.noise_std,
        noise_on=_noise_on(task, study.content.task.kind),
        loads=loads(task, study.participants, _joint(study, rows)),
    )


def _iterative(run: RunPreflight, task: Any) -> IterativePreflight:
    return IterativePreflight(
        **vars(run), steps=task.rounds, sampling=task.sampling, batch=task.batch, people=task.rows
    )


def _exchange(run: RunPreflight, task: Exchange, study: Study) -> ExchangePreflight:
    agreement = _agreement(task, study)
    return ExchangePreflight(
        **vars(run),
        family=task.family.name,
        active=task.active,
        epochs=task.epochs,
        batches=task.batches,
        message_clip=task.message_clip,
        learning_rate=task.learning_rate if task.method == "gradient" else None,
        release=task.release,
        sides=tuple(_side(task, side, agreement.get(side.owner)) for side in task.sides),
        guarantees=Guarantees.of(run.statement),
    )


def _side(task: Exchange, side: Side, agreement: float | None) -> SidePreflight:
    active = side.owner == task.active
    return SidePreflight(
        party=side.owner,
        ridge=side.ridge,
        weight_bound=None if active and task.method == "alternating" else side.weight_bound,
        score_clip=None if active else side.score_clip,
        noise_std=task.message_deviation(side.owner),
        agreement=agreement,
    )


def _agreement(task: Exchange, study: Study) -> dict[str, float]:
    """What is expected of the others' scores; only of parameters that were chosen by this very guess."""
    part = study.content.task
    own = isinstance(part, GlmPart) and (part.strength, part.weight_bound, part.score_clip) != (None, None, None)
    if task.method != "alternating" or own:
        return {}
    found = suggest(
        task.blocks,
        task.active,
        task.family,
        task.rows,
        multiplier(task),
        intercept=task.intercept,
        epochs=task.epochs,
        message_clip=task.message_clip,
    )
    return found.agreement


def _noise_on(task: Priced, kind: str) -> str:
    """Which number the deviation of the noise belongs to."""
    if not task.committee.seats:
        return "a slope that is told"
    if hasattr(task, "batch"):
        return "a number of one batch's mean gradient"
    return {"polynomial": "a sum", "prediction": "a score"}.get(kind, "an entry of X'X")
