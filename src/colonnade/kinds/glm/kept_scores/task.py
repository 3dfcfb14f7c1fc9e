"""The public task of scores by kept weights: whose scores are sent to whom, within which bounds, under which noise.

Weights that were kept depend on the people they were fitted to, and so does every score made with them. So each sender
first adds noise to its weights ("blurs" them), for this question only, and makes the scores with the blurred weights.
What is left to protect is then one score of each new person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.glm.exchange.task import STEPS
from colonnade.privacy import Event, Trust
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, SECONDS_PER_PRODUCT, Load, seconds_on_wire
from colonnade.protocols.messages import NOISE_UNIT, OverMessages, told_event
from colonnade.protocols.task import Programs

PROTOCOL = "exchange-ask 1"
_STEEPEST = 6


@dataclass(frozen=True)
class Sender:
    """An owner whose scores are sent: how many weights it has, and its public bounds.

    ``drift`` is how far its weights move at most when one person was another in the fit, given all that the fit sent.
    """

    owner: str
    weights: int
    row_norm: float
    score_clip: float
    drift: float

    @property
    def lean(self) -> int:
        """The power of 2 by which noise on weights is larger than on scores, in units of squared sensitivity.

        At that ratio both together add the least noise to a score for the privacy that they cost together.
        """
        if not self.drift:
            return _STEEPEST
        square = (2 * Fraction(self.score_clip) / (Fraction(self.row_norm) * Fraction(self.drift))) ** 2
        # The nearest power of 2, by exact comparisons, which are the same on every machine.
        return sum(square >= Fraction(2) ** (2 * k - 1) for k in range(1 - _STEEPEST, 1 + _STEEPEST)) - _STEEPEST


@dataclass(frozen=True)
class KeptScoresTask(OverMessages):
    """The public task. All owners and the coordinator hold an equal one.

    Every owner but ``active`` is one of ``senders``, in the order of the owners, and sends one clipped score a person,
    in multiples of ``2^-bits``. The variance of the noise on scores is ``noise / 2^20`` times the square of what one
    person's columns can move. ``model`` is a digest of the model that is used, ``names`` are its encoded columns.
    """

    trust: Trust
    active: str
    senders: tuple[Sender, ...]
    rows_at_most: int
    noise: int = NOISE_UNIT
    bits: int = 28
    model: str = ""
    names: tuple[str, ...] = ()

    programs = Programs("colonnade.kinds.glm.kept_scores.programs")
    games = "glm-prediction"
    error_on = "score"
    rows_key = "rows_at_most"
    message_rounds = 7  # ready, go; salt, digests, verdict; scores

    def __post_init__(self) -> None:
        if self.active not in self.owners or tuple(sender.owner for sender in self.senders) != self.passives:
            raise ValueError("every owner but the active one is a sender, in order [VA134]")
        for sender in self.senders:
            if not (0 < sender.score_clip < math.inf and 0 <= sender.drift < math.inf):
                raise StudyError(
                    f"the bounds of {sender.owner} must be finite numbers, its clip of scores above 0 [ST454]"
                )

    # --- who

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (self.active,)

    def sender(self, owner: str) -> Sender:
        """One owner's bounds."""
        return self.senders[self.passives.index(owner)]

    # --- noise and events

    def _score_square(self, owner: str) -> int:
        """Given the blurred weights, only the person's own score moves."""
        return self.grid.sensitivity_squared(2 * Fraction(self.sender(owner).score_clip), 1)

    def _weights_square(self, owner: str) -> int:
        sender = self.sender(owner)
        return self.grid.sensitivity_squared(Fraction(sender.drift), sender.weights)

    def score_variance(self, owner: str) -> int:
        """The variance of the noise on each score, in squared steps of the grid."""
        return -(-self.noise * self._score_square(owner) // NOISE_UNIT)

    def weights_variance(self, owner: str) -> int:
        """The variance of the noise on each weight, in squared steps of the grid."""
        exact = self.noise * Fraction(2) ** self.sender(owner).lean * self._weights_square(owner) / NOISE_UNIT
        return math.ceil(exact)

    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each score."""
        return self.deviation_of(self.score_variance(owner))

    def blur(self, owner: str) -> float:
        """About the deviation that blurred weights give to a score, for a row of half its largest squared norm."""
        each = self.deviation_of(self.weights_variance(owner))
        return float(self.sender(owner).row_norm * each * math.sqrt(0.5))

    def score_event(self, owner: str) -> Event:
        """The event that an owner's scores are sent, which tells about its columns of a new person."""
        square = self._score_square(owner)
        return self._event(f"new scores of {owner}", owner, self.rows_at_most, square, self.score_variance(owner))

    def weights_event(self, owner: str) -> Event:
        """The event of its blurred weights, which tell about people in the fit; only scores with them are sent."""
        size, square = self.sender(owner).weights, self._weights_square(owner)
        return self._event(f"blurred weights of {owner}", owner, size, square, self.weights_variance(owner))

    def _event(self, name: str, owner: str, numbers: int, square: int, variance: int) -> Event:
        return told_event(name, owner, numbers, square, variance, STEPS, (self.active,))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of scores and of the weights in them; both count for a person who is new and in the fit."""
        return tuple(made(owner) for owner in self.passives for made in (self.weights_event, self.score_event))

    @property
    def openings(self) -> Mapping[Event, int]:
        """How often the numbers of each event are sent; blurred weights never are."""
        return {self.score_event(owner): 1 for owner in self.passives}

    # --- what sessions, studies and records ask

    @property
    def rows_limit(self) -> int:
        """As many as were allowed."""
        return self.rows_at_most

    @property
    def bound(self) -> int:
        """The largest magnitude of a number that is sent."""
        widest = max(max(self.score_variance(owner), self.weights_variance(owner)) for owner in self.passives)
        return self.bound_of(max(sender.score_clip for sender in self.senders), widest, "raise epsilon")

    @property
    def noise_std(self) -> float:
        """The largest standard deviation of the noise on one party's score."""
        return max(self.deviation(owner) for owner in self.passives)

    def load(self, name: str, rows: int, pace: float) -> Load:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""
        widths = {sender.owner: sender.weights - 1 for sender in self.senders}
        widths[self.active] = len(self.names) - sum(widths.values())
        width = widths.get(name, 0)
        sent, drawn = (NUMBER * rows, rows + width) if name in self.passives else (0, 0)
        memory = BASE_MEMORY + (NUMBER * rows * (3 * width + 4) if name in self.owners else 0)
        seconds = pace * drawn + seconds_on_wire(sent, self.message_rounds)
        return Load(name, sent, memory, seconds + 2 * SECONDS_PER_PRODUCT * rows * width)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.noise_facts | {
            "deviations": {owner: self.deviation(owner) for owner in self.passives},
            "blurs": {owner: self.blur(owner) for owner in self.passives},
            "to": self.active,
            "rows_at_most": self.rows_at_most,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "owners": list(self.owners),
            "active": self.active,
            "senders": [
                [each.owner, each.weights, each.lean, *(v.hex() for v in (each.row_norm, each.score_clip, each.drift))]
                for each in self.senders
            ],
            "rows_at_most": self.rows_at_most,
            "bits": self.bits,
            "law": self.law,
            "noise": str(self.noise),
            "model": self.model,
        }
