"""What a study would cost, before anybody says yes: epsilon per observer, bytes, rounds, memory, time, bits."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.mpc import ResidueSystem
from colonnade.mpc.shamir import complete
from colonnade.privacy import Statement
from colonnade.privacy.calibrate import Binding, binding
from colonnade.protocols.moments_task import Moments
from colonnade.protocols.sketch_task import Sketch
from colonnade.randomness import new_key
from colonnade.study.spec import Study

_WORD = 3  # bytes of a residue on the wire
_WIRE_BYTES_PER_SECOND = 100e6
_BASE_MEMORY = 150 * 2**20  # an interpreter with its libraries


@dataclass(frozen=True)
class Load:
    """What one participant sends, holds and does."""

    participant: str
    bytes_sent: int
    memory: int
    seconds: float


@dataclass(frozen=True)
class Preflight:
    """What any study would cost, for whom, and whose budget decides."""

    study: str
    digest: str
    statement: Statement
    binding: Binding

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"statement": self.statement.to_dict(), "binding": self.binding.to_dict()}


@dataclass(frozen=True)
class RunPreflight(Preflight):
    """What a study that can be run would cost besides."""

    rows: int
    columns: int
    rounds: int
    value_bits: int
    system_bits: int
    primes: int
    noise_std: float
    loads: tuple[Load, ...]

    @property
    def bytes_total(self) -> int:
        """Everything on the wire."""
        return sum(load.bytes_sent for load in self.loads)

    @property
    def seconds(self) -> float:
        """How long the slowest participant takes; an estimate from a short probe on this machine."""
        return max(load.seconds for load in self.loads)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        loads = [asdict(load) for load in self.loads]
        return super().to_dict() | {"loads": loads, "bytes_total": self.bytes_total, "seconds": self.seconds}


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
    """Cost of a study, sized for a given number of rows (default: the most it allows)."""
    task = study.task
    deciding = binding(study.events, study.roster.trust, study.budgets)
    common = (study.name, study.digest, study.statement, deciding)
    if isinstance(task, Moments):
        return _run(common, task, study.participants, task.rows_at_most if rows is None else rows)
    if isinstance(task, Sketch):
        if rows is not None:
            raise StudyError(
                "the number of rows of a sketch stands in its study file, where it decides the price: "
                "change task.rows, or ask `colonnade plan`"
            )
        return _sketch(common, task)
    return Preflight(*common)


_Common = tuple[str, str, Statement, Binding]


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


def _run(common: _Common, task: Moments, participants: tuple[str, ...], rows: int) -> RunPreflight:
    return RunPreflight(
        *common,
        rows=rows,
        columns=len(task.names),
        rounds=8,  # ready, go; salt, digests, verdict; shares (streamed); sharing of zero; opening
        value_bits=task.bound.bit_length() + 1,
        system_bits=task.committee.system.bits,
        primes=len(task.committee.system.primes),
        noise_std=float(np.sqrt(float(2 * task.mu))) / task.gamma**2,
        loads=tuple(_load(task, name, rows) for name in participants),
    )


def _load(task: Moments, name: str, rows: int) -> Load:
    seats, threshold = task.trust.committee, task.trust.threshold
    primes = len(task.committee.system.primes)
    seated = name in seats
    width = next((len(block.columns) for block in task.blocks if block.owner == name), 0)
    dealt = (rows * width + task.entries) * primes if width else 0
    explicit = len(seats) - threshold - seated
    opened = task.entries * primes * (len(task.everyone) - (name in task.everyone)) if seated else 0
    sent = _WORD * (dealt * explicit + opened)
    cells = rows * (task.width - 1) * primes if seated else 0
    pace = _seconds_per_cell(task.committee.system)
    block = min(rows, task.block_rows) * (task.width - 1) * primes
    memory = _BASE_MEMORY + 8 * (4 * block + 4 * task.width**2 * primes)
    seconds = pace * (dealt + cells) + 2 * sent / _WIRE_BYTES_PER_SECOND
    return Load(name, sent, memory, seconds)


def _seconds_per_cell(system: ResidueSystem) -> float:
    """Deal and multiply a small block, and divide by its size."""
    rows, width = 2048, 32
    secret = system.split(np.ones((rows, width)))
    start = time.perf_counter()
    shares = complete(system, secret, {2: new_key()}, [1, 3])
    system.inner(shares[1], shares[3])
    return (time.perf_counter() - start) / (rows * width * len(system.primes))
