"""What a run costs each participant: bytes, memory and seconds, from a public task and a short measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from colonnade.mpc import ResidueSystem
from colonnade.mpc.shamir import complete_shares
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, law_named
from colonnade.privacy.observers import Inputs, Trust
from colonnade.randomness import Stream

WORD = 3  # bytes of a residue on the wire
NUMBER = 8  # bytes of a told number
BASE_MEMORY = 150 * 2**20  # an interpreter with its libraries
SECONDS_PER_PRODUCT = 5e-10  # of two columns, a row
ROUNDS_OF_CHECKS = 20  # of one settlement: coins, foldings, openings under masks
ROUNDS_OF_PROOFS = 10
_WIRE_BYTES_PER_SECOND = 100e6
_SECONDS_PER_ROUND = 4e-3


@dataclass(frozen=True)
class ShareCounts:
    """How many numbers a participant shares as inputs, holds shares of, and sends shares of in openings."""

    dealt: int
    held: int
    opened: int


@dataclass(frozen=True)
class ParticipantLoad:
    """What one participant sends, holds and does."""

    participant: str
    bytes_sent: int
    memory: int
    seconds: float


@dataclass(frozen=True)
class CheckingCost:
    """What checks cost: how many times the work on shares, and how many times the bytes."""

    work: float
    sent: float


CHECKS: Mapping[Inputs, CheckingCost] = {
    "unproven": CheckingCost(1.1, 1.02),
    "proven": CheckingCost(2.0, 1.02),
    "needless": CheckingCost(1.1, 1.02),
}
"""Rough, from ``benchmarks/results/active.md``; columns and primes count besides."""
SECONDS_OF_SETTLEMENT = 0.05


def checking_cost(trust: Trust) -> CheckingCost:
    """What the checks of a study with this trust cost."""
    return CHECKS[trust.inputs] if trust.active else CheckingCost(1.0, 1.0)


class TotalLoad:
    """What all participants take together, where ``loads`` are those of each."""

    loads: tuple[Any, ...]  # each with bytes_sent and seconds

    @property
    def bytes_total(self) -> int:
        """Everything on the wire."""
        return sum(load.bytes_sent for load in self.loads)

    @property
    def seconds(self) -> float:
        """How long the slowest participant takes; an estimate."""
        return max(float(load.seconds) for load in self.loads)

    @property
    def totals(self) -> dict[str, Any]:
        """Both as plain values for JSON."""
        return {"bytes_total": self.bytes_total, "seconds": self.seconds}


def seconds_on_wire(sent: int, rounds: int) -> float:
    """How long it takes to send ``sent`` bytes in ``rounds`` rounds; every byte passes through the coordinator."""
    return 2 * sent / _WIRE_BYTES_PER_SECOND + _SECONDS_PER_ROUND * rounds


def seconds_per_draw() -> float:
    """How long it takes to draw one number of noise, measured on a few."""
    count, stream = 1 << 14, Stream.fresh()
    start = time.perf_counter()
    law_named(CLOSEST_TO_GAUSSIAN).sample(Fraction(1 << 40), count, stream)
    return (time.perf_counter() - start) / count


def seconds_per_cell(system: ResidueSystem) -> float:
    """How long it takes to deal and multiply one shared number, measured on a small block."""
    rows, width = 2048, 32
    secret = system.to_residues(np.ones((rows, width)))
    start = time.perf_counter()
    shares = complete_shares(system, secret, {2: Stream.fresh()}, [1, 3])
    system.inner(shares[1], shares[3])
    return (time.perf_counter() - start) / (rows * width * len(system.primes))
