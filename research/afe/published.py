"""Algorithm 1 of the paper on real data, in one place: what it learns, epoch by epoch, and what it shows of people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from colonnade.kinds.split import adaptive_programs
from colonnade.kinds.split.adaptive_programs import add_noise, shape_embeddings
from colonnade.kinds.split.embedding_task import UNPROTECTED, AdaptiveTask, EmbeddingSender
from colonnade.kinds.split.encoders import Encoder, RowEncoder, encoder_from
from colonnade.kinds.split.heads import SoftmaxHead
from colonnade.privacy import Trust
from colonnade.protocols.iteration import NoiseSampler
from colonnade.randomness import KEY_BYTES
from research.afe import settings
from research.afe.cases import ACTIVE, Case, Matrix, People
from research.reproduce.chance import stream

_TOGETHER = "everybody"


class Mode(StrEnum):
    """What of the paper is switched on."""

    UNPROTECTED = "unprotected"
    VANILLA = "vanilla"
    ADJUSTED = "vanilla + D"
    RESCALED = "vanilla + R"
    BOTH = "VFL-AFE"


@dataclass(frozen=True)
class Learned:
    """A head, encoders, and the public task by which they learned."""

    task: AdaptiveTask
    encoders: Mapping[str, Encoder]
    head: SoftmaxHead

    def shown(self, party: str, rows: Matrix, seed: int) -> Matrix:
        """What a party tells of people: batches that are clipped, perhaps stretched, and noised as in training."""
        draw = _noise(seed)
        raw, told = self.encoders[party].embed(rows), np.empty((len(rows), self.encoders[party].width))
        for block in _batches(len(rows), self.task):
            whole = add_noise(
                shape_embeddings(raw[block], self.task.sender(party), self.task).told,
                party,
                self.task,
                draw,
            )
            told[block] = self.task.grid.real(whole).reshape(-1, told.shape[1])
        return told

    def scores(self, parts: Mapping[str, Matrix], seed: int) -> Matrix:
        """Scores of people from what is told of them."""
        told = [self.shown(party, parts[party], seed + place) for place, party in enumerate(self.task.passives)]
        return self.head.scores(np.hstack(told))


def learn(
    case: Case,
    mode: Mode,
    seed: int,
    *,
    people: People | None = None,
    epochs: int = settings.EPOCHS,
    batch: int | None = None,
    after_epoch: Callable[[Learned], None] | None = None,
) -> Learned:
    """Learn from the people of a case, or from these; in batches of a given size the steps are as without noise."""
    chosen = case.train if people is None else people
    return _learned(case, mode, chosen.parts, chosen.labels, case.shapes, seed, epochs, batch, after_epoch)


def centralised(case: Case, seed: int, *, epochs: int = settings.EPOCHS) -> list[float]:
    """The accuracy after each epoch of one network of the same kind that reads all columns; no message is sent."""
    parts = {_TOGETHER: joined(case, case.train.parts)}
    test = {_TOGETHER: joined(case, case.test.parts)}
    first = case.shapes[case.passives[0]] if case.shapes else ()
    whole = (first[0], 2 * first[1]) if len(first) == 2 else (2 * first[0], *first[1:]) if first else ()
    found: list[float] = []
    _learned(
        case,
        Mode.UNPROTECTED,
        parts,
        case.train.labels,
        {_TOGETHER: whole},
        seed,
        epochs,
        None,
        lambda now: found.append(right(now.scores(test, seed), case.test)),
    )
    return found


def by_epoch(case: Case, mode: Mode, seed: int, *, epochs: int = settings.EPOCHS) -> list[float]:
    """The accuracy on test people after each epoch; their embeddings are told as those of training are."""
    found: list[float] = []
    learn(
        case,
        mode,
        seed,
        epochs=epochs,
        after_epoch=lambda now: found.append(right(now.scores(case.test.parts, seed), case.test)),
    )
    return found


def right(scores: Matrix, people: People) -> float:
    """The share of people whose class has the largest score."""
    return float(np.mean(scores.argmax(axis=1) == people.labels))


def task_of(name: str, classes: int, mode: Mode, widths: Mapping[str, int], rows: int, epochs: int) -> AdaptiveTask:
    """The public task of a mode, with the settings of the data set of this name."""
    chosen = settings.PUBLISHED[name]
    batches = max(1, rows // chosen.batch)
    task = AdaptiveTask(
        Trust((*widths, ACTIVE), (), 0),
        ACTIVE,
        tuple(EmbeddingSender(party, width, chosen.clip) for party, width in widths.items()),
        rows=rows,
        classes=classes,
        epochs=epochs,
        batches=batches,
        noise=UNPROTECTED,
        rescale=False,
        adjust=False,
        rate=chosen.open_rate if mode is Mode.UNPROTECTED else chosen.travel / (epochs * batches),
        alpha=chosen.alpha,
        beta=chosen.beta,
        confidence=chosen.confidence,
        compared=chosen.compared,
    )
    if mode is Mode.UNPROTECTED:
        return task
    noise = AdaptiveTask.published_noise(chosen.per_release, settings.DELTA)
    return replace(
        task, noise=noise, rescale=mode in (Mode.RESCALED, Mode.BOTH), adjust=mode in (Mode.ADJUSTED, Mode.BOTH)
    )


def _learned(
    case: Case,
    mode: Mode,
    parts: Mapping[str, Matrix],
    labels: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    epochs: int,
    batch: int | None,
    after_epoch: Callable[[Learned], None] | None,
) -> Learned:
    chosen = settings.PUBLISHED[case.name]
    encoders = {
        party: encoder_from(chosen.network(part.shape[1], shapes.get(party, ()), seed + place), part.shape[1])
        for place, (party, part) in enumerate(parts.items())
    }
    widths = {party: encoder.width for party, encoder in encoders.items()}
    task = task_of(case.name, case.classes, mode, widths, len(labels), epochs)
    if batch is not None:
        task = replace(task, rate=chosen.open_rate, batches=max(1, len(labels) // batch))
    head = SoftmaxHead(labels, sum(widths.values()), case.classes, rate=task.rate)
    learned = Learned(task, encoders, head)
    over = {party: RowEncoder(encoder, parts[party]) for party, encoder in encoders.items()}
    said = None if after_epoch is None else (lambda _: after_epoch(learned))
    adaptive_programs.reference(over, head, task, stream(seed, 0).bytes(KEY_BYTES), _noise(seed), after_epoch=said)
    return learned


def _noise(seed: int) -> NoiseSampler:
    """Normal noise, rounded to the grid: the data are public, and the product's exact noise would take hours."""
    chance = np.random.default_rng([seed, 7])
    return lambda name, variance, count: np.rint(chance.normal(0, math.sqrt(variance), count)).astype(np.int64)


def _batches(rows: int, task: AdaptiveTask) -> Iterator[slice]:
    """Blocks of about as many rows as a batch of training has."""
    size = max(2, task.rows // task.batches)
    ends = [*range(size, rows - size // 2, size), rows]
    return (slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True))


def joined(case: Case, parts: Mapping[str, Matrix]) -> Matrix:
    """All columns; halves of pictures beside or below each other."""
    if not case.shapes:
        return np.hstack([parts[party] for party in case.passives])
    halves = [parts[party].reshape(len(parts[party]), *case.shapes[party]) for party in case.passives]
    whole = np.concatenate(halves, axis=2 if halves[0].ndim == 3 else 1)
    return whole.reshape(len(whole), -1)
