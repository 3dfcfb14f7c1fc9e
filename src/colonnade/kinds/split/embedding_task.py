"""The public task of telling embeddings: how often and with how much noise, its events, and what a run takes.

Every passive party tells the active one a clipped embedding of each person, with noise of its own. If its encoder
learns, each update of it is a noised sum of clipped gradients, and is charged as if it were told too.

Beside it stands the public task of adaptive embeddings as published: who tells embeddings, how they are
shaped, under which noise.

Besides, the steps of an encoder against its gradient: plain, or scaled by the gradients of earlier steps (Adam).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds.split.encoder_base import Vector
from colonnade.privacy import Budget, Event, Trust
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.calibrate import least_noise
from colonnade.privacy.noise_laws import NonPrivate, RandomisedResponse, RepeatedRelease
from colonnade.privacy.sensitivity import checked_whole
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, SECONDS_PER_PRODUCT, ParticipantLoad, seconds_on_wire
from colonnade.protocols.task import NOISE_UNIT, MessageTask, TaskPrograms, message_event

GRADIENT_BITS = 30
"""A clipped gradient is at most 2^30 steps of its own grid long."""
_MOST_TIMES = 10_000

Training = Literal["none", "labels", "rounds"]
NewPeople = Literal["no", "noised", "clear"]


@dataclass(frozen=True)
class EmbeddingSender:
    """A party that tells embeddings: their width and largest norm, and how many numbers its encoder learns."""

    owner: str
    width: int
    clip: float
    parameters: int = 0


class LabelPartyTask(MessageTask):
    """A task in which every owner but ``active`` sends embeddings; the ``senders`` stand in the order of the owners."""

    senders: tuple[EmbeddingSender, ...]
    rows: int
    rows_fixed: ClassVar[bool] = True
    rows_key: ClassVar[str] = "rows"
    error_on = "number of an embedding"

    def sender(self, owner: str) -> EmbeddingSender:
        """What one passive party tells."""
        return self.senders[self.passives.index(owner)]

    @abstractmethod
    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each number of an embedding as it is told."""

    @property
    def noise_std(self) -> float:
        """The largest standard deviation of the noise on a number of an embedding."""
        return max(map(self.deviation, self.passives))

    @property
    def rows_limit(self) -> int:
        """The exact number of people that the study states, or the most new people."""
        return self.rows


def squared_movement(radius: int) -> int:
    """How far a vector of at most this norm moves when it is replaced, squared."""
    return 4 * radius * radius


PROTOCOL = "embeddings 1"
THEOREM = "embedding-releases"
RESPONSE = "randomised-response"
LABELS_IN_CLEAR = "labels are told without protection: a label epsilon would randomise them"
EMBEDDINGS_IN_CLEAR = "embeddings of new people are told as they are, without noise"


@dataclass(frozen=True)
class EmbeddingTask(LabelPartyTask):
    """The public task of telling embeddings. All owners and the coordinator hold an equal one.

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
    senders: tuple[EmbeddingSender, ...]
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
    new: NewPeople = "no"
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
        return math.ceil(self._multiple("stage", 1) * squared_movement(self.radius(owner)))

    def embedding_variance(self, owner: str) -> int:
        """The variance of the noise on each number of an embedding, in squared steps of the grid."""
        return math.ceil(self._multiple("embeddings", self.releases) * squared_movement(self.radius(owner)))

    @property
    def update_variance(self) -> int:
        """The variance of the noise on each number of an encoder's update, in squared steps of the gradients' grid."""
        return math.ceil(self._multiple("updates", self.epochs) * squared_movement(1 << GRADIENT_BITS))

    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each number of an embedding as it is told."""
        return 0.0 if self.new == "clear" else self.deviation_of(self.embedding_variance(owner))

    def received_variance(self, owner: str) -> float:
        """The variance of the noise on each number of an embedding that the active party ends with."""
        return self.deviation(owner) ** 2 / self.averaged

    programs = TaskPrograms("colonnade.kinds.split.embedding_programs")
    scheme = "embeddings"
    why_no_rounds = "tells embeddings as often as its study says"

    @property
    def games(self) -> str:
        """The name of the games that audit it."""
        return "split-training" if self.training != "none" else "split-embeddings" if self.new != "clear" else ""

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (self.active,)

    # --- events

    def first_event(self, owner: str) -> Event:
        """The event that a party tells embeddings from which centre and scale are learned."""
        return self._told_event("first embeddings", owner, self.first_variance(owner), 1)

    def embedding_event(self, owner: str) -> Event:
        """The event that a party tells embeddings, as often as it does so."""
        if self.new == "clear":
            return NonPrivate(
                EMBEDDINGS_IN_CLEAR, name=f"embeddings of {owner}", audience=(self.active,), about=(owner,)
            )
        return self._told_event("embeddings", owner, self.embedding_variance(owner), self.releases)

    def _told_event(self, what: str, owner: str, variance: int, times: int) -> Event:
        numbers = self.rows * self.sender(owner).width
        return self._event(what, owner, numbers, squared_movement(self.radius(owner)), variance, times)

    def update_event(self, owner: str) -> Event:
        """The event of a party's updates of its encoder; only embeddings made with it are told."""
        drawn, square = self.batches * self.sender(owner).parameters, squared_movement(1 << GRADIENT_BITS)
        return self._event("encoder updates", owner, drawn, square, self.update_variance, self.epochs)

    def _event(self, what: str, owner: str, numbers: int, square: int, variance: int, times: int) -> Event:
        audience = tuple(name for name in self.audience if name != owner)
        once = message_event(f"{what} of {owner}", owner, numbers, square, variance, THEOREM, audience)
        return once if times == 1 else RepeatedRelease(once, times)  # type: ignore[arg-type]  # told numbers have noise

    @property
    def labels_event(self) -> Event:
        """The event that the active party tells its labels."""
        name = f"labels of {self.active}"
        if self.label_odds is None:
            return NonPrivate(LABELS_IN_CLEAR, name=name, audience=self.passives, about=(self.active,))
        return RandomisedResponse(name, self.label_odds, self.classes, self.active, RESPONSE, audience=self.passives)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Everything that is told, and the updates."""
        labels = () if self.training == "none" else (self.labels_event,)
        return (*labels, *self.embedding_events)

    @cached_property
    def embedding_events(self) -> tuple[Event, ...]:
        """The events about columns of passive parties, of which noise decides the price."""
        made = (
            *((self.update_event,) if self.training != "none" else ()),
            *((self.first_event,) if self.stage else ()),
            self.embedding_event,
        )
        return tuple(event(owner) for owner in self.passives for event in made)

    @property
    def openings(self) -> Mapping[Event, int]:
        """How often the numbers of each event are sent; updates never are."""
        in_epochs = self.epochs * self.batches if self.training == "rounds" else 0
        told: dict[Event, int] = {}
        if self.training != "none":
            told[self.labels_event] = 1
        for owner in self.passives:
            if self.stage:
                told[self.first_event(owner)] = 1
            told[self.embedding_event(owner)] = in_epochs + self.frozen_releases
        return told

    def calibrate(self, budgets: Sequence[Budget]) -> Self:
        """The same with the least noise that keeps every budget.

        One of them must speak of whoever is told embeddings: the others see nothing that noise could hide. Labels that
        are told without protection have no price, which noise could not change; the statement says so.
        """
        self.refuse_unmentioned(self.embedding_events, budgets, "embeddings")
        if self.training == "none" or self.label_odds is not None:
            return super().calibrate(budgets)
        noise = least_noise(lambda noise: self.with_noise(noise).embedding_events, self.trust, budgets, owners=1)
        _ = self.with_noise(noise).bound
        return self.with_noise(noise)

    def adjustable(self, rows: int | None) -> Self:
        """The task itself, unless it has no noise."""
        if self.new == "clear":
            raise StudyError("embeddings of new people are told without noise, so there is none to adjust [ST445]")
        return super().adjustable(rows)

    # --- what sessions, studies and records ask

    @property
    def rows_stated(self) -> int | None:
        """As many; of new people nobody knows how many there will be."""
        return self.rows if self.rows_fixed else None

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of all embeddings."""
        return tuple(f"{each.owner}.{index}" for each in self.senders for index in range(each.width))

    @property
    def number_of_rounds(self) -> int:
        """How often embeddings are told."""
        return self.releases + int(self.stage)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude of a number that is told."""
        variances = [0 if self.new == "clear" else self.embedding_variance(owner) for owner in self.passives]
        variances += [self.first_variance(owner) for owner in self.passives if self.stage]
        largest = max(sender.clip for sender in self.senders)
        if self.training != "none":
            steps = (self.rows // self.batches + 1) << GRADIENT_BITS
            _ = self.bound_of(steps / (1 << self.bits), self.update_variance, "raise epsilon")
        return self.bound_of(largest, max(1, *variances), "raise epsilon, or tell embeddings less often")

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other."""
        in_rounds = 2 * self.epochs * self.batches if self.training == "rounds" else 0
        return 8 + in_rounds + int(self.training != "none") + int(self.stage) + self.frozen_releases

    def load(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""
        widths = {sender.owner: sender.width for sender in self.senders}
        width, together = widths.get(name, 0), sum(widths.values())
        learned = self.sender(name).parameters if name in self.passives and self.training != "none" else 0
        sent = NUMBER * rows * width * self.number_of_rounds
        if name == self.active and self.training != "none":
            sent += NUMBER * rows * len(self.passives)
            sent += NUMBER * rows * together * self.epochs if self.training == "rounds" else 0
        drawn = rows * width * self.number_of_rounds + learned * self.epochs * self.batches
        held = 3 * rows * (together if name == self.active else width) + 8 * learned
        memory = BASE_MEMORY + (NUMBER * held if name in self.owners else 0)
        work = 6 * SECONDS_PER_PRODUCT * rows * learned * self.epochs
        return ParticipantLoad(name, sent, memory, pace * drawn + seconds_on_wire(sent, self.message_rounds) + work)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.noise_facts | {
            "deviations": {owner: self.deviation(owner) for owner in self.passives},
            "to": self.active,
            "widths": {sender.owner: sender.width for sender in self.senders},
            "clips": {sender.owner: sender.clip for sender in self.senders},
            "rows": self.rows,
            "classes": self.classes,
            "releases": self.releases,
            "stage": self.stage,
            "training": self.training,
            "epochs": self.epochs,
            "batches": self.batches,
            "labels": _label_protection(self),
            "new": self.new,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        rates = (self.learning_rate, self.gradient_clip, self.margin, self.contrast, self.stretch)
        return {
            "protocol": PROTOCOL,
            "owners": list(self.owners),
            "active": self.active,
            "senders": [[each.owner, each.width, float(each.clip).hex(), each.parameters] for each in self.senders],
            "rows": self.rows,
            "classes": self.classes,
            "schedule": [self.releases, self.stage, self.training, self.epochs, self.batches],
            "shares": [str(self.share), str(self.first_share)],
            "labels": None if self.label_odds is None else str(self.label_odds),
            "rates": [float(v).hex() for v in rates],
            "bits": self.bits,
            "law": self.law,
            "noise": str(self.noise),
            "new": self.new,
            "model": self.model,
        }


@dataclass(frozen=True)
class NewEmbeddingTask(EmbeddingTask):
    """Embeddings of new people, at most ``rows`` of them, by encoders that learned before and learn no more."""

    new: NewPeople = "noised"

    @property
    def to(self) -> str:
        """Who is told the answers."""
        return self.active

    rows_fixed: ClassVar[bool] = False
    rows_key: ClassVar[str] = "rows_at_most"


def _label_protection(task: EmbeddingTask) -> str:
    if task.training == "none":
        return "not told"
    return "told without protection" if task.label_odds is None else "randomised response"


StepRule = Literal["adam", "sgd"]
_KEPT, _KEPT_SQUARE, _LEAST = 0.9, 0.999, 1e-8


class EncoderSteps:
    """The steps of one encoder."""

    def __init__(self, rule: StepRule, rate: float) -> None:
        self.rule, self.rate = rule, rate
        self._taken, self._mean, self._square = 0, np.zeros(0), np.zeros(0)

    def step(self, gradient: Vector) -> Vector:
        """What to add to the parameters."""
        if self.rule == "sgd":
            return -self.rate * gradient
        if not self._taken:
            self._mean, self._square = np.zeros_like(gradient), np.zeros_like(gradient)
        self._taken += 1
        self._mean += (1 - _KEPT) * (gradient - self._mean)
        self._square += (1 - _KEPT_SQUARE) * (gradient * gradient - self._square)
        size = self.rate / (1 - _KEPT**self._taken)
        spread = np.sqrt(self._square / (1 - _KEPT_SQUARE**self._taken))
        spread += _LEAST
        return np.asarray(-size * self._mean / spread)


def _inverse_square(sigma: float) -> Fraction:
    if not sigma > 0:
        raise PrivacyError(
            f"a noise multiple must be positive, not {sigma}; use infinity where nothing is released [PR087]"
        )
    return Fraction(0) if math.isinf(sigma) else 1 / Fraction(sigma) ** 2


def embeddings_mu_squared(epochs: int, embedding: float, update: float = math.inf) -> Fraction:
    """Total mu^2 of ``epochs`` releases of an embedding and of the encoder's update; infinity: not released."""
    return checked_whole(epochs, "the number of epochs", 1) * (_inverse_square(embedding) + _inverse_square(update))


ADAPTIVE_PROTOCOL = "adaptive 1"
UNPROTECTED = 0
"""The noise of a task whose embeddings are told as they are."""
_LARGEST = (1 << 62) - 1
_MOST_NUMBERS = 1 << 26
_SECONDS_PER_NUMBER = 2e-7  # of an embedding: made by an encoder, told, and learned from


@dataclass(frozen=True)
class AdaptiveTask(LabelPartyTask):
    """The public task. All owners and the coordinator hold an equal one.

    The variance of the noise on each number is ``noise / 2^20`` times ``(2 clip)^2``; without noise nothing is clipped.
    ``rescale`` stretches embeddings to the clip by what the batch is like (+R), with ``alpha`` for the divergence of
    their distances from a normal law; ``adjust`` moves embeddings of different classes ``apart`` with weight ``beta``,
    where fuzzy clusters of the returned slopes are believed by at least ``confidence`` (+D). Distances and clusters are
    of a whole batch, or of its first ``compared`` rows where it has more.
    """

    trust: Trust
    active: str
    senders: tuple[EmbeddingSender, ...]
    rows: int
    classes: int
    epochs: int
    batches: int
    noise: int = NOISE_UNIT
    rescale: bool = True
    adjust: bool = True
    rate: float = 1e-3
    rule: StepRule = "adam"
    alpha: float = 0.01
    beta: float = 0.01
    confidence: float = 0.5
    apart: bool = True
    bits: int = 30
    columns: bool = False
    """Whether the active party has columns of its own, on which its slopes then depend too."""
    compared: int = 2048

    programs = TaskPrograms("colonnade.kinds.split.adaptive_programs")
    scheme = "published"
    why_no_rounds = "has as many rounds as it has batches"

    def __post_init__(self) -> None:
        if self.active not in self.owners or tuple(sender.owner for sender in self.senders) != self.passives:
            raise ValueError("every owner but the active one tells embeddings, in order [VA126]")
        if not self.senders:
            raise StudyError("embeddings need at least one party beside the one with the label [ST409]")
        for sender in self.senders:
            if sender.width < 1 or not (math.isfinite(sender.clip) and sender.clip > 0):
                raise StudyError(f"embeddings of {sender.owner} need at least one number, and a clip above 0 [ST410]")
        if not 1 <= self.batches <= self.rows:
            raise StudyError(f"{self.rows} rows cannot be split into {self.batches} batches: change batch [ST411]")
        if self.compared < 2:
            raise StudyError("distances need at least two rows: raise compared [ST412]")
        if self.epochs < 1:
            raise StudyError("embeddings are learned in at least one epoch: raise epochs [ST413]")
        if self.noise < 0 or (self.rescale and not self.protected):
            raise StudyError(
                "embeddings are rescaled for the sake of their noise: without noise set rescale = false [ST414]"
            )
        if self.adjust and self.classes < 2:
            raise StudyError("embeddings are adjusted by classes, and numbers have none: set adjust = false [ST415]")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise StudyError("the rate of the encoders' steps must be above 0 [ST416]")
        if not 0 <= self.confidence <= 1:
            raise StudyError("a confidence lies between 0 and 1 [ST417]")
        largest = -(-self.rows // self.batches) * max(sender.width for sender in self.senders)
        if largest > _MOST_NUMBERS:
            raise StudyError(
                f"embeddings of a batch do not fit one message of {_MOST_NUMBERS} numbers: take more batches [ST418]"
            )

    # --- who tells what

    @property
    def protected(self) -> bool:
        """Whether embeddings are clipped and noised."""
        return self.noise != UNPROTECTED

    @property
    def steps(self) -> int:
        """How many batches there are in all epochs."""
        return self.epochs * self.batches

    number_of_rounds = steps

    # --- noise, and what can be said about it

    @staticmethod
    def published_noise(epsilon: float, delta: float) -> int:
        """The noise that the paper takes for one release: sigma = sqrt(2 log(1.25 / delta)) / epsilon, rounded up.

        The formula is proven for an epsilon below 1 only; it is here because the paper's figures rest on it.
        """
        if not (epsilon > 0 and 0 < delta < 1):
            raise PrivacyError("a published budget needs an epsilon above 0, and a delta between 0 and 1 [PR107]")
        return max(1, math.ceil(Fraction(2 * math.log(1.25 / delta)) / Fraction(epsilon) ** 2 * NOISE_UNIT))

    def variance(self, owner: str) -> int:
        """The variance of the noise on each number that a passive party tells, in squared steps of the grid."""
        return -(-self.noise * self._square(owner) // NOISE_UNIT)

    def deviation(self, owner: str) -> float:
        """The standard deviation of the noise on each number of an embedding as it is told."""
        return self.deviation_of(self.variance(owner))

    def _square(self, owner: str) -> int:
        """How far a clipped embedding moves at most when one row is replaced, squared, in steps of the grid."""
        sender = self.sender(owner)
        return self.grid.sensitivity_squared(2 * Fraction(sender.clip), sender.width)

    def frozen_epsilon(self, delta: float) -> float:
        """What all epochs would cost somebody's columns *if* the encoder were frozen and nothing were rescaled.

        It is the sum of the releases that the paper charges once, by docs/theory/embedding-releases.md. Of what this
        task does it is no promise.
        """
        if not self.protected:
            return math.inf
        return gaussian_epsilon(math.sqrt(embeddings_mu_squared(self.epochs, self.multiplier)), delta)

    # --- events

    @cached_property
    def reason(self) -> str:
        """Why nothing is promised, in one line."""
        labels = "the returned slopes are a function of the labels"
        if self.columns:
            labels += f" and of the columns of {self.active}"
        if not self.protected:
            return f"not protected: embeddings are told without noise, and {labels}"
        private = "the encoder and the rescaling depend" if self.rescale else "the encoder depends"
        return f"as published, not proven: {private} on private rows without noise, and {labels}"

    def embeddings_event(self, owner: str) -> Event:
        """A passive party tells embeddings; the other parties see functions of them."""
        others = tuple(name for name in self.owners if name != owner)
        return NonPrivate(self.reason, name=f"embeddings of {owner}", audience=others)

    @cached_property
    def slopes_event(self) -> Event:
        """The active party returns slopes."""
        return NonPrivate(self.reason, name=f"slopes of {self.active}", audience=self.passives)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Everything that is told."""
        return (*(self.embeddings_event(name) for name in self.passives), self.slopes_event)

    @property
    def openings(self) -> Mapping[Event, int]:
        """How often each event's numbers are told."""
        told = {self.embeddings_event(name): self.steps for name in self.passives}
        return told | {self.slopes_event: self.steps * len(self.passives)}

    # --- what sessions, studies and records ask

    def calibrate(self, budgets: Sequence[Budget]) -> Self:
        """Refused: no noise makes a promise true here."""
        raise StudyError(f"{self.reason}; no noise keeps an epsilon, so state one for a single release instead [ST419]")

    def adjustable(self, rows: int | None) -> Self:
        """Refused likewise."""
        return self.calibrate(())

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of all embeddings."""
        return tuple(f"{sender.owner}.h{k}" for sender in self.senders for k in range(sender.width))

    rows_stated = LabelPartyTask.rows_limit

    @property
    def bound(self) -> int:
        """The largest magnitude of a number that is told: neither slopes nor rescaled embeddings have a smaller one."""
        return _LARGEST

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other."""
        return 6 + 2 * self.steps

    def load(self, name: str, rows: int, pace: float) -> ParticipantLoad:
        """Bytes, memory and seconds of one participant; one number of noise takes ``pace`` seconds."""
        told = sum(rows * self.epochs * s.width for s in self.senders if name in (s.owner, self.active))
        sent = NUMBER * told
        batch = -(-rows // self.batches) * sum(sender.width for sender in self.senders)
        drawn = pace * told if self.protected and name in self.passives else 0.0
        seconds = drawn + _SECONDS_PER_NUMBER * told + seconds_on_wire(sent, self.message_rounds)
        return ParticipantLoad(name, sent, BASE_MEMORY + 8 * NUMBER * batch, seconds)

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values for the record of a run."""
        return self.noise_facts | {
            "active": self.active,
            "senders": {s.owner: {"width": s.width, "clip": s.clip} for s in self.senders},
            "rows": self.rows,
            "classes": self.classes,
            "epochs": self.epochs,
            "batches": self.batches,
            "protected": self.protected,
            "rescale": self.rescale,
            "adjust": self.adjust,
            "guarantee": self.reason,
        }

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        weights = (self.rate, self.alpha, self.beta, self.confidence)
        return {
            "protocol": ADAPTIVE_PROTOCOL,
            "owners": list(self.owners),
            "senders": [[s.owner, s.width, float(s.clip).hex()] for s in self.senders],
            "active": self.active,
            "method": [self.rows, self.classes, self.epochs, self.batches],
            "mode": [self.rescale, self.adjust, self.apart, self.rule, self.columns],
            "weights": [float(value).hex() for value in weights],
            "bits": self.bits,
            "compared": self.compared,
            "law": self.law,
            "noise": str(self.noise),
        }

    def with_noise(self, noise: int) -> Self:
        """The same with other noise; without any there is nothing to rescale for."""
        return replace(self, noise=noise, rescale=self.rescale and noise != UNPROTECTED)
