"""The public tasks of joint scores: sums with their bounds and noise, or levels that are answered at random.

Where levels begin tells most of a normal part for a given epsilon: a part of mean m and deviation s is cut at m + s z,
where z are quantiles of the standard normal law, stretched. The share of its variance that an answer tells is known in
closed form (``docs/theory/levels-of-scores.md``), and the best of a few choices is taken. Only public numbers are used,
so a part that is not normal costs accuracy and no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

from colonnade.errors import CapacityError, StudyError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import Event, NonPrivate, Sensitivity, Trust
from colonnade.privacy.noise.local_mechanisms import MOST_EPSILON, odds_of_epsilon
from colonnade.privacy.noise_laws import DEFAULT_LAW, AdditiveNoise, RandomisedResponse
from colonnade.protocols.committee_task import LARGEST_MESSAGE, CommitteeTask, JointSumTask
from colonnade.protocols.cost import (
    BASE_MEMORY,
    NUMBER,
    WORD,
    ParticipantLoad,
    ShareCounts,
    seconds_on_wire,
    seconds_per_draw,
)
from colonnade.protocols.task import RESPONSE, Task, TaskPrograms

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

    programs = TaskPrograms("colonnade.kinds.prediction.programs")
    law = DEFAULT_LAW
    noise_on = "a score"
    why_not_lanes = CommitteeTask.why_not_lanes
    width = 0
    rests_on_bounds = False
    answered: ClassVar[tuple[Any, ...]] = ()  # nobody answers with levels
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


_MOST_LEVELS = 16
_STRETCHES = (1.0, 1.1, 1.2, 1.3, 1.4)
_NORMAL = NormalDist()


@dataclass(frozen=True)
class CutChoice:
    """Cuts of the standard normal law, and the share of the variance that an answer tells."""

    cuts: tuple[float, ...]
    heard: float

    def whole(self, mean: float, deviation: float, gamma: int) -> tuple[int, ...]:
        """The cuts of a part of this mean and deviation, in steps of ``1 / gamma`` and one above the other."""
        found: list[int] = []
        for cut in self.cuts:
            at = round(gamma * (mean + deviation * cut))
            found.append(max(at, found[-1] + 1) if found else at)
        return tuple(found)


@lru_cache(maxsize=256)
def best_cuts(epsilon: float) -> CutChoice:
    """The choice under which an answer tells the largest share of the variance."""
    many = [
        CutChoice(cuts, explained_variance(cuts, math.exp(epsilon)))
        for levels in range(2, _MOST_LEVELS + 1)
        for stretch in (_STRETCHES if levels > 2 else _STRETCHES[:1])
        for cuts in [tuple(stretch * _NORMAL.inv_cdf(k / levels) for k in range(1, levels))]
    ]
    return max(many, key=lambda choice: choice.heard)


def explained_variance(cuts: tuple[float, ...], odds: float) -> float:
    """The share of the variance of a standard normal number that is told by its level, answered with these odds.

    Of level k let P be the probability and A the first moment within it. With w the odds and K the number of levels,
    answer k has the probability ((w - 1) P + 1) / (w + K - 1), and given it the mean is (w - 1) A / ((w - 1) P + 1).
    """
    levels, more = len(cuts) + 1, odds - 1
    share = 0.0
    for low, high in pairwise((-math.inf, *cuts, math.inf)):
        inside = _NORMAL.cdf(high) - _NORMAL.cdf(low)
        moment = _height(low) - _height(high)
        share += (more * moment) ** 2 / ((more * inside + 1) * (more + levels))
    return share


def _height(at: float) -> float:
    return 0.0 if math.isinf(at) else _NORMAL.pdf(at)


LEVELS_THEOREM = "levels-of-scores"
LEVELS_PROTOCOL = "levels 1"
NOISE_UNIT = 1 << 40
"""``noise = NOISE_UNIT`` means that all answers about a person together cost epsilon 1."""


@dataclass(frozen=True)
class Respondent:
    """An owner that answers: where its part is cut, in steps of ``1 / gamma``, and what it leaves unknown.

    ``left`` is the expected variance, in the units of scores, of what an answer does not tell; it has no part in the
    answers.
    """

    owner: str
    cuts: tuple[int, ...]
    left: float = 0.0

    def __post_init__(self) -> None:
        if not self.cuts or any(low >= high for low, high in pairwise(self.cuts)):
            raise ValueError(f"the part of {self.owner} needs cuts, one above the other [VA140]")

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self.cuts) + 1


@dataclass(frozen=True)
class QuantisedAnswers(Task):
    """The public task. All owners and the coordinator hold an equal one.

    Each of ``asked`` tells ``to``, for each person, one of its levels by randomised response; the others add nothing.
    Each answer may cost an equal part of epsilon, which is ``2^40 / noise``. ``names`` are the encoded columns and
    ``model`` is a digest of the weights.
    """

    trust: Trust
    to: str
    asked: tuple[Respondent, ...]
    gamma: int
    rows_at_most: int
    noise: int = NOISE_UNIT
    names: tuple[str, ...] = ()
    model: str = ""

    programs = TaskPrograms("colonnade.kinds.prediction.randomised_answers")
    games = "prediction-levels"
    law = RESPONSE
    noise_on = "a score, as far as what is public foretells it"
    classes = 1
    rests_on_bounds = False
    message_rounds = 7  # ready, go; salt, digests, verdict; levels
    released = "tells levels by randomised response"
    exact = False

    def __post_init__(self) -> None:
        if self.to not in self.owners:
            raise StudyError(
                f"the scores can be told to one of {', '.join(self.owners)}, not to {self.to!r}: whoever is entitled "
                "to them must hold the ids, and the coordinator never does [ST458]"
            )
        who = [each.owner for each in self.asked]
        if not who or self.noise < 1 or who != [name for name in self.owners if name in who and name != self.to]:
            raise ValueError(
                "those who are asked are owners in order, without the one that is told, and noise is positive [VA141]"
            )

    # --- who

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (self.to,)

    @cached_property
    def dealers(self) -> tuple[str, ...]:
        """Whose parts are told about."""
        return tuple(each.owner for each in self.asked)

    @property
    def committee(self) -> Committee:
        """Nobody holds shares."""
        return Committee((), 0, ResidueSystem.for_bound(1))

    def part(self, owner: str) -> Respondent | None:
        """Where an owner's part is cut; ``None`` if it is not asked."""
        return next((each for each in self.asked if each.owner == owner), None)

    # --- what it costs

    @cached_property
    def odds(self) -> Fraction:
        """How much likelier the true level is than any other one."""
        each = min(Fraction(MOST_EPSILON), Fraction(NOISE_UNIT, self.noise) / len(self.asked))
        return odds_of_epsilon(float(each))

    @property
    def answered(self) -> tuple[tuple[Respondent, float], ...]:
        """Who answers with levels, and how likely its true one."""
        return tuple((each, float(self.odds / (self.odds + each.levels - 1))) for each in self.asked)

    def event_of(self, asked: Respondent) -> Event:
        """One answer of an owner about each person."""
        name = f"levels of {asked.owner}"
        return RandomisedResponse(name, self.odds, asked.levels, asked.owner, LEVELS_THEOREM, audience=(self.to,))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Everything that is told."""
        return tuple(map(self.event_of, self.asked))

    # --- what sessions, studies and records ask

    @property
    def rows_limit(self) -> int:
        """As many as were allowed."""
        return self.rows_at_most

    @property
    def bound(self) -> int:
        """The largest level."""
        return max(each.levels for each in self.asked) - 1

    @property
    def noise_std(self) -> float:
        """The deviation of what stays unknown of a score, if the parts are spread as the public model says."""
        return float(sum(each.left for each in self.asked) ** 0.5)

    def cells(self, name: str, rows: int) -> ShareCounts:
        """Nothing is shared."""
        return ShareCounts(0, 0, 0)

    def loads(self, participants: Iterable[str], rows: int) -> tuple[ParticipantLoad, ...]:
        """Bytes, memory and seconds of each participant."""
        pace = seconds_per_draw()
        found = []
        for name in participants:
            sent = NUMBER * rows if self.part(name) else 0
            memory = BASE_MEMORY + (8 * NUMBER * rows if name in self.owners else 0)
            drawing = pace * rows if sent else 0.0
            found.append(ParticipantLoad(name, sent, memory, drawing + seconds_on_wire(sent, self.message_rounds)))
        return tuple(found)

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": LEVELS_PROTOCOL,
            "owners": list(self.owners),
            "to": self.to,
            "asked": [[each.owner, list(map(str, each.cuts))] for each in self.asked],
            "odds": str(self.odds),
            "gamma": self.gamma,
            "rows_at_most": self.rows_at_most,
            "names": list(self.names),
            "model": self.model,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return {
            "law": self.law,
            "noise_std": self.noise_std,
            "answers": "levels",
            "levels": {each.owner: each.levels for each in self.asked},
            "odds": float(self.odds),
            "to": self.to,
            "rows_at_most": self.rows_at_most,
        }
