"""Embeddings told to the party with the label (AFE-R): clipped, scaled by public figures, clipped again, and noised.

Each passive party embeds its own rows. If its encoder learns, every update is a noised sum of clipped gradients, so the
encoder at any time is a function of what is charged. The active party holds the label; it tells labels only where
encoders learn, through randomised response if the task says so, and keeps what it receives for a head of its own.

Encoders learn and speak under noise by sums of clipped gradients and embeddings in whole numbers. Each update is a sum
over a batch of people's gradients, each clipped and cut to whole numbers, so that each person's part is never longer
than a radius, plus discrete Gaussian noise (DP-SGD); docs/theory/private-updates.md says what all updates together are
worth. What is done with such a sum is free, so a step may have momentum or be that of Adam, and the trained encoder may
be used for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, DataError, StudyError
from colonnade.kinds.split.embedding_task import GRADIENT_BITS, AdaptiveTask, EmbeddingTask
from colonnade.kinds.split.encoder_base import Matrix, Places, RowEncoder, Vector, row_blocks
from colonnade.kinds.split.heads import loss_and_slopes
from colonnade.message_schema import ArrayForm, MessageSchema, receive_message
from colonnade.models.pytorch import Adam
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.protocols.iteration import NoiseSampler, RoundCounter
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import agree_on_rows, compare_digests, compare_rows
from colonnade.protocols.task import own_noise
from colonnade.randomness import Stream

Integers = NDArray[np.int64]

_INSIDE = 1 - 2.0**-40  # room for the error of a norm in floats, so that hardly any row is refused by its integers
_SURE = 1 - 2.0**-29  # a sum of up to 2^22 squares in float64 errs by less than this part of it
_MOST_NUMBERS = 1 << 22
_EXACT = 1 << 53
_TOGETHER = 1 << 16  # numbers of rows that stay in the processor's cache
_AT_ONCE = 1 << 12
_LARGEST_RADIUS = 1 << 30


def sum_clipped_gradients(learner: RowEncoder, places: Places, slopes: Matrix, clip: float, radius: int) -> Integers:
    """The sum over these people of their gradients, each of norm at most ``clip``, in steps of ``clip / radius``."""
    if len(places) * radius >= _EXACT or learner.parameters > _MOST_NUMBERS:
        raise CapacityError(
            f"sums of gradients are exact up to {_MOST_NUMBERS:,} parameters and {_EXACT // radius:,} people a batch: "
            "use a smaller encoder or more batches [CA017]"
        )
    total = np.zeros(learner.parameters)
    if learner.factors(places[:0], slopes[:0]) is not None:
        for part in (slice(start, start + _AT_ONCE) for start in range(0, len(places), _AT_ONCE)):
            first, second = learner.factors(places[part], slopes[part])  # type: ignore[misc]  # asked above
            total += sum_clipped_products(first, second, clip, radius)
        return total.astype(np.int64)
    for each in learner.pull_back_each(places, slopes):
        for block in row_blocks(len(each), each.shape[1], _TOGETHER):
            with np.errstate(over="ignore"):  # a gradient that no float can hold counts as none
                scaled = each[block] * (radius / clip)
            total += cut_rows(scaled, radius).sum(axis=0)
    return total.astype(np.int64)


def cut_rows(rows: Matrix, radius: int) -> Matrix:
    """Rows in whole numbers, held as float64, whose squared norm is at most the square of ``radius``."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = np.isfinite(norms)
        factors = np.where(
            known,
            radius * _INSIDE / np.maximum(np.where(known, norms, radius), radius * _INSIDE),
            0.0,
        )
        whole = rows * factors[:, None]
    if not known.all():
        whole[~known] = 0.0
    np.trunc(whole, out=whole)
    return _enforce_radius(whole, radius)


def sum_clipped_products(first: Matrix, second: Matrix, clip: float, radius: int) -> Integers:
    """The same where the gradient of a person is all products of one vector's numbers with another's, (a times b,).

    That is so where an encoder ends in a linear map and nothing before it learns: the map is given the first vector,
    and the slope is the second. Both are made whole, with norms at most ``split_radius(radius)``. Then the products
    are whole and have a norm of at most ``radius``, and their sum over people is one product of matrices.
    """
    ours, theirs = split_radius(radius)
    total = np.zeros((first.shape[1], second.shape[1]))
    for block in row_blocks(len(first), first.shape[1], _TOGETHER):
        a, b = _finite(first[block], second[block])
        a_norms, b_norms = _norms(a), _norms(b)
        with np.errstate(over="ignore"):
            length = np.minimum(a_norms * b_norms / clip, 1.0)  # of the gradient, in clips
        left = np.trunc(a * (ours * _INSIDE / a_norms))
        right = np.trunc(b * (length * (theirs * _INSIDE) / b_norms))
        total += _enforce_radius(left, ours).T @ _enforce_radius(right, theirs)
    return total.astype(np.int64).ravel()


def split_radius(radius: int) -> tuple[int, int]:
    """The largest norms of the two vectors, in whole steps, whose product is at most ``radius``."""
    ours = 1 << (radius.bit_length() - 1) // 2
    return ours, radius // ours


def _enforce_radius(whole: Matrix, radius: int) -> Matrix:
    """Rows of whole numbers; one whose squared norm is above that of the radius, in integers, becomes zero."""
    if radius > _LARGEST_RADIUS:
        raise ValueError("squares of such a radius do not fit integers [VA129]")
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", whole, whole)
    whole[~(squares <= 2.0 * radius * radius)] = 0.0  # what is left fits 62 bits
    doubtful = np.flatnonzero(squares > radius * radius * _SURE)
    exact = whole[doubtful].astype(np.int64)
    whole[doubtful[np.einsum("ij,ij->i", exact, exact) > radius * radius]] = 0.0
    return whole


def _norms(rows: Matrix) -> Matrix:
    """Norms of rows, (rows, 1); 1 for a row that is so short that its square is none."""
    with np.errstate(over="ignore", under="ignore"):
        found = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.where(found > 0, found, 1.0)


def _finite(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Both, with zeros where a number of either is not finite."""
    known = np.isfinite(first).all(axis=1, keepdims=True) & np.isfinite(second).all(axis=1, keepdims=True)
    return (first, second) if known.all() else (np.where(known, first, 0.0), np.where(known, second, 0.0))


NoiseDraw = Callable[[int], Integers]
"""A function that draws so many numbers of noise."""
_UPDATE_RADIUS = 1 << GRADIENT_BITS


def sum_with_noise(learner: RowEncoder, places: Places, slopes: Matrix, clip: float, draw: NoiseDraw) -> Vector:
    """The noised sum over people of their gradients, each of norm at most ``clip``."""
    total = sum_clipped_gradients(learner, places, slopes, clip, _UPDATE_RADIUS)
    return np.asarray((total + draw(len(total))) * (clip / _UPDATE_RADIUS))


def clip_rows_within(rows: Matrix, radius: float) -> Matrix:
    """Rows of at most this norm: longer ones are scaled down, and what is not a number becomes zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    kept = np.where(finite, rows, 0.0)
    largest = np.abs(kept).max(axis=1, keepdims=True, initial=0.0)
    unit = kept / np.where(largest > 0, largest, 1.0)
    norms = np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1.0)  # in units of the largest number
    return np.asarray(np.where(largest > radius / norms, unit * (radius / norms), kept))


def clip_to_integers(rows: Matrix, radius: int) -> Integers:
    """Rows in whole numbers whose squared norm, in whole numbers, is at most the square of ``radius``.

    They are cut toward zero, which makes no row longer. A row that is too long in spite of that becomes zero: so the
    bound holds by a comparison of integers, and not by what floats promise.
    """
    whole = np.trunc(clip_rows_within(rows, radius * _INSIDE)).astype(np.int64)
    short = (whole * whole).sum(axis=1, keepdims=True) <= radius * radius
    return np.where(short, whole, 0)


Labels = NDArray[np.int64]
_NEAREST = 1e-6  # a point that lies upon an embedding pushes it no harder than from here


def class_anchors(classes: int, width: int, clip: float) -> Matrix:
    """One point of norm ``clip`` for each class, (classes, width), the same on every machine up to rounding.

    From one dimension less than there are classes on, they are the corners of a regular simplex, which are as far from
    each other as so many points of this norm can be; with fewer dimensions its projection, along cosines.
    """
    used = min(width, classes - 1)
    middles = np.arange(classes)[:, None] + 0.5
    points = np.cos(math.pi * middles * np.arange(1, used + 1) / classes)
    points *= clip / np.linalg.norm(points, axis=1, keepdims=True)
    return np.pad(points, ((0, 0), (0, width - used)))


def contrastive_slopes(embeddings: Matrix, labels: Labels, points: Matrix, margin: float, contrast: float) -> Matrix:
    """The slope in each embedding of half |h - own|^2 + contrast * sum over others of max(0, margin - |h - other|)^2.

    The second term pushes an embedding away from the points of other classes, until it is ``margin`` away. Each row has
    its own loss, against public points: no two embeddings of people meet in it. The slope of an embedding too long to
    be squared may not be finite, without a word; such a row then counts as none.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (embeddings**2).sum(axis=1, keepdims=True) - 2 * embeddings @ points.T + (points**2).sum(axis=1)
        distance = np.sqrt(np.maximum(squares, _NEAREST**2))
        pull = -contrast * np.maximum(0.0, margin - distance) / distance
        pull[np.arange(len(labels)), labels] = 1.0
        return np.asarray(pull.sum(axis=1, keepdims=True) * embeddings - pull @ points)


def class_centroids(told: Matrix, labels: Labels, points: Matrix) -> Matrix:
    """The mean of told embeddings of each class, by told labels; a class without people keeps its given point."""
    classes = len(points)
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros_like(points)
    np.add.at(sums, labels, told)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], points)


_FILLED = 0.8  # the root mean square of scaled embeddings, in parts of the clip: few are clipped again
_LEAST = 1 / 64  # of the clip: a spread below this is not believed


@dataclass(frozen=True)
class EmbeddingScaling:
    """What is subtracted from a clipped embedding, and the factor after that."""

    centre: Vector
    scale: float = 1.0

    def apply(self, embeddings: Matrix) -> Matrix:
        """Centred and scaled; they must be clipped again before they are told."""
        return self.scale * (embeddings - self.centre)

    def undo(self, told: Matrix) -> Matrix:
        """Embeddings as they were before, with noise that is smaller by the scale."""
        return told / self.scale + self.centre

    def learn(self, told: Matrix, variance: float, clip: float) -> EmbeddingScaling:
        """Centre and scale for the next release, from what was told under this scaling with noise of this variance.

        The known noise is subtracted from the spread, and a spread is not believed below what noise alone could show.
        Embeddings are never made shorter: within the clip they are short enough.
        """
        embeddings, noise = self.undo(told), variance / self.scale**2
        rows, width = embeddings.shape
        centre = clip_rows_within(embeddings.mean(axis=0, keepdims=True), clip)[0]
        square = ((embeddings - centre) ** 2).sum(axis=1).mean() - width * noise
        uncertain = 2 * noise * math.sqrt(2 * width / rows)
        spread = math.sqrt(max(square, uncertain, (_LEAST * clip) ** 2))
        return EmbeddingScaling(centre, max(1.0, _FILLED * clip / spread))


LARGEST_SLOPE = 1e6
"""Of a number that the teacher sends back; far above what it has ever to say."""
_TEACHES = 0.05  # the rate of the teacher's own steps


def batch_places(index: int, task: EmbeddingTask) -> Places:
    """The places of the people in a batch: public, and the same in every epoch."""
    return np.arange(index, task.rows, task.batches, dtype=np.int64)


class EmbeddingSide:
    """A party that tells embeddings; ``draw`` gives its noise."""

    def __init__(
        self,
        encoding: RowEncoder,
        name: str,
        task: EmbeddingTask,
        draw: NoiseSampler,
        scaling: EmbeddingScaling | None = None,
    ) -> None:
        self.encoding, self.name, self.task, self._draw = encoding, name, task, draw
        self.sender = task.sender(name)
        self.scaling = scaling or EmbeddingScaling(np.zeros(self.sender.width), task.first_scale)
        learned = self.sender.parameters if task.training != "none" else 0
        self._steps = Adam(task.learning_rate)
        self._points = class_anchors(task.classes, self.sender.width, self.sender.clip) if learned else np.zeros((0, 0))
        self._told: list[tuple[Places, Matrix]] = []

    # --- what is told

    def first(self, rows: int) -> Integers:
        """Noised embeddings of everybody, from which centre and scale are learned at once."""
        variance = self.task.first_variance(self.name)
        told = self._noised(np.arange(rows), variance)
        self._rescale(real_embeddings(told, self.name, self.task), variance)
        return told

    def embeddings(self, places: Places) -> Integers:
        """Noised embeddings of these people, or exact ones where the task says so."""
        if self.task.new == "clear":
            return self._whole(places).ravel()
        told = self._noised(places, self.task.embedding_variance(self.name))
        if self.task.training == "rounds":
            self._told.append((places, real_embeddings(told, self.name, self.task)))
        return told

    def _noised(self, places: Places, variance: int) -> Integers:
        whole = self._whole(places)
        return whole.ravel() + self._draw(self.name, variance, whole.size)

    def _whole(self, places: Places) -> Integers:
        """Clipped, centred and scaled, and clipped again: in whole steps of the grid, within the ball."""
        clipped = clip_rows_within(self.encoding.embed(places), self.sender.clip)
        scaled = np.ldexp(self.scaling.apply(clipped), self.task.bits)
        return clip_to_integers(scaled, self.task.radius(self.name))

    # --- how the encoder learns

    def train(self, labels: Labels) -> None:
        """All epochs alone, against the public point of each class."""
        for _ in range(self.task.epochs):
            for index in range(self.task.batches):
                places = batch_places(index, self.task)
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
        self._points = class_centroids(self.scaling.undo(told), labels[places], self._points)
        if self.task.stage:
            self._rescale(told, self.task.embedding_variance(self.name))

    def _contrastive(self, places: Places, labels: Labels) -> Matrix:
        margin = self.task.margin * self.sender.clip
        raw = self.encoding.embed(places)
        return contrastive_slopes(raw, labels, self._points, margin, self.task.contrast)

    def _update(self, places: Places, slopes: Matrix) -> None:
        variance = self.task.update_variance
        total = sum_with_noise(
            self.encoding, places, slopes, self.task.gradient_clip, lambda count: self._draw(self.name, variance, count)
        )
        self.encoding.move(self._steps.step(total))

    def _rescale(self, told: Matrix, variance: int) -> None:
        self.scaling = self.scaling.learn(told, self.task.deviation_of(variance) ** 2, self.sender.clip)


class SlopeTeacher:
    """The head whose slopes are sent back: it knows told embeddings and told labels, and nothing else.

    It sees neither the active party's own columns nor its true labels, so its slopes cost nothing more.
    """

    def __init__(self, labels: Labels, task: EmbeddingTask) -> None:
        self.labels, self.task = labels, task
        self.width = sum(sender.width for sender in task.senders)
        self.weights = np.zeros((self.width + 1, task.classes))
        self._steps = Adam(_TEACHES)

    def slopes(self, places: Places, told: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """The slope of the logistic loss in each party's embeddings; then the teacher learns from them too."""
        rows = np.hstack([*(told[name] for name in self.task.passives), np.ones((len(places), 1))])
        _, residual = loss_and_slopes(rows @ self.weights, self.labels[places])
        back = np.clip(residual @ self.weights[:-1].T, -LARGEST_SLOPE, LARGEST_SLOPE)
        step = self._steps.step((rows.T @ residual).ravel() / len(places))
        self.weights += step.reshape(self.weights.shape)
        ends = np.cumsum([sender.width for sender in self.task.senders])[:-1]
        return dict(zip(self.task.passives, np.split(back, ends, axis=1), strict=True))


def labels_message(task: EmbeddingTask) -> MessageSchema:
    """The labels that the active party tells: the class of each person."""
    return MessageSchema("labels", values=ArrayForm(np.int64, (task.rows,), 0, task.classes - 1))


def slopes_message(task: EmbeddingTask, owner: str, rows: int) -> MessageSchema:
    """How the teacher's loss changes with each embedding that a party told."""
    shape = (rows, task.sender(owner).width)
    return MessageSchema("slopes", values=ArrayForm(np.float64, shape, -LARGEST_SLOPE, LARGEST_SLOPE))


@dataclass(frozen=True)
class EmbeddingsOutcome:
    """What an owner has in the end.

    The active party has the noised embeddings of everybody, by the party that told them, and knows the variance of
    their noise from the task. A passive party has its public centre and scale; its encoder has learned in place.
    """

    received: Mapping[str, Matrix] = field(default_factory=dict)
    scaling: EmbeddingScaling | None = None
    labels: Labels | None = None
    """The labels that were told, if any were."""


@dataclass(frozen=True)
class _IdentifiedRows:
    """People whom all parties can name."""

    ids: Sequence[str]
    places: None = None


def owner(
    me: Owner,
    encoding: RowEncoder | None,
    ids: Sequence[str],
    labels: Labels | None,
    task: EmbeddingTask,
    scaling: EmbeddingScaling | None = None,
) -> EmbeddingsOutcome:
    """An owner's program.

    The active party gives ``labels`` in the order of the rows, except for new people, and no encoding: what it makes of
    its own columns is never sent. A passive party gives the ``scaling`` of an earlier study for new people.
    """
    stream = Stream.fresh()
    _check(me.name, encoding, ids, labels, task)
    rows = agree_on_rows(me, task, _IdentifiedRows(ids))
    if encoding is None:
        return _active(me, labels, rows, task, stream)

    def draw(name: str, variance: int, count: int) -> Integers:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    return _passive(me, EmbeddingSide(encoding, me.name, task, draw, scaling), rows, task)


def coordinator(me: Coordinator, task: EmbeddingTask) -> None:
    """The coordinator's program: it compares digests of ids."""
    compare_rows(me, task)


def simulate(
    encodings: Mapping[str, RowEncoder],
    labels: Labels | None,
    task: EmbeddingTask,
    stream: Stream,
    *,
    rows: int | None = None,
    scalings: Mapping[str, EmbeddingScaling] | None = None,
) -> dict[str, EmbeddingsOutcome]:
    """What all owners would have, computed in one place: the same steps, rounding and noise.

    ``rows`` is the number of new people, where the task is about them. It is for evaluation on data that may be in one
    place; a study never calls it.
    """
    told = None if labels is None or task.training == "none" else randomise_labels(labels, task, stream)
    return reference(
        encodings, told, task, lambda name, v, count: own_noise(name, v).draw((count,), stream), rows, scalings
    )


def reference(
    encodings: Mapping[str, RowEncoder],
    labels: Labels | None,
    task: EmbeddingTask,
    draw: NoiseSampler,
    rows: int | None = None,
    scalings: Mapping[str, EmbeddingScaling] | None = None,
) -> dict[str, EmbeddingsOutcome]:
    """The protocol in one place, from the labels as they were told; with the same noise it gives the same numbers."""
    rows = task.rows if rows is None else rows
    given = scalings or {}
    sides = {name: EmbeddingSide(encodings[name], name, task, draw, given.get(name)) for name in task.passives}
    for side in sides.values():
        if task.training == "labels" and labels is not None:
            side.train(labels)
        if task.stage:
            side.first(rows)
    last: dict[str, Matrix] = {}
    if task.training == "rounds" and labels is not None:
        last = {name: np.zeros((rows, side.sender.width)) for name, side in sides.items()}
        for name, places, told, _ in play_rounds(sides, labels, task, task.epochs):
            last[name][places] = told
    for name, side in sides.items():
        for number in range(task.frozen_releases):
            heard = real_embeddings(side.embeddings(np.arange(rows)), name, task)
            last[name] = heard if not number else last[name] + heard
        last[name] = last[name] / task.averaged
    passive = {name: EmbeddingsOutcome(scaling=side.scaling, labels=labels) for name, side in sides.items()}
    return passive | {task.active: EmbeddingsOutcome(last, labels=labels)}


def play_rounds(
    sides: Mapping[str, EmbeddingSide], labels: Labels, task: EmbeddingTask, epochs: int
) -> Iterator[tuple[str, Places, Matrix, Matrix]]:
    """Rounds in one place: for each batch and party who is in it, what the party told, and the slopes that it got."""
    teacher = SlopeTeacher(labels, task)
    for step in range(epochs * task.batches):
        places = batch_places(step % task.batches, task)
        told = {name: real_embeddings(side.embeddings(places), name, task) for name, side in sides.items()}
        for name, slopes in teacher.slopes(places, told).items():
            yield name, places, told[name], slopes
            sides[name].take(places, slopes, labels)
            if (step + 1) % task.batches == 0:
                sides[name].end_epoch(labels)


def _active(me: Owner, labels: Labels | None, rows: int, task: EmbeddingTask, stream: Stream) -> EmbeddingsOutcome:
    told: Labels | None = None
    found: dict[str, Matrix] = {}
    if labels is not None and task.training != "none":
        told = randomise_labels(labels, task, stream)
        me.tell(task.passives, "labels", told, event=task.labels_event)
        compare_digests(me, task.owners, told.astype("<i8").tobytes(), "labels")
    if task.stage:
        for name in task.passives:
            _receive(me, name, rows, task)
    if told is not None and task.training == "rounds":
        found = _run_teacher(me, told, task)
    sums: dict[str, Matrix] = {}
    for number in range(task.frozen_releases):
        for name in task.passives:
            heard = _receive(me, name, rows, task)
            sums[name] = sums[name] + heard if number else heard
        me.progress("embeddings", number + 1, task.frozen_releases)
    return EmbeddingsOutcome(found | {name: total / task.averaged for name, total in sums.items()}, labels=told)


def _run_teacher(me: Owner, labels: Labels, task: EmbeddingTask) -> dict[str, Matrix]:
    """Receive embeddings batch by batch, and send slopes back, which are made of told numbers alone."""
    teacher = SlopeTeacher(labels, task)
    last = {sender.owner: np.zeros((task.rows, sender.width)) for sender in task.senders}
    for step in RoundCounter(range(task.epochs * task.batches), me.progress, "rounds"):
        places = batch_places(step % task.batches, task)
        told = {name: _receive(me, name, len(places), task) for name in task.passives}
        with me.meter.phase("learn"):
            slopes = teacher.slopes(places, told)
        for name in task.passives:
            me.link(name).send("slopes", values=slopes[name])
            last[name][places] = told[name]
    return last


def _passive(me: Owner, side: EmbeddingSide, rows: int, task: EmbeddingTask) -> EmbeddingsOutcome:
    labels = None
    if task.training != "none":
        labels = receive_message(me.link(task.active), task.active, labels_message(task))["values"]
        compare_digests(me, task.owners, labels.astype("<i8").tobytes(), "labels")
    if labels is not None and task.training == "labels":
        with me.meter.phase("learn"):
            side.train(labels)
    if task.stage:
        with me.meter.phase("embed"):
            first = side.first(rows)
        me.tell((task.active,), "embeddings", first, event=task.first_event(me.name))
    event = task.embedding_event(me.name)
    if labels is not None and task.training == "rounds":
        for step in RoundCounter(range(task.epochs * task.batches), me.progress, "rounds"):
            places = batch_places(step % task.batches, task)
            with me.meter.phase("embed"):
                told = side.embeddings(places)
            me.tell((task.active,), "embeddings", told, event=event)
            due = slopes_message(task, me.name, len(places))
            slopes = receive_message(me.link(task.active), task.active, due)["values"]
            with me.meter.phase("learn"):
                side.take(places, slopes, labels)
                if (step + 1) % task.batches == 0:
                    side.end_epoch(labels)
    for number in range(task.frozen_releases):
        with me.meter.phase("embed"):
            told = side.embeddings(np.arange(rows))
        me.tell((task.active,), "embeddings", told, event=event)
        me.progress("embeddings", number + 1, task.frozen_releases)
    return EmbeddingsOutcome(scaling=side.scaling, labels=labels)


def randomise_labels(labels: Labels, task: EmbeddingTask, stream: Stream) -> Labels:
    """The labels as they are told: answered at random once, and never looked at again for what leaves the party."""
    whole = labels.astype(np.int64)
    return whole if task.label_odds is None else randomised_response(whole, task.classes, task.label_odds, stream)


def _receive(me: Owner, name: str, rows: int, task: EmbeddingTask) -> Matrix:
    return real_embeddings(
        me.receive_message(name, "embeddings", rows * task.sender(name).width, task.bound), name, task
    )


def real_embeddings(told: Integers, name: str, task: EmbeddingTask | AdaptiveTask) -> Matrix:
    """What a party told, one row for each person."""
    return task.grid.real(told).reshape(-1, task.sender(name).width)


def _check(
    name: str, encoding: RowEncoder | None, ids: Sequence[str], labels: Labels | None, task: EmbeddingTask
) -> None:
    """Refuse what an owner holds if it does not fit the task; nothing has been sent yet."""
    active = name == task.active
    if active != (encoding is None):
        raise DataError(f"embeddings are told to {task.active}, which needs no encoder here, by everybody else [DA116]")
    if encoding is not None and encoding.width != task.sender(name).width:
        raise DataError(f"the encoder of {name} gives embeddings of another width than the study says [DA117]")
    learned = 0 if active or task.training == "none" else task.sender(name).parameters
    if learned and encoding is not None and encoding.parameters != learned:
        raise DataError(f"the encoder of {name} learns another number of parameters than the study says [DA118]")
    if (active and task.new == "no") != (labels is not None):
        raise DataError(f"the label is held by {task.active}, and by nobody else [DA119]")
    mine = len(ids)
    if mine != task.rows and task.new == "no":
        raise StudyError(
            f"{name} has {mine} rows and the study says {task.rows}: batches rest on that number, so set rows to the "
            "number of people that all parties hold [ST430]"
        )
    if labels is None:
        return
    if labels.shape != (mine,):
        raise DataError(f"{name} must have one label for each of its rows [DA120]")
    if task.classes and not (labels.size and labels.min() >= 0 and labels.max() < task.classes):
        raise DataError(f"a label of {name} is none of the {task.classes} classes of the study [DA121]")
