"""What each side computes alone: clipped and noised embeddings, updates of an encoder, slopes of the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from colonnade.kinds.split.embeddings.anchors import Labels, anchors, centroids, contrastive
from colonnade.kinds.split.embeddings.clipping import Integers, whole_within, within
from colonnade.kinds.split.embeddings.learner import Encoding, Learner, Matrix, Places
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.task import Embeddings
from colonnade.kinds.split.embeddings.updates import Steps, noised_sum
from colonnade.protocols.iteration import NoiseSampler

LARGEST_SLOPE = 1e6
"""Of a number that the teacher sends back; far above what it has ever to say."""
_TEACHES = 0.05  # the rate of the teacher's own steps


def batch(index: int, task: Embeddings) -> Places:
    """The places of the people in a batch: public, and the same in every epoch."""
    return np.arange(index, task.rows, task.batches, dtype=np.int64)


class Passive:
    """A party that tells embeddings; ``draw`` gives its noise."""

    def __init__(
        self, encoding: Encoding, name: str, task: Embeddings, draw: NoiseSampler, scaling: Scaling | None = None
    ) -> None:
        self.encoding, self.name, self.task, self._draw = encoding, name, task, draw
        self.sender = task.sender(name)
        self.scaling = scaling or Scaling.none(self.sender.width, task.first_scale)
        learned = self.sender.parameters if task.training != "none" else 0
        self._steps = Steps(learned, task.learning_rate)
        self._points = anchors(task.classes, self.sender.width, self.sender.clip) if learned else np.zeros((0, 0))
        self._told: list[tuple[Places, Matrix]] = []

    # --- what is told

    def first(self, rows: int) -> Integers:
        """Noised embeddings of everybody, from which centre and scale are learned at once."""
        variance = self.task.first_variance(self.name)
        told = self._noised(np.arange(rows), variance)
        self._rescale(self._real(told), variance)
        return told

    def embeddings(self, places: Places) -> Integers:
        """Noised embeddings of these people, or exact ones where the task says so."""
        if self.task.new == "clear":
            return self._whole(places).ravel()
        told = self._noised(places, self.task.embedding_variance(self.name))
        if self.task.training == "rounds":
            self._told.append((places, self._real(told)))
        return told

    def _noised(self, places: Places, variance: int) -> Integers:
        whole = self._whole(places)
        return whole.ravel() + self._draw(self.name, variance, whole.size)

    def _whole(self, places: Places) -> Integers:
        """Clipped, centred and scaled, and clipped again: in whole steps of the grid, within the ball."""
        clipped = within(self.encoding.embed(places), self.sender.clip)
        scaled = np.ldexp(self.scaling.applied(clipped), self.task.bits)
        return whole_within(scaled, self.task.radius(self.name))

    def _real(self, told: Integers) -> Matrix:
        return self.task.grid.real(told).reshape(-1, self.sender.width)

    # --- how the encoder learns

    def train(self, labels: Labels) -> None:
        """All epochs alone, against the public point of each class."""
        for _ in range(self.task.epochs):
            for index in range(self.task.batches):
                places = batch(index, self.task)
                self._update(places, self._contrastive(places, labels[places]))

    def take(self, places: Places, slopes: Matrix, labels: Labels) -> None:
        """One update by slopes of the teacher, and by the pull of what was told of each class."""
        points = self._contrastive(places, labels[places])
        self._update(places, self.scaling.scale * slopes + points)

    def end_epoch(self, labels: Labels) -> None:
        """In rounds: learn centroids, and in a study with a stage centre and scale, from what this epoch told."""
        places = np.concatenate([found for found, _ in self._told])
        told = np.vstack([each for _, each in self._told])
        self._told.clear()
        self._points = centroids(self.scaling.undone(told), labels[places], self._points)
        if self.task.stage:
            self._rescale(told, self.task.embedding_variance(self.name))

    def _contrastive(self, places: Places, labels: Labels) -> Matrix:
        margin = self.task.margin * self.sender.clip
        raw = self.encoding.embed(places)
        return contrastive(raw, labels, self._points, margin, self.task.contrast)

    def _update(self, places: Places, slopes: Matrix) -> None:
        learner = cast(Learner, self.encoding)
        variance = self.task.update_variance
        total = noised_sum(
            learner, places, slopes, self.task.gradient_clip, lambda count: self._draw(self.name, variance, count)
        )
        learner.move(self._steps.after(total))

    def _rescale(self, told: Matrix, variance: int) -> None:
        self.scaling = self.scaling.learned(told, self.task.deviation_of(variance) ** 2, self.sender.clip)


class Teacher:
    """The head whose slopes are sent back: it knows told embeddings and told labels, and nothing else.

    It sees neither the active party's own columns nor its true labels, so its slopes cost nothing more.
    """

    def __init__(self, labels: Labels, task: Embeddings) -> None:
        self.labels, self.task = labels, task
        self.width = sum(sender.width for sender in task.senders)
        self.weights = np.zeros((self.width + 1, task.classes))
        self._steps = Steps(self.weights.size, _TEACHES)

    def slopes(self, places: Places, told: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """The slope of the logistic loss in each party's embeddings; then the teacher learns from them too."""
        rows = np.hstack([*(told[name] for name in self.task.passives), np.ones((len(places), 1))])
        scores = rows @ self.weights
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual = odds / odds.sum(axis=1, keepdims=True)
        residual[np.arange(len(places)), self.labels[places]] -= 1.0
        back = np.clip(residual @ self.weights[:-1].T, -LARGEST_SLOPE, LARGEST_SLOPE)
        step = self._steps.after((rows.T @ residual).ravel() / len(places))
        self.weights += step.reshape(self.weights.shape)
        ends = np.cumsum([sender.width for sender in self.task.senders])[:-1]
        return dict(zip(self.task.passives, np.split(back, ends, axis=1), strict=True))
