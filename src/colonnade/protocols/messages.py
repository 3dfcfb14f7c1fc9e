"""What tasks share whose parties tell each other noised numbers: nobody holds shares, and noise is the sender's own."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

from colonnade.errors import StudyError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import Event, Sensitivity
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.cost import Cells
from colonnade.protocols.task import Adjustable, Task

NOISE_UNIT = 1 << 20  # the noise is a squared multiple of the sensitivity, in units of its inverse


class Told(Task):
    """A task without a committee."""

    noise: int
    told_number: ClassVar[str]
    """What is told, in a word: a slope, or a score."""
    why_no_rounds: ClassVar[str]
    """Why rounds cannot be counted."""
    rows_key: ClassVar[str]
    """The key of a study file that states the number of rows."""

    @property
    def committee(self) -> Committee:
        """Nobody holds shares."""
        return Committee((), 0, ResidueSystem.for_bound(1))

    @property
    def law(self) -> str:
        """The law of the noise."""
        return "discrete-gaussian"

    @property
    def noise_on(self) -> str:
        """Which number has noise, in words."""
        return f"a {self.told_number} that is told"

    def cells(self, name: str, rows: int) -> Cells:
        """Nothing is shared."""
        return Cells(0, 0, 0)

    @property
    @abstractmethod
    def times_told(self) -> int:
        """How often numbers are told."""

    def adjustable(self, rows: int | None) -> AdjustedMessages:
        """The same with given noise; the number of rows is that of the study."""
        if rows not in (None, self.rows_limit):
            raise StudyError(
                f"the number of rows stands in the study file, where bounds rest on it: change task.{self.rows_key}"
            )
        return AdjustedMessages(self)

    def with_noise(self, noise: int) -> Self:
        """The same with this noise, at least the least that there is."""
        changed: dict[str, Any] = {"noise": max(1, noise)}
        return replace(self, **changed)  # type: ignore[type-var]  # every task is a dataclass


@dataclass(frozen=True)
class AdjustedMessages(Adjustable):
    """Noised numbers that parties tell each other; the error is that of a slope, or of a score by kept weights."""

    task: Told

    @property
    def error_on(self) -> str:
        """A slope or a score."""
        return self.task.told_number

    @property
    def why_no_rounds(self) -> str:
        """The task has its own reason."""
        return self.task.why_no_rounds

    @property
    def why_no_rows(self) -> str:
        """Noise follows from one person's part in all messages."""
        return "the noise in messages of study {study} hardly depends on its rows: ask --epsilon"

    @property
    def priced(self) -> Told:
        """The task with this noise."""
        return self.task

    @property
    def number_of_rows(self) -> int:
        """How many people there are, or of scores how many at most."""
        return self.task.rows_limit

    @property
    def number_of_rounds(self) -> int:
        """How often numbers are told."""
        return self.task.times_told

    @property
    def error(self) -> float:
        """Standard deviation of the noise on a slope, or on a score besides the blur of its weights."""
        return self.task.noise_std

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity: of all messages of a party, or of a score."""
        return math.sqrt(self.task.noise / NOISE_UNIT)

    def with_error(self, error: float) -> Self:
        """The same with noise of about this deviation."""
        unit = self.task.with_noise(NOISE_UNIT).noise_std
        return self._with_noise(math.floor(Fraction(error) ** 2 / Fraction(unit) ** 2 * NOISE_UNIT))

    def with_multiplier(self, multiplier: float) -> Self:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        return self._with_noise(math.ceil(Fraction(multiplier) ** 2 * NOISE_UNIT))

    def _with_noise(self, noise: int) -> Self:
        return replace(self, task=self.task.with_noise(noise))


def told(
    name: str, owner: str, numbers: int, square: int, variance: int, theorem: str, audience: tuple[str, ...]
) -> Event:
    """The event of numbers with noise of their owner alone; ``square`` is their squared sensitivity, on the grid."""
    l1 = min(square, math.isqrt(numbers * square))
    moved = Sensitivity(l1, square, l1, square)  # nobody is held to adding or removing a person here
    return own_noise(owner, variance).release(name, numbers, moved, theorem=theorem, audience=audience, about=(owner,))


def own_noise(owner: str, variance: int) -> AdditiveNoise:
    """Noise that an owner draws alone."""
    return AdditiveNoise("discrete-gaussian", variance, (owner,))
