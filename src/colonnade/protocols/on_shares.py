"""What tasks have in common whose numbers a committee computes on shares and opens with noise of all owners."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from colonnade.errors import CapacityError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.verify.ranges import Ranges
from colonnade.privacy import Budget, Event, Trust
from colonnade.privacy.additive import AdditiveNoise, Law
from colonnade.privacy.calibrate import with_least_noise
from colonnade.protocols.cost import WORD, Cells
from colonnade.protocols.task import Task

LARGEST_MESSAGE = 2**27  # bytes
SHOWN = 38
"""Masks of one owner's proofs let through at most 2^-38 in a study, seats that are lost included."""


def who_know_batches(trust: Trust) -> tuple[str, ...]:
    """Who may know which people are in a drawn batch: the owners, and the seats that compute on it."""
    return (*trust.owners, *(name for name in trust.committee if name not in trust.owners))


class OnShares(Task):
    """A task on shares: ``gamma`` scales rows to integers, ``noise`` is that of all owners together."""

    gamma: int
    rows_at_most: int
    noise: int

    @property
    @abstractmethod
    def law(self) -> Law:
        """The law of the noise, which owners add up."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is opened, in all rounds together."""

    @property
    def charged(self) -> tuple[Event, ...]:
        """What is charged besides what is opened: nothing, unless the task says otherwise."""
        return ()

    @property
    def stages(self) -> tuple[Any, ...]:
        """What is done one after the other: one task, unless the task says otherwise."""
        return (self,)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that is revealed: one event, unless the task says otherwise."""
        return (self.event,)

    @property
    def rows_limit(self) -> int:
        """As many as the arithmetic is sized for."""
        return self.rows_at_most

    @property
    def additive(self) -> AdditiveNoise:
        """The noise of all owners on an opened number."""
        return AdditiveNoise(self.law, self.noise, self.owners)

    @property
    def drawn(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """The noise on an opened number."""
        return ((self.additive, 1),)

    def calibrated(self, budgets: Sequence[Budget]) -> Self:
        """The same with the least noise that keeps every budget."""
        return with_least_noise(self.with_noise, self.trust, budgets, owners=self.additive.parts)

    @property
    def proven(self) -> Mapping[str, Ranges]:
        """For each owner what it proves of its rows; empty where nothing is proven."""
        return {}

    @property
    def shown_by_proofs(self) -> Fraction:
        """How much the masks of all proofs can tell, as a statistical distance (theory: active-security)."""
        return Fraction(0 if self.trust.inputs == "unproven" else len(self.owners), 2**SHOWN)

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the bound and the proofs of owners need."""
        system = ResidueSystem.for_bound(max([self.bound, *(each.required_bound for each in self.proven.values())]))
        self.check_messages(len(system.primes))
        return Committee(self.trust.committee, self.trust.threshold, system, self.trust.active)

    @cached_property
    def for_sums(self) -> ResidueSystem:
        """The arithmetic of sums, which takes fewer primes than proofs; it has the first ones of the committee's."""
        return ResidueSystem.for_bound(self.bound)

    def check_messages(self, primes: int) -> None:
        """Refuse a task with messages that are too large; most tasks have none."""

    def fits_message(self, numbers: int, primes: int) -> bool:
        """Whether one message can carry shares of this many numbers."""
        return WORD * numbers * primes <= LARGEST_MESSAGE

    def within_63_bits(self, bound: int, also: str = "", what: str = "sums") -> int:
        """The bound on an opened number, or an error that names ``gamma`` and ``also`` as what can be lowered."""
        if bound >= 2**62:
            raise CapacityError(
                f"{what} may need {bound.bit_length() + 1} bits and 63 are available: lower gamma "
                f"({self.gamma}){also} [CA027]"
            )
        return bound

    @property
    def shares_agreement(self) -> dict[str, Any]:
        """The part of the agreement that every such task has."""
        return {
            "seats": list(self.trust.committee),
            "threshold": self.trust.threshold,
            "gamma": self.gamma,
            "rows_at_most": self.rows_at_most,
            "noise": str(self.noise),
            "primes": list(self.committee.system.primes),
            **({"security": self.trust.security, "inputs": self.trust.inputs} if self.trust.active else {}),
        }

    @property
    def shares_facts(self) -> dict[str, Any]:
        """Facts about the noise and the arithmetic."""
        return self.noise_facts | {
            "gamma": self.gamma,
            "columns": len(self.names),
            "primes": len(self.committee.system.primes),
            "value_bits": self.bound.bit_length() + 1,
            "system_bits": self.committee.system.bits,
            **({"security": self.trust.security, "inputs": self.trust.inputs} if self.trust.active else {}),
        }


class InRounds(OnShares):
    """A task on shares that opens a part of its one event in every round."""

    rounds: int
    why_not_lanes = "goes over its people in rounds, each of which depends on the ones before"

    @property
    @abstractmethod
    def rounds_ahead(self) -> int:
        """For how many rounds noise is dealt at a time."""

    @property
    def settlements(self) -> int:
        """How often the seats check what was computed: after dealing, and with every run of rounds."""
        return 1 - (-self.rounds // self.rounds_ahead)

    @property
    def openings(self) -> Mapping[Event, int]:
        """Every round is one opening."""
        return {self.event: self.rounds}

    @property
    def speaker(self) -> str:
        """Who opens numbers and sends them to the others: the first owner with a seat."""
        return next((name for name in self.trust.committee if name in self.owners), "")


class InStages(OnShares):
    """Several tasks, one after the other, that are planned and charged together; the last one gives the result."""

    @property
    @abstractmethod
    def stages(self) -> tuple[OnShares, ...]:
        """The tasks, with their noise; all have the same participants."""

    @property
    @abstractmethod
    def last(self) -> OnShares:
        """The last task, whatever its noise: what does not depend on noise is asked of it."""

    @property
    def trust(self) -> Trust:  # type: ignore[override]  # all have the same
        """Who takes part."""
        return self.last.trust

    @property
    def rows_at_most(self) -> int:  # type: ignore[override]
        """The most rows for which the arithmetic is sized."""
        return self.last.rows_at_most

    @property
    def law(self) -> Law:
        """The law of all noise."""
        return self.last.law

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the result is about."""
        return self.last.names

    @property
    def event(self) -> Event:
        """What the last task reveals."""
        return self.stages[-1].event

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What each of them reveals."""
        return tuple(stage.event for stage in self.stages)

    @property
    def drawn(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """The noise of all of them."""
        return tuple(noise for stage in self.stages for noise in stage.drawn)

    @property
    def settlements(self) -> int:
        """How often the seats check what was computed, in all of them."""
        return sum(stage.settlements for stage in self.stages)

    @property
    def openings(self) -> Mapping[Event, int]:
        """The openings of each of them."""
        return {event: often for stage in self.stages for event, often in stage.openings.items()}

    @property
    def bound(self) -> int:
        """The largest magnitude of a number that any of them opens."""
        return max(stage.bound for stage in self.stages)

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on a number of the last."""
        return self.stages[-1].noise_std

    def cells(self, name: str, rows: int) -> Cells:
        """How many numbers a participant shares, holds and sends when opening, in all of them."""
        each = [stage.cells(name, rows) for stage in self.stages]
        return Cells(*(sum(getattr(cells, part) for cells in each) for part in ("dealt", "held", "opened")))
