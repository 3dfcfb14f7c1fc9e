"""What each side of Algorithm 1 computes by itself: from its rows and received numbers to the numbers that it sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.split.adaptive.clusters import FuzzyMeans
from colonnade.kinds.split.adaptive.losses import contrast_pulls, different, divergence_pulls
from colonnade.kinds.split.adaptive.rescaling import Pairs, back_through_clip, clip_rows, sensitivity_pulls, stretch
from colonnade.kinds.split.adaptive.steps import Steps
from colonnade.kinds.split.adaptive.task import Adaptive, Sender
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places
from colonnade.protocols.iteration import NoiseSampler

_NEWEST = 0.1  # of the mean of factors


@dataclass(frozen=True)
class Shaped:
    """Embeddings of a batch, as they are told before noise, and how they came about."""

    raw: Matrix
    clipped: Matrix
    factor: float
    told: Matrix
    pairs: Pairs | None


def shaped(raw: Matrix, sender: Sender, task: Adaptive, factor: float | None = None) -> Shaped:
    """Lines 6 to 8: clipped and, if the task rescales, stretched to the clip; as they are if nothing is protected.

    With a ``factor`` they are stretched by it, whatever they are like: for new people, of whom there may be few.
    """
    if not np.isfinite(raw).all():
        raise DataError(
            f"the encoder of {sender.owner} gave an embedding that is not a finite number: lower its rate [DA111]"
        )
    if not task.protected:
        return Shaped(raw, raw, 1.0, raw, Pairs.of(raw, task.compared) if task.adjust else None)
    clipped = clip_rows(raw, sender.clip)
    pairs = Pairs.of(clipped, task.compared) if task.rescale or task.adjust else None
    if not task.rescale or pairs is None:
        factor = 1.0
    elif factor is None:
        factor = stretch(pairs, sender.clip)
    return Shaped(raw, clipped, factor, clipped * factor, pairs)


class PassiveSide:
    """A passive party: lines 4 to 10 make what it tells, lines 16 to 18 learn from what it gets back."""

    def __init__(self, encoder: Learner, owner: str, task: Adaptive) -> None:
        self.encoder, self.task, self.sender = encoder, task, task.sender(owner)
        if encoder.width != self.sender.width:
            raise DataError(f"the encoder of {owner} must give embeddings of {self.sender.width} numbers [DA112]")
        self._steps = Steps(task.rule, task.rate)
        self._clusters = FuzzyMeans(task.classes)
        self._places: Places = np.zeros(0, dtype=np.int64)
        self._shaped: Shaped | None = None
        self.factor = 1.0
        """By which embeddings were stretched of late: a mean over batches."""

    def embeddings(self, places: Places) -> Matrix:
        """Embeddings of a batch, as they are told before noise."""
        self._places = places
        self._shaped = shaped(self.encoder.embed(places), self.sender, self.task)
        own = self._shaped.factor
        self.factor = own if self.factor == 1.0 else self.factor + _NEWEST * (own - self.factor)
        return self._shaped.told

    def learn(self, slopes: Matrix) -> None:
        """One step of the encoder against the slopes that came back, and the two losses of its own."""
        if self._shaped is None:
            raise ValueError("slopes come after embeddings [VA125]")
        own, task, size = self._shaped, self.task, len(slopes)
        total = slopes * own.factor
        if own.pairs is not None:
            total[: len(own.pairs.rows)] += size * own.pairs.slopes(self._pulls(own, own.pairs, slopes))
        if task.protected:
            total = back_through_clip(own.raw, total, self.sender.clip)
        self.encoder.move(self._steps.step(self.encoder.pull_back(self._places, total / size)))

    def _pulls(self, own: Shaped, pairs: Pairs, slopes: Matrix) -> Matrix:
        """Lines 16 and 17: how all losses change with the distances of embeddings, besides by the embeddings told.

        The factor of line 8 is a function of the distances too, so whatever it stretches pulls on them: what is learned
        with rescaling is directions, not length.
        """
        task, pulls = self.task, np.zeros_like(pairs.distances)
        if task.adjust:
            others = different(self._clusters.fit(slopes[: len(pulls)]), task.confidence)
            pulls += task.beta * contrast_pulls(others, apart=task.apart)
        if not task.rescale:
            return pulls
        by_factor = float(np.einsum("ij,ij->", slopes, own.clipped)) / len(slopes)
        by_factor += float(np.einsum("ij,ij->", pulls, pairs.distances)) / 2
        pulls *= own.factor
        pulls -= (by_factor * own.factor**2 / (2 * self.sender.clip)) * sensitivity_pulls(pairs)
        if task.alpha:
            pulls += task.alpha * divergence_pulls(pairs)
        return pulls


class ActiveSide:
    """The active party: lines 12 to 14, and its own encoder if it has columns, of which nothing is told."""

    def __init__(self, head: HeadLearner, own: Learner | None, task: Adaptive) -> None:
        if own is not None and not task.columns:
            raise DataError(f"the task does not say that {task.active} has columns of its own [DA113]")
        self.head, self.own, self.task = head, own, task
        self.losses: list[float] = []
        self._steps = Steps(task.rule, task.rate)

    def slopes(self, places: Places, received: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Learn from the received embeddings of a batch; the slopes that go back to each passive party."""
        blocks = [received[sender.owner] for sender in self.task.senders]
        if self.own is not None:
            blocks.append(self.own.embed(places))
        loss, slopes = self.head.slopes(places, np.hstack(blocks))
        if not np.isfinite(slopes).all():
            raise DataError("the head's slopes are not finite numbers: lower its rate [DA114]")
        self.losses.append(loss)
        ends = np.cumsum([block.shape[1] for block in blocks])
        parts = np.split(slopes, ends[:-1], axis=1)
        if self.own is not None:
            self.own.move(self._steps.step(self.own.pull_back(places, parts[-1] / len(places))))
        return {sender.owner: part for sender, part in zip(self.task.senders, parts, strict=False)}


def noised(values: Matrix, owner: str, task: Adaptive, draw: NoiseSampler) -> NDArray[np.int64]:
    """Lines 9 and 10: one party's message, on the grid, with its noise if it is protected; audits attack this."""
    numbers = task.grid.quantise(values).ravel()
    return numbers + draw(owner, task.variance(owner), numbers.size) if task.protected else numbers


class HeadLearner(Protocol):
    """A head that joins the embeddings of all parties and knows the labels, by the places of the rows."""

    def slopes(self, places: Places, embeddings: Matrix, /) -> tuple[float, Matrix]:
        """Learn from one batch: its mean loss, and how each row's own loss changes with the row, (n, all widths).

        Columns stand in the order of the task's senders, those of the active party's own encoder last. The slopes are
        those before the head moves, and are not divided by the number of rows.
        """
