"""What a run takes of each participant: bytes, memory and seconds, from a public task and a short probe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.shamir import complete
from colonnade.privacy import Trust
from colonnade.privacy.noise import discrete_gaussian
from colonnade.protocols.exchange.task import Exchange
from colonnade.protocols.kept_scores.task import KeptScoresTask
from colonnade.protocols.session import Cells
from colonnade.randomness import Stream

_WORD = 3  # bytes of a residue on the wire
_NUMBER = 8  # bytes of a told number
_WIRE_BYTES_PER_SECOND = 100e6
_SECONDS_PER_ROUND = 4e-3
_BASE_MEMORY = 150 * 2**20  # an interpreter with its libraries
_SECONDS_PER_PRODUCT = 5e-10  # of two columns, a row
_SECONDS_PER_SLOPE = 5e-8
_NEWTON_STEPS = 8


@dataclass(frozen=True)
class Load:
    """What one participant sends, holds and does."""

    participant: str
    bytes_sent: int
    memory: int
    seconds: float


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


def loads(task: Priced, participants: tuple[str, ...], rows: int) -> tuple[Load, ...]:
    """What each participant takes, for a joint table of so many rows."""
    if isinstance(task, Exchange):
        pace = _seconds_per_draw()
        return tuple(_telling(task, name, rows, pace) for name in participants)
    pace = _seconds_per_cell(task.committee.system)
    return tuple(_load(task, name, rows, pace) for name in participants)


def asking_loads(
    task: KeptScoresTask, participants: tuple[str, ...], widths: Mapping[str, int], rows: int
) -> tuple[Load, ...]:
    """The same where parties tell one of them their scores; ``widths`` is how many encoded columns each party has."""
    pace = _seconds_per_draw()
    return tuple(_scoring(task, name, widths.get(name, 0), rows, pace) for name in participants)


def _scoring(task: KeptScoresTask, name: str, width: int, rows: int, pace: float) -> Load:
    sends = name in task.passives
    sent, drawn = (_NUMBER * rows, rows + width) if sends else (0, 0)
    memory = _BASE_MEMORY + (_NUMBER * rows * (3 * width + 4) if name in task.owners else 0)
    seconds = pace * drawn + 2 * sent / _WIRE_BYTES_PER_SECOND + _SECONDS_PER_ROUND * task.message_rounds
    return Load(name, sent, memory, seconds + 2 * _SECONDS_PER_PRODUCT * rows * width)


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


def _telling(task: Exchange, name: str, rows: int, pace: float) -> Load:
    """What a participant takes where parties tell each other noised numbers and nobody holds shares."""
    owns = name in task.trust.owners
    width, numbers = (len(task.block(name).columns) + 1, task.numbers(name)) if owns else (0, 0)
    sent = _NUMBER * task.sent_by(name)
    memory = _BASE_MEMORY + _NUMBER * (3 * rows * width + 4 * rows)
    seconds = pace * numbers + 2 * sent / _WIRE_BYTES_PER_SECOND + _SECONDS_PER_ROUND * task.message_rounds
    return Load(name, sent, memory, seconds + (_fits(task, name, width) if owns else 0.0))


def _fits(task: Exchange, name: str, width: int) -> float:
    """Seconds of what an owner of an exchange computes by itself."""
    turns = task.epochs * task.rows
    if name != task.active:
        moments = task.rows * width**2 if task.method == "alternating" else 0
        return _SECONDS_PER_PRODUCT * (moments + 4 * turns * width)
    columns = width + len(task.passives)
    refits = _NEWTON_STEPS * task.rows * (1 + int(task.release))
    refits += _NEWTON_STEPS * turns if task.method == "alternating" else 0
    return (_SECONDS_PER_PRODUCT * columns**2 + _SECONDS_PER_SLOPE) * refits + _SECONDS_PER_SLOPE * turns


def _seconds_per_draw() -> float:
    """Draw a little noise, and divide by how much it is."""
    count, stream = 1 << 14, Stream.fresh()
    start = time.perf_counter()
    discrete_gaussian(1 << 40, count, stream)
    return (time.perf_counter() - start) / count


def _seconds_per_cell(system: ResidueSystem) -> float:
    """Deal and multiply a small block, and divide by its size."""
    rows, width = 2048, 32
    secret = system.split(np.ones((rows, width)))
    start = time.perf_counter()
    shares = complete(system, secret, {2: Stream.fresh()}, [1, 3])
    system.inner(shares[1], shares[3])
    return (time.perf_counter() - start) / (rows * width * len(system.primes))
