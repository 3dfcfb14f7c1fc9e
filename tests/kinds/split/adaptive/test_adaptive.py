"""Adaptive embeddings as published: the protocol against its reference, its figures, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, DataError, PrivacyError, StudyError
from colonnade.kinds.split.adaptive import programs as adaptive
from colonnade.kinds.split.adaptive.sides import PassiveSide, shaped
from colonnade.kinds.split.adaptive.task import UNPROTECTED, Adaptive, Sender
from colonnade.privacy import Observer, Statement, epsilon, views
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.kinds.split.adaptive.stand_ins import Array, LinearEncoder, SoftmaxHead, adaptive_task, people
from tests.support import protocols as kit
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parents[3] / "privacy" / "vectors.json").read_text(encoding="utf-8"))
MODES: dict[str, dict[str, Any]] = {
    "unprotected": {"noise": UNPROTECTED, "rescale": False, "adjust": False},
    "vanilla": {"rescale": False, "adjust": False},
    "+R": {"rescale": True, "adjust": False},
    "+D": {"rescale": False, "adjust": True, "confidence": 0.4},
    "both": {"rescale": True, "adjust": True, "confidence": 0.4},
}


def _parts(
    task: Adaptive, *, own: bool = False
) -> tuple[dict[str, LinearEncoder], SoftmaxHead, dict[str, Array], Array]:
    """Fresh encoders of every party, and a head."""
    names = (*task.passives, *([task.active] if own else []))
    tables, labels = people(task.rows, 5, task.classes, names)
    encoders = {name: LinearEncoder(table, 4, seed=len(name)) for name, table in tables.items()}
    head = SoftmaxHead(labels, task.classes, 4 * len(names))
    return encoders, head, tables, labels


def _programs(task: Adaptive, encoders: dict[str, LinearEncoder], head: SoftmaxHead) -> dict[str, Any]:
    rows = kit.Rows(np.zeros((task.rows, 1)))

    def owner(name: str) -> Any:
        mine = head if name == task.active else None
        return lambda me: adaptive.owner(me, encoders.get(name), rows, task, mine)

    return {name: owner(name) for name in task.owners} | {COORDINATOR: lambda me: adaptive.coordinator(me, task)}


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    return ((np.arange(count) % 7 - 3) * (math.isqrt(variance) // 4)).astype(np.int64)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("passives", "own"), [(("left", "right"), False), (("shop",), True)])
def test_the_protocol_ends_with_the_numbers_of_its_reference(
    mode: str, passives: tuple[str, ...], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = adaptive_task(passives, columns=own, **MODES[mode])
    key = bytes(range(32))
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    monkeypatch.setattr(adaptive, "new_key", lambda: key)
    encoders, head, _, _ = _parts(task, own=own)
    done = kit.outcomes(task, _programs(task, encoders, head))
    alone, head_alone, _, _ = _parts(task, own=own)
    outcome = adaptive.reference(alone, head_alone, task, key, _fixed)
    assert done[task.active].result.losses == outcome.losses
    assert len(outcome.losses) == task.steps
    assert done[COORDINATOR].result.losses == ()
    assert np.array_equal(head.weights, head_alone.weights)
    for name, encoder in encoders.items():
        assert np.array_equal(encoder.weights, alone[name].weights)
    for name in task.passives:
        assert done[name].result.factors == {name: outcome.factors[name]}
        assert (outcome.factors[name] == 1.0) != task.rescale
        assert done[name].revealed == (task.embeddings_event(name),)
    assert done[task.active].revealed == (task.slopes_event,)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_learns(mode: str) -> None:
    task = adaptive_task(epochs=12, **MODES[mode] | {"noise": MODES[mode].get("noise", 1 << 10)})
    encoders, head, _, labels = _parts(task)
    found = adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    places = np.arange(task.rows)
    told = [shaped(encoders[name].embed(places), task.sender(name), task).told for name in task.passives]
    right = float((head.chances(np.hstack(told)).argmax(axis=1) == labels).mean())
    assert right > 0.8
    assert np.mean(found.losses[-4:]) < 0.7 * np.mean(found.losses[:4])


def test_unprotected_steps_are_those_of_one_network() -> None:
    """The pieces of the gradient that parties compute make up the gradient of the whole."""
    task = adaptive_task(**MODES["unprotected"], rule="sgd", epochs=1, batches=1, bits=50)
    encoders, head, tables, labels = _parts(task)
    start = {name: encoder.weights.copy() for name, encoder in encoders.items()}
    first = head.weights.copy()

    def loss(weights: dict[str, Array]) -> float:
        joint = np.hstack([tables[name] @ weights[name] for name in task.passives])
        chances = SoftmaxHead(labels, task.classes, 8)
        chances.weights = first
        return -float(np.log(chances.chances(joint)[np.arange(task.rows), labels]).mean())

    adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    for name, encoder in encoders.items():
        taken = (encoder.weights - start[name]) / -task.rate
        for at in [(0, 0), (3, 2), (4, 3)]:
            moved = {other: weights.copy() for other, weights in start.items()}
            moved[name][at] += 1e-6
            assert taken[at] == pytest.approx((loss(moved) - loss(start)) / 1e-6, abs=1e-5)


def test_who_watches_sees_what_parties_tell_each_other() -> None:
    task = adaptive_task(**MODES["vanilla"])
    encoders, head, _, _ = _parts(task)
    said: list[adaptive.Said] = []
    epochs: list[int] = []
    adaptive.simulate(encoders, head, task, Stream(bytes(32)), said.append, epochs.append)
    assert epochs == [1, 2, 3]
    assert [(each.number, each.owner) for each in said[:3]] == [(1, "left"), (1, "right"), (2, "left")]
    assert len(said) == task.steps * 2
    assert all(each.embeddings.shape == each.slopes.shape == (len(each.places), 4) for each in said)
    for epoch in range(3):  # everybody is in one batch of an epoch
        mine = [each.places for each in said if each.owner == "left"][epoch * 4 : epoch * 4 + 4]
        assert sorted(np.concatenate(mine)) == list(range(task.rows))


def test_new_people_are_stretched_as_those_before_however_few_they_are() -> None:
    task = adaptive_task(**MODES["both"])
    encoders, head, _, _ = _parts(task)
    factor = adaptive.simulate(encoders, head, task, Stream(bytes(32))).factors["left"]
    raw, sender = encoders["left"].embed(np.arange(30)), task.sender("left")
    together = shaped(raw, sender, task, factor).told
    assert shaped(raw[:1], sender, task, factor).told == pytest.approx(together[:1])
    assert factor == pytest.approx(shaped(raw, sender, task).factor, rel=0.3)
    assert shaped(raw[:1], sender, adaptive_task(**MODES["vanilla"]), factor).factor == 1.0


# --- what is said about privacy


def test_nothing_is_promised_to_those_who_see_messages() -> None:
    task = adaptive_task()
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert statement.epsilon("bank") == statement.epsilon("left") == math.inf
    assert statement.epsilon("coordinator") == statement.epsilon("analyst") == 0
    seen = epsilon(views(task.events, Observer.party("bank"), task.trust), 1e-5)
    assert seen.epsilon == math.inf
    assert task.reason.startswith("as published, not proven: the encoder and the rescaling depend on private rows")
    assert "rescaling" not in adaptive_task(rescale=False).reason
    assert adaptive_task(**MODES["unprotected"]).reason.startswith("not protected: ")
    assert task.facts["guarantee"] == task.reason
    with raises(StudyError, "ST419"):
        task.calibrated([])
    with raises(StudyError, "ST419"):
        task.adjustable(None)


@pytest.mark.parametrize("case", VECTORS["hdp_fm_afe"]["afe_paper_true"])
def test_the_honest_sum_over_epochs_stands_beside_the_published_figure(case: dict[str, Any]) -> None:
    noise = Adaptive.published_noise(case["eps"], case["delta"])
    assert math.sqrt(noise / NOISE_UNIT) == pytest.approx(case["sigma"], rel=1e-5)
    task = adaptive_task(epochs=case["E"], noise=noise)
    honest = task.frozen_epsilon(case["delta"])
    assert honest == pytest.approx(case["eps_true_vanilla_fixed_encoder"], rel=1e-4)
    assert adaptive_task(**MODES["unprotected"]).frozen_epsilon(0.01) == math.inf
    with raises(PrivacyError, "PR107"):
        Adaptive.published_noise(0, 0.01)


def test_noise_is_that_of_the_clip() -> None:
    task = adaptive_task(senders=(Sender("left", 4, 2.0), Sender("right", 4, 0.5)), noise=NOISE_UNIT)
    assert task.deviation_of(task.variance("left")) == pytest.approx(4.0, rel=1e-5)
    assert task.deviation_of(task.variance("right")) == pytest.approx(1.0, rel=1e-5)
    assert task.noise_std == pytest.approx(4.0, rel=1e-5)
    encoders, head, _, _ = _parts(replace(task, rescale=False, adjust=False))
    said: list[adaptive.Said] = []
    adaptive.simulate(encoders, head, replace(task, epochs=20), Stream(bytes(32)), said.append)
    deviation = np.std(np.vstack([each.embeddings for each in said if each.owner == "left"]))
    assert deviation == pytest.approx(4.0, rel=0.15)  # of 4,800 numbers, and of the embeddings themselves


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batches": 61}, ("ST411", "61")),
        ({"epochs": 0}, "ST413"),
        ({"noise": 0}, "ST414"),
        ({"classes": 0}, "ST415"),
        ({"rate": 0.0}, "ST416"),
        ({"confidence": 1.5}, "ST417"),
        ({"senders": (Sender("left", 4, 0.0), Sender("right", 4, 1.0))}, "ST410"),
        ({"senders": (Sender("left", 1 << 25, 1.0), Sender("right", 4, 1.0))}, "ST418"),
    ],
)
def test_a_task_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with raises(StudyError, sentence):
        adaptive_task(**changes)


def test_an_owner_checks_what_it_holds_before_it_says_anything() -> None:
    task = adaptive_task()
    encoders, head, _, _ = _parts(task)

    class Me:
        name = "left"

    rows = kit.Rows(np.zeros((task.rows, 1)))
    cases: list[tuple[tuple[Any, ...], type[ColonnadeError], str]] = [
        ((encoders["left"], kit.Rows(np.zeros((59, 1))), task), StudyError, "ST408"),
        ((encoders["left"], rows, task, head), DataError, ("DA110", "bank")),
        ((None, rows, task), DataError, "DA109"),
        ((LinearEncoder(np.zeros((60, 5)), 3), rows, task), DataError, ("DA112", "4")),
    ]
    for given, kind, sentence in cases:
        with raises(kind, sentence):
            adaptive.owner(Me(), *given)  # type: ignore[arg-type]


def test_numbers_that_are_not_finite_are_refused_with_a_sentence() -> None:
    task = adaptive_task()
    encoders, head, _, _ = _parts(task)
    encoders["left"].weights[0, 0] = np.inf
    with raises(DataError, "DA111"):
        adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    encoders, head, _, _ = _parts(task)
    head.weights[0, 0] = np.nan
    with raises(DataError, "DA114"):
        adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    with raises(ValueError, "VA125"):
        PassiveSide(encoders["left"], "left", task).learn(np.zeros((3, 4)))


def test_the_reason_names_everything_that_slopes_are_made_of() -> None:
    """With columns of its own, the active party's slopes tell of them too, so a task that is silent takes none."""
    assert adaptive_task().reason.endswith("the returned slopes are a function of the labels")
    with_columns = adaptive_task(columns=True)
    assert with_columns.reason.endswith("a function of the labels and of the columns of bank")
    assert adaptive_task(columns=True, **MODES["unprotected"]).reason.endswith(
        "of the labels and of the columns of bank"
    )
    assert with_columns.agreement != adaptive_task().agreement
    encoders, head, _, _ = _parts(with_columns, own=True)
    with raises(DataError, "DA113", "bank"):
        adaptive.simulate(encoders, head, adaptive_task(), Stream(bytes(32)))
