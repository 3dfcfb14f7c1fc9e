"""The contract of a public task: all that sessions, studies, audits and reports may ask of it.

A task is a frozen value, and every participant holds an equal one. A class of tasks that lacks a member is refused when
its kind is loaded (:func:`check_complete`), not when somebody prices or runs a task.

A :class:`MessageTask` is what tasks have in common whose parties send each other noised numbers: nobody holds shares.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, Self

from colonnade.errors import CapacityError, StudyError
from colonnade.lazy import LazyModule
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import Budget, Observer, Sensitivity, Trust, views
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.events import Event, audience_of
from colonnade.privacy.noise.local_mechanisms import Grid
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, AdditiveNoise, LawName
from colonnade.privacy.observers import Inputs, find_unbudgeted
from colonnade.privacy.statement import CLIPPED
from colonnade.protocols.cost import (
    BASE_MEMORY,
    ROUNDS_OF_CHECKS,
    ROUNDS_OF_PROOFS,
    SECONDS_OF_SETTLEMENT,
    WORD,
    ParticipantLoad,
    ShareCounts,
    checking_cost,
    seconds_on_wire,
    seconds_per_cell,
    seconds_per_draw,
)
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.cell_parsing import itemise

Response = Literal["randomised-response"]
RESPONSE: Final = "randomised-response"
"""In place of a law of noise, where answers are true or another one."""


class RevealingTask(ABC):
    """What is revealed, and the trust between the participants that its price rests on."""

    trust: Trust

    @property
    @abstractmethod
    def events(self) -> tuple[Event, ...]:
        """Everything that is revealed."""


class RunnableTask(RevealingTask):
    """What a session needs: who takes part, on which committee, and what may be revealed."""

    aligns: ClassVar[bool] = False
    """Whether common people are looked for, so that more rules must be the same at all owners."""
    goes_on_without: ClassVar[bool] = True
    """Whether others may go on when somebody is lost whom they could do without."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order; the first of them draws what all must share."""
        return self.trust.owners

    @property
    @abstractmethod
    def committee(self) -> Committee:
        """Seats, threshold and arithmetic; without seats nobody holds shares."""

    @property
    def openings(self) -> Mapping[Event, int]:
        """For each event, how often its numbers are opened or told."""
        return Counter(self.events)

    @property
    def noise_draws(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """Noise that owners will draw, each with the number of copies that it is for, as far as that is public."""
        return ()

    def prepare(self) -> None:
        """Make what drawing needs before anybody waits for it: it follows from public numbers alone."""
        for noise, copies in self.noise_draws:
            noise.prepare(copies)


class PricedTask(RevealingTask):
    """What can be priced before anybody agrees to it, whether or not there is a program for it."""

    clipped: ClassVar[str] = CLIPPED
    """The assumption of the privacy statement that says who keeps rows within their bounds."""
    rows_fixed: ClassVar[bool] = False
    """Whether the study states the exact number of rows, because the price rests on it."""
    released: ClassVar[str] = "releases no second moments"
    """What is released, as the end of a sentence that begins with the study; for noise that is not adjustable."""
    why_not_active: ClassVar[str | None] = "has no checks of what others compute"
    """Why security cannot be active, as the end of a sentence that begins with the study; ``None``: it can."""
    active_by_default: ClassVar[bool] = False
    """Whether security is active where nobody says: where checks alone cost at most half of the work again."""
    proofs: ClassVar[tuple[Inputs, ...]] = ("unproven",)
    """How owners can prove that what they deal keeps its bounds where security is active, the usual way first."""

    why_not_lanes: ClassVar[str | None] = "does not add up its people once"
    """Why people cannot be added up in lanes, as the end of a sentence that begins with the study; ``None``: they can.
    """

    @property
    def scheme(self) -> str | None:
        """What the way is called by which it is computed; ``None`` where there is only one."""
        return None

    @property
    def rounds_figures(self) -> dict[str, Any]:
        """Public figures of what is opened when, where it is opened in rounds."""
        return {}

    @property
    def rounds_in_words(self) -> tuple[str, ...]:
        """The same in words."""
        return ()

    @property
    def games(self) -> str:
        """The name of the games that audit such a task; empty where there are none."""
        return ""

    @property
    def possible_proofs(self) -> tuple[Inputs, ...]:
        """The same for this very task: some bounds cannot be proven."""
        return self.proofs

    @property
    def rests_on_bounds(self) -> bool:
        """Whether figures rest on the bounds of what *other* owners deal: not where that is only added up."""
        return True

    @property
    def usual_inputs(self) -> Inputs:
        """What owners prove where nobody says and security is active."""
        return self.possible_proofs[0] if self.rests_on_bounds else "needless"

    @property
    def usually_active(self) -> bool:
        """Whether security is active for this task where nobody says."""
        return self.active_by_default

    @property
    @abstractmethod
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""

    @property
    @abstractmethod
    def rows_limit(self) -> int:
        """The most rows that the task allows."""

    @property
    def rows_limited_by(self) -> str:
        """Which setting of a study to raise where there are more rows, as the end of a sentence."""
        return "rows_at_most"

    @property
    def rows_stated(self) -> int | None:
        """The number of people that the study states, exact or approximate; ``None`` if it states no number."""
        return None

    def adjustable(self, rows: int | None) -> AdjustableTask | None:
        """The task with given instead of calibrated noise, for about so many rows; ``None`` if that is not possible."""
        return None


class TaskPrograms(LazyModule):
    """The module with the programs of a class of tasks, imported when one of them is first asked for.

    What owners bring besides rows is the matter of the task.
    """

    owner: Callable[..., Any]
    """An owner's program: ``owner(me, rows, task)`` where all it brings are rows."""
    coordinator: Callable[..., Any]
    """The coordinator's program: ``coordinator(me, task)``."""
    simulate: Callable[..., Any]
    """What the protocol would publish, computed in one place: ``simulate(tables, task, stream)``."""
    reference: Callable[..., Any]
    """The same integers in the clear, before noise, where a task is on shares."""
    sum_rows: Callable[..., Any]
    own_noise: Callable[..., Any]
    release: Callable[..., Any]
    """The steps of a joint sum, which lanes take one by one (``protocols/joint_sum``)."""


class Task(RunnableTask, PricedTask):
    """A task that can be run."""

    noise: int
    programs: ClassVar[TaskPrograms]
    """What its participants run."""
    squares: ClassVar[int] = 3
    """How many numbers an owner deals beside each row where it proves the bound of the row's norm."""
    spares_seats: ClassVar[bool] = True
    """Whether the others can go on without a seat; not where every party deals something to the end."""

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (*self.owners, COORDINATOR)

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The encoded columns that it is about."""

    @property
    @abstractmethod
    def bound(self) -> int:
        """The largest magnitude of a number that is opened or told."""

    @property
    @abstractmethod
    def law(self) -> LawName | Response:
        """The law of the noise."""

    @property
    @abstractmethod
    def noise_std(self) -> float:
        """Standard deviation of the noise on one published number, in its own units."""

    @property
    @abstractmethod
    def noise_on(self) -> str:
        """Which published number ``noise_std`` is about, in words."""

    @property
    @abstractmethod
    def message_rounds(self) -> int:
        """How often participants wait for each other, from the beginning to the end, where nobody checks anything."""

    def protection(self, delta: float) -> dict[str, float]:
        """For each party the epsilon of the published result about its columns alone: here, about a whole person."""
        from colonnade.privacy import epsilon

        found = epsilon(views(self.events, Observer.coordinator(), self.trust), delta).epsilon
        return dict.fromkeys(self.owners, found)

    @property
    def settlements(self) -> int:
        """How often the seats check what was computed, where security is active."""
        return 1

    @property
    def losses(self) -> int:
        """How many seats may be lost once they have dealt everything, where security is active."""
        return self.committee.max_losses if self.spares_seats else 0

    @property
    def waits(self) -> int:
        """How often participants wait for each other, checks included."""
        if not self.trust.active:
            return self.message_rounds
        proofs = 0 if not self.trust.proven else ROUNDS_OF_PROOFS
        return self.message_rounds + ROUNDS_OF_CHECKS * self.settlements + proofs

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Plain values about the task, for the record of a run and whoever reads it."""

    @property
    def noise_facts(self) -> dict[str, Any]:
        """The facts about the noise, which every task has."""
        return {"law": self.law, "noise": str(self.noise), "noise_std": self.noise_std}

    def with_noise(self, noise: int) -> Self:
        """The same with other noise."""
        changed: dict[str, Any] = {"noise": noise}
        return replace(self, **changed)  # type: ignore[type-var]  # every task is a dataclass

    @abstractmethod
    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds shares of and opens, for so many rows."""

    def products(self, rows: int) -> int:
        """About how many products of two numbers a seat adds up on its shares; if unsaid, one for each it holds."""
        return max((self.cells(seat, rows).held for seat in self.trust.committee), default=0)

    @property
    def rows_at_once(self) -> int | None:
        """How many rows a seat holds at a time; ``None`` if it keeps all of them."""
        return None

    @property
    def rows_kept(self) -> int:
        """How many rows a seat that streams them keeps besides, until they are checked."""
        return 0

    def loads(self, participants: Iterable[str], rows: int) -> tuple[ParticipantLoad, ...]:
        """Bytes, memory and seconds of each participant, for a joint table of so many rows."""
        pace = seconds_per_cell(self.committee.system)
        return tuple(self._load_of_shares(name, rows, pace) for name in participants)

    def _load_of_shares(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        seats, primes, cells = self.trust.committee, len(self.committee.system.primes), self.cells(name, rows)
        checks = checking_cost(self.trust)
        if self.trust.proven:
            cells = self._with_squares(cells, name, rows)
        explicit = len(seats) - self.trust.threshold - (name in seats)
        sent = math.ceil(checks.sent * WORD * primes * (cells.dealt * explicit + cells.opened))
        # A task that streams its rows holds one block at a time, with work copies of it, and what is yet to be
        # checked; other tasks keep all rows.
        copies = 2 * rows if self.rows_at_once is None else 4 * min(rows, self.rows_at_once) + min(rows, self.rows_kept)
        at_once = max(cells.held, cells.dealt) * copies // rows
        opened = cells.opened // max(1, len(self.everyone) - 1)
        memory = BASE_MEMORY + 8 * primes * (at_once + 8 * opened)
        work = checks.work * primes * pace * (cells.dealt + cells.held)
        work += SECONDS_OF_SETTLEMENT * self.settlements if self.trust.active and name in seats else 0.0
        return ParticipantLoad(name, sent, memory, work + seconds_on_wire(sent, self.waits))

    def _with_squares(self, cells: ShareCounts, name: str, rows: int) -> ShareCounts:
        """The same with the numbers that owners deal beside their rows to prove bounds."""
        more = self.squares * rows
        dealt = more if name in self.owners else 0
        held = more * len(self.owners) if name in self.trust.committee else 0
        return ShareCounts(cells.dealt + dealt, cells.held + held, cells.opened)


@dataclass(frozen=True)
class AdjustableTask(ABC):
    """A task whose noise is given: by the error that is wanted, or as a multiple of the sensitivity."""

    error_on: ClassVar[str] = "mean"
    """Which number the error is about."""
    why_no_rounds: ClassVar[str | None] = "makes one release"
    """Why rounds cannot be counted, as the end of a sentence that begins with the study."""
    why_no_rows: ClassVar[str | None] = None
    """Why rows cannot be counted, as a sentence that names the study by ``{study}``."""

    @property
    @abstractmethod
    def priced(self) -> PricedTask:
        """The task with this noise."""

    @property
    @abstractmethod
    def number_of_rows(self) -> int | None:
        """About how many people there are; ``None`` if nobody said so."""

    @property
    @abstractmethod
    def error(self) -> float:
        """Standard deviation of the noise on the number that ``error_on`` names."""

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity; for Laplace noise the scale over L1 sensitivity."""

    @abstractmethod
    def with_error(self, error: float) -> Self:
        """The same with the most noise whose error is not above ``error``."""

    @abstractmethod
    def with_multiplier(self, multiplier: float) -> Self:
        """The same with the least noise that is not below a multiple of the sensitivity."""

    @property
    def number_of_rounds(self) -> int:
        """How often noisy numbers are revealed."""
        return 1

    @property
    def rows_between(self) -> tuple[int, int]:
        """The least and the largest number of rows that can be asked about."""
        return 1, self.priced.rows_limit

    @property
    def about_all(self) -> bool:
        """Whether every release is about all rows, so that their number changes only the error of a mean."""
        return True

    def with_rows(self, rows: int) -> Self:
        """The same for so many people; a task that cannot is refused with a sentence."""
        raise StudyError("the number of rows cannot be asked about for this kind of study: ask --epsilon [ST535]")

    def with_rounds(self, rounds: int) -> Self:
        """The same with so many rounds; a task that cannot is refused with a sentence."""
        raise StudyError("the number of rounds cannot be asked about for this kind of study: ask --epsilon [ST536]")


def check_complete(task: type[PricedTask], where: str) -> None:
    """Refuse a class of tasks that lacks members of the contract, and name them."""
    present = {*dir(task), *getattr(task, "__dataclass_fields__", ())}
    declared = {name for base in task.__mro__ for name in vars(base).get("__annotations__", ())}
    if missing := sorted({*getattr(task, "__abstractmethods__", ()), *(declared - present)}):
        raise StudyError(f"{where}: its task {task.__name__} lacks {', '.join(missing)} [ST537]")


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
