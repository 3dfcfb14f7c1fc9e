"""The public task of telling embeddings: its events, who sees them, and what a run takes.

Every passive party tells the active one a clipped embedding of each person, with noise of its own. If its encoder
learns, each update of it is a noised sum of clipped gradients, and is charged as if it were told too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from colonnade.errors import StudyError
from colonnade.kinds.split.embeddings.schedule import GRADIENT_BITS, New, Schedule, Sender, moved_square
from colonnade.privacy import Budget, Event
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.releases import NonPrivate, RandomisedResponse, RepeatedRelease
from colonnade.protocols.cost import BASE_MEMORY, NUMBER, SECONDS_PER_PRODUCT, ParticipantLoad, seconds_on_wire
from colonnade.protocols.message_task import message_event
from colonnade.protocols.task import TaskPrograms

__all__ = ["GRADIENT_BITS", "Embeddings", "NewEmbeddings", "Sender"]

PROTOCOL = "embeddings 1"
THEOREM = "embedding-releases"
RESPONSE = "randomised-response"
LABELS_TOLD = "labels are told without protection: a label epsilon would randomise them"
CLEAR = "embeddings of new people are told as they are, without noise"


@dataclass(frozen=True)
class Embeddings(Schedule):
    """The public task. All owners and the coordinator hold an equal one."""

    rows_fixed: ClassVar[bool] = True
    programs = TaskPrograms("colonnade.kinds.split.embeddings.programs")
    scheme = "embeddings"
    error_on = "number of an embedding"
    why_no_rounds = "tells embeddings as often as its study says"
    rows_key: ClassVar[str] = "rows"

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
        square = moved_square(self.radius(owner))
        return self._event("first embeddings", owner, self._numbers(owner), square, self.first_variance(owner), 1)

    def embedding_event(self, owner: str) -> Event:
        """The event that a party tells embeddings, as often as it does so."""
        if self.new == "clear":
            return NonPrivate(CLEAR, name=f"embeddings of {owner}", audience=(self.active,), about=(owner,))
        square, variance = moved_square(self.radius(owner)), self.embedding_variance(owner)
        return self._event("embeddings", owner, self._numbers(owner), square, variance, self.releases)

    def update_event(self, owner: str) -> Event:
        """The event of a party's updates of its encoder; only embeddings made with it are told."""
        drawn, square = self.batches * self.sender(owner).parameters, moved_square(1 << GRADIENT_BITS)
        return self._event("encoder updates", owner, drawn, square, self.update_variance, self.epochs)

    def _event(self, what: str, owner: str, numbers: int, square: int, variance: int, times: int) -> Event:
        audience = tuple(name for name in self.audience if name != owner)
        once = message_event(f"{what} of {owner}", owner, numbers, square, variance, THEOREM, audience)
        return once if times == 1 else RepeatedRelease(once, times)  # type: ignore[arg-type]  # told numbers have noise

    def _numbers(self, owner: str) -> int:
        return self.rows * self.sender(owner).width

    @property
    def labels_event(self) -> Event:
        """The event that the active party tells its labels."""
        name = f"labels of {self.active}"
        if self.label_odds is None:
            return NonPrivate(LABELS_TOLD, name=name, audience=self.passives, about=(self.active,))
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
        priced = add_least_noise(lambda noise: _EmbeddingsOnly(self.with_noise(noise)), self.trust, budgets, owners=1)
        _ = priced.task.bound
        return self.with_noise(priced.task.noise)

    def adjustable(self, rows: int | None) -> Self:
        """The task itself, unless it has no noise."""
        if self.new == "clear":
            raise StudyError("embeddings of new people are told without noise, so there is none to adjust [ST445]")
        return super().adjustable(rows)

    # --- what sessions, studies and records ask

    @property
    def rows_limit(self) -> int:
        """The exact number of people that the study states, or the most new people."""
        return self.rows

    @property
    def rows_stated(self) -> int | None:
        """The same; of new people nobody knows how many there will be."""
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
    def noise_std(self) -> float:
        """The largest standard deviation of the noise on a number of an embedding."""
        return max(self.deviation(owner) for owner in self.passives)

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
            "labels": _labels_as_told(self),
            "new": self.new,
        }

    @property
    def _rates(self) -> tuple[float, ...]:
        return self.learning_rate, self.gradient_clip, self.margin, self.contrast, self.stretch

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
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
            "rates": [float(v).hex() for v in self._rates],
            "bits": self.bits,
            "law": self.law,
            "noise": str(self.noise),
            "new": self.new,
            "model": self.model,
        }


@dataclass(frozen=True)
class NewEmbeddings(Embeddings):
    """Embeddings of new people, at most ``rows`` of them, by encoders that learned before and learn no more."""

    new: New = "noised"

    @property
    def to(self) -> str:
        """Who is told the answers."""
        return self.active

    rows_fixed: ClassVar[bool] = False
    rows_key: ClassVar[str] = "rows_at_most"


@dataclass(frozen=True)
class _EmbeddingsOnly:
    """A task of which only what its noise protects is priced."""

    task: Embeddings

    @property
    def events(self) -> tuple[Event, ...]:
        return self.task.embedding_events


def _labels_as_told(task: Embeddings) -> str:
    if task.training == "none":
        return "not told"
    return "told without protection" if task.label_odds is None else "randomised response"
