"""The public task of levels: whose part of the scores is cut where, and how likely the true level is answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from colonnade.errors import StudyError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import Event, Trust
from colonnade.privacy.noise.response import MOST_EPSILON, odds_for
from colonnade.privacy.releases import RandomisedResponse
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, Cells, Load, seconds_on_wire, seconds_per_draw
from colonnade.protocols.task import RESPONSE, Programs, Task

THEOREM = "levels-of-scores"
PROTOCOL = "levels 1"
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
class Levels(Task):
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

    programs = Programs("colonnade.kinds.prediction.levels.programs")
    games = "prediction-levels"
    law = RESPONSE
    noise_on = "a score, as far as what is public foretells it"
    message_rounds = 7  # ready, go; salt, digests, verdict; levels
    one_by_one = False
    """Whether people can be asked about one by one, on demand."""
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
        return odds_for(float(each))

    @property
    def answered(self) -> tuple[tuple[Respondent, float], ...]:
        """Who answers with levels, and how likely its true one."""
        return tuple((each, float(self.odds / (self.odds + each.levels - 1))) for each in self.asked)

    def event_of(self, asked: Respondent) -> Event:
        """One answer of an owner about each person."""
        name = f"levels of {asked.owner}"
        return RandomisedResponse(name, self.odds, asked.levels, asked.owner, THEOREM, audience=(self.to,))

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

    def cells(self, name: str, rows: int) -> Cells:
        """Nothing is shared."""
        return Cells(0, 0, 0)

    def loads(self, participants: Iterable[str], rows: int) -> tuple[Load, ...]:
        """Bytes, memory and seconds of each participant."""
        pace = seconds_per_draw()
        found = []
        for name in participants:
            sent = NUMBER * rows if self.part(name) else 0
            memory = BASE_MEMORY + (8 * NUMBER * rows if name in self.owners else 0)
            drawing = pace * rows if sent else 0.0
            found.append(Load(name, sent, memory, drawing + seconds_on_wire(sent, self.message_rounds)))
        return tuple(found)

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
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
