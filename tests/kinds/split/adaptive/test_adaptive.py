"""Adaptive embeddings as published: the protocol against its reference, the parts of Algorithm 1, what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds.split.adaptive import programs as adaptive
from colonnade.kinds.split.adaptive.clusters import FuzzyMeans, SoftLabels, memberships, spread
from colonnade.kinds.split.adaptive.divergence import contrast, contrast_pulls, different, divergence, divergence_pulls
from colonnade.kinds.split.adaptive.rescaling import Pairs, back_through_clip, clip_rows, local_sensitivity, stretch
from colonnade.kinds.split.adaptive.sides import PassiveSide, shaped
from colonnade.kinds.split.adaptive.steps import Steps
from colonnade.kinds.split.adaptive.task import UNPROTECTED, Adaptive, Sender
from colonnade.privacy import Observer, Statement, Trust, epsilon, views
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.kinds.split.adaptive.stand_ins import Array, LinearEncoder, SoftmaxHead, adaptive_task, people
from tests.support import protocols as kit
from tests.support.errors import raises, refused

VECTORS = json.loads((Path(__file__).parents[3] / "privacy" / "vectors.json").read_text(encoding="utf-8"))


MODES: dict[str, dict[str, Any]] = {
    "unprotected": {"noise": UNPROTECTED, "rescale": False, "adjust": False},
    "vanilla": {"rescale": False, "adjust": False},
    "+R": {"rescale": True, "adjust": False},
    "+D": {"rescale": False, "adjust": True, "confidence": 0.4},
    "both": {"rescale": True, "adjust": True, "confidence": 0.4},
}


def _parts(task: Adaptive, *, own: bool = False) -> tuple[dict[str, LinearEncoder], SoftmaxHead]:
    """Fresh encoders of every party, and a head."""
    names = (*task.passives, *([task.active] if own else []))
    tables, labels = people(task.rows, 5, task.classes, names)
    encoders = {name: LinearEncoder(table, 4, seed=len(name)) for name, table in tables.items()}
    return encoders, SoftmaxHead(labels, task.classes, 4 * len(names))


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
    encoders, head = _parts(task, own=own)
    done = kit.outcomes(task, _programs(task, encoders, head))
    alone, head_alone = _parts(task, own=own)
    outcome = adaptive.reference(alone, head_alone, task, key, _fixed)
    assert done[task.active].result.losses == outcome.losses
    assert (len(outcome.losses), done[COORDINATOR].result.losses) == (task.steps, ())
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
    encoders, head = _parts(task)
    found = adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    places = np.arange(task.rows)
    told = [shaped(encoders[name].embed(places), task.sender(name), task).told for name in task.passives]
    assert (head.chances(np.hstack(told)).argmax(axis=1) == head.labels).mean() > 0.8
    assert np.mean(found.losses[-4:]) < 0.7 * np.mean(found.losses[:4])


def test_unprotected_steps_are_those_of_one_network() -> None:
    """The pieces of the gradient that parties compute make up the gradient of the whole."""
    task = adaptive_task(**MODES["unprotected"], rule="sgd", epochs=1, batches=1, bits=50)
    encoders, head = _parts(task)
    start, first = {name: encoder.weights.copy() for name, encoder in encoders.items()}, SoftmaxHead(head.labels, 3, 8)

    def loss(weights: dict[str, Array]) -> float:
        joint = np.hstack([encoders[name].rows @ weights[name] for name in task.passives])
        return -float(np.log(first.chances(joint)[np.arange(task.rows), head.labels]).mean())

    adaptive.simulate(encoders, head, task, Stream(bytes(32)))
    for name, encoder in encoders.items():
        taken = (encoder.weights - start[name]) / -task.rate
        for at in [(0, 0), (3, 2), (4, 3)]:
            moved = {other: weights.copy() for other, weights in start.items()}
            moved[name][at] += 1e-6
            assert taken[at] == pytest.approx((loss(moved) - loss(start)) / 1e-6, abs=1e-5)


def test_who_watches_sees_what_parties_tell_each_other() -> None:
    task = adaptive_task(**MODES["vanilla"])
    said: list[adaptive.Said] = []
    epochs: list[int] = []
    adaptive.simulate(*_parts(task), task, Stream(bytes(32)), said.append, epochs.append)
    assert epochs == [1, 2, 3]
    assert [(each.number, each.owner) for each in said[:3]] == [(1, "left"), (1, "right"), (2, "left")]
    assert len(said) == task.steps * 2
    assert all(each.embeddings.shape == each.slopes.shape == (len(each.places), 4) for each in said)
    for epoch in range(3):  # everybody is in one batch of an epoch
        mine = [each.places for each in said if each.owner == "left"][epoch * 4 : epoch * 4 + 4]
        assert sorted(np.concatenate(mine)) == list(range(task.rows))


def test_new_people_are_stretched_as_those_before_however_few_they_are() -> None:
    task = adaptive_task(**MODES["both"])
    encoders, head = _parts(task)
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
    refused(StudyError, "ST419", task.calibrated, [])
    refused(StudyError, "ST419", task.adjustable, None)


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
    found = [task.noise_std, *(task.deviation_of(task.variance(name)) for name in task.passives)]
    assert found == pytest.approx([4.0, 4.0, 1.0], rel=1e-5)
    said: list[adaptive.Said] = []
    quiet = replace(task, rescale=False, adjust=False)
    adaptive.simulate(*_parts(quiet), replace(task, epochs=20), Stream(bytes(32)), said.append)
    deviation = np.std(np.vstack([each.embeddings for each in said if each.owner == "left"]))
    assert deviation == pytest.approx(4.0, rel=0.15)  # of 4,800 numbers, and of the embeddings themselves


def test_the_reason_names_everything_that_slopes_are_made_of() -> None:
    """With columns of its own, the active party's slopes tell of them too, so a task that is silent takes none."""
    silent, with_columns = adaptive_task(), adaptive_task(columns=True)
    assert silent.reason.endswith("the returned slopes are a function of the labels")
    for task in (with_columns, adaptive_task(columns=True, **MODES["unprotected"])):
        assert task.reason.endswith("of the labels and of the columns of bank")
    assert with_columns.agreement != silent.agreement
    with raises(DataError, "DA113", "bank"):
        adaptive.simulate(*_parts(with_columns, own=True), silent, Stream(bytes(32)))


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
    encoders, head = _parts(task)
    left, me, rows = encoders["left"], SimpleNamespace(name="left"), kit.Rows(np.zeros((task.rows, 1)))
    refused(StudyError, "ST408", adaptive.owner, me, left, kit.Rows(np.zeros((59, 1))), task)
    refused(DataError, "DA110", "bank", adaptive.owner, me, left, rows, task, head)
    refused(DataError, "DA109", adaptive.owner, me, None, rows, task)
    refused(DataError, "DA112", "4", adaptive.owner, me, LinearEncoder(np.zeros((60, 5)), 3), rows, task)
    refused(ValueError, "VA125", PassiveSide(left, "left", task).learn, np.zeros((3, 4)))
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


def test_a_clip_shortens_long_rows_and_slopes_go_back_through_it() -> None:
    clipped = clip_rows(np.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]]), 1.0)
    assert clipped == pytest.approx(np.array([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))
    raw, towards = _rows(), _rows(seed=1)
    assert 0 < (np.linalg.norm(raw, axis=1) > 1.2).sum() < len(raw)
    due = _numeric(lambda rows: float((clip_rows(rows, 1.2) * towards).sum()), raw)
    assert back_through_clip(raw, towards, 1.2) == pytest.approx(due, abs=1e-7)


def test_distances_come_from_one_product_and_are_those_of_a_loop() -> None:
    rows, same = _rows(20), Pairs.of(np.ones((5, 3)))
    pairs = Pairs.of(rows)
    one_by_one = np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])
    assert pairs.distances == pytest.approx(one_by_one, abs=1e-7)
    upper = one_by_one[np.triu_indices(20, 1)]
    assert (pairs.middle, pairs.deviation) == (pytest.approx(upper.mean()), pytest.approx(upper.std()))
    assert local_sensitivity(pairs) == pytest.approx(upper.mean() + 3 * upper.std())
    assert stretch(pairs, 0.5) == pytest.approx(1 / local_sensitivity(pairs))
    assert stretch(same, 1.0) == pytest.approx(1e6)  # equal embeddings, to something finite
    assert not same.slopes(np.ones((5, 5))).any()
    assert stretch(Pairs.of(np.ones((1, 3))), 1.0) == 1.0  # one row has no distances


def test_a_whole_batch_is_compared_unless_fewer_rows_are_asked_for() -> None:
    raw, sender = _rows(600, 8), Sender("shop", 8, 50.0)
    raw[300:] *= 3  # what the first rows do not show
    task = Adaptive(Trust(("bank", "shop"), (), 0), "bank", (sender,), 600, 2, 1, 1)
    whole, some = shaped(raw, sender, task), shaped(raw, sender, replace(task, compared=300))
    assert len(whole.pairs.rows) == 600
    due = stretch(Pairs(raw), 50.0), stretch(Pairs(raw[:300]), 50.0)
    assert (whole.factor, some.factor) == pytest.approx(due)
    assert some.factor > 1.5 * whole.factor
    assert task.agreement != replace(task, compared=300).agreement
    with raises(StudyError, "ST412"):
        replace(task, compared=1)


def test_the_divergence_has_the_slopes_it_says_and_they_reach_every_row() -> None:
    for count in (40, 500):
        distances = np.random.default_rng(5).gamma(2.0, 1.0, count)
        _, slopes = divergence(distances)
        for place in range(0, count, 7):
            step = np.where(np.arange(count) == place, 1e-7, 0)
            due = (divergence(distances + step)[0] - divergence(distances - step)[0]) / 2e-7
            assert slopes[place] == pytest.approx(due, abs=1e-4)
    rows = _rows(14)
    due = _numeric(lambda at: divergence(Pairs(at).distances[np.triu_indices(14, 1)])[0], rows)
    assert Pairs(rows).slopes(divergence_pulls(Pairs(rows))) == pytest.approx(due, abs=1e-5)
    many = divergence_pulls(Pairs.of(_rows(300)))  # more pairs than are looked at
    assert 0 < np.count_nonzero(many) < 300 * 299
    assert np.isfinite(many).all()


def test_the_divergence_knows_normal_distances_from_others_and_no_scale() -> None:
    rng = np.random.default_rng(6)
    normal, halves = (
        divergence(rng.normal(3, 1, 4000))[0],
        divergence(np.repeat([0.0, 2.0], 2000) + rng.normal(0, 0.1, 4000))[0],
    )
    assert abs(normal) < 0.05 < 1.0 < halves
    some = rng.gamma(2.0, 1.0, 500)
    assert divergence(some)[0] == pytest.approx(divergence(100 * some)[0])
    assert divergence(np.ones(50))[0] == 0.0
    assert divergence(np.array([1.0, 2.0]))[0] == 0.0


def test_fuzzy_means_find_classes_and_say_how_sure_they_are() -> None:
    rng = np.random.default_rng(2)
    middles, truth = rng.normal(0, 4, (4, 6)), rng.integers(0, 4, 300)
    rows, means = middles[truth] + rng.normal(0, 0.5, (300, 6)), FuzzyMeans(4)
    found = means.fit(rows)
    for cluster in range(4):
        assert len(set(truth[found.cluster == cluster])) == 1
    row = (middles[:1] + middles[1:2]) / 2
    between = SoftLabels(np.array([0]), memberships(row, np.square(row).sum(keepdims=True), middles)[:, :2].max(axis=1))
    assert between.confidence[0] <= 0.5 < np.median(found.confidence)
    assert not between.trusted(0.6).any()
    assert found.trusted(0.6).mean() > 0.9
    before, again = means.centres, means.fit(rows)  # from where it was: nothing changes any more
    assert means.centres == pytest.approx(before, abs=1e-3)
    assert np.array_equal(again.cluster, found.cluster)


def test_parts_of_a_row_are_those_of_the_textbook() -> None:
    rows, centres = _rows(10), _rows(3, seed=9)
    found = memberships(rows, np.einsum("ij,ij->i", rows, rows)[:, None], centres)
    for j, row in enumerate(rows):
        apart = [np.linalg.norm(row - centre) for centre in centres]
        for c in range(3):
            assert found[j, c] == pytest.approx(1 / sum((apart[c] / other) ** 2 for other in apart))


def test_centres_that_became_one_are_spread_anew() -> None:
    rows = np.vstack([_rows(30) + 20, _rows(30, seed=4) - 20])
    means = FuzzyMeans(2)
    means.centres = np.ones((2, 3))
    assert len(set(means.fit(rows).cluster[:30]) | set(means.fit(rows).cluster[30:])) == 2
    assert len(np.unique(spread(rows, 5), axis=0)) == 5
    assert np.isfinite(FuzzyMeans(4).fit(np.zeros((3, 2))).confidence).all()


@pytest.mark.parametrize("apart", [True, False])
def test_the_contrast_has_the_slopes_it_says_and_moves_classes_that_way(apart: bool) -> None:
    rows = _rows(10)
    labels = SoftLabels(np.arange(10) % 3, np.where(np.arange(10) < 8, 0.9, 0.2))
    others = different(labels, 0.5)
    assert others[0].tolist() == [0, 1, 1, 0, 1, 1, 0, 1, 0, 0]  # the last two are not believed
    slopes = Pairs(rows).slopes(contrast_pulls(others, apart=apart))
    assert slopes == pytest.approx(_numeric(lambda at: contrast(Pairs(at), others, apart=apart), rows), abs=1e-6)
    between = [float((others * Pairs(at).distances).sum()) for at in (rows, rows - 0.1 * slopes)]
    assert (between[1] > between[0]) == apart


@pytest.mark.parametrize(
    ("protected", "rescale", "adjust"),
    [(p, r, a) for p in (True, False) for r in (True, False) for a in (True, False) if p or not r],
)
def test_one_step_of_a_party_is_the_slope_of_all_its_losses(protected: bool, rescale: bool, adjust: bool) -> None:
    """An encoder whose parameters are the embeddings themselves shows the whole gradient, through stretch and clip."""
    task = adaptive_task(
        ("shop",), noise=1 if protected else 0, rescale=rescale, adjust=adjust, rule="sgd", rate=1.0, confidence=0.0
    )
    encoder, classes = LinearEncoder(np.eye(task.rows), 4), np.arange(task.rows) % 3
    start, places = 3 * encoder.weights.copy(), np.arange(task.rows)
    encoder.weights[:] = start
    slopes = np.eye(4)[classes] + 0.1 * _rows(task.rows, 4)  # clusters that no small change of embeddings changes
    others = (classes[:, None] != classes).astype(float)

    def loss(raw: Array) -> float:
        made = shaped(raw, task.sender("shop"), task)
        found = float((slopes * made.told).sum()) / task.rows
        if adjust:
            found += task.beta * contrast(Pairs(made.told), others, apart=True)
        if rescale:
            every = Pairs(made.clipped).distances[np.triu_indices(task.rows, 1)]
            found += task.alpha * divergence(every)[0]
        return found

    side = PassiveSide(encoder, "shop", task)
    side.embeddings(places)
    side.learn(slopes)
    assert start - encoder.weights == pytest.approx(_numeric(loss, start), abs=2e-6)


def test_steps_go_down_whatever_their_rule() -> None:
    for rule in ("adam", "sgd"):
        at, steps = np.array([3.0, -2.0]), Steps(rule, 0.1)
        for _ in range(200):
            at = at + steps.step(2 * at)
        assert np.linalg.norm(at) < 0.1
    first = Steps("adam", 0.1).step(np.array([5.0, -1e-3]))
    assert first == pytest.approx([-0.1, 0.1], rel=1e-4)
    assert math.isclose(float(Steps("sgd", 0.1).step(np.array([5.0]))[0]), -0.5)
