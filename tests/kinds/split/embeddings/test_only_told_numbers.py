"""What a party that tells embeddings learns and tells follows from its noise and from what it told before.

Noise is written here so that every told number, and every sum of gradients, is the same for any rows. Then nothing that
a party has afterwards may depend on them: not the centre and scale, not the points of the classes, not its encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade.kinds.split.embeddings import programs, sides, updates
from colonnade.kinds.split.embeddings.anchors import centroids
from colonnade.kinds.split.embeddings.clipping import within
from colonnade.kinds.split.embeddings.sides import Passive, batch
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, Embeddings
from colonnade.kinds.split.embeddings.updates import Steps
from colonnade.privacy.additive import AdditiveNoise
from colonnade.privacy.events import innermost
from colonnade.randomness import Stream
from tests.kinds.split.embeddings.learners import Product, embeddings_task, encoders, labels_of
from tests.kinds.split.embeddings.test_told_embeddings import SCHEDULES, parts
from tests.support import protocols as kit
from tests.support.protocols import Array

TURNED = ([1e6, -5.0, 3.0], [0.0, 0.0, 0.0], [np.nan, 1.0, 1.0])


class Script:
    """Noise that fits whatever numbers it is added to, so that their sums are those of the script."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hidden: list[Array] = []
        self.shown: list[Array] = []
        self.asked: list[tuple[int, int]] = []
        patch.setattr(sides, "whole_within", self._remembered(sides.whole_within))
        patch.setattr(updates, "whole_sum", self._remembered(updates.whole_sum))

    def _remembered(self, exact: Callable[..., Array]) -> Callable[..., Array]:
        def remembered(*given: Any) -> Array:
            found = exact(*given)
            self.hidden.append(found.ravel())
            return found

        return remembered

    def draw(self, name: str, variance: int, count: int) -> Array:
        rng = np.random.default_rng([len(self.asked), count])
        self.asked.append((variance, count))
        self.shown.append(np.rint(rng.normal(size=count) * math.isqrt(variance)).astype(np.int64))
        return self.shown[-1] - self.hidden[-1]


def _turned(held: Product, row: Sequence[float]) -> Product:
    """The same encoder over rows of which one person's are others."""
    other = Product(held.rows.copy(), held.width)
    other.weights, other.rows[7] = held.weights.copy(), row
    return other


def _state(side: Passive, held: Product) -> list[Array]:
    """Everything a party goes on with, besides its rows."""
    scale = np.array([side.scaling.scale])
    return [side.scaling.centre, scale, side._points, side._steps.mean, side._steps.square, held.weights]


def _steps(held: Product, task: Embeddings, script: Script) -> list[list[Array]]:
    """What the party has after every step of its side, in the order of the protocol, and what it told."""
    side, labels, rng = Passive(held, "shop", task, script.draw), labels_of(task), np.random.default_rng(6)
    after = []
    if task.training == "labels":
        side.train(labels)
        after.append(_state(side, held))
    if task.stage:
        after.append([side.first(task.rows), *_state(side, held)])
    for _ in range(task.epochs if task.training == "rounds" else 0):
        for index in range(task.batches):
            places = batch(index, task)
            after.append([side.embeddings(places), *_state(side, held)])
            side.take(places, rng.normal(size=(len(places), held.width)), labels)
            after.append(_state(side, held))
        side.end_epoch(labels)
        after.append(_state(side, held))
    for _ in range(task.frozen_releases):
        after.append([side.embeddings(np.arange(task.rows)), *_state(side, held)])
    return after


@pytest.mark.parametrize("row", TURNED, ids=str)
@pytest.mark.parametrize("schedule", [*SCHEDULES, {"training": "labels", "stage": True, "releases": 2}], ids=str)
def test_a_party_goes_on_with_nothing_but_what_it_told(
    schedule: dict[str, Any], row: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = embeddings_task(noise=1 << 12, **schedule)
    scripts, found = [], []
    for held in (encoders(task)["shop"], _turned(encoders(task)["shop"], row)):
        with monkeypatch.context() as patch:
            scripts.append(Script(patch))
            found.append(_steps(held, task, scripts[-1]))
    hidden, others = (script.hidden for script in scripts)
    assert not all(map(np.array_equal, hidden, others))  # the rows do matter to what the noise is added to
    for step, (one, two) in enumerate(zip(*found, strict=True)):
        assert all(map(np.array_equal, one, two)), step


@pytest.mark.parametrize("row", TURNED, ids=str)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_nobody_ends_with_anything_but_what_was_told(
    schedule: dict[str, Any], row: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same through the whole protocol, at every party."""
    task = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule)
    ended = []
    for turned in (False, True):
        held = encoders(task)
        held["shop"] = _turned(held["shop"], row) if turned else held["shop"]
        with monkeypatch.context() as patch:
            outcome = programs.reference(held, labels_of(task), task, Script(patch).draw)
        received = [outcome["bank"].received[name] for name in task.passives]
        scalings = [outcome[name].scaling for name in task.passives]
        ended.append(
            [
                *received,
                *(part for each in scalings if each is not None for part in (each.centre, np.array([each.scale]))),
                *(held[name].weights for name in task.passives),
            ]
        )
    assert all(map(np.array_equal, *ended))


@pytest.mark.parametrize("training", ["labels", "rounds"])
def test_an_encoder_moves_by_its_noise_as_it_was_drawn(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is that of a sum which is told: the noise is neither left out nor made smaller."""
    task = embeddings_task(training=training, noise=1 << 12, gradient_clip=0.7)
    held, script = encoders(task)["shop"], Script(monkeypatch)
    expected, steps = held.weights.copy(), Steps(held.parameters, task.learning_rate)
    _steps(held, task, script)
    updated = [shown for (v, _), shown in zip(script.asked, script.shown, strict=True) if v == task.update_variance]
    assert len(updated) == task.epochs * task.batches
    for shown in updated:
        expected += steps.after(shown * (0.7 / (1 << GRADIENT_BITS))).reshape(expected.shape)
    assert np.array_equal(held.weights, expected)


def test_points_of_classes_are_means_of_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    task = embeddings_task(training="rounds", noise=1 << 12)
    held, script, labels = encoders(task)["shop"], Script(monkeypatch), labels_of(task)
    side = Passive(held, "shop", task, script.draw)
    before, everybody = side._points, np.arange(task.rows)
    told = side.embeddings(everybody).reshape(-1, 2) / 2.0**task.bits
    side.end_epoch(labels)
    assert np.array_equal(side._points, centroids(told, labels, before))
    assert not np.allclose(side._points, centroids(within(held.embed(everybody), 1.0), labels, before))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_as_much_noise_is_drawn_as_is_charged(schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the parties' own programs: for every event its variance, for as many numbers as often as it says."""
    task = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule)
    asked: list[tuple[Fraction, int]] = []
    real = AdditiveNoise.draw

    def watched(noise: AdditiveNoise, shape: tuple[int, ...], stream: Stream) -> Array:
        asked.append((Fraction(noise.scale), math.prod(shape)))
        return real(noise, shape, stream)

    monkeypatch.setattr(AdditiveNoise, "draw", watched)
    kit.results(task, parts(task))
    drawn: dict[Fraction, int] = {}
    for variance, count in asked:
        drawn[variance] = drawn.get(variance, 0) + count
    charged: dict[Fraction, int] = {}
    for event in task.embedding_events:
        once: Any = innermost(event)
        ((_, variance),) = once.shares
        charged[variance] = charged.get(variance, 0) + once.dimension * getattr(event, "times", 1)
    assert drawn == charged
