"""Told embeddings: the protocol against its reference, what is told of it, what parties go on with, what is refused."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.errors import NO_PART, ColonnadeError, DataError, PrivacyError, StudyError
from colonnade.kinds.split.embeddings import programs, sides, updates
from colonnade.kinds.split.embeddings.anchors import anchors, centroids, contrastive
from colonnade.kinds.split.embeddings.clipping import whole_within, within
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.sides import Passive, batch
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, Embeddings, NewEmbeddings
from colonnade.kinds.split.embeddings.updates import Steps
from colonnade.privacy.additive import AdditiveNoise
from colonnade.privacy.events import innermost
from colonnade.privacy.noise.response import odds_for
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.kinds.split.embeddings.learners import Product, embeddings_task, encoders, labels_of
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import Array

SCHEDULES: tuple[dict[str, Any], ...] = (
    {"training": "none"},
    {"training": "none", "releases": 3, "stage": True},
    {"training": "labels"},
    {"training": "labels", "stage": True, "label_odds": Fraction(3)},
    {"training": "rounds", "label_odds": Fraction(3)},
    {"training": "rounds", "releases": 2, "stage": True},
)
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
OWNERS = (("bank", "shop"), ("clinic", "bank", "shop"), ("clinic", "bank", "shop", "lab"))


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    pattern = np.arange(count) % 7 - 3
    return (pattern * int(Fraction(variance) ** Fraction(1, 2)) // 4).astype(np.int64)


def parts(task: Embeddings, labels: Array | None = None, **given: Any) -> dict[str, Any]:
    """Everybody's program; passive parties encode rows that tell the class."""
    classes = labels_of(task) if labels is None and task.new == "no" else labels
    held, scalings = given.get("encoders") or encoders(task), given.get("scalings", {})
    ids = [f"p{i:03d}" for i in range(len(next(iter(held.values())).rows))]

    def program(name: str) -> Any:
        label = classes if name == task.active else None
        return lambda me: programs.owner(me, held.get(name), ids, label, task, scalings.get(name))

    return {name: program(name) for name in task.owners} | {COORDINATOR: lambda me: programs.coordinator(me, task)}


@pytest.mark.parametrize("owners", OWNERS, ids=len)
@each_schedule
def test_the_protocol_ends_with_the_numbers_of_its_reference_and_tells_what_is_planned(
    schedule: dict[str, Any], owners: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = embeddings_task(owners, noise=1 << 12, **schedule)
    held, again = encoders(task), encoders(task)
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    done = kit.outcomes(task, parts(task, encoders=held))
    found = {name: done[name].result for name in owners}
    told = found["bank"].labels
    assert (told is None) == (task.training == "none")
    expected = programs.reference(again, told, task, _fixed)
    for name in task.passives:
        assert np.array_equal(found["bank"].received[name], expected["bank"].received[name])
        assert np.array_equal(held[name].weights, again[name].weights)
        assert found[name].scaling.scale == expected[name].scaling.scale
        assert np.array_equal(found[name].scaling.centre, expected[name].scaling.centre)
        assert told is None or np.array_equal(found[name].labels, told)
    revealed = {event for name in task.owners for event in done[name].revealed}
    assert revealed == set(task.openings)
    assert revealed | {task.update_event(name) for name in task.passives if task.training != "none"} == set(task.events)
    assert (done[COORDINATOR].result, done[COORDINATOR].revealed) == (None, ())


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_run_and_a_simulation_with_the_same_coins_are_the_same(
    schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two parties: labels are answered first, so that one stream can serve both."""
    task = embeddings_task(noise=1 << 12, **schedule)
    held, again = encoders(task), encoders(task)
    simulated = programs.simulate(again, labels_of(task), task, Stream(bytes(32)))
    coins = Stream(bytes(32))
    monkeypatch.setattr(programs.Stream, "fresh", classmethod(lambda cls: coins))
    found = {name: done.result for name, done in kit.outcomes(task, parts(task, encoders=held)).items()}
    assert np.array_equal(found["bank"].received["shop"], simulated["bank"].received["shop"])
    assert np.array_equal(held["shop"].weights, again["shop"].weights)
    if task.label_odds is not None:
        assert np.array_equal(found["shop"].labels, simulated["shop"].labels)
        assert not np.array_equal(found["shop"].labels, labels_of(task))


def test_one_release_more_than_planned_is_refused() -> None:
    task = embeddings_task()

    def twice(me: Any) -> Any:
        programs.owner(me, encoders(task)["shop"], [f"p{i:03d}" for i in range(30)], None, task)
        me.tell(("bank",), "embeddings", np.zeros(60, dtype=np.int64), event=task.embedding_event("shop"))

    with raises(PrivacyError, "PR138"):
        kit.results(task, parts(task) | {"shop": twice})


def test_told_embeddings_have_the_noise_that_the_task_says() -> None:
    task = embeddings_task(rows=4000, noise=NOISE_UNIT, releases=2)
    held = encoders(task)
    found = programs.simulate(held, labels_of(task), task, Stream(bytes(32)))["bank"].received["shop"]
    exact = within(held["shop"].embed(np.arange(4000)), 1.0)
    noise = found - exact
    assert task.received_variance("shop") == pytest.approx(4.0)
    assert noise.var() == pytest.approx(task.received_variance("shop"), rel=0.12)
    assert abs(noise.mean()) < 0.15


def test_encoders_learn_to_tell_classes_apart_without_the_noise() -> None:
    """With hardly any noise all schedules that learn end with classes far apart, and a frozen encoder does not."""
    apart = {}
    for training in ("none", "labels", "rounds"):
        how: dict[str, Any] = {"epochs": 30, "learning_rate": 0.1, "releases": 31} if training != "none" else {}
        task = embeddings_task(rows=90, training=training, noise=1, **how)
        held = encoders(task)
        for each in held.values():
            each.weights *= 0.01
        found = programs.simulate(held, labels_of(task), task, Stream(bytes(32)))["bank"].received["shop"]
        means = np.array([found[labels_of(task) == k].mean(axis=0) for k in range(3)])
        apart[training] = np.linalg.norm(means[[0, 0, 1]] - means[[1, 2, 2]], axis=1).min()
    assert apart["none"] < 0.1
    assert apart["labels"] > 1
    assert apart["rounds"] > 0.6


@pytest.mark.parametrize("training", ["labels", "rounds"])
def test_true_labels_reach_nobody_but_through_their_answers(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other true labels with equal answers leave every encoder and every told number as they are."""
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))

    def ended(task: Embeddings, true: Array) -> list[Array]:
        held = encoders(task)
        found = kit.results(task, parts(task, true, encoders=held))
        return [held["shop"].weights, found["bank"].received["shop"], found["shop"].labels]

    task = embeddings_task(training=training, label_odds=Fraction(3), noise=1 << 12)
    true = labels_of(task)
    other = (true + 1) % 3
    unprotected = replace(task, label_odds=None)
    assert not any(map(np.array_equal, ended(unprotected, true), ended(unprotected, other)))
    answers = labels_of(task)[::-1].copy()
    monkeypatch.setattr(programs, "randomised_response", lambda *given: answers)
    assert all(map(np.array_equal, ended(task, true), ended(task, other)))


def test_steps_do_not_depend_on_how_long_gradients_are_and_batches_hold_everybody() -> None:
    short, long = Steps(3, 0.1), Steps(3, 0.1)
    gradient = np.array([1.0, -2.0, 0.5])
    for _ in range(4):
        one, two = short.after(gradient), long.after(1000 * gradient)
        assert one == pytest.approx(two, rel=1e-4)
        assert (np.sign(one) == -np.sign(gradient)).all()
    task = embeddings_task(training="labels", batches=7)
    assert sorted(np.concatenate([sides.batch(index, task) for index in range(7)])) == list(range(30))


@pytest.mark.parametrize("new", ["clear", "noised"])
def test_new_people_are_told_by_the_encoder_and_scale_of_before(new: Any) -> None:
    fit = embeddings_task(("bank", "clinic", "shop"), training="labels", stage=True, noise=1)
    held = encoders(fit)
    before = programs.simulate(held, labels_of(fit), fit, Stream(bytes(32)))
    scalings = {name: before[name].scaling for name in fit.passives}
    assert all(scaling is not None and scaling.centre.any() for scaling in scalings.values())
    task = NewEmbeddings(fit.trust, "bank", fit.senders, 50, classes=3, new=new, noise=1)
    asked = encoders(task, rows=11, seed=8)
    for name, each in asked.items():
        each.weights = held[name].weights
    found = kit.results(task, parts(task, encoders=asked, scalings=scalings))
    for name in fit.passives:
        scaling = scalings[name]
        assert scaling is not None
        exact = whole_within(scaling.applied(within(asked[name].embed(np.arange(11)), 1.0)) * 2**20, 1 << 20) / 2**20
        error = np.abs(found["bank"].received[name] - exact).max()
        assert error == 0 if new == "clear" else 0 < error < 20 * task.deviation(name)


def test_what_does_not_fit_the_study_is_refused_before_anything_is_sent() -> None:
    task = embeddings_task(training="labels", label_odds=odds_for(1.0))
    ids, held, labels = [f"p{i:03d}" for i in range(30)], encoders(task)["shop"], labels_of(task)
    wrong: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("shop", StudyError, (held, ids[:29], None)),
        ("bank", DataError, (None, ids, labels[:29])),
        ("bank", DataError, (None, ids, labels + 1)),
        ("shop", DataError, (Product(held.rows, 3), ids, None)),
        ("shop", DataError, (Product(held.rows[:, :2], 2), ids, None)),
        ("bank", DataError, (held, ids, labels)),
        ("shop", DataError, (held, ids, labels)),
    ]
    for name, kind, brings in wrong:
        errors = kit.outcomes(task, parts(task) | {name: lambda me, brings=brings: programs.owner(me, *brings, task)})
        assert isinstance(errors.pop(name), kind)
        assert all(isinstance(error, ColonnadeError) and NO_PART in str(error) for error in errors.values())
    others = [f"q{i:03d}" for i in range(30)]
    with raises(StudyError, "ST532"):
        kit.results(task, parts(task) | {"shop": lambda me: programs.owner(me, held, others, None, task)})


# --- what a party goes on with: noise is written so that told numbers are the same for any rows, and nothing else may
# depend on them: not the centre and scale, not the points of the classes, not its encoder


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


each_row = pytest.mark.parametrize("row", TURNED, ids=str)


@each_row
@pytest.mark.parametrize("schedule", [*SCHEDULES, {"training": "labels", "stage": True, "releases": 2}], ids=str)
def test_nobody_goes_on_or_ends_with_anything_but_what_was_told(
    schedule: dict[str, Any], row: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every step of one party, and at every party after the whole protocol."""
    task = embeddings_task(noise=1 << 12, **schedule)
    scripts, found = [], []
    for held in (encoders(task)["shop"], _turned(encoders(task)["shop"], row)):
        with monkeypatch.context() as patch:
            scripts.append(Script(patch))
            found.append(_steps(held, task, scripts[-1]))
    assert not all(map(np.array_equal, *(script.hidden for script in scripts)))  # rows matter to what noise is added to
    for step, (one, two) in enumerate(zip(*found, strict=True)):
        assert all(map(np.array_equal, one, two)), step
    task, ended = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule), []
    for turned in (False, True):
        held = encoders(task)
        held["shop"] = _turned(held["shop"], row) if turned else held["shop"]
        with monkeypatch.context() as patch:
            outcome = programs.reference(held, labels_of(task), task, Script(patch).draw)
        after = [held[name].weights for name in task.passives]
        for name in task.passives:
            scaling = outcome[name].scaling
            after += [outcome["bank"].received[name], scaling.centre, np.array([scaling.scale])]
        ended.append(after)
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


@each_schedule
def test_as_much_noise_is_drawn_as_is_charged(schedule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the parties' own programs: for every event its variance, for as many numbers as often as it says."""
    task = embeddings_task(("clinic", "bank", "shop"), noise=1 << 12, **schedule)
    drawn, charged, real = Counter[Fraction](), Counter[Fraction](), AdditiveNoise.draw

    def watched(noise: AdditiveNoise, shape: tuple[int, ...], stream: Stream) -> Array:
        drawn[Fraction(noise.scale)] += math.prod(shape)
        return real(noise, shape, stream)

    monkeypatch.setattr(AdditiveNoise, "draw", watched)
    kit.results(task, parts(task))
    for event in task.embedding_events:
        once: Any = innermost(event)
        ((_, variance),) = once.shares
        charged[variance] += once.dimension * getattr(event, "times", 1)
    assert drawn == charged


# --- whole numbers within a ball, public scaling, and points of classes


@settings(max_examples=100, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=st.floats(width=64)),
    st.integers(1, 1 << 30),
)
def test_no_row_is_longer_than_the_radius_in_whole_numbers(rows: Array, radius: int) -> None:
    whole = whole_within(rows, radius)
    assert whole.dtype == np.int64
    for row, before in zip(whole.tolist(), rows, strict=True):
        assert sum(v * v for v in row) <= radius * radius
        assert np.isfinite(before).all() or not any(row)


def test_rows_at_the_edge_are_kept_and_short_rows_stay() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, 5))
    rows *= (1 << 20) / np.linalg.norm(rows, axis=1, keepdims=True)
    norms = np.linalg.norm(whole_within(3 * rows, 1 << 20).astype(float), axis=1)
    assert norms.min() > (1 << 20) - 4
    assert np.array_equal(whole_within(rows / 2, 1 << 20), np.trunc(rows / 2))
    assert within(np.array([[3e307, 4e307]]), 5.0) == pytest.approx(np.array([[3.0, 4.0]]))


def test_centre_and_scale_are_learned_from_noised_embeddings_alone() -> None:
    rng = np.random.default_rng(2)
    embeddings = np.array([0.5, -0.3]) + 0.05 * rng.normal(size=(20_000, 2))
    learned = Scaling.none(2).learned(embeddings + 0.5 * rng.normal(size=embeddings.shape), 0.25, 1.0)
    assert learned.centre == pytest.approx([0.5, -0.3], abs=0.02)
    assert 1 < learned.scale < 30
    exact = Scaling.none(2).learned(embeddings, 0.0, 1.0)
    assert np.sqrt((exact.applied(embeddings) ** 2).sum(axis=1).mean()) == pytest.approx(0.8, rel=0.01)
    again = exact.learned(exact.applied(embeddings), 0.0, 1.0)
    assert (again.scale, *again.centre) == pytest.approx((exact.scale, *exact.centre))
    assert Scaling.none(2).learned(np.zeros((9, 2)), 0.0, 1.0).scale == pytest.approx(0.8 * 64)  # is not believed
    wild = 50 * np.random.default_rng(1).normal(size=(9, 2))
    assert Scaling.none(2).learned(wild, 2500.0, 1.0).scale == 1.0  # noise that shows nothing changes nothing


def test_points_of_classes_are_far_apart_within_the_ball_and_become_means_of_what_was_told() -> None:
    for classes, width in ((2, 1), (3, 2), (10, 9), (10, 16), (10, 4), (3, 1)):
        points = anchors(classes, width, 1.5)
        assert np.linalg.norm(points, axis=1) == pytest.approx(np.full(classes, 1.5))
        if width >= classes - 1:
            apart = np.linalg.norm(points[:, None] - points, axis=2)[~np.eye(classes, dtype=bool)]
            assert apart == pytest.approx(np.full(apart.shape, 1.5 * np.sqrt(2 * classes / (classes - 1))))
    told, points = np.array([[1.0, 0], [3, 0], [0, 5]]), np.full((3, 2), 7.0)
    assert centroids(told, np.array([0, 0, 2]), points).tolist() == [[2, 0], [7, 7], [0, 5]]


def _loss(h: Array, labels: Array, points: Array, margin: float, contrast: float) -> float:
    apart = np.linalg.norm(h[:, None] - points, axis=2)
    own = np.arange(len(h)), labels
    push = np.maximum(0, margin - apart) ** 2
    return float((apart[own] ** 2).sum() + contrast * (push.sum() - push[own].sum())) / 2


def test_contrastive_slopes_are_those_of_the_loss_and_push_classes_apart() -> None:
    rng = np.random.default_rng(3)
    h, labels, points = rng.normal(size=(6, 4)), rng.integers(0, 3, 6), anchors(3, 4, 1.0)
    slopes = contrastive(h, labels, points, 2.5, 0.7)
    for place in np.ndindex(h.shape):
        step = np.zeros_like(h)
        step[place] = 1e-6
        change = _loss(h + step, labels, points, 2.5, 0.7) - _loss(h - step, labels, points, 2.5, 0.7)
        assert slopes[place] == pytest.approx(change / 2e-6, rel=1e-4, abs=1e-6)
    beside = points[[1]] + 0.1  # near the point of another class: the push is away from it
    alone = contrastive(beside, np.array([0]), points, 2.5, 0.0)
    assert ((contrastive(beside, np.array([0]), points, 2.5, 1.0) - alone) @ (beside - points[1]).T).item() < 0


def test_one_very_long_embedding_says_nothing_and_leaves_the_others_alone():
    points, labels = anchors(2, 2, 1.0), np.array([0, 1])
    embeddings = np.array([[0.5, 0.1], [1e200, -1e200]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = contrastive(embeddings, labels, points, 2.0, 0.5)
    assert np.array_equal(found[:1], contrastive(embeddings[:1], labels[:1], points, 2.0, 0.5))
