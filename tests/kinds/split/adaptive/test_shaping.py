"""The parts of Algorithm 1 that talk to nobody: clip, stretch, divergence, clusters, contrast, steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.split.adaptive.clusters import FuzzyMeans, SoftLabels, memberships, spread
from colonnade.kinds.split.adaptive.contrast import contrast, contrast_pulls, different
from colonnade.kinds.split.adaptive.divergence import divergence, divergence_pulls
from colonnade.kinds.split.adaptive.rescaling import (
    Pairs,
    back_through_clip,
    clip_rows,
    local_sensitivity,
    stretch,
)
from colonnade.kinds.split.adaptive.sides import PassiveSide, shaped
from colonnade.kinds.split.adaptive.steps import Steps
from colonnade.kinds.split.adaptive.task import Adaptive, Sender
from colonnade.privacy import Trust
from tests.kinds.split.adaptive.stand_ins import Array, LinearEncoder, adaptive_task
from tests.support.errors import raises


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


def test_a_clip_leaves_short_rows_and_shortens_long_ones() -> None:
    raw = np.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    assert clip_rows(raw, 1.0) == pytest.approx(np.array([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))


def test_slopes_go_back_through_the_clip() -> None:
    raw, towards = _rows(), _rows(seed=1)
    found = back_through_clip(raw, towards, 1.2)
    assert 0 < (np.linalg.norm(raw, axis=1) > 1.2).sum() < len(raw)
    assert found == pytest.approx(_numeric(lambda rows: float((clip_rows(rows, 1.2) * towards).sum()), raw), abs=1e-7)


def test_distances_come_from_one_product_and_are_those_of_a_loop() -> None:
    rows = _rows(20)
    pairs = Pairs.of(rows)
    one_by_one = np.array([[np.linalg.norm(a - b) for b in rows] for a in rows])
    assert pairs.distances == pytest.approx(one_by_one, abs=1e-7)
    upper = one_by_one[np.triu_indices(20, 1)]
    assert pairs.middle == pytest.approx(upper.mean())
    assert pairs.deviation == pytest.approx(upper.std())
    assert local_sensitivity(pairs) == pytest.approx(upper.mean() + 3 * upper.std())
    assert stretch(pairs, 0.5) == pytest.approx(1 / local_sensitivity(pairs))


def test_a_whole_batch_is_compared_unless_fewer_rows_are_asked_for() -> None:
    raw = _rows(600, 8)
    raw[300:] *= 3  # what the first rows do not show
    sender = Sender("shop", 8, 50.0)
    task = Adaptive(Trust(("bank", "shop"), (), 0), "bank", (sender,), 600, 2, 1, 1)
    whole, some = shaped(raw, sender, task), shaped(raw, sender, replace(task, compared=300))
    assert whole.pairs is not None
    assert len(whole.pairs.rows) == 600
    assert whole.factor == pytest.approx(stretch(Pairs(raw), 50.0))
    assert some.factor == pytest.approx(stretch(Pairs(raw[:300]), 50.0))
    assert some.factor > 1.5 * whole.factor
    assert task.agreement != replace(task, compared=300).agreement
    with raises(StudyError, "ST412"):
        replace(task, compared=1)


def test_equal_embeddings_are_stretched_to_something_finite() -> None:
    same = np.ones((5, 3))
    assert stretch(Pairs.of(same), 1.0) == pytest.approx(1e6)
    assert not Pairs.of(same).slopes(np.ones((5, 5))).any()
    assert stretch(Pairs.of(same[:1]), 1.0) == 1.0  # one row has no distances


@pytest.mark.parametrize("count", [40, 500])
def test_the_divergence_has_the_slopes_it_says(count: int) -> None:
    distances = np.random.default_rng(5).gamma(2.0, 1.0, count)
    _, slopes = divergence(distances)
    for place in range(0, count, 7):
        up, down = distances.copy(), distances.copy()
        up[place] += 1e-7
        down[place] -= 1e-7
        assert slopes[place] == pytest.approx((divergence(up)[0] - divergence(down)[0]) / 2e-7, abs=1e-4)


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


def test_slopes_of_the_divergence_reach_every_row() -> None:
    rows = _rows(14)

    def value(at: Array) -> float:
        return divergence(Pairs(at).distances[np.triu_indices(14, 1)])[0]

    found = Pairs(rows).slopes(divergence_pulls(Pairs(rows)))
    assert found == pytest.approx(_numeric(value, rows), abs=1e-5)
    many = divergence_pulls(Pairs.of(_rows(300)))  # more pairs than are looked at
    assert 0 < np.count_nonzero(many) < 300 * 299
    assert np.isfinite(many).all()


def test_fuzzy_means_find_classes_and_say_how_sure_they_are() -> None:
    rng = np.random.default_rng(2)
    middles = rng.normal(0, 4, (4, 6))
    truth = rng.integers(0, 4, 300)
    rows = middles[truth] + rng.normal(0, 0.5, (300, 6))
    means = FuzzyMeans(4)
    found = means.fit(rows)
    for cluster in range(4):
        assert len(set(truth[found.cluster == cluster])) == 1
    between = SoftLabels(np.array([0]), memberships(*_one((middles[0] + middles[1]) / 2), middles)[:, :2].max(axis=1))
    assert between.confidence[0] <= 0.5 < np.median(found.confidence)
    assert not between.trusted(0.6).any()
    assert found.trusted(0.6).mean() > 0.9
    before = means.centres
    assert before is not None
    again = means.fit(rows)  # from where it was: nothing changes any more
    assert means.centres == pytest.approx(before, abs=1e-3)
    assert np.array_equal(again.cluster, found.cluster)


def _one(row: Array) -> tuple[Array, Array]:
    return row[None, :], np.array([[float(row @ row)]])


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
