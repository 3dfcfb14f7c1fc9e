"""The public task of joint scores: whose parts are added up, who gets the sums, their bounds and their noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from colonnade.errors import CapacityError, StudyError
from colonnade.privacy import Event, NonPrivate, Sensitivity, Trust
from colonnade.privacy.noise_laws import DEFAULT_LAW, AdditiveNoise
from colonnade.protocols.committee_task import LARGEST_MESSAGE, CommitteeTask, JointSumTask
from colonnade.protocols.cost import WORD, ShareCounts
from colonnade.protocols.task import TaskPrograms

THEOREM = "joint-prediction"
PROTOCOL = "scores 1"
EVENT = "scores"
_NAMED = 4


@dataclass(frozen=True)
class ScorePart:
    """One owner's part of the scores: its least and largest whole number in each class."""

    owner: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or any(a > b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(f"the part of {self.owner} needs one low and one high end a class, low first [VA149]")

    @property
    def widths(self) -> tuple[int, ...]:
        """How far the columns of one person can move each class."""
        return tuple(high - low for low, high in zip(self.low, self.high, strict=True))

    @property
    def reach(self) -> int:
        """The largest magnitude of a number in it."""
        return max(map(abs, (*self.low, *self.high)))


@dataclass(frozen=True)
class Scores(JointSumTask):
    """The public task. All owners and the coordinator hold an equal one.

    ``to`` receives, for each person, what the parts of all *other* owners add up to, in units of ``1 / gamma``. It
    adds its own part itself and never sends it. ``noise`` is the mu of Skellam noise from the other owners
    together, 0 for exact scores. ``names`` are the encoded columns and ``model`` is a digest of the weights.
    """

    parts: tuple[ScorePart, ...]
    trust: Trust
    to: str
    gamma: int
    rows_at_most: int
    noise: int = 0
    names: tuple[str, ...] = ()
    model: str = ""

    programs = TaskPrograms("colonnade.kinds.prediction.scores.programs")
    law = DEFAULT_LAW
    noise_on = "a score"
    why_not_lanes = CommitteeTask.why_not_lanes
    width = 0
    answered: ClassVar[tuple[Any, ...]] = ()  # nobody answers with levels
    one_by_one = True
    rows_per_block = JointSumTask.block_rows
    message_rounds = 8  # ready, go; salt, digests, verdict; shares; keys; opening

    def __post_init__(self) -> None:
        if self.owners != self.trust.owners or len({len(part.low) for part in self.parts}) != 1 or not self.classes:
            raise ValueError("every owner has one part, and all parts are about the same classes [VA150]")
        if self.to not in self.owners:
            raise StudyError(
                f"the scores can be opened to one of {', '.join(self.owners)}, not to {self.to!r}: whoever is "
                "entitled to them must hold the ids, and the coordinator never does [ST533]"
            )
        if self.noise < 0 or self.noise % len(self.dealers):
            raise ValueError("the noise is split evenly among the owners that are not entitled to the scores [VA151]")

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Who takes part with columns, in order."""
        return tuple(part.owner for part in self.parts)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (self.to,)

    @cached_property
    def dealers(self) -> tuple[str, ...]:
        """Whose parts are shared, and who adds noise: all owners but the one that receives the sum."""
        return tuple(owner for owner in self.owners if owner != self.to)

    @property
    def classes(self) -> int:
        """How many scores each person gets."""
        return len(self.parts[0].low)

    @property
    def exact(self) -> bool:
        """Whether the scores are opened without noise."""
        return self.noise == 0

    @property
    def games(self) -> str:
        """The name of the games that audit it."""
        return "" if self.exact else "prediction"

    @property
    def additive(self) -> AdditiveNoise:
        """The noise of all dealers on a score."""
        return AdditiveNoise(self.law, self.noise, self.dealers)

    def part(self, owner: str) -> ScorePart:
        """The bounds of one owner's summand."""
        return self.parts[self.owners.index(owner)]

    @property
    def dealt(self) -> tuple[ScorePart, ...]:
        """The summands that are shared."""
        return tuple(part for part in self.parts if part.owner != self.to)

    @cached_property
    def event(self) -> Event:
        """What the one opening reveals, and to whom."""
        if self.exact:
            return NonPrivate(reason=self._reason, name=EVENT, audience=(self.to,))
        return self.additive.release(
            EVENT,
            self.classes,  # of one person: all other rows are the same in both tables
            self.sensitivity,
            theorem=THEOREM,
            audience=(self.to,),
            about=self.dealers,
        )

    @property
    def sensitivity(self) -> Sensitivity:
        """How far the others' columns can move one person's scores; no recipient is judged by adding or removing."""
        moved = [sum(widths) for widths in zip(*(part.widths for part in self.dealt), strict=True)]
        l1, l2_squared = sum(moved), sum(width**2 for width in moved)
        return Sensitivity(l1, l2_squared, l1, l2_squared)

    @property
    def entries(self) -> int:
        """As many numbers as may be opened."""
        return self.rows_at_most * self.classes

    @property
    def opened_degree(self) -> int:
        """That of an input, since nothing is multiplied."""
        return self.trust.threshold

    @property
    def _reason(self) -> str:
        shown = self.dealers if len(self.dealers) <= _NAMED else (*self.dealers[:2], f"{len(self.dealers) - 2} more")
        return (
            f"{self.to} receives the exact score of every person, hence exactly what the columns of "
            f"{', '.join(shown)} add up to in it"
        )

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened number can have."""
        bound = sum(part.reach for part in self.dealt) + (0 if self.exact else self.additive.reach())
        return self.within_63_bits(bound, what="scores")

    def check_messages(self, primes: int) -> None:
        """Refuse more people than one message can carry scores of."""
        if not self.fits_message(self.rows_at_most * self.classes, primes):
            most = LARGEST_MESSAGE // (WORD * self.classes * primes)
            raise CapacityError(
                f"scores of {self.rows_at_most} people do not fit one message: set rows_at_most to {most} or less and "
                "ask in several studies [CA031]"
            )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on one score."""
        return self.additive.deviation / self.gamma

    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds shares of, and sends shares of."""
        cells, seated = rows * self.classes, name in self.trust.committee
        return ShareCounts(
            dealt=cells if name in self.dealers else 0,
            held=cells * len(self.dealers) if seated else 0,
            opened=cells if seated and name != self.to else 0,
        )

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "parts": [[part.owner, list(map(str, part.low)), list(map(str, part.high))] for part in self.parts],
            "to": self.to,
            "names": list(self.names),
            "model": self.model,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.shares_facts | {
            "exact": self.exact,
            "to": self.to,
            "classes": self.classes,
            "rows_at_most": self.rows_at_most,
        }
