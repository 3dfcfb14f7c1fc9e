"""What a study would cost, before anybody says yes: epsilon per observer, bytes, rounds, memory, time, bits."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from colonnade.errors import CapacityError, StudyError
from colonnade.models.regression import Regression, method_of
from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.shamir import complete
from colonnade.privacy import Statement, Trust
from colonnade.privacy.calibrate import Binding, binding
from colonnade.protocols.align import Aligning, Leak, Mode
from colonnade.protocols.align.fuzzy import ROWS_AT_MOST as FUZZY_ROWS_AT_MOST
from colonnade.protocols.session import Cells
from colonnade.protocols.sketch_task import Sketch
from colonnade.randomness import new_key
from colonnade.study.spec import Study
from colonnade.tables.keys import Key

_WORD = 3  # bytes of a residue on the wire
_WIRE_BYTES_PER_SECOND = 100e6
_SECONDS_PER_ROUND = 4e-3
_BASE_MEMORY = 150 * 2**20  # an interpreter with its libraries
_OTHER_EXACT: dict[Mode, Mode] = {"dh": "helper", "helper": "dh"}


@dataclass(frozen=True)
class Load:
    """What one participant sends, holds and does."""

    participant: str
    bytes_sent: int
    memory: int
    seconds: float


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


class Priced(Protocol):
    """What is asked of a task that can be run."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its encoded columns."""

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""

    @property
    def trust(self) -> Trust:
        """Owners, committee and threshold."""

    @property
    def committee(self) -> Committee:
        """Seats, threshold and arithmetic."""

    @property
    def bound(self) -> int:
        """The largest magnitude of an opened number."""

    @property
    def law(self) -> str:
        """The law of the noise."""

    @property
    def noise_std(self) -> float:
        """Deviation of one published number, in its own units."""

    @property
    def message_rounds(self) -> int:
        """How often everybody waits for somebody."""

    def cells(self, name: str, rows: int) -> Cells:
        """What a participant shares, holds and opens."""


def preflight(study: Study, rows: int | None = None) -> Preflight:
    """Cost of a study, sized for tables of so many rows (default: the number it states, or the most it allows)."""
    task, budgets = study.task, study.budgets
    if isinstance(task, Sketch) and rows is not None:
        raise StudyError(
            "the number of rows of a sketch stands in its study file, where it decides the price: "
            "change task.rows, or ask `colonnade plan`"
        )
    sized = _rows(study) if rows is None else _checked(rows, study)
    deciding = binding(study.events, study.roster.trust, budgets) if budgets else None
    method = method_of(task) if isinstance(study.planner(), Regression) else None
    common = (study.name, study.digest, method, study.statement, deciding, _alignment(study, sized))
    if isinstance(task, Sketch):
        return _sketch(common, task)
    run = _run(common, task, study, sized)
    return _iterative(run, task) if hasattr(task, "batch") else run


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
        system_bits=task.committee.system.bits,
        primes=len(task.committee.system.primes),
        law=task.law,
        noise_std=task.noise_std,
        noise_on=_noise_on(task, study.content.task.kind),
        loads=_loads(task, study.participants, _joint(study, rows)),
    )


def _iterative(run: RunPreflight, task: Any) -> IterativePreflight:
    return IterativePreflight(
        **vars(run), steps=task.rounds, sampling=task.sampling, batch=task.batch, people=task.rows
    )


def _noise_on(task: Priced, kind: str) -> str:
    """Which number the deviation of the noise belongs to."""
    if hasattr(task, "batch"):
        return "a number of one batch's mean gradient"
    return {"polynomial": "a sum", "prediction": "a score"}.get(kind, "an entry of X'X")


def _loads(task: Priced, participants: tuple[str, ...], rows: int) -> tuple[Load, ...]:
    pace = _seconds_per_cell(task.committee.system)
    return tuple(_load(task, name, rows, pace) for name in participants)


def _load(task: Priced, name: str, rows: int, pace: float) -> Load:
    seats, primes, cells = task.trust.committee, len(task.committee.system.primes), task.cells(name, rows)
    explicit = len(seats) - task.trust.threshold - (name in seats)
    sent = _WORD * primes * (cells.dealt * explicit + cells.opened)
    # A task that streams its rows holds a block of them at a time, and works on it; the others keep what they hold.
    streamed = min(rows, getattr(task, "rows_per_block", rows))
    at_once = max(cells.held, cells.dealt) * (4 * streamed if hasattr(task, "rows_per_block") else 2 * rows) // rows
    opened = cells.opened // max(1, len(task.everyone) - 1)
    memory = _BASE_MEMORY + 8 * primes * (at_once + 8 * opened)
    seconds = primes * pace * (cells.dealt + cells.held) + 2 * sent / _WIRE_BYTES_PER_SECOND
    seconds += _SECONDS_PER_ROUND * task.message_rounds
    return Load(name, sent, memory, seconds)


def _seconds_per_cell(system: ResidueSystem) -> float:
    """Deal and multiply a small block, and divide by its size."""
    rows, width = 2048, 32
    secret = system.split(np.ones((rows, width)))
    start = time.perf_counter()
    shares = complete(system, secret, {2: new_key()}, [1, 3])
    system.inner(shares[1], shares[3])
    return (time.perf_counter() - start) / (rows * width * len(system.primes))
