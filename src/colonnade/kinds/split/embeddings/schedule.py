"""How often embeddings are told and encoders updated, and how much noise each of that gets: public values alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from colonnade.errors import StudyError
from colonnade.privacy import Trust
from colonnade.protocols.message_task import NOISE_UNIT, MessageTask

GRADIENT_BITS = 30
"""A clipped gradient is at most 2^30 steps of its own grid long."""
_MOST_TIMES = 10_000

Training = Literal["none", "labels", "rounds"]
New = Literal["no", "noised", "clear"]


@dataclass(frozen=True)
class Sender:
    """A party that tells embeddings: their width and largest norm, and how many numbers its encoder learns."""

    owner: str
    width: int
    clip: float
    parameters: int = 0


@dataclass(frozen=True)
class Schedule(MessageTask):
    """The public values of telling embeddings.

    Every owner but ``active`` is one of ``senders``, in the order of the owners. Each person's embedding is told
    ``releases`` times, and before that once more if there is a ``stage`` in which centre and scale are learned, in
    multiples of ``2^-bits``. ``training`` says how encoders learn:

    * ``none``: not at all;
    * ``labels``: the active party tells its labels once; each party trains alone, in ``epochs`` over ``batches``,
      against a public direction of each class, and tells embeddings after that;
    * ``rounds``: in every epoch embeddings are told, and slopes of a head come back that knows nothing but these and
      the labels that were told. Releases beyond the epochs follow after them.

    ``noise / 2^20`` is 1 / mu^2 of all that is about one person's columns with one party: ``share`` of mu^2 is spent on
    embeddings, of that ``first_share`` on those of the stage, the rest on updates. Labels are told through randomised
    response with ``label_odds``, or as they are where that is ``None``. Between the two clips embeddings are multiplied
    by ``stretch`` until a scale is learned: above 1, more of them reach the clip, where noise matters least.
    """

    trust: Trust
    active: str
    senders: tuple[Sender, ...]
    rows: int
    classes: int = 0
    releases: int = 1
    stage: bool = False
    training: Training = "none"
    epochs: int = 0
    batches: int = 1
    share: Fraction = Fraction(3, 4)
    first_share: Fraction = Fraction(1, 8)
    label_odds: Fraction | None = None
    learning_rate: float = 0.02
    gradient_clip: float = 1.0
    margin: float = 1.2
    contrast: float = 0.3
    stretch: float = 1.0
    noise: int = NOISE_UNIT
    bits: int = 20
    new: New = "no"
    model: str = ""

    def __post_init__(self) -> None:
        if self.active not in self.owners or tuple(sender.owner for sender in self.senders) != self.passives:
            raise ValueError("every owner but the active one is a sender, in order [VA131]")
        if self.trust.committee:
            raise ValueError("nobody holds shares of embeddings that are told [VA132]")
        self._check_senders()
        self._check_times()
        if self.classes == 1 or self.classes < 0:
            raise StudyError("a label has at least two classes [ST431]")
        if self.training != "none" and not self.classes:
            raise StudyError(
                "encoders are trained against classes, and the label is a number: use training = none [ST432]"
            )
        if self.training != "none" and self.label_odds is not None and self.label_odds <= 1:
            raise StudyError("labels that are answered by chance alone teach nothing: raise the label epsilon [ST433]")
        for name, part in (("share", self.share), ("first_share", self.first_share)):
            if not 0 < part < 1:
                raise StudyError(f"{name} must lie between 0 and 1, both excluded [ST434]")
        for name, value in (
            ("learning_rate", self.learning_rate),
            ("gradient_clip", self.gradient_clip),
            ("margin", self.margin),
            ("stretch", self.stretch),
        ):
            if not 0 < value < math.inf:
                raise StudyError(f"{name} must be a finite number above 0 [ST435]")
        if not 0 <= self.contrast < math.inf:
            raise StudyError("contrast must be a finite number, not negative [ST436]")

    def _check_senders(self) -> None:
        for sender in self.senders:
            if sender.width < 1 or not 0 < sender.clip < math.inf:
                raise StudyError(
                    f"the embeddings of {sender.owner} need a width of at least 1 and a clip above 0 [ST437]"
                )
            if not 1 <= self.radius(sender.owner) < 2**31 or sender.width * self.radius(sender.owner) ** 2 >= 2**62:
                raise StudyError(
                    f"the clip of {sender.owner} does not fit steps of 2^-{self.bits}: scale its encoder [ST438]"
                )
            if self.training != "none" and sender.parameters < 1:
                raise StudyError(f"the encoder of {sender.owner} has nothing to learn: use training = none [ST439]")

    def _check_times(self) -> None:
        if not 1 <= self.batches <= max(1, self.rows):
            raise StudyError(f"{self.rows} rows cannot be split into {self.batches} batches [ST440]")
        if not 1 <= self.releases <= _MOST_TIMES:
            raise StudyError(f"embeddings are told between 1 and {_MOST_TIMES:,} times: change releases [ST441]")
        if (self.training == "none") != (self.epochs == 0) or not 0 <= self.epochs <= _MOST_TIMES:
            raise StudyError(f"encoders that learn need between 1 and {_MOST_TIMES:,} epochs, others none [ST442]")
        if self.training == "rounds" and self.releases < self.epochs:
            raise StudyError("in rounds an embedding is told in every epoch: releases must be at least epochs [ST443]")
        if self.new != "no" and (self.training != "none" or self.stage or self.releases != 1):
            raise StudyError("embeddings of new people are told once, by encoders that do not learn [ST444]")

    # --- who

    def sender(self, owner: str) -> Sender:
        """One party's embeddings."""
        return self.senders[self.passives.index(owner)]

    @property
    def audience(self) -> tuple[str, ...]:
        """Who is told embeddings; in rounds all parties are, as slopes that others receive depend on them."""
        return self.owners if self.training == "rounds" else (self.active,)

    # --- how often

    @property
    def frozen_releases(self) -> int:
        """How often embeddings are told by encoders that no longer change."""
        return self.releases - (self.epochs if self.training == "rounds" else 0)

    @property
    def averaged(self) -> int:
        """Over how many releases the active party averages an embedding: the last one, or all of a frozen encoder."""
        return max(1, self.frozen_releases)

    @property
    def first_scale(self) -> float:
        """The factor between the clips until one is learned.

        The mean of all classes' points is zero. So where labels are answered at random, an encoder that is trained
        against the points of the answers learns to reach this public part of each true point.
        """
        if self.training != "labels" or self.label_odds is None:
            return self.stretch
        return self.stretch * float((self.label_odds + self.classes - 1) / (self.label_odds - 1))

    # --- noise and events

    def radius(self, owner: str) -> int:
        """The largest norm of an embedding that is told, in steps of the grid."""
        return math.floor(Fraction(self.sender(owner).clip) * (1 << self.bits))

    @property
    def parts(self) -> Mapping[str, Fraction]:
        """Which part of mu^2 is spent on the stage, on other embeddings and on updates."""
        told = Fraction(1) if self.training == "none" else self.share
        first = told * self.first_share if self.stage else Fraction(0)
        return {"stage": first, "embeddings": told - first, "updates": 1 - told}

    def _multiple(self, kind: str, times: int) -> Fraction:
        """The variance of noise over the squared sensitivity, for ``times`` releases of this kind."""
        return times * Fraction(self.noise, NOISE_UNIT) / self.parts[kind]

    def first_variance(self, owner: str) -> int:
        """The variance of the noise in the stage, in squared steps of the grid."""
        return math.ceil(self._multiple("stage", 1) * moved_square(self.radius(owner)))

    def embedding_variance(self, owner: str) -> int:
        """The variance of the noise on each number of an embedding, in squared steps of the grid."""
        return math.ceil(self._multiple("embeddings", self.releases) * moved_square(self.radius(owner)))

    @property
    def update_variance(self) -> int:
        """The variance of the noise on each number of an encoder's update, in squared steps of the gradients' grid."""
        return math.ceil(self._multiple("updates", self.epochs) * moved_square(1 << GRADIENT_BITS))

    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each number of an embedding as it is told."""
        return 0.0 if self.new == "clear" else self.deviation_of(self.embedding_variance(owner))

    def received_variance(self, owner: str) -> float:
        """The variance of the noise on each number of an embedding that the active party ends with."""
        return self.deviation(owner) ** 2 / self.averaged


def moved_square(radius: int) -> int:
    """How far a vector of at most this norm moves when it is replaced, squared."""
    return 4 * radius * radius
