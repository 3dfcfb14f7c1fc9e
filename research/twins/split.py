"""Broken twins of the games about split networks: what parties would tell, or learn from, if they did it wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from colonnade.kinds.split.adaptive_programs import EmbeddingPairs, clip_rows, stretch_factor
from colonnade.kinds.split.audit import (
    EmbeddingSampler,
    EncodedPeople,
    FeatureMomentSampler,
    Integers,
    LabelSlopeSampler,
)
from colonnade.kinds.split.embedding_programs import NoiseDraw
from colonnade.kinds.split.embedding_task import GRADIENT_BITS
from colonnade.kinds.split.encoder_base import Matrix, Places, RowEncoder
from colonnade.kinds.split.encoders import Encoder, TrainableEncoder
from colonnade.protocols.iteration import NoiseSampler
from colonnade.randomness import Stream
from research.twins.broken import EVERY_EPOCH, HALF, TO_PARTY, as_analyst, charged_once, in_sampler, quieter
from research.twins.registry import register_twin

_PEOPLE = 8
_NEAR = 0.02  # how far apart the others are, in parts of the clip
_UNBOUNDED = 100
_NEXT_TO_NOTHING = 1e-6
_CROWD = 6
_RATE = 50.0


@dataclass(frozen=True)
class Stretched(EmbeddingSampler):
    """Embeddings of a batch that are stretched to the clip by what the batch is like, as published.

    Everybody but the one who changes is close together, near one end of the ball; all of them are told.
    """

    def embedded(self, name: str, sign: float, count: int, draw: NoiseSampler) -> Iterator[Matrix]:
        """What is told of everybody in the batch, as often as embeddings are told."""
        task, sender = self.task, self.task.sender(name)
        batch = np.zeros((_PEOPLE, sender.width))
        batch[:, 0] = sender.clip * (1 - _NEAR * np.arange(_PEOPLE) / _PEOPLE)
        batch[0, 0] = sign * sender.clip
        clipped = clip_rows(batch, sender.clip)
        whole = task.grid.quantise(stretch_factor(EmbeddingPairs(clipped), sender.clip) * clipped).ravel()
        for variance in map(round, self.variances(name)):
            yield (whole + draw(name, variance, count * whole.size).reshape(count, -1)).astype(np.float64)


@dataclass(frozen=True)
class OverAndOver(EmbeddingSampler):
    """Embeddings that are told in twenty epochs, each time with the noise of one."""

    @property
    def releases(self) -> int:
        """Twenty times as often as the task says."""
        return 20 * self.task.releases


@dataclass(frozen=True)
class SilentUpdates(EmbeddingSampler):
    """Updates of the encoder without noise."""

    def summed(self, learner: RowEncoder, places: Places, slopes: Matrix, clip: float, draw: NoiseDraw) -> Matrix:
        """The sum of clipped gradients, in every run the same."""
        return super().summed(learner, places, slopes, clip, lambda numbers: 0 * draw(numbers))

    def variances(self, name: str) -> Iterator[float]:
        """As the observer knows: next to nothing on updates."""
        for number, variance in enumerate(super().variances(name)):
            yield variance * _NEXT_TO_NOTHING if number < self.task.epochs else variance


@dataclass(frozen=True)
class UnboundedGradients(EmbeddingSampler):
    """Updates of the encoder whose gradients nobody clipped one by one."""

    def summed(self, learner: RowEncoder, places: Places, slopes: Matrix, clip: float, draw: NoiseDraw) -> Matrix:
        """The sum of all gradients, with the noise that is meant for clipped ones."""
        noise = draw(learner.parameters) * (clip / (1 << GRADIENT_BITS))
        return np.asarray(learner.pull_back(places, slopes) + noise)


@dataclass(frozen=True)
class TrueLabels(LabelSlopeSampler):
    """Slopes of a teacher that knows the labels as they are."""

    def answers(self, labels: Integers, stream: Stream) -> Integers:
        """The labels."""
        return labels


@dataclass(frozen=True)
class TrainedInSecret(FeatureMomentSampler):
    """Encoders that learn from the rows before these are embedded, without noise, and of which no event says so."""

    def encoder(self, party: str, people: EncodedPeople) -> Encoder:
        """The party's encoder, after a long step along the sum of its gradients."""
        encoder = super().encoder(party, people)
        if isinstance(encoder, TrainableEncoder):
            rows, everybody = people.columns[party], np.arange(len(people.classes))
            learner, slopes = RowEncoder(encoder, rows), np.repeat(rows[:, :1], encoder.width, axis=1)
            learner.move(-_RATE * learner.pull_back(everybody, slopes))
        return encoder


def trained_in_secret(sampler: FeatureMomentSampler) -> FeatureMomentSampler:
    """A crowd whose embeddings all turn around, because the encoder learns from one person more or less."""

    def crowd(*more: float) -> EncodedPeople:
        rows = np.array([[0.1, 0.0]] * _CROWD + [[each, 0.0] for each in more])
        columns = {party: rows for party, _ in sampler.study.joint.widths}
        return EncodedPeople(columns, np.zeros(len(rows), dtype=np.int64))

    return TrainedInSecret(sampler.study, (crowd(), crowd(-1.0)), sampler.noisy)


def stretched(sampler: EmbeddingSampler) -> EmbeddingSampler:
    """The published rescaling in place of a public one."""
    return Stretched(sampler.task, sampler.tellers)


def over_and_over(sampler: EmbeddingSampler) -> EmbeddingSampler:
    """One party's embeddings, told in twenty epochs and charged as one."""
    return OverAndOver(sampler.task, sampler.tellers[:1])


def unclipped(sampler: EmbeddingSampler) -> EmbeddingSampler:
    """A hundred times the clip, with the noise of the clip that is charged."""
    task = sampler.task
    senders = tuple(replace(sender, clip=_UNBOUNDED * sender.clip) for sender in task.senders)
    return replace(sampler, task=replace(task, senders=senders, noise=max(1, task.noise // _UNBOUNDED**2)))


def half_the_noise(sampler: FeatureMomentSampler) -> FeatureMomentSampler:
    """Owners draw half the variance; the claim keeps its own."""
    study = sampler.study
    return replace(sampler, study=replace(study, task=study.task.with_noise(study.task.noise // 2)))


# --- the twins

EVERY_RELEASE = "twenty releases charged as one"
STRETCHED = "embeddings stretched to the clip as published"
SPLIT_HALF, UNCLIPPED_EMBEDDINGS, TWENTY, PUBLISHED = (
    in_sampler(EmbeddingSampler, change) for change in (lambda s: quieter(s, 2), unclipped, over_and_over, stretched)
)
register_twin("split-embeddings", "party", HALF, SPLIT_HALF, part="embedding")
register_twin("split-embeddings", "party", "embeddings told without clipping", UNCLIPPED_EMBEDDINGS, part="embedding")
register_twin("split-embeddings", "party", EVERY_RELEASE, TWENTY, part="embedding")
register_twin("split-embeddings", "party", STRETCHED, PUBLISHED, part="embedding")

SILENT = in_sampler(EmbeddingSampler, lambda s: SilentUpdates(s.task, s.tellers))
UNBOUNDED = in_sampler(EmbeddingSampler, lambda s: UnboundedGradients(s.task, s.tellers))
TAUGHT = in_sampler(LabelSlopeSampler, lambda s: TrueLabels(s.task, s.beside))
register_twin("split-training", "party", "updates of the encoder without noise", SILENT, part="update")
register_twin("split-training", "party", "gradients summed without clipping each", UNBOUNDED, part="update")
register_twin("split-training", "party", EVERY_EPOCH, charged_once, part="update")
register_twin("split-training", "party", "slopes made of true labels", TAUGHT, part="labels")

FEATURES_HALF = in_sampler(FeatureMomentSampler, half_the_noise)
IN_SECRET = in_sampler(FeatureMomentSampler, trained_in_secret)
register_twin("split-moments", "analyst", HALF, FEATURES_HALF)
register_twin("split-moments", "analyst", "encoders that learned from the rows, uncharged", IN_SECRET)
register_twin("split-moments", "party", TO_PARTY, as_analyst)
