"""Adaptive embeddings as published (VFL-AFE, Algorithm 1): encoders and head learn together, batch by batch.

In every round each passive party tells the embeddings of a batch, clipped, perhaps stretched, and noised; the active
party moves its head and returns the slope of each row's loss; each passive party moves its encoder by these slopes and
by losses of its own. Encoders and head stay where they are. Nothing of this is proven to protect anybody, and every
event says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.split.adaptive_losses import (
    EmbeddingPairs,
    FuzzyCMeans,
    backpropagate_clip,
    class_differences,
    clip_rows,
    contrast_slopes,
    divergence_slopes,
    sensitivity_slopes,
    stretch_factor,
)
from colonnade.kinds.split.adaptive_task import AdaptiveSender, AdaptiveTask, EncoderSteps
from colonnade.kinds.split.private_training import Matrix, Places, RowLearner
from colonnade.message_schema import FixedBytes, MessageSchema, receive_message
from colonnade.protocols.iteration import NoiseSampler, RoundCounter
from colonnade.protocols.message_task import own_noise
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import IdentifiedRows, agree_on_rows, compare_rows
from colonnade.randomness import KEY_BYTES, Stream, new_key

_NEWEST = 0.1  # of the mean of factors


@dataclass(frozen=True)
class ShapedEmbeddings:
    """Embeddings of a batch, as they are told before noise, and how they came about."""

    raw: Matrix
    clipped: Matrix
    factor: float
    told: Matrix
    pairs: EmbeddingPairs | None


def shape_embeddings(
    raw: Matrix, sender: AdaptiveSender, task: AdaptiveTask, factor: float | None = None
) -> ShapedEmbeddings:
    """Lines 6 to 8: clipped and, if the task rescales, stretched to the clip; as they are if nothing is protected.

    With a ``factor`` they are stretched by it, whatever they are like: for new people, of whom there may be few.
    """
    if not np.isfinite(raw).all():
        raise DataError(
            f"the encoder of {sender.owner} gave an embedding that is not a finite number: lower its rate [DA111]"
        )
    if not task.protected:
        return ShapedEmbeddings(raw, raw, 1.0, raw, EmbeddingPairs.of(raw, task.compared) if task.adjust else None)
    clipped = clip_rows(raw, sender.clip)
    pairs = EmbeddingPairs.of(clipped, task.compared) if task.rescale or task.adjust else None
    if not task.rescale or pairs is None:
        factor = 1.0
    elif factor is None:
        factor = stretch_factor(pairs, sender.clip)
    return ShapedEmbeddings(raw, clipped, factor, clipped * factor, pairs)


class AdaptivePassiveSide:
    """A passive party: lines 4 to 10 make what it tells, lines 16 to 18 learn from what it gets back."""

    def __init__(self, encoder: RowLearner, owner: str, task: AdaptiveTask) -> None:
        self.encoder, self.task, self.sender = encoder, task, task.sender(owner)
        if encoder.width != self.sender.width:
            raise DataError(f"the encoder of {owner} must give embeddings of {self.sender.width} numbers [DA112]")
        self._steps = EncoderSteps(task.rule, task.rate)
        self._clusters = FuzzyCMeans(task.classes)
        self._places: Places = np.zeros(0, dtype=np.int64)
        self._shaped: ShapedEmbeddings | None = None
        self.factor = 1.0
        """By which embeddings were stretched of late: a mean over batches."""

    def embeddings(self, places: Places) -> Matrix:
        """Embeddings of a batch, as they are told before noise."""
        self._places = places
        self._shaped = shape_embeddings(self.encoder.embed(places), self.sender, self.task)
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
            total = backpropagate_clip(own.raw, total, self.sender.clip)
        self.encoder.move(self._steps.step(self.encoder.pull_back(self._places, total / size)))

    def _pulls(self, own: ShapedEmbeddings, pairs: EmbeddingPairs, slopes: Matrix) -> Matrix:
        """Lines 16 and 17: how all losses change with the distances of embeddings, besides by the embeddings told.

        The factor of line 8 is a function of the distances too, so whatever it stretches pulls on them: what is learned
        with rescaling is directions, not length.
        """
        task, pulls = self.task, np.zeros_like(pairs.distances)
        if task.adjust:
            others = class_differences(self._clusters.fit(slopes[: len(pulls)]), task.confidence)
            pulls += task.beta * contrast_slopes(others, apart=task.apart)
        if not task.rescale:
            return pulls
        by_factor = float(np.einsum("ij,ij->", slopes, own.clipped)) / len(slopes)
        by_factor += float(np.einsum("ij,ij->", pulls, pairs.distances)) / 2
        pulls *= own.factor
        pulls -= (by_factor * own.factor**2 / (2 * self.sender.clip)) * sensitivity_slopes(pairs)
        if task.alpha:
            pulls += task.alpha * divergence_slopes(pairs)
        return pulls


class AdaptiveActiveSide:
    """The active party: lines 12 to 14, and its own encoder if it has columns, of which nothing is told."""

    def __init__(self, head: HeadLearner, own: RowLearner | None, task: AdaptiveTask) -> None:
        if own is not None and not task.columns:
            raise DataError(f"the task does not say that {task.active} has columns of its own [DA113]")
        self.head, self.own, self.task = head, own, task
        self.losses: list[float] = []
        self._steps = EncoderSteps(task.rule, task.rate)

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


def add_noise(values: Matrix, owner: str, task: AdaptiveTask, draw: NoiseSampler) -> NDArray[np.int64]:
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


SHUFFLE_MESSAGE = MessageSchema("shuffle", key=FixedBytes(KEY_BYTES))
"""From which everybody finds who is in which batch, from the active party to the other owners."""


@dataclass(frozen=True)
class AdaptiveOutcome:
    """What a participant has in the end; encoders and head have learned in place."""

    losses: tuple[float, ...] = ()
    """The mean loss of every batch, at the active party."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """By which a passive party stretched its embeddings in the end, for new people; its own, or in one place all."""


@dataclass(frozen=True)
class BatchExchange:
    """What one passive party told of one batch, and what it got back: all that these two saw of each other."""

    number: int
    owner: str
    places: Places
    embeddings: Matrix
    slopes: Matrix


ExchangeCallback = Callable[[BatchExchange], None]


def owner(
    me: Owner, encoder: RowLearner | None, rows: IdentifiedRows, task: AdaptiveTask, head: HeadLearner | None = None
) -> AdaptiveOutcome:
    """An owner's program; the active party gives its head, and an encoder only if it has columns."""
    _check(me, rows, task, head)
    side = _side(me, encoder, task, head)
    agree_on_rows(me, task, rows)
    stream = Stream.fresh()

    def draw(name: str, variance: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    return _active(me, side, task) if isinstance(side, AdaptiveActiveSide) else _passive(me, side, task, draw)


def coordinator(me: Coordinator, task: AdaptiveTask) -> AdaptiveOutcome:
    """The coordinator's program: it compares rows and passes sealed messages on."""
    compare_rows(me, task)
    return AdaptiveOutcome()


def _active(me: Owner, side: AdaptiveActiveSide, task: AdaptiveTask) -> AdaptiveOutcome:
    key, event = new_key(), task.slopes_event
    for name in task.passives:
        me.link(name).send("shuffle", key=key)
    for places in RoundCounter(list(batches(task, key)), me.progress, "round", every=task.batches):
        told = {
            name: me.receive_message(name, "embeddings", len(places) * task.sender(name).width, task.bound)
            for name in task.passives
        }
        with me.meter.phase("head"):
            slopes = side.slopes(places, {name: _real(numbers, name, task) for name, numbers in told.items()})
        for name, each in slopes.items():
            me.tell((name,), "slopes", task.grid.quantise(each).ravel(), event=event)
    return AdaptiveOutcome(tuple(side.losses))


def _passive(me: Owner, side: AdaptivePassiveSide, task: AdaptiveTask, draw: NoiseSampler) -> AdaptiveOutcome:
    key, event = (
        receive_message(me.link(task.active), task.active, SHUFFLE_MESSAGE)["key"],
        task.embeddings_event(me.name),
    )
    for places in RoundCounter(list(batches(task, key)), me.progress, "round", every=task.batches):
        with me.meter.phase("embed"):
            told = add_noise(side.embeddings(places), me.name, task, draw)
        me.tell((task.active,), "embeddings", told, event=event)
        numbers = me.receive_message(task.active, "slopes", told.size, task.bound)
        with me.meter.phase("learn"):
            side.learn(_real(numbers, me.name, task))
    return AdaptiveOutcome(factors={me.name: side.factor})


def simulate(
    encoders: Mapping[str, RowLearner],
    head: HeadLearner,
    task: AdaptiveTask,
    stream: Stream,
    watch: ExchangeCallback | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> AdaptiveOutcome:
    """The same in one place: the same steps, rounding and noise; the active party may have an encoder too.

    It is for evaluation on data that may be in one place; a study never calls it. ``watch`` sees what parties tell each
    other, and ``after_epoch`` is called with the number of epochs done.
    """
    key = stream.bytes(len(new_key()))
    draw: NoiseSampler = lambda name, variance, count: own_noise(name, variance).draw((count,), stream)  # noqa: E731
    return reference(encoders, head, task, key, draw, watch, after_epoch)


def reference(
    encoders: Mapping[str, RowLearner],
    head: HeadLearner,
    task: AdaptiveTask,
    key: bytes,
    draw: NoiseSampler,
    watch: ExchangeCallback | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> AdaptiveOutcome:
    """The protocol in one place, without messages; with the same batches and noise it gives the same numbers."""
    active = AdaptiveActiveSide(head, encoders.get(task.active), task)
    passives = {name: AdaptivePassiveSide(encoders[name], name, task) for name in task.passives}
    for number, places in enumerate(batches(task, key), start=1):
        told = {
            name: _real(add_noise(side.embeddings(places), name, task, draw), name, task)
            for name, side in passives.items()
        }
        for name, each in active.slopes(places, told).items():
            slopes = task.grid.real(task.grid.quantise(each))
            if watch is not None:
                watch(BatchExchange(number, name, places, told[name], slopes))
            passives[name].learn(slopes)
        if after_epoch is not None and number % task.batches == 0:
            after_epoch(number // task.batches)
    return AdaptiveOutcome(tuple(active.losses), {name: side.factor for name, side in passives.items()})


def batches(task: AdaptiveTask, key: bytes) -> Iterator[Places]:
    """Line 2: who is in which batch. Every epoch has everybody once, in a new order that all owners know."""
    coins = Stream(key)
    for _ in range(task.epochs):
        order = np.argsort(coins.uint64(task.rows), kind="stable").astype(np.int64)
        yield from (order[start :: task.batches] for start in range(task.batches))


def _real(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]], name: str, task: AdaptiveTask) -> Matrix:
    return task.grid.real(numbers).reshape(-1, task.sender(name).width)


def _side(
    me: Owner, encoder: RowLearner | None, task: AdaptiveTask, head: HeadLearner | None
) -> AdaptiveActiveSide | AdaptivePassiveSide:
    if head is not None:
        return AdaptiveActiveSide(head, encoder, task)
    if encoder is None:
        raise DataError(f"{me.name} needs an encoder of its columns [DA109]")
    return AdaptivePassiveSide(encoder, me.name, task)


def _check(me: Owner, rows: IdentifiedRows, task: AdaptiveTask, head: HeadLearner | None) -> None:
    """Refuse what this owner holds before anything is sent."""
    if rows.places is not None:
        raise StudyError(
            "embeddings of single people are told, so all parties must know whom: align with hidden = false [ST407]"
        )
    if (me.name == task.active) != (head is not None):
        raise DataError(f"the label is held by {task.active}, and by nobody else [DA110]")
    if len(rows.ids) != task.rows:
        raise StudyError(
            f"{me.name} has another number of rows than the {task.rows} that the study says: set rows to the number of "
            "people that all parties hold [ST408]"
        )
