"""Adaptive embeddings as published: the protocol, the parts of Algorithm 1, and why nothing is promised for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds.split import adaptive_programs as adaptive
from colonnade.kinds.split.adaptive_programs import (
    AdaptivePassiveSide,
    EmbeddingPairs,
    FuzzyCMeans,
    class_differences,
    clip_rows,
    divergence,
    divergence_slopes,
    local_sensitivity,
    memberships,
    shape_embeddings,
    spread_centres,
    stretch_factor,
)
from colonnade.kinds.split.embedding_task import UNPROTECTED, AdaptiveTask, EmbeddingSender, EncoderSteps
from colonnade.kinds.split.heads import SoftmaxHead
from colonnade.privacy import Statement, Trust
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import NOISE_UNIT
from colonnade.randomness import Stream
from tests.kinds.split.adaptive_stand_ins import adaptive_task, head_of, people
from tests.kinds.split.embedding_learners import Product
from tests.support import protocols as kit
from tests.support.errors import refused
from tests.support.protocols import Array
from tests.support.vectors import VECTORS

MODES: dict[str, dict[str, Any]] = {
    "unprotected": {"noise": UNPROTECTED, "rescale": False, "adjust": False},
    "vanilla": {"rescale": False, "adjust": False},
    "+R": {"rescale": True, "adjust": False},
    "+D": {"rescale": False, "adjust": True, "confidence": 0.4},
    "both": {"rescale": True, "adjust": True, "confidence": 0.4},
}


def _parts(task: AdaptiveTask, *, own: bool = False) -> tuple[dict[str, Product], SoftmaxHead]:
    """Fresh encoders of every party, and a head."""
    names = (*task.passives, *([task.active] if own else []))
    tables, labels = people(task.rows, 5, task.classes, names)
    encoders = {name: Product(table, 4, seed=len(name)) for name, table in tables.items()}
    return encoders, head_of(labels, task.classes, 4 * len(names))


def _fixed(name: str, variance: int, count: int) -> Array:
    """Noise that both runs can know: it depends on nothing but what it is for."""
    return ((np.arange(count) % 7 - 3) * (math.isqrt(variance) // 4)).astype(np.int64)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("passives", "own"), [(("left", "right"), False), (("shop",), True)])
def test_the_protocol_ends_with_the_numbers_of_its_reference(
    mode: str, passives: tuple[str, ...], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = adaptive_task(passives, columns=own, **MODES[mode])
    key, rows = bytes(range(32)), kit.Rows(np.zeros((task.rows, 1)))
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, _: _fixed("", noise.scale, shape[0]))
    monkeypatch.setattr(adaptive, "new_key", lambda: key)
    encoders, head = _parts(task, own=own)

    def program(name: str) -> Any:
        mine = head if name == task.active else None
        return lambda me: adaptive.owner(me, encoders.get(name), rows, task, mine)

    programs = {name: program(name) for name in task.owners} | {COORDINATOR: lambda me: adaptive.coordinator(me, task)}
    done = kit.outcomes(task, programs)
    alone, head_alone = _parts(task, own=own)
    factors = adaptive.reference(alone, head_alone, task, key, _fixed)
    assert (done[task.active].result, done[COORDINATOR].result) == ({}, {})
    assert np.array_equal(head.weights, head_alone.weights)
    for name, encoder in encoders.items():
        assert np.array_equal(encoder.weights, alone[name].weights)
    for name in task.passives:
        assert done[name].result == {name: factors[name]}
        assert (factors[name] == 1.0) != task.rescale
        assert done[name].revealed == (task.embeddings_event(name),)
    assert done[task.active].revealed == (task.slopes_event,)


# --- what is said about privacy


def test_nothing_is_promised_to_those_who_see_messages() -> None:
    task = adaptive_task()
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert statement.epsilon("bank") == statement.epsilon("left") == math.inf
    assert statement.epsilon("coordinator") == statement.epsilon("analyst") == 0
    assert task.reason.startswith("as published, not proven: the encoder and the rescaling depend on private rows")
    assert "rescaling" not in adaptive_task(rescale=False).reason
    assert adaptive_task(**MODES["unprotected"]).reason.startswith("not protected: ")
    assert task.facts["guarantee"] == task.reason
    refused(StudyError, "ST419", task.calibrate, [])
    refused(StudyError, "ST419", task.adjustable, None)


@pytest.mark.parametrize("case", VECTORS["hdp_fm_afe"]["afe_paper_true"])
def test_the_honest_sum_over_epochs_stands_beside_the_published_figure(case: dict[str, Any]) -> None:
    noise = AdaptiveTask.published_noise(case["eps"], case["delta"])
    assert math.sqrt(noise / NOISE_UNIT) == pytest.approx(case["sigma"], rel=1e-5)
    honest = adaptive_task(epochs=case["E"], noise=noise).frozen_epsilon(case["delta"])
    assert honest == pytest.approx(case["eps_true_vanilla_fixed_encoder"], rel=1e-4)
    assert adaptive_task(**MODES["unprotected"]).frozen_epsilon(0.01) == math.inf
    refused(PrivacyError, "PR107", AdaptiveTask.published_noise, 0, 0.01)


def _into(said: list[Any]) -> Any:
    return lambda *one: said.append(one)


def test_noise_is_that_of_the_clip_and_everybody_is_in_one_batch_of_an_epoch() -> None:
    task = adaptive_task(
        senders=(EmbeddingSender("left", 4, 2.0), EmbeddingSender("right", 4, 0.5)), noise=NOISE_UNIT, epochs=20
    )
    found = [task.noise_std, *(task.deviation_of(task.variance(name)) for name in task.passives)]
    assert found == pytest.approx([4.0, 4.0, 1.0], rel=1e-5)
    said: list[Any] = []
    adaptive.simulate(*_parts(task), task, Stream(bytes(32)), _into(said))
    left = [(places, told) for owner, places, told, _ in said if owner == "left"]
    deviation = np.std(np.vstack([told for _, told in left]))
    assert deviation == pytest.approx(4.0, rel=0.15)  # of 4,800 numbers, and of the embeddings themselves
    assert sorted(np.concatenate([places for places, _ in left[4:8]])) == list(range(task.rows))


def test_the_reason_names_everything_that_slopes_are_made_of() -> None:
    """With columns of its own, the active party's slopes tell of them too, so a task that is silent takes none."""
    silent, with_columns = adaptive_task(), adaptive_task(columns=True)
    assert silent.reason.endswith("the returned slopes are a function of the labels")
    for task in (with_columns, adaptive_task(columns=True, **MODES["unprotected"])):
        assert task.reason.endswith("of the labels and of the columns of bank")
    assert with_columns.agreement != silent.agreement
    refused(DataError, "DA113", "bank", adaptive.simulate, *_parts(with_columns, own=True), silent, Stream(bytes(32)))


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
        ({"compared": 1}, "ST412"),
        ({"senders": (EmbeddingSender("left", 4, 0.0), EmbeddingSender("right", 4, 1.0))}, "ST410"),
        ({"senders": (EmbeddingSender("left", 1 << 25, 1.0), EmbeddingSender("right", 4, 1.0))}, "ST418"),
    ],
)
def test_a_task_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    refused(StudyError, sentence, adaptive_task, **changes)


def test_an_owner_checks_what_it_holds_before_it_says_anything() -> None:
    task = adaptive_task()
    encoders, head = _parts(task)
    left, me, rows = encoders["left"], SimpleNamespace(name="left"), kit.Rows(np.zeros((task.rows, 1)))
    refused(StudyError, "ST408", adaptive.owner, me, left, kit.Rows(np.zeros((59, 1))), task)
    refused(DataError, "DA110", "bank", adaptive.owner, me, left, rows, task, head)
    refused(DataError, "DA109", adaptive.owner, me, None, rows, task)
    refused(DataError, "DA112", "4", adaptive.owner, me, Product(np.zeros((60, 5)), 3), rows, task)
    refused(ValueError, "VA125", AdaptivePassiveSide(left, "left", task).learn, np.zeros((3, 4)))
    head.weights[0, 0] = np.nan
    refused(DataError, "DA114", adaptive.simulate, encoders, head, task, Stream(bytes(32)))
    encoders["left"].weights[0, 0] = np.inf
    refused(DataError, "DA111", adaptive.simulate, encoders, head, task, Stream(bytes(32)))


# --- the parts of the algorithm that talk to nobody


def _numeric(value: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        found[place] = (value(up) - value(down)) / (2 * step)
    return found


def _rows(count: int = 12, width: int = 3, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 1, (count, width))


def test_rows_are_clipped_and_distances_come_from_one_product_and_are_those_of_a_loop() -> None:
    clipped = clip_rows(np.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]]), 1.0)
    assert clipped == pytest.approx(np.array([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))
    rows, same = _rows(20), EmbeddingPairs(np.ones((5, 3)))
    pairs = EmbeddingPairs(rows)
    one_by_one = np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])
    assert pairs.distances == pytest.approx(one_by_one, abs=1e-7)
    upper = one_by_one[np.triu_indices(20, 1)]
    assert local_sensitivity(pairs) == pytest.approx(upper.mean() + 3 * upper.std())
    assert stretch_factor(pairs, 0.5) == pytest.approx(1 / local_sensitivity(pairs))
    assert stretch_factor(same, 1.0) == pytest.approx(1e6)  # equal embeddings, to something finite
    assert not same.slopes(np.ones((5, 5))).any()
    assert stretch_factor(EmbeddingPairs(np.ones((1, 3))), 1.0) == 1.0  # one row has no distances


def test_a_whole_batch_is_compared_unless_fewer_rows_are_asked_for() -> None:
    raw, sender = _rows(600, 8), EmbeddingSender("shop", 8, 50.0)
    raw[300:] *= 3  # what the first rows do not show
    task = AdaptiveTask(Trust(("bank", "shop"), (), 0), "bank", (sender,), 600, 2, 1, 1)
    fewer = replace(task, compared=300)
    found = [shape_embeddings(raw, sender, each).factor for each in (task, fewer)]
    assert found == pytest.approx(
        [stretch_factor(EmbeddingPairs(raw), 50.0), stretch_factor(EmbeddingPairs(raw[:300]), 50.0)]
    )
    assert found[1] > 1.5 * found[0]
    assert task.agreement != fewer.agreement


def test_the_divergence_knows_normal_distances_from_others_and_no_scale() -> None:
    rng = np.random.default_rng(6)
    two = np.repeat([0.0, 2.0], 2000) + rng.normal(0, 0.1, 4000)
    assert abs(divergence(rng.normal(3, 1, 4000))[0]) < 0.05 < 1.0 < divergence(two)[0]
    some = rng.gamma(2.0, 1.0, 500)
    assert divergence(some)[0] == pytest.approx(divergence(100 * some)[0])
    for nothing in (np.ones(50), np.array([1.0, 2.0])):
        assert divergence(nothing)[0] == 0.0
    many = divergence_slopes(EmbeddingPairs(_rows(300)))  # more pairs than are looked at
    assert 0 < np.count_nonzero(many) < 300 * 299
    assert np.isfinite(many).all()


def test_fuzzy_means_find_classes_and_say_how_sure_they_are() -> None:
    rng = np.random.default_rng(2)
    middles, truth = rng.normal(0, 4, (4, 6)), rng.integers(0, 4, 300)
    rows, means = middles[truth] + rng.normal(0, 0.5, (300, 6)), FuzzyCMeans(4)
    found, confidence = means.fit(rows)
    for cluster in range(4):
        assert len(set(truth[found == cluster])) == 1
    assert (confidence >= 0.6).mean() > 0.9
    before = means.centres
    means.fit(rows)  # from where it was: nothing changes any more
    assert means.centres == pytest.approx(before, abs=1e-3)
    means.centres = np.ones((4, 6))  # centres that became one are spread anew
    assert len(set(means.fit(rows)[0])) == 4
    assert len(np.unique(spread_centres(rows, 5), axis=0)) == 5
    assert np.isfinite(FuzzyCMeans(4).fit(np.zeros((3, 2)))[1]).all()
    unsure = class_differences(np.arange(10) % 3, np.arange(10) < 8)
    assert unsure[0].tolist() == [0, 1, 1, 0, 1, 1, 0, 1, 0, 0]  # the last two are not believed


def test_parts_of_a_row_are_those_of_the_textbook() -> None:
    rows, centres = _rows(10), _rows(3, seed=9)
    found = memberships(rows, np.einsum("ij,ij->i", rows, rows)[:, None], centres)
    for j, row in enumerate(rows):
        apart = [np.linalg.norm(row - centre) for centre in centres]
        for c in range(3):
            assert found[j, c] == pytest.approx(1 / sum((apart[c] / other) ** 2 for other in apart))


@pytest.mark.parametrize(
    ("protected", "rescale", "adjust"),
    [(p, r, a) for p in (True, False) for r in (True, False) for a in (True, False) if p or not r],
)
def test_one_step_of_a_party_is_the_slope_of_all_its_losses(protected: bool, rescale: bool, adjust: bool) -> None:
    """An encoder whose parameters are the embeddings themselves shows the whole gradient, through stretch and clip."""
    task = adaptive_task(
        ("shop",), noise=1 if protected else 0, rescale=rescale, adjust=adjust, rule="sgd", rate=1.0, confidence=0.0
    )
    encoder, classes = Product(np.eye(task.rows), 4), np.arange(task.rows) % 3
    start, places = 1.5 * encoder.weights.copy(), np.arange(task.rows)
    encoder.weights[:] = start
    slopes = np.eye(4)[classes] + 0.1 * _rows(task.rows, 4)  # clusters that no small change of embeddings changes
    others = (classes[:, None] != classes).astype(float)

    def loss(raw: Array) -> float:
        made = shape_embeddings(raw, task.sender("shop"), task)
        found = float((slopes * made.told).sum()) / task.rows
        if adjust:
            found -= task.beta * (others * EmbeddingPairs(made.told).distances).sum() / len(others) ** 2
        if rescale:
            every = EmbeddingPairs(made.clipped).distances[np.triu_indices(task.rows, 1)]
            found += task.alpha * divergence(every)[0]
        return found

    side = AdaptivePassiveSide(encoder, "shop", task)
    side.embeddings(places)
    side.learn(slopes)
    assert start - encoder.weights == pytest.approx(_numeric(loss, start), abs=2e-6)


def test_steps_are_those_of_their_rule() -> None:
    adam = EncoderSteps("adam", 0.1)
    assert adam.step(np.array([5.0, -1e-3])) == pytest.approx([-0.1, 0.1], rel=1e-4)
    assert adam.step(np.array([0.0, -1e-3])) == pytest.approx([-0.067, 0.1], rel=1e-2)  # it goes on for a while
    assert EncoderSteps("sgd", 0.1).step(np.array([5.0])) == pytest.approx([-0.5])


# --- why nothing is promised: counter-examples, played by the program itself


def test_one_row_moves_the_later_embeddings_of_all_others() -> None:
    """Theorem 3.4: the encoder learns without noise. In the first epoch one row moves by 2t; in the second, many do."""
    task = adaptive_task(("shop",), rescale=False, adjust=False, batches=1, epochs=6, rule="sgd", rate=2.0)
    tables, labels = people(task.rows, 5, task.classes, ("shop",))
    other = tables["shop"].copy()
    other[0] = -3 * other[0]
    told = np.empty((2, task.epochs, task.rows, 4))
    for which, table in enumerate((tables["shop"], other)):
        said: list[Any] = []
        encoders, head = {"shop": Product(table, 4)}, head_of(labels, task.classes, 4)
        adaptive.reference(encoders, head, task, bytes(32), _fixed, _into(said))
        for epoch, (_, places, embeddings, _) in enumerate(said):
            told[which, epoch, places] = embeddings
    moved, clip = np.linalg.norm(told[0] - told[1], axis=2), task.sender("shop").clip
    assert np.count_nonzero(moved[0]) == 1
    assert moved[0, 0] <= 2 * clip + 1e-6
    assert np.count_nonzero(moved[-1, 1:]) == task.rows - 1  # of rows that were changed in no table
    assert np.sqrt(np.square(moved[-1]).sum()) > 2 * clip


def test_rescaling_moves_everybody_at_once_and_beyond_the_clip() -> None:
    """Lines 7 and 8: what is told is longer than the clip, and one row decides how long, in the very first batch."""
    task = adaptive_task(("shop",), adjust=False, batches=1, epochs=1)
    sender = task.sender("shop")
    angles = np.linspace(-0.01, 0.01, 20)
    close = np.stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles], axis=1)
    turned = close.copy()
    turned[0] = -turned[0]
    here, there = (shape_embeddings(raw, sender, task).told for raw in (close, turned))
    assert np.linalg.norm(here, axis=1).min() > 50 * sender.clip
    moved = np.linalg.norm(here - there, axis=1)
    assert moved[1:].min() > 50 * sender.clip  # of 19 rows that are the same in both
    assert np.sqrt(np.square(moved).sum()) > 100 * 2 * sender.clip


def test_the_estimate_of_the_diameter_is_no_bound_and_can_be_twice_too_large() -> None:
    """Eq. 5: two classes at the ends of the ball are shrunk to half, under the same noise; an outlier is missed."""
    task = adaptive_task(("shop",), adjust=False)
    ends = np.zeros((100, 4))
    ends[:, 0] = np.repeat([1.0, -1.0], 50)
    assert local_sensitivity(EmbeddingPairs(ends)) == pytest.approx(4.0, rel=0.02)  # and the diameter is 2
    assert shape_embeddings(ends, task.sender("shop"), task).factor == pytest.approx(0.5, rel=0.02)
    outlier = np.random.default_rng(1).normal(0, 1e-3, (200, 4))
    outlier[0, 0] = 1.0
    assert local_sensitivity(EmbeddingPairs(outlier)) < 0.5 * EmbeddingPairs(outlier).distances.max()


@pytest.mark.parametrize("apart", [True, False])
def test_the_printed_contrast_brings_classes_together(apart: bool) -> None:
    """Eq. 8: steps of the program itself against the printed loss, and with the sign that the authors must have had."""
    task = adaptive_task(("shop",), rescale=False, rule="sgd", rate=0.2, beta=1.0, confidence=0.0, apart=apart)
    tables, labels = people(task.rows, 5, task.classes, ("shop",))
    encoder = Product(0.025 * tables["shop"], 4)  # so that nothing is clipped
    side, places = AdaptivePassiveSide(encoder, "shop", task), np.arange(task.rows)
    towards = np.eye(4)[labels] * 1e-9  # slopes that name the class and hardly move anything
    gaps = []
    for _ in range(20):
        side.embeddings(places)
        side.learn(towards)
        told = encoder.embed(places)
        middles = [told[labels == c].mean(axis=0) for c in range(task.classes)]
        gaps.append(EmbeddingPairs(np.array(middles)).distances.sum())
    assert (gaps[-1] > gaps[0]) == apart


@pytest.mark.parametrize("mode", ["vanilla", "both"])
def test_whoever_gets_slopes_back_knows_who_is_of_the_same_class(mode: str) -> None:
    """Eq. 7 is an attack on labels. It needs only what a passive party receives, whatever the noise on embeddings."""
    task = adaptive_task(rows=300, batches=2, epochs=4, noise=1 << 18, **MODES[mode])
    encoders, head = _parts(task)
    said: list[Any] = []
    adaptive.simulate(encoders, head, task, Stream(bytes(32)), _into(said))
    for _, places, _, slopes in said[-2:]:
        found, _ = FuzzyCMeans(task.classes).fit(slopes)
        inside = [np.bincount(head.labels[places][found == cluster]) for cluster in set(found)]
        assert sum(counts.max() for counts in inside) > 0.95 * len(places)  # of the most frequent class there
