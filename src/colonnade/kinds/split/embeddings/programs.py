"""Embeddings told to the party with the label (AFE-R): clipped, scaled by public figures, clipped again, and noised.

Each passive party embeds its own rows. If its encoder learns, every update is a noised sum of clipped gradients, so the
encoder at any time is a function of what is charged. The active party holds the label; it tells labels only where
encoders learn, through randomised response if the task says so, and keeps what it receives for a head of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from colonnade.errors import DataError, StudyError
from colonnade.kinds.split.embeddings import vocabulary
from colonnade.kinds.split.embeddings.anchors import Labels
from colonnade.kinds.split.embeddings.clipping import Integers
from colonnade.kinds.split.embeddings.learner import Encoding, Matrix
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.sides import Passive, Teacher, batch
from colonnade.kinds.split.embeddings.task import Embeddings
from colonnade.message_schema import receive_message
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.protocols.agreement import compare_digests
from colonnade.protocols.iteration import NoiseSampler, RoundCounter
from colonnade.protocols.message_task import own_noise
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.randomness import Stream


@dataclass(frozen=True)
class Outcome:
    """What an owner has in the end.

    The active party has the noised embeddings of everybody, by the party that told them, and knows the variance of
    their noise from the task. A passive party has its public centre and scale; its encoder has learned in place.
    """

    received: Mapping[str, Matrix] = field(default_factory=dict)
    scaling: Scaling | None = None
    labels: Labels | None = None
    """The labels that were told, if any were."""


@dataclass(frozen=True)
class _Known:
    """People whom all parties can name."""

    ids: Sequence[str]
    places: None = None


def owner(
    me: Owner,
    encoding: Encoding | None,
    ids: Sequence[str],
    labels: Labels | None,
    task: Embeddings,
    scaling: Scaling | None = None,
) -> Outcome:
    """An owner's program.

    The active party gives ``labels`` in the order of the rows, except for new people, and no encoding: what it makes of
    its own columns is never sent. A passive party gives the ``scaling`` of an earlier study for new people.
    """
    stream = Stream.fresh()
    _check(me.name, encoding, ids, labels, task)
    rows = agree_on_rows(me, task, _Known(ids))
    if encoding is None:
        return _active(me, labels, rows, task, stream)

    def draw(name: str, variance: int, count: int) -> Integers:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    return _passive(me, Passive(encoding, me.name, task, draw, scaling), rows, task)


def coordinator(me: Coordinator, task: Embeddings) -> None:
    """The coordinator's program: it compares digests of ids."""
    compare_rows(me, task)


def simulate(
    encodings: Mapping[str, Encoding],
    labels: Labels | None,
    task: Embeddings,
    stream: Stream,
    *,
    rows: int | None = None,
    scalings: Mapping[str, Scaling] | None = None,
) -> dict[str, Outcome]:
    """What all owners would have, computed in one place: the same steps, rounding and noise.

    ``rows`` is the number of new people, where the task is about them. It is for evaluation on data that may be in one
    place; a study never calls it.
    """
    told = None if labels is None or task.training == "none" else told_labels(labels, task, stream)
    return reference(
        encodings, told, task, lambda name, v, count: own_noise(name, v).draw((count,), stream), rows, scalings
    )


def reference(
    encodings: Mapping[str, Encoding],
    labels: Labels | None,
    task: Embeddings,
    draw: NoiseSampler,
    rows: int | None = None,
    scalings: Mapping[str, Scaling] | None = None,
) -> dict[str, Outcome]:
    """The protocol in one place, from the labels as they were told; with the same noise it gives the same numbers."""
    rows = task.rows if rows is None else rows
    given = scalings or {}
    sides = {name: Passive(encodings[name], name, task, draw, given.get(name)) for name in task.passives}
    for side in sides.values():
        if task.training == "labels" and labels is not None:
            side.train(labels)
        if task.stage:
            side.first(rows)
    last: dict[str, Matrix] = {}
    if task.training == "rounds" and labels is not None:
        teacher = Teacher(labels, task)
        last = {name: np.zeros((rows, side.sender.width)) for name, side in sides.items()}
        for step in range(task.epochs * task.batches):
            places = batch(step % task.batches, task)
            told = {name: _real(side.embeddings(places), name, task) for name, side in sides.items()}
            for name, slopes in teacher.slopes(places, told).items():
                last[name][places] = told[name]
                sides[name].take(places, slopes, labels)
                if (step + 1) % task.batches == 0:
                    sides[name].end_epoch(labels)
    for name, side in sides.items():
        for number in range(task.frozen_releases):
            heard = _real(side.embeddings(np.arange(rows)), name, task)
            last[name] = heard if not number else last[name] + heard
        last[name] = last[name] / task.averaged
    passive = {name: Outcome(scaling=side.scaling, labels=labels) for name, side in sides.items()}
    return passive | {task.active: Outcome(last, labels=labels)}


def _active(me: Owner, labels: Labels | None, rows: int, task: Embeddings, stream: Stream) -> Outcome:
    told: Labels | None = None
    found: dict[str, Matrix] = {}
    if labels is not None and task.training != "none":
        told = told_labels(labels, task, stream)
        me.tell(task.passives, "labels", told, event=task.labels_event)
        compare_digests(me, task.owners, told.astype("<i8").tobytes(), "labels")
    if task.stage:
        for name in task.passives:
            _hear(me, name, rows, task)
    if told is not None and task.training == "rounds":
        found = _teach(me, told, task)
    sums: dict[str, Matrix] = {}
    for number in range(task.frozen_releases):
        for name in task.passives:
            heard = _hear(me, name, rows, task)
            sums[name] = sums[name] + heard if number else heard
        me.progress("embeddings", number + 1, task.frozen_releases)
    return Outcome(found | {name: total / task.averaged for name, total in sums.items()}, labels=told)


def _teach(me: Owner, labels: Labels, task: Embeddings) -> dict[str, Matrix]:
    """Receive embeddings batch by batch, and send slopes back, which are made of told numbers alone."""
    teacher = Teacher(labels, task)
    last = {sender.owner: np.zeros((task.rows, sender.width)) for sender in task.senders}
    for step in RoundCounter(range(task.epochs * task.batches), me.progress, "rounds"):
        places = batch(step % task.batches, task)
        told = {name: _hear(me, name, len(places), task) for name in task.passives}
        with me.meter.phase("learn"):
            slopes = teacher.slopes(places, told)
        for name in task.passives:
            me.link(name).send("slopes", values=slopes[name])
            last[name][places] = told[name]
    return last


def _passive(me: Owner, side: Passive, rows: int, task: Embeddings) -> Outcome:
    labels = None
    if task.training != "none":
        labels = receive_message(me.link(task.active), task.active, vocabulary.labels(task))["values"]
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
            places = batch(step % task.batches, task)
            with me.meter.phase("embed"):
                told = side.embeddings(places)
            me.tell((task.active,), "embeddings", told, event=event)
            due = vocabulary.slopes(task, me.name, len(places))
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
    return Outcome(scaling=side.scaling, labels=labels)


def told_labels(labels: Labels, task: Embeddings, stream: Stream) -> Labels:
    """The labels as they are told: answered at random once, and never looked at again for what leaves the party."""
    whole = labels.astype(np.int64)
    return whole if task.label_odds is None else randomised_response(whole, task.classes, task.label_odds, stream)


def _hear(me: Owner, name: str, rows: int, task: Embeddings) -> Matrix:
    return _real(me.receive_message(name, "embeddings", rows * task.sender(name).width, task.bound), name, task)


def _real(told: Integers, name: str, task: Embeddings) -> Matrix:
    return task.grid.real(told).reshape(-1, task.sender(name).width)


def _check(name: str, encoding: Encoding | None, ids: Sequence[str], labels: Labels | None, task: Embeddings) -> None:
    """Refuse what an owner holds if it does not fit the task; nothing has been sent yet."""
    active = name == task.active
    if active != (encoding is None):
        raise DataError(f"embeddings are told to {task.active}, which needs no encoder here, by everybody else [DA116]")
    if encoding is not None and encoding.width != task.sender(name).width:
        raise DataError(f"the encoder of {name} gives embeddings of another width than the study says [DA117]")
    learned = 0 if active or task.training == "none" else task.sender(name).parameters
    if learned and getattr(encoding, "parameters", 0) != learned:
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
