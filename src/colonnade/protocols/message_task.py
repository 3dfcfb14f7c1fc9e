"""What tasks have in common whose parties send each other noised numbers: nobody holds shares of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import ClassVar, Self

from colonnade.errors import CapacityError, StudyError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import Budget, Event, Sensitivity
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.events import audience_of
from colonnade.privacy.noise.local_mechanisms import Grid
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, AdditiveNoise
from colonnade.privacy.observers import find_unbudgeted
from colonnade.protocols.cost import ParticipantLoad, ShareCounts, seconds_per_draw
from colonnade.protocols.task import AdjustableTask, Task
from colonnade.tables.cell_parsing import itemise

NOISE_UNIT = 1 << 20  # noise = NOISE_UNIT means a variance of one squared sensitivity


class MessageTask(Task, AdjustableTask):
    """A task without a committee: the ``active`` party and the others send each other numbers in steps of ``2^-bits``.

    The variance of an owner's noise is ``noise / 2^20`` times the square of what one person's columns can move.
    """

    active: str
    bits: int
    rows_key: ClassVar[str]
    """The key of a study file that states the number of rows."""
    why_no_rows = "the noise in messages of study {study} hardly depends on its rows: ask --epsilon [ST491]"
    law = CLOSEST_TO_GAUSSIAN
    why_not_lanes = "has no committee that adds its people up"

    @property
    def passives(self) -> tuple[str, ...]:
        """All owners but the active one."""
        return tuple(owner for owner in self.owners if owner != self.active)

    @property
    def committee(self) -> Committee:
        """Nobody holds shares."""
        return Committee((), 0, ResidueSystem.for_bound(1))

    @property
    def noise_on(self) -> str:
        """Which number has noise, in words."""
        return f"a {self.error_on} that is told"

    @property
    def grid(self) -> Grid:
        """On which multiples all numbers are sent."""
        return Grid(self.bits)

    def deviation_of(self, variance: int) -> float:
        """The standard deviation of noise whose variance is given in squared steps of the grid."""
        return float(math.sqrt(variance) / (1 << self.bits))

    def bound_of(self, largest: float, variance: int, advice: str) -> int:
        """The largest magnitude of a number that is sent, from that of a value and the largest variance of noise."""
        bound = math.ceil(largest * (1 << self.bits)) + own_noise(self.active, variance).reach(spare=1)
        if bound >= 2**62:
            raise CapacityError(f"such noise does not fit 64-bit integers: {advice} [CA024]")
        return bound

    def cells(self, name: str, rows: int) -> ShareCounts:
        """Nothing is shared."""
        return ShareCounts(0, 0, 0)

    def loads(self, participants: Iterable[str], rows: int) -> tuple[ParticipantLoad, ...]:
        """Bytes, memory and seconds of each participant."""
        pace = seconds_per_draw()
        return tuple(self.load(name, rows, pace) for name in participants)

    @abstractmethod
    def load(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""

    def calibrate(self, budgets: Sequence[Budget]) -> Self:
        """The same with the least noise that keeps every budget."""
        calibrated = add_least_noise(self.with_noise, self.trust, budgets, owners=1)
        if calibrated.noise <= 1:  # no budget asked for any
            self.refuse_unmentioned(self.events, budgets, "numbers")
        _ = calibrated.bound  # noise that is too large is refused now, not during the run
        return calibrated

    def refuse_unmentioned(self, events: Iterable[Event], budgets: Sequence[Budget], what: str) -> None:
        """Refuse budgets that say nothing about somebody whom these events tell something of others' columns."""
        told = {name for event in events for name in audience_of(event)}
        if missing := find_unbudgeted([name for name in self.owners if name in told], budgets, self.trust):
            who, them = ("which is", "it") if len(missing) == 1 else ("which are", "them")
            raise StudyError(
                f"no budget speaks of {itemise(missing)}, {who} told {what} about columns of others: give {them} an "
                "epsilon, or everyone one number [ST492]"
            )

    # --- the same task with given noise

    def adjustable(self, rows: int | None) -> Self:
        """The task itself; the number of rows is that of the study."""
        if rows not in (None, self.rows_limit):
            raise StudyError(
                "the number of rows stands in the study file, where bounds rest on it: change "
                f"task.{self.rows_key} [ST493]"
            )
        return self

    @property
    def priced(self) -> Self:
        """The task is what is priced, whatever its noise."""
        return self

    @property
    def number_of_rows(self) -> int:
        """How many people there are, or how many new people at most."""
        return self.rows_limit

    @property
    def error(self) -> float:
        """Standard deviation of the noise on a slope, or on a score besides the blur of its weights."""
        return self.noise_std

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity: of all messages of a party, or of a score."""
        return math.sqrt(self.noise / NOISE_UNIT)

    def with_error(self, error: float) -> Self:
        """The same with noise of about this deviation."""
        unit = self.with_noise(NOISE_UNIT).noise_std
        return self.with_noise(max(1, math.floor(Fraction(error) ** 2 / Fraction(unit) ** 2 * NOISE_UNIT)))

    def with_multiplier(self, multiplier: float) -> Self:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        return self.with_noise(max(1, math.ceil(Fraction(multiplier) ** 2 * NOISE_UNIT)))


def message_event(
    name: str, owner: str, numbers: int, square: int, variance: int, theorem: str, audience: tuple[str, ...]
) -> Event:
    """The event: an owner sends ``numbers`` numbers with its own noise; ``square`` is their squared sensitivity."""
    l1 = min(square, math.isqrt(numbers * square))
    moved = Sensitivity(l1, square, l1, square)  # no observer is judged by adding or removing a person
    return own_noise(owner, variance).release(name, numbers, moved, theorem=theorem, audience=audience, about=(owner,))


def own_noise(owner: str, variance: int) -> AdditiveNoise:
    """Noise that an owner draws alone."""
    return AdditiveNoise(CLOSEST_TO_GAUSSIAN, variance, (owner,))
