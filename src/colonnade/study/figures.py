"""What a study would cost, as figures: for whom, for how many rows, and what each participant takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from colonnade.models.glm.guarantees import Guarantees
from colonnade.privacy import Statement
from colonnade.privacy.calibrate import Binding
from colonnade.protocols.align import Leak
from colonnade.study.loads import Load
from colonnade.tables.keys import Key


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
class DirectionsPreflight(RunPreflight):
    """What principal components by products with directions would cost besides."""

    openings: int
    directions: int
    """How many directions each opening is about."""


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
class SenderPreflight:
    """What one party tells about a new person: a clipped score by blurred weights, with noise."""

    party: str
    weights: int
    score_clip: float
    blur: float
    """About the deviation that its blurred weights give to a score."""
    noise_std: float
    """Of the noise on each score."""


@dataclass(frozen=True)
class AskingPreflight(RunPreflight):
    """What scores by kept weights would cost besides."""

    to: str
    model: str
    """The digest to which everybody's kept weights must belong."""
    senders: tuple[SenderPreflight, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return super().to_dict() | {"senders": [asdict(sender) for sender in self.senders]}


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
