"""What tasks have in common whose numbers a committee computes on shares and opens with noise of all owners."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

from colonnade.errors import CapacityError, StudyError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.verification.claims import CLAIMED_ROWS, MOST_HELD
from colonnade.mpc.verification.input_proofs import (
    FOLDS,
    MOST_PROOFS,
    WINDOW_ROWS,
    ColumnGroup,
    InputRanges,
    longest_window,
    projections_for,
)
from colonnade.privacy import Budget, Event, Sensitivity, Trust
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.noise_laws import AdditiveNoise, LawName
from colonnade.protocols.cost import WORD
from colonnade.protocols.task import AdjustableTask, Task

LARGEST_MESSAGE = 2**27  # bytes
FEWEST_ROWS = 256
"""A window of rows that are checked together has at least so many."""
PROOF_LEAKAGE_BITS = 38
"""That one owner's proofs cannot be made tells at most 2^-38 in a study, seats that are lost included."""


def batch_observers(trust: Trust) -> tuple[str, ...]:
    """Who may know which people are in a drawn batch: the owners, and the seats that compute on it."""
    return (*trust.owners, *(name for name in trust.committee if name not in trust.owners))


class CommitteeTask(Task):
    """A task on shares: ``gamma`` scales rows to integers, ``noise`` is that of all owners together."""

    gamma: int
    rows_at_most: int
    noise: int

    @property
    @abstractmethod
    def law(self) -> LawName:
        """The law of the noise, which owners add up."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is opened, in all rounds together."""

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
    def noise_draws(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """The noise on an opened number."""
        return ((self.additive, 1),)

    def calibrate(self, budgets: Sequence[Budget]) -> Self:
        """The same with the least noise that keeps every budget."""
        return add_least_noise(self.with_noise, self.trust, budgets, owners=self.additive.parts)

    @property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner what it proves of every row; empty where nothing is proven."""
        return {}

    @property
    def proof_rows(self) -> int:
        """At most how many rows are proven together."""
        return self.rows_at_most

    @cached_property
    def proven(self) -> Mapping[str, InputRanges]:
        """For each owner its proofs."""
        rows = self.proof_rows if self.proof_groups else 0
        return {o: InputRanges(tuple(own), rows, self.projections) for o, own in self.proof_groups.items() if own}

    @property
    def projections(self) -> int:
        """How many projections a proof has."""
        return projections_for(self.trust.tries)

    def check_proofs(self, rows: int, runs: int = 1) -> None:
        """Refuse more proofs of one owner than an honest one can make: in so many runs, each of at most so many rows.

        A window ends with a block, so that all but the last have more than half of the rows that fit.
        """
        if self.proven and runs * -(-2 * rows // self.proof_rows) > MOST_PROOFS:
            raise CapacityError(
                f"with at most {self.rows_limit} rows an owner may have to prove more often than {MOST_PROOFS} times "
                f"that some of them keep their bounds: lower {self.rows_limited_by}, or ask about fewer columns [CA880]"
            )

    @property
    def shown_by_proofs(self) -> Fraction:
        """How much all proofs can tell, as a statistical distance (theory: active-security)."""
        return Fraction(0 if not self.trust.proven else len(self.owners), 2**PROOF_LEAKAGE_BITS)

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the bound and the proofs of owners need."""
        system = ResidueSystem.for_bound(max([self.bound, *(each.required_bound for each in self.proven.values())]))
        self.check_messages(len(system.primes))
        self.check_proofs(self.rows_limit)
        return Committee(self.trust.committee, self.trust.threshold, system, self.trust.active, self.trust.tries)

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
            **({"tries": self.trust.tries} if self.trust.active and self.trust.tries > 1 else {}),
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


class JointSumTask(CommitteeTask):
    """The public task of a joint sum: what it takes, apart from what is summed (``protocols/joint_sum``)."""

    hidden: bool = False
    """Whether nobody knows which people all owners hold, so that rows are slots of a common universe."""
    block_rows: int = 8192
    """At most how many rows are dealt at a time."""
    why_not_active: ClassVar[str | None] = None
    why_not_lanes: ClassVar[str | None] = None
    active_by_default: ClassVar[bool] = True

    @property
    @abstractmethod
    def entries(self) -> int:
        """How many numbers are opened."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers of a row a seat holds."""

    @property
    @abstractmethod
    def opened_degree(self) -> int:
        """The degree of the sharing that is opened: checked sums are lowered to that of an input."""

    @property
    @abstractmethod
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit a message and the memory of a seat."""

    @property
    def proof_rows(self) -> int:
        """What proofs of their bounds allow; several such windows are proven together."""
        most = min(self.rows_at_most, self.rows_per_window)
        return longest_window(self.proof_groups.values(), len(self.for_sums.primes), most, self.projections)

    @property
    def in_parts(self) -> bool:
        """Whether rows are dealt in parts, not on polynomials: by owners that have seats, to two more that follow."""
        return False

    @property
    def dealers(self) -> tuple[str, ...]:
        """Who deals sums and noise: all owners."""
        return self.owners

    @property
    def rows_per_window(self) -> int:
        """After how many rows products are claimed, where participants may deviate, and bounds of rows proven.

        A proof takes many messages, so it is of as many rows as memory may hold.
        """
        unproven = not self.trust.proven
        residues = len(self.for_sums.primes) * (1 if unproven else 2)  # as dealt, and as they are proven
        fitting = MOST_HELD // (8 * residues * max(1, self.width))
        return max(FEWEST_ROWS, min(CLAIMED_ROWS if unproven else WINDOW_ROWS, fitting))

    def block_of(self, most: int) -> int:
        """How many rows are dealt at a time if at most so many can be; where participants may deviate, whole windows.

        Folding takes rows together, and fills up a block that they do not divide.
        """
        if not self.trust.active:
            return max(1, most)
        window = self.proof_rows if self.proof_groups else self.rows_per_window
        rows = window // -(-window // max(1, most))
        return rows - rows % FOLDS[0] if rows > FOLDS[0] else rows

    @property
    def blocks_per_window(self) -> int:
        """After how many blocks of rows."""
        return max(1, self.rows_per_window // self.rows_per_block)

    @property
    def error_scale(self) -> Fraction:
        """What an error in published units is multiplied by to be one of opened integers."""
        return Fraction(self.gamma)

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far one person can move what is opened."""


@dataclass(frozen=True)
class AdjustedSum(AdjustableTask):
    """A joint sum with given noise; the error is that of a published number, over the number of people."""

    task: JointSumTask
    people: int | None
    finer: str = "task.gamma"
    """What to raise for integers that hold finer noise."""

    @property
    def priced(self) -> JointSumTask:
        """The task with this noise."""
        return self.task

    @property
    def number_of_rows(self) -> int | None:
        """About how many people it is."""
        return self.people

    @property
    def error(self) -> float:
        """Standard deviation of the noise on a published number, over the number of people."""
        return self.task.noise_std / (self.people or 1)

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity; for Laplace noise the scale over L1 sensitivity."""
        return self.task.additive.multiple_of(self.task.sensitivity)

    def with_error(self, error: float) -> Self:
        """The same with the most noise whose error is not above ``error``."""
        scale = self.task.additive.most_scale(Fraction(error) * (self.people or 1) * self.task.error_scale)
        if not scale:
            raise StudyError(
                f"noise of deviation {error:g} is finer than this study's integers: raise {self.finer} [ST505]"
            )
        return replace(self, task=self.task.with_noise(scale))

    def with_multiplier(self, multiplier: float) -> Self:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        scale = self.task.additive.least_scale(multiplier, self.task.sensitivity)
        return replace(self, task=self.task.with_noise(scale))

    def with_rows(self, rows: int) -> Self:
        """The same about ``rows`` people."""
        return replace(self, people=rows)


class IterativeTask(CommitteeTask):
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
