"""Told embeddings: the protocol against its reference, what is told of it, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade.errors import NO_PART, ColonnadeError, DataError, PrivacyError, StudyError
from colonnade.kinds.split.embeddings import programs, sides
from colonnade.kinds.split.embeddings.clipping import whole_within, within
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.sides import Passive
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, Embeddings, NewEmbeddings
from colonnade.kinds.split.embeddings.updates import Steps, noised_sum
from colonnade.privacy.additive import AdditiveNoise
from colonnade.privacy.noise.response import odds_for
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.kinds.split.embeddings.learners import Product, embeddings_task, encoders, labels_of
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import Array

OWNERS = (("bank", "shop"), ("clinic", "bank", "shop"), ("clinic", "bank", "shop", "lab"))
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"training": "none"},
    {"training": "none", "releases": 3, "stage": True},
    {"training": "labels"},
    {"training": "labels", "stage": True, "label_odds": Fraction(3)},
    {"training": "rounds", "label_odds": Fraction(3)},
    {"training": "rounds", "releases": 2, "stage": True},
)


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    pattern = np.arange(count) % 7 - 3
    return (pattern * int(Fraction(variance) ** Fraction(1, 2)) // 4).astype(np.int64)


def parts(task: Embeddings, labels: Array | None = None, **given: Any) -> dict[str, Any]:
    """Everybody's program; passive parties encode rows that tell the class."""
    classes = labels_of(task) if labels is None and task.new == "no" else labels
    held = given.pop("encoders", None) or encoders(task)
    ids = [f"p{i:03d}" for i in range(len(next(iter(held.values())).rows))]
    scalings = given.pop("scalings", {})

    def program(name: str) -> Any:
        own = None if name == task.active else held[name]
        label = classes if name == task.active else None
        return lambda me: programs.owner(me, own, ids, label, task, scalings.get(name))

    return {name: program(name) for name in task.owners} | {COORDINATOR: lambda me: programs.coordinator(me, task)}


@pytest.mark.parametrize("owners", OWNERS, ids=len)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_the_protocol_ends_with_the_numbers_of_its_reference(
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
    assert done[COORDINATOR].result is None


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


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_planned_event_is_told_as_often_as_planned(schedule: dict[str, Any]) -> None:
    task = embeddings_task(("clinic", "bank", "shop"), **schedule)
    done = kit.outcomes(task, parts(task))
    revealed = {event for name in task.owners for event in done[name].revealed}
    assert revealed == set(task.openings)
    assert revealed | {task.update_event(name) for name in task.passives if task.training != "none"} == set(task.events)
    assert done[COORDINATOR].revealed == ()


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


def test_a_longer_gradient_counts_no_more_than_the_clip() -> None:
    rows = np.zeros((4, 3))
    rows[0, 0] = 1e9
    learner, slopes = Product(rows, 2), np.tile([[3.0, 4.0]], (4, 1))
    nothing = lambda count: np.zeros(count, dtype=np.int64)  # noqa: E731
    total = noised_sum(learner, np.arange(4), slopes, 0.5, nothing)
    assert np.linalg.norm(total) == pytest.approx(0.5, rel=1e-5)
    assert np.linalg.norm(total) <= 0.5
    moved = noised_sum(learner, np.arange(1), np.full((1, 2), np.nan), 0.5, nothing)
    assert not moved.any()


def test_one_person_moves_one_embedding_and_an_update_by_no_more_than_the_clips() -> None:
    """Given everything before: the integers of all others stay, whatever the person's columns become."""
    task = embeddings_task(training="rounds", noise=1)
    zero: Any = lambda name, variance, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    scaling, rng = Scaling(np.array([0.1, 0.2]), 50.0), np.random.default_rng(4)
    held = encoders(task)["shop"]
    for row in ([1e12, -5.0, 3.0], [0.0, 0.0, 0.0], [np.nan, 1.0, 1.0]):
        other = Product(held.rows.copy(), 2)
        other.weights = held.weights
        other.rows[7] = row
        one, two = (Passive(each, "shop", task, zero, scaling).embeddings(np.arange(30)) for each in (held, other))
        moved = (one - two).reshape(30, 2)
        assert not np.delete(moved, 7, axis=0).any()
        assert int(moved[7] @ moved[7]) <= 4 * task.radius("shop") ** 2
        slopes = rng.normal(size=(30, 2)) * 100
        sums = [
            noised_sum(each, np.arange(30), slopes, 1.0, lambda count: np.zeros(count, np.int64))
            for each in (held, other)
        ]
        change = (sums[0] - sums[1]) * (1 << GRADIENT_BITS)
        assert np.linalg.norm(change) <= 2 << GRADIENT_BITS


def test_a_scale_is_followed_by_a_second_clip() -> None:
    task = embeddings_task()
    zero: Any = lambda name, variance, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    told = Passive(encoders(task)["shop"], "shop", task, zero, Scaling(np.zeros(2), 1000.0)).embeddings(np.arange(30))
    norms = np.sqrt((told.reshape(30, 2) ** 2).sum(axis=1))
    assert norms.max() <= task.radius("shop")
    assert norms.min() > 0.99 * task.radius("shop")


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


def test_steps_do_not_depend_on_how_long_gradients_are() -> None:
    short, long = Steps(3, 0.1), Steps(3, 0.1)
    for _ in range(4):
        gradient = np.array([1.0, -2.0, 0.5])
        one, two = short.after(gradient), long.after(1000 * gradient)
        assert one == pytest.approx(two, rel=1e-4)
        assert (np.sign(one) == -np.sign(gradient)).all()


def test_batches_are_public_disjoint_and_hold_everybody() -> None:
    task = embeddings_task(training="labels", batches=7)
    places = np.concatenate([sides.batch(index, task) for index in range(7)])
    assert sorted(places) == list(range(30))


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


@pytest.mark.parametrize("case", ["rows", "labels", "class", "width", "parameters", "encoder", "label elsewhere"])
def test_what_does_not_fit_the_study_is_refused_before_anything_is_sent(case: str) -> None:
    task = embeddings_task(training="labels", label_odds=odds_for(1.0))
    ids, held, labels = [f"p{i:03d}" for i in range(30)], encoders(task)["shop"], labels_of(task)
    wrong: dict[str, tuple[str, Any]] = {
        "rows": ("shop", lambda me: programs.owner(me, held, ids[:29], None, task)),
        "labels": ("bank", lambda me: programs.owner(me, None, ids, labels[:29], task)),
        "class": ("bank", lambda me: programs.owner(me, None, ids, labels + 1, task)),
        "width": ("shop", lambda me: programs.owner(me, Product(held.rows, 3), ids, None, task)),
        "parameters": ("shop", lambda me: programs.owner(me, Product(held.rows[:, :2], 2), ids, None, task)),
        "encoder": ("bank", lambda me: programs.owner(me, held, ids, labels, task)),
        "label elsewhere": ("shop", lambda me: programs.owner(me, held, ids, labels, task)),
    }
    name, program = wrong[case]
    errors = kit.outcomes(task, parts(task) | {name: program})
    assert isinstance(errors[name], StudyError if case == "rows" else DataError)
    others = [errors[other] for other in (*task.owners, COORDINATOR) if other != name]
    assert all(isinstance(error, ColonnadeError) and NO_PART in str(error) for error in others)


def test_other_people_are_noticed() -> None:
    task = embeddings_task()
    others = [f"q{i:03d}" for i in range(30)]
    shop = {"shop": lambda me: programs.owner(me, encoders(task)["shop"], others, None, task)}
    with raises(StudyError, "ST532"):
        kit.results(task, parts(task) | shop)


def test_a_task_with_more_noise_tells_the_same_rows_with_more_noise() -> None:
    quiet = embeddings_task(noise=1 << 8)
    loud = replace(quiet, noise=1 << 18)
    spread = [
        np.std(programs.simulate(encoders(t), labels_of(t), t, Stream(bytes(32)))["bank"].received["shop"])
        for t in (quiet, loud)
    ]
    assert spread[0] < spread[1]
