"""Adaptive embeddings as published (VFL-AFE, Algorithm 1): encoders and head learn together, batch by batch.

In every round each passive party tells the embeddings of a batch, clipped, perhaps stretched, and noised; the active
party moves its head and returns the slope of each row's loss; each passive party moves its encoder by these slopes and
by losses of its own. Encoders and head stay where they are. Nothing of this is proven to protect anybody, and every
event says so.

Lines 6 to 8 clip embeddings, estimate how far they lie apart and stretch them to the clip. Line 16 finds by fuzzy
c-means of the returned slopes who is of the same class (Eq. 7). Eq. 6 is how far distances are from a normal law, and
Eq. 8 sets classes apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.split.embedding_programs import real_embeddings
from colonnade.kinds.split.embedding_task import AdaptiveTask, EmbeddingSender, EncoderSteps
from colonnade.kinds.split.encoder_base import Matrix, Places, RowEncoder, Vector
from colonnade.kinds.split.heads import LearningHead
from colonnade.message_schema import FixedBytes, MessageSchema, receive_message
from colonnade.protocols.iteration import NoiseSampler, RoundCounter
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import IdentifiedRows, agree_on_rows, compare_rows
from colonnade.protocols.task import own_noise
from colonnade.randomness import KEY_BYTES, Stream, new_key

_NOTHING = 1e-300
_ROUNDS, _ROUNDS_ANEW = 3, 15
_SAME = 1e-6  # centres that lie closer than this part of the largest one have become one


class FuzzyCMeans:
    """Fuzzy c-means with exponent 2: the part of a row in a cluster falls with its squared distance to the centre."""

    def __init__(self, clusters: int) -> None:
        self.clusters = clusters
        self.centres: Matrix | None = None

    def fit(self, rows: Matrix) -> tuple[NDArray[np.int64], Vector]:
        """The likeliest cluster of each row, and how much of the row belongs to it; the centres are kept."""
        rows = unit_rows(rows)
        before = self._before(rows.shape[1])
        centres = spread_centres(rows, self.clusters) if before is None else before
        squares = np.einsum("ij,ij->i", rows, rows)[:, None]
        parts = memberships(rows, squares, centres)
        for _ in range(_ROUNDS_ANEW if before is None else _ROUNDS):
            weights = parts * parts
            centres = weights.T @ rows / np.maximum(weights.sum(axis=0), _NOTHING)[:, None]
            parts = memberships(rows, squares, centres)
        self.centres = centres
        cluster = parts.argmax(axis=1)
        return cluster, parts[np.arange(len(rows)), cluster]

    def _before(self, width: int) -> Matrix | None:
        """The centres of the batch before, unless there are none or two of them have become one."""
        centres = self.centres
        if centres is None or centres.shape[1] != width:
            return None
        squares = np.einsum("ij,ij->i", centres, centres)
        apart = _squared_distances(centres, squares[:, None], centres)
        np.fill_diagonal(apart, np.inf)
        return None if apart.min() <= _SAME**2 * squares.max() else centres


def unit_rows(rows: Matrix) -> Matrix:
    """Rows of length 1; those of no length stay as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def memberships(rows: Matrix, squares: Matrix, centres: Matrix) -> Matrix:
    """How much of each row belongs to each centre; the parts of a row add up to 1."""
    parts = 1 / np.maximum(_squared_distances(rows, squares, centres), _NOTHING)
    parts /= parts.sum(axis=1, keepdims=True)
    return parts


def spread_centres(rows: Matrix, count: int) -> Matrix:
    """Rows to start from: the longest one, and then always the one farthest from those before."""
    squares = np.einsum("ij,ij->i", rows, rows)[:, None]
    chosen = [int(squares.argmax())]
    nearest = _squared_distances(rows, squares, rows[chosen])[:, 0]
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, _squared_distances(rows, squares, rows[chosen[-1:]])[:, 0], out=nearest)
    return rows[chosen].copy()


def _squared_distances(rows: Matrix, squares: Matrix, centres: Matrix) -> Matrix:
    found = rows @ (-2.0 * centres.T)
    found += squares
    found += np.einsum("ij,ij->i", centres, centres)
    return np.maximum(found, 0.0, out=found)


DEVIATIONS = 3.0
"""Eq. 5 at p2 = 0.9987."""
_LEAST_PART = 1e-6  # of the clip's diameter: equal embeddings are not stretched without end


def clip_rows(raw: Matrix, clip: float) -> Matrix:
    """Line 6: every row within a ball of radius ``clip``."""
    return raw / np.maximum(1.0, _norms(raw) / clip)


def backpropagate_clip(raw: Matrix, slopes: Matrix, clip: float) -> Matrix:
    """Slopes in clipped rows as slopes in the rows before: of a row that was shortened, nothing along it is left."""
    norms = _norms(raw)
    unit = raw / np.maximum(norms, np.finfo(np.float64).tiny)
    along = np.einsum("ij,ij->i", unit, slopes)[:, None]
    shortened: Matrix = (slopes - along * unit) * (clip / np.maximum(norms, clip))
    return np.where(norms > clip, shortened, slopes)


def _norms(rows: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None])


@dataclass(frozen=True)
class EmbeddingPairs:
    """The distances of all pairs of some embeddings."""

    rows: Matrix

    @cached_property
    def distances(self) -> Matrix:
        """Of each row to each, (m, m)."""
        squares = np.einsum("ij,ij->i", self.rows, self.rows)
        apart = self.rows @ self.rows.T
        apart *= -2.0
        apart += squares[:, None]
        apart += squares
        np.maximum(apart, 0.0, out=apart)
        np.fill_diagonal(apart, 0.0)
        return np.sqrt(apart, out=apart)

    @cached_property
    def middle(self) -> float:
        """The mean distance of two different rows."""
        return float(self.distances.sum()) / self.ordered_pairs

    @cached_property
    def deviation(self) -> float:
        """The standard deviation of those distances."""
        square = float(np.einsum("ij,ij->", self.distances, self.distances)) / self.ordered_pairs
        return float(np.sqrt(max(square - self.middle**2, 0.0)))

    @property
    def ordered_pairs(self) -> int:
        """How many pairs there are, each in both orders."""
        return max(1, len(self.rows) * (len(self.rows) - 1))

    @property
    def closeness(self) -> Matrix:
        """One over each distance, and zero for equal rows, which pull nowhere."""
        near = self.distances
        return np.divide(1.0, near, out=np.zeros_like(near), where=near > 0)

    def slopes(self, of_distances: Matrix) -> Matrix:
        """From the slopes of a loss in each distance, each pair told in both orders, to those in each row."""
        pull = of_distances * self.closeness
        found: NDArray[np.float64] = pull.sum(axis=1)[:, None] * self.rows - pull @ self.rows
        return found


def local_sensitivity(pairs: EmbeddingPairs) -> float:
    """Eq. 5: the distance that hardly any pair of rows exceeds, if distances were normal."""
    return pairs.middle + DEVIATIONS * pairs.deviation


def sensitivity_slopes(pairs: EmbeddingPairs) -> Matrix:
    """The slopes of Eq. 5 in each distance, (m, m); a pair counts in both orders."""
    spread = DEVIATIONS / max(pairs.deviation, _LEAST_PART * pairs.middle, np.finfo(np.float64).tiny)
    found = (2 / pairs.ordered_pairs) * (1 + spread * (pairs.distances - pairs.middle))
    np.fill_diagonal(found, 0.0)
    return found


def stretch_factor(pairs: EmbeddingPairs, clip: float) -> float:
    """Line 8 and Eq. 4: the factor by which all embeddings of the batch are multiplied; of one row it is 1."""
    if len(pairs.rows) < 2:
        return 1.0
    return 2 * clip / max(local_sensitivity(pairs), 2 * clip * _LEAST_PART)


_MOST_PAIRS = 1 << 13  # to sort all of them would double what rescaling costs
_LEAST_GAP = 1e-9


def divergence(distances: Vector) -> tuple[float, Vector]:
    """The divergence of some distances from a normal law, and its slope in each of them."""
    count = len(distances)
    reach = max(1, round(math.sqrt(count)))
    order = np.argsort(distances)
    found = distances[order]
    middle, square = float(found.mean()), float(found.var())
    if count < 3 or square <= _LEAST_GAP**2:
        return 0.0, np.zeros(count)
    low = np.maximum(np.arange(count) - reach, 0)
    high = np.minimum(np.arange(count) + reach, count - 1)
    gaps = np.maximum(found[high] - found[low], _LEAST_GAP * math.sqrt(square))
    entropy = float(np.log(gaps * (count / (2 * reach))).mean())
    value = 0.5 * math.log(2 * math.pi * math.e * square) - entropy
    wider = 1 / (count * gaps)
    slopes = (found - middle) / (count * square)
    slopes -= np.bincount(high, wider, count)
    slopes += np.bincount(low, wider, count)
    placed = np.empty(count)
    placed[order] = slopes
    return value, placed


def divergence_slopes(pairs: EmbeddingPairs) -> Matrix:
    """The slopes of the divergence in each distance, (m, m); where there are many, evenly chosen ones count for all."""
    first, second = _some_pairs(len(pairs.rows))
    _, slopes = divergence(pairs.distances[first, second])
    each = np.zeros_like(pairs.distances)
    each[first, second] = each[second, first] = slopes
    return each


@lru_cache(maxsize=16)
def _some_pairs(rows: int) -> tuple[Places, Places]:
    first, second = np.triu_indices(rows, 1)
    some = np.linspace(0, max(0, len(first) - 1), min(len(first), _MOST_PAIRS)).astype(np.int64)
    return first[some], second[some]


def class_differences(cluster: NDArray[np.int64], believed: NDArray[np.bool_]) -> Matrix:
    """1 - omega: one for two rows whose clusters are believed and differ, (rows, rows)."""
    differ: NDArray[np.bool_] = (cluster[:, None] != cluster) & believed[:, None] & believed
    return differ.astype(np.float64)


def contrast_slopes(others: Matrix, *, apart: bool) -> Matrix:
    """The slopes in each distance of Eq. 8 without its weight; a pair counts in both orders.

    That is the mean over ordered pairs, with a minus where classes are to move apart. Printed is a loss that falls when
    different classes come together. The authors' figures show them moving apart, so that is what they must have run;
    ``apart`` chooses.
    """
    return others * ((-2.0 if apart else 2.0) / len(others) ** 2)


_NEWEST = 0.1  # of the mean of factors


@dataclass(frozen=True)
class ShapedEmbeddings:
    """Embeddings of a batch, as they are told before noise, and how they came about."""

    raw: Matrix
    clipped: Matrix
    factor: float
    told: Matrix
    pairs: EmbeddingPairs | None


def require_finite(raw: Matrix, owner: str) -> None:
    """Refuse embeddings that are not finite numbers."""
    if not np.isfinite(raw).all():
        raise DataError(f"the encoder of {owner} gave an embedding that is not a finite number: lower its rate [DA111]")


def shape_embeddings(raw: Matrix, sender: EmbeddingSender, task: AdaptiveTask) -> ShapedEmbeddings:
    """Lines 6 to 8: clipped and, if the task rescales, stretched to the clip; as they are if nothing is protected."""
    require_finite(raw, sender.owner)
    clipped = clip_rows(raw, sender.clip) if task.protected else raw
    pairs = EmbeddingPairs(clipped[: task.compared]) if task.rescale or task.adjust else None
    factor = stretch_factor(pairs, sender.clip) if task.rescale and pairs is not None else 1.0
    return ShapedEmbeddings(raw, clipped, factor, clipped * factor, pairs)


class AdaptivePassiveSide:
    """A passive party: lines 4 to 10 make what it tells, lines 16 to 18 learn from what it gets back."""

    def __init__(self, encoder: RowEncoder, owner: str, task: AdaptiveTask) -> None:
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
            cluster, confidence = self._clusters.fit(slopes[: len(pulls)])
            others = class_differences(cluster, confidence >= task.confidence)
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

    def __init__(self, head: LearningHead, own: RowEncoder | None, task: AdaptiveTask) -> None:
        if own is not None and not task.columns:
            raise DataError(f"the task does not say that {task.active} has columns of its own [DA113]")
        self.head, self.own, self.task = head, own, task
        self._steps = EncoderSteps(task.rule, task.rate)

    def slopes(self, places: Places, received: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Learn from the received embeddings of a batch; the slopes that go back to each passive party."""
        blocks = [received[sender.owner] for sender in self.task.senders]
        if self.own is not None:
            blocks.append(self.own.embed(places))
        slopes = self.head.slopes(places, np.hstack(blocks))
        if not np.isfinite(slopes).all():
            raise DataError("the head's slopes are not finite numbers: lower its rate [DA114]")
        ends = np.cumsum([block.shape[1] for block in blocks])
        parts = np.split(slopes, ends[:-1], axis=1)
        if self.own is not None:
            self.own.move(self._steps.step(self.own.pull_back(places, parts[-1] / len(places))))
        return {sender.owner: part for sender, part in zip(self.task.senders, parts, strict=False)}


def add_noise(values: Matrix, owner: str, task: AdaptiveTask, draw: NoiseSampler) -> NDArray[np.int64]:
    """Lines 9 and 10: one party's message, on the grid, with its noise if it is protected; audits attack this."""
    numbers = task.grid.quantise(values).ravel()
    return numbers + draw(owner, task.variance(owner), numbers.size) if task.protected else numbers


SHUFFLE_MESSAGE = MessageSchema("shuffle", key=FixedBytes(KEY_BYTES))
"""From which everybody finds who is in which batch, from the active party to the other owners."""


StretchFactors = Mapping[str, float]
"""By which passive parties stretched their embeddings in the end, for new people: a party's own, or in one place all.

Encoders and head have learned in place.
"""
ExchangeCallback = Callable[[str, Places, Matrix, Matrix], None]
"""Told of a passive party, who was in a batch, what the party told, and what it got back."""


def owner(
    me: Owner, encoder: RowEncoder | None, rows: IdentifiedRows, task: AdaptiveTask, head: LearningHead | None = None
) -> StretchFactors:
    """An owner's program; the active party gives its head, and an encoder only if it has columns."""
    _check(me, rows, task, head)
    side = _side(me, encoder, task, head)
    agree_on_rows(me, task, rows)
    stream = Stream.fresh()

    def draw(name: str, variance: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    return _active(me, side, task) if isinstance(side, AdaptiveActiveSide) else _passive(me, side, task, draw)


def coordinator(me: Coordinator, task: AdaptiveTask) -> StretchFactors:
    """The coordinator's program: it compares rows and passes sealed messages on."""
    compare_rows(me, task)
    return {}


def _active(me: Owner, side: AdaptiveActiveSide, task: AdaptiveTask) -> StretchFactors:
    key, event = new_key(), task.slopes_event
    for name in task.passives:
        me.link(name).send("shuffle", key=key)
    for places in RoundCounter(list(batches(task, key)), me.progress, "round", every=task.batches):
        told = {
            name: me.receive_message(name, "embeddings", len(places) * task.sender(name).width, task.bound)
            for name in task.passives
        }
        with me.meter.phase("head"):
            slopes = side.slopes(places, {name: real_embeddings(numbers, name, task) for name, numbers in told.items()})
        for name, each in slopes.items():
            me.tell((name,), "slopes", task.grid.quantise(each).ravel(), event=event)
    return {}


def _passive(me: Owner, side: AdaptivePassiveSide, task: AdaptiveTask, draw: NoiseSampler) -> StretchFactors:
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
            side.learn(real_embeddings(numbers, me.name, task))
    return {me.name: side.factor}


def simulate(
    encoders: Mapping[str, RowEncoder],
    head: LearningHead,
    task: AdaptiveTask,
    stream: Stream,
    watch: ExchangeCallback | None = None,
) -> StretchFactors:
    """The same in one place: the same steps, rounding and noise; the active party may have an encoder too.

    It is for evaluation on data that may be in one place; a study never calls it. ``watch`` sees what parties tell each
    other.
    """
    key = stream.bytes(len(new_key()))
    return reference(encoders, head, task, key, lambda name, v, count: own_noise(name, v).draw((count,), stream), watch)


def reference(
    encoders: Mapping[str, RowEncoder],
    head: LearningHead,
    task: AdaptiveTask,
    key: bytes,
    draw: NoiseSampler,
    watch: ExchangeCallback | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> StretchFactors:
    """The protocol in one place, without messages; with the same batches and noise it gives the same numbers."""
    active = AdaptiveActiveSide(head, encoders.get(task.active), task)
    passives = {name: AdaptivePassiveSide(encoders[name], name, task) for name in task.passives}
    for number, places in enumerate(batches(task, key), start=1):
        told = {
            name: real_embeddings(add_noise(side.embeddings(places), name, task, draw), name, task)
            for name, side in passives.items()
        }
        for name, each in active.slopes(places, told).items():
            slopes = task.grid.real(task.grid.quantise(each))
            if watch is not None:
                watch(name, places, told[name], slopes)
            passives[name].learn(slopes)
        if after_epoch is not None and number % task.batches == 0:
            after_epoch(number // task.batches)
    return {name: side.factor for name, side in passives.items()}


def batches(task: AdaptiveTask, key: bytes) -> Iterator[Places]:
    """Line 2: who is in which batch. Every epoch has everybody once, in a new order that all owners know."""
    coins = Stream(key)
    for _ in range(task.epochs):
        order = np.argsort(coins.uint64(task.rows), kind="stable").astype(np.int64)
        yield from (order[start :: task.batches] for start in range(task.batches))


def _side(
    me: Owner, encoder: RowEncoder | None, task: AdaptiveTask, head: LearningHead | None
) -> AdaptiveActiveSide | AdaptivePassiveSide:
    if head is not None:
        return AdaptiveActiveSide(head, encoder, task)
    if encoder is None:
        raise DataError(f"{me.name} needs an encoder of its columns [DA109]")
    return AdaptivePassiveSide(encoder, me.name, task)


def _check(me: Owner, rows: IdentifiedRows, task: AdaptiveTask, head: LearningHead | None) -> None:
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
