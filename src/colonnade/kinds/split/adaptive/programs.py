"""Adaptive embeddings as published (VFL-AFE, Algorithm 1): encoders and head learn together, batch by batch.

In every round each passive party tells the embeddings of a batch, clipped, perhaps stretched, and noised; the active
party moves its head and returns the slope of each row's loss; each passive party moves its encoder by these slopes and
by losses of its own. Encoders and head stay where they are. Nothing of this is proven to protect anybody, and every
event says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from colonnade.errors import DataError, StudyError
from colonnade.kinds.split.adaptive import vocabulary
from colonnade.kinds.split.adaptive.sides import ActiveSide, HeadLearner, PassiveSide, noised
from colonnade.kinds.split.adaptive.task import Adaptive
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places
from colonnade.message_schema import receive_message
from colonnade.protocols.iteration import NoiseSampler, RoundCounter
from colonnade.protocols.message_task import own_noise
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import IdentifiedRows, agree_on_rows, compare_rows
from colonnade.randomness import Stream, new_key


@dataclass(frozen=True)
class Outcome:
    """What a participant has in the end; encoders and head have learned in place."""

    losses: tuple[float, ...] = ()
    """The mean loss of every batch, at the active party."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """By which a passive party stretched its embeddings in the end, for new people; its own, or in one place all."""


@dataclass(frozen=True)
class Said:
    """What one passive party told of one batch, and what it got back: all that these two saw of each other."""

    number: int
    owner: str
    places: Places
    embeddings: Matrix
    slopes: Matrix


Watch = Callable[[Said], None]


def owner(
    me: Owner, encoder: Learner | None, rows: IdentifiedRows, task: Adaptive, head: HeadLearner | None = None
) -> Outcome:
    """An owner's program; the active party gives its head, and an encoder only if it has columns."""
    _check(me, rows, task, head)
    side = _side(me, encoder, task, head)
    agree_on_rows(me, task, rows)
    stream = Stream.fresh()

    def draw(name: str, variance: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    return _active(me, side, task) if isinstance(side, ActiveSide) else _passive(me, side, task, draw)


def coordinator(me: Coordinator, task: Adaptive) -> Outcome:
    """The coordinator's program: it compares rows and passes sealed messages on."""
    compare_rows(me, task)
    return Outcome()


def _active(me: Owner, side: ActiveSide, task: Adaptive) -> Outcome:
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
    return Outcome(tuple(side.losses))


def _passive(me: Owner, side: PassiveSide, task: Adaptive, draw: NoiseSampler) -> Outcome:
    key, event = (
        receive_message(me.link(task.active), task.active, vocabulary.SHUFFLE)["key"],
        task.embeddings_event(me.name),
    )
    for places in RoundCounter(list(batches(task, key)), me.progress, "round", every=task.batches):
        with me.meter.phase("embed"):
            told = noised(side.embeddings(places), me.name, task, draw)
        me.tell((task.active,), "embeddings", told, event=event)
        numbers = me.receive_message(task.active, "slopes", told.size, task.bound)
        with me.meter.phase("learn"):
            side.learn(_real(numbers, me.name, task))
    return Outcome(factors={me.name: side.factor})


def simulate(
    encoders: Mapping[str, Learner],
    head: HeadLearner,
    task: Adaptive,
    stream: Stream,
    watch: Watch | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> Outcome:
    """The same in one place: the same steps, rounding and noise; the active party may have an encoder too.

    It is for evaluation on data that may be in one place; a study never calls it. ``watch`` sees what parties tell each
    other, and ``after_epoch`` is called with the number of epochs done.
    """
    key = stream.bytes(len(new_key()))
    draw: NoiseSampler = lambda name, variance, count: own_noise(name, variance).draw((count,), stream)  # noqa: E731
    return reference(encoders, head, task, key, draw, watch, after_epoch)


def reference(
    encoders: Mapping[str, Learner],
    head: HeadLearner,
    task: Adaptive,
    key: bytes,
    draw: NoiseSampler,
    watch: Watch | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> Outcome:
    """The protocol in one place, without messages; with the same batches and noise it gives the same numbers."""
    active = ActiveSide(head, encoders.get(task.active), task)
    passives = {name: PassiveSide(encoders[name], name, task) for name in task.passives}
    for number, places in enumerate(batches(task, key), start=1):
        told = {
            name: _real(noised(side.embeddings(places), name, task, draw), name, task)
            for name, side in passives.items()
        }
        for name, each in active.slopes(places, told).items():
            slopes = task.grid.real(task.grid.quantise(each))
            if watch is not None:
                watch(Said(number, name, places, told[name], slopes))
            passives[name].learn(slopes)
        if after_epoch is not None and number % task.batches == 0:
            after_epoch(number // task.batches)
    return Outcome(tuple(active.losses), {name: side.factor for name, side in passives.items()})


def batches(task: Adaptive, key: bytes) -> Iterator[Places]:
    """Line 2: who is in which batch. Every epoch has everybody once, in a new order that all owners know."""
    coins = Stream(key)
    for _ in range(task.epochs):
        order = np.argsort(coins.uint64(task.rows), kind="stable").astype(np.int64)
        yield from (order[start :: task.batches] for start in range(task.batches))


def _real(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]], name: str, task: Adaptive) -> Matrix:
    return task.grid.real(numbers).reshape(-1, task.sender(name).width)


def _side(me: Owner, encoder: Learner | None, task: Adaptive, head: HeadLearner | None) -> ActiveSide | PassiveSide:
    if head is not None:
        return ActiveSide(head, encoder, task)
    if encoder is None:
        raise DataError(f"{me.name} needs an encoder of its columns [DA109]")
    return PassiveSide(encoder, me.name, task)


def _check(me: Owner, rows: IdentifiedRows, task: Adaptive, head: HeadLearner | None) -> None:
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
