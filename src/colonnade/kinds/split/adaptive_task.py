"""The public task of adaptive embeddings as published: who tells embeddings, how they are shaped, under which noise.

Besides, the steps of an encoder against its gradient: plain, or scaled by the gradients of earlier steps (Adam).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds.split.embedding_task import EmbeddingSender, LabelPartyTask
from colonnade.kinds.split.encoder_base import Vector
from colonnade.privacy import Budget, Event, NonPrivate, Trust
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.sensitivity import checked_whole
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, ParticipantLoad, seconds_on_wire
from colonnade.protocols.task import NOISE_UNIT, TaskPrograms

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


PROTOCOL = "adaptive 1"
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
            "protocol": PROTOCOL,
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
