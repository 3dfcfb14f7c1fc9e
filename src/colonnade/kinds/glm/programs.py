"""Messages of an exchange, besides the noised numbers that parties tell each other.

Generalised linear models over noised messages (HDP-VFL: Algorithm 1, where received numbers are clipped).

The active party holds the label. In every step it sends the noised slopes of its loss, the same numbers to all; each
passive party clips them, updates its own weights and answers with the noised scores of its rows; the active party adds
those to its own. Nobody computes on shares: a party sends its own numbers with its own noise, on a grid. Every party
keeps its weights; if the task says so, all release them with noise in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm import sides
from colonnade.kinds.glm.sides import ActiveDescent, ActiveFit, KeptWeights, PassiveParty, active_side
from colonnade.kinds.glm.task import Exchange
from colonnade.message_schema import ArrayForm, FiniteFloat, ItemList, MessageSchema, TextForm, receive_message
from colonnade.models.serialization import LARGEST
from colonnade.protocols.iteration import NoiseSampler, PreparedNoise, RoundCounter
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import Rows, agree_on_rows, compare_digests, compare_rows
from colonnade.protocols.task import own_noise
from colonnade.randomness import Stream, new_key

FIT = MessageSchema("fit", name=TextForm(32, "[0-9a-f]{32}"))
"""The random name of the fit, from the active party to everybody."""
STEP = MessageSchema("step")
"""The active party has sent the slopes of one more step; it shows the coordinator how far the exchange is."""
LARGEST_WEIGHT = (1 << 63) - 1
"""Of a released weight, in steps of the grid: a fit is held by a penalty, not by a ball, so nothing less is certain."""


def unfolded_message(task: Exchange) -> MessageSchema:
    """The active party's released weights, and a factor for each of the others; such as a model's file may hold."""
    size = len(task.block(task.active).columns) + 1
    return MessageSchema(
        "unfolded",
        weights=ArrayForm(np.float64, (size,), -LARGEST, LARGEST),
        factors=ItemList(*[FiniteFloat(LARGEST)] * len(task.passives)),
    )


Integers = NDArray[np.int64]
Vector = NDArray[np.float64]
_SLOPES = "slopes"


@dataclass(frozen=True)
class ExchangeOutcome:
    """What a participant has in the end: its own weights if it is an owner, and everyone's if they were released.

    Where all parties run in one process, it has the weights of all of them.
    """

    fits: Mapping[str, Callable[[], KeptWeights]]
    """What makes the weights that this process has, by party."""
    released: Mapping[str, KeptWeights] | None
    fit: str = ""
    """A random name of this fit, equal at all parties, so that weights of different fits are not combined."""
    side: ActiveFit | ActiveDescent | None = None
    """The active party's own side of the exchange, which it tells nobody."""

    @cached_property
    def held(self) -> Mapping[str, KeptWeights]:
        """These weights, computed when they are first asked for: after a party has left, so nobody sees how long.

        The active party's last fit ends when it makes no more progress, which depends on its rows.
        """
        return {party: fit() for party, fit in self.fits.items()}

    @property
    def in_sample(self) -> tuple[Vector, Vector] | None:
        """The active party's labels, and what its final model expects of the same people, as scores."""
        if self.side is None:
            return None
        return self.side.labels, self.side.expected_scores(self.held[self.side.task.active])


def owner(me: Owner, features: Rows, labels: Vector | None, task: Exchange) -> ExchangeOutcome:
    """An owner's program; the active party gives ``labels`` in the order of the rows."""
    stream = Stream.fresh()
    rows = _checked(me, features, labels, task)
    with me.meter.phase("encode"):
        held = sides.with_constant(np.vstack(list(features.blocks(rows))), me.name, task)

    def draw(name: str, variance: int, count: int) -> Integers:
        with me.meter.phase("noise"):
            return own_noise(name, variance).draw((count,), stream)

    if labels is not None:
        return _active(me, active_side(held, labels, task), task, draw)
    return _passive(me, PassiveParty(held, me.name, task), task, draw)


def coordinator(me: Coordinator, task: Exchange) -> ExchangeOutcome:
    """The coordinator's program: it passes messages on, and learns what is released."""
    compare_rows(me, task)
    fit = _named(me, task)
    for _ in RoundCounter(task.steps, me.progress, "exchange"):
        receive_message(me.link(task.active), task.active, STEP)
    if not task.release:
        return ExchangeOutcome({}, None, fit)
    released = _weights_of_others(me, task) | {task.active: _unfolded(me, task)}
    return ExchangeOutcome({}, _released_alike(me, released, fit, task), fit)


def simulate(
    tables: Mapping[str, NDArray[np.float64]], labels: Vector, task: Exchange, stream: Stream
) -> tuple[dict[str, KeptWeights], dict[str, KeptWeights] | None]:
    """What all parties would keep and release, computed in one place: the same steps, rounding and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    return reference(tables, labels, task, lambda name, v, count: own_noise(name, v).draw((count,), stream))


def reference(
    tables: Mapping[str, NDArray[np.float64]], labels: Vector, task: Exchange, draw: NoiseSampler
) -> tuple[dict[str, KeptWeights], dict[str, KeptWeights] | None]:
    """The protocol in one place, without messages; with the same noise it gives the same numbers."""
    active = active_side(sides.with_constant(tables[task.active], task.active, task), labels, task)
    others = {name: PassiveParty(sides.with_constant(tables[name], name, task), name, task) for name in task.passives}
    for step in task.steps:
        slopes = sides.add_noise(active.slopes(step.batch), task.active, task, draw)
        active.learn(step.answer)
        for name, side in others.items():
            side.take(step.batch, task.grid.real(slopes))
            if step.answer is not None:
                told = sides.add_noise(side.scores(step.answer), name, task, draw)
                active.hear(name, step.answer, task.grid.real(told))
    kept = {task.active: active.keep_weights()} | {name: side.keep_weights() for name, side in others.items()}
    if not task.release:
        return kept, None
    released = {task.active: active.release_weights()} | {name: side.weights for name, side in others.items()}
    opened = {name: task.grid.real(sides.add_weight_noise(w, name, task, draw)) for name, w in released.items()}
    public = {name: KeptWeights(name, opened[name]) for name in task.passives}
    return kept, public | {task.active: active.unfold(opened[task.active])}


def _active(me: Owner, side: ActiveFit | ActiveDescent, task: Exchange, draw: NoiseSampler) -> ExchangeOutcome:
    event, total = task.message_event(me.name), len(task.steps)
    fit, others = new_key()[:16].hex(), (*task.passives, COORDINATOR)
    for name in others:
        me.link(name).send("fit", name=fit)
    ahead, said = PreparedNoise(me.name, task.message_variance(me.name), draw), sha256(fit.encode())
    ahead.prepare(_size(task.steps[0].batch, task))
    for step in RoundCounter(task.steps, me.progress, "exchange"):
        with me.meter.phase("slopes"):
            slopes = sides.add_noise(side.slopes(step.batch), me.name, task, ahead)
        me.tell(task.passives, "slopes", slopes, event=event)
        said.update(slopes.astype("<i8").tobytes())
        me.link(COORDINATOR).send("step")
        with me.meter.phase("learn"):
            side.learn(step.answer)  # while the others fit
        if step.number + 1 < total:
            ahead.prepare(_size(task.steps[step.number + 1].batch, task))
        if step.answer is not None:
            for name in task.passives:
                told = me.receive_message(name, "scores", _size(step.answer, task), task.bound)
                side.hear(name, step.answer, task.grid.real(told))
    compare_digests(me, task.owners, said.digest(), _SLOPES)
    if not task.release:
        return ExchangeOutcome({me.name: side.keep_weights}, None, fit, side)
    opened = _publish(me, side.release_weights(), task, draw)
    unfolded = side.unfold(opened[me.name].weights)
    for name in others:  # made of released and received numbers alone
        me.link(name).send("unfolded", weights=unfolded.weights, factors=[unfolded.factors[p] for p in task.passives])
    return ExchangeOutcome(
        {me.name: side.keep_weights}, _released_alike(me, opened | {me.name: unfolded}, fit, task), fit, side
    )


def _passive(me: Owner, side: PassiveParty, task: Exchange, draw: NoiseSampler) -> ExchangeOutcome:
    event, fit = task.message_event(me.name), _named(me, task)
    ahead, said = PreparedNoise(me.name, task.message_variance(me.name), draw), sha256(fit.encode())
    for step in RoundCounter(task.steps, me.progress, "exchange"):
        if step.answer is not None:
            ahead.prepare(_size(step.answer, task))
        slopes = me.receive_message(task.active, "slopes", _size(step.batch, task), task.bound)
        said.update(slopes.astype("<i8").tobytes())
        with me.meter.phase("learn"):
            side.take(step.batch, task.grid.real(slopes))
        if step.answer is not None:
            told = sides.add_noise(side.scores(step.answer), me.name, task, ahead)
            me.tell((task.active,), "scores", told, event=event)
    compare_digests(me, task.owners, said.digest(), _SLOPES)
    if not task.release:
        return ExchangeOutcome({me.name: side.keep_weights}, None, fit)
    opened = _publish(me, side.weights, task, draw)
    return ExchangeOutcome(
        {me.name: side.keep_weights}, _released_alike(me, opened | {task.active: _unfolded(me, task)}, fit, task), fit
    )


def _publish(me: Owner, weights: Vector, task: Exchange, draw: NoiseSampler) -> dict[str, KeptWeights]:
    """Release own weights to everybody, and receive everybody's."""
    told = sides.add_weight_noise(weights, me.name, task, draw)
    others = [name for name in task.everyone if name != me.name]
    me.tell(others, "weights", told, event=task.weights_event(me.name))
    return {me.name: KeptWeights(me.name, task.grid.real(told))} | _weights_of_others(me, task)


def _weights_of_others(me: Role, task: Exchange) -> dict[str, KeptWeights]:
    """The weights that all other owners release."""
    others = [name for name in task.owners if name != me.name]
    most = LARGEST_WEIGHT
    told = {name: me.receive_message(name, "weights", task.weights(name), most) for name in others}
    return {name: KeptWeights(name, task.grid.real(numbers)) for name, numbers in told.items()}


def _unfolded(me: Role, task: Exchange) -> KeptWeights:
    """Receive the active party's released weights, as a model of the scores themselves."""
    told = receive_message(me.link(task.active), task.active, unfolded_message(task))
    return KeptWeights(task.active, told["weights"], dict(zip(task.passives, told["factors"], strict=True)))


def _released_alike(me: Role, released: dict[str, KeptWeights], fit: str, task: Exchange) -> dict[str, KeptWeights]:
    """The released weights, if everybody was told the same ones."""
    state = sha256(fit.encode())
    for name in task.owners:
        factors = [released[name].factors.get(passive, 0.0) for passive in task.passives]
        state.update(np.append(released[name].weights, factors).astype("<f8").tobytes())
    compare_digests(me, (*task.owners, COORDINATOR), state.digest(), "released weights")
    return released


def _named(me: Role, task: Exchange) -> str:
    name: str = receive_message(me.link(task.active), task.active, FIT)["name"]
    return name


def _size(batch: int, task: Exchange) -> int:
    return len(range(batch, task.rows, task.batches))


def _checked(me: Owner, features: Rows, labels: Vector | None, task: Exchange) -> int:
    """The number of rows, after checks of what this owner holds; nothing has been sent yet."""
    if features.places is not None:
        raise StudyError("an exchange needs to know whom all parties hold; align with hidden = false [ST446]")
    if (me.name == task.active) != (labels is not None):
        raise DataError(f"the label is held by {task.active}, and by nobody else [DA122]")
    mine = len(features.ids)
    if mine != task.rows:
        raise StudyError(
            f"{me.name} has {mine} rows and the study says {task.rows}: bounds and batches rest on that number, so set "
            "rows to the number of people that all parties hold [ST447]"
        )
    if labels is not None and labels.shape != (mine,):
        raise DataError(f"{me.name} must have one label for each of its rows [DA123]")
    return agree_on_rows(me, task, features)
