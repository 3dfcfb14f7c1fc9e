"""Why nothing is promised for adaptive embeddings as published: counter-examples, played by the program itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.kinds.split.adaptive import programs as adaptive
from colonnade.kinds.split.adaptive.clusters import FuzzyMeans, SoftLabels
from colonnade.kinds.split.adaptive.rescaling import Pairs, local_sensitivity
from colonnade.kinds.split.adaptive.sides import PassiveSide, shaped
from colonnade.kinds.split.adaptive.task import Adaptive
from tests.kinds.split.adaptive.stand_ins import Array, LinearEncoder, SoftmaxHead, adaptive_task, people

KEY = bytes(32)


def _none(name: str, variance: int, count: int) -> Array:
    """The same noise in both runs, which is how far told numbers move; none is as good as any."""
    return np.zeros(count, dtype=np.int64)


def _told(task: Adaptive, table: Array, labels: Array, epoch: int) -> Array:
    """What the one passive party tells of everybody in one epoch, by the order of the rows."""
    said: list[adaptive.Said] = []
    head = SoftmaxHead(labels, task.classes, 4)
    adaptive.reference({"shop": LinearEncoder(table, 4)}, head, task, KEY, _none, said.append)
    found = np.empty((task.rows, 4))
    for each in said[epoch * task.batches : (epoch + 1) * task.batches]:
        found[each.places] = each.embeddings
    return found


def _neighbours(task: Adaptive) -> tuple[Array, Array, Array]:
    """Two tables that differ in the first person's columns."""
    tables, labels = people(task.rows, 5, task.classes, ("shop",))
    other = tables["shop"].copy()
    other[0] = -3 * other[0]
    return tables["shop"], other, labels


def test_one_row_moves_the_later_embeddings_of_all_others() -> None:
    """Theorem 3.4: the encoder learns without noise. In the first epoch one row moves by 2t; in the second, many do."""
    task = adaptive_task(("shop",), rescale=False, adjust=False, batches=1, epochs=6, rule="sgd", rate=2.0)
    one, other, labels = _neighbours(task)
    first, last = (np.linalg.norm(_told(task, one, labels, e) - _told(task, other, labels, e), axis=1) for e in (0, 5))
    assert np.count_nonzero(first) == 1
    assert first[0] <= 2 * task.sender("shop").clip + 1e-6
    assert np.count_nonzero(last[1:]) == task.rows - 1  # of a row that was changed in no table
    assert np.sqrt(np.square(last).sum()) > 2 * task.sender("shop").clip


def test_rescaling_moves_everybody_at_once_and_beyond_the_clip() -> None:
    """Lines 7 and 8: what is told is longer than the clip, and one row decides how long, in the very first batch."""
    task = adaptive_task(("shop",), adjust=False, batches=1, epochs=1)
    sender = task.sender("shop")
    angles = np.linspace(-0.01, 0.01, 20)
    close = np.stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles], axis=1)
    turned = close.copy()
    turned[0] = -turned[0]
    here, there = (shaped(raw, sender, task).told for raw in (close, turned))
    assert np.linalg.norm(here, axis=1).min() > 50 * sender.clip
    moved = np.linalg.norm(here - there, axis=1)
    assert moved[1:].min() > 50 * sender.clip  # of 19 rows that are the same in both
    assert np.sqrt(np.square(moved).sum()) > 100 * 2 * sender.clip


def test_the_estimate_of_the_diameter_is_no_bound_and_can_be_twice_too_large() -> None:
    """Eq. 5: two classes at the ends of the ball are shrunk to half, under the same noise; an outlier is missed."""
    task = adaptive_task(("shop",), adjust=False)
    ends = np.zeros((100, 4))
    ends[:, 0] = np.repeat([1.0, -1.0], 50)
    assert local_sensitivity(Pairs.of(ends)) == pytest.approx(4.0, rel=0.02)  # and the diameter is 2
    assert shaped(ends, task.sender("shop"), task).factor == pytest.approx(0.5, rel=0.02)
    outlier = np.random.default_rng(1).normal(0, 1e-3, (200, 4))
    outlier[0, 0] = 1.0
    assert local_sensitivity(Pairs.of(outlier)) < 0.5 * Pairs.of(outlier).distances.max()


@pytest.mark.parametrize("apart", [True, False])
def test_the_printed_contrast_brings_classes_together(apart: bool) -> None:
    """Eq. 8: steps of the program itself against the printed loss, and with the sign that the authors must have had."""
    task = adaptive_task(("shop",), rescale=False, rule="sgd", rate=0.2, beta=1.0, confidence=0.0, apart=apart)
    tables, labels = people(task.rows, 5, task.classes, ("shop",))
    encoder = LinearEncoder(0.05 * tables["shop"], 4)  # so that nothing is clipped
    side, places = PassiveSide(encoder, "shop", task), np.arange(task.rows)
    towards = np.eye(4)[labels] * 1e-9  # slopes that name the class and hardly move anything

    def gap() -> float:
        told = encoder.embed(places)
        middles = [told[labels == c].mean(axis=0) for c in range(task.classes)]
        return float(Pairs(np.array(middles)).distances.sum())

    before = gap()
    for _ in range(20):
        side.embeddings(places)
        side.learn(towards)
    assert (gap() > before) == apart


@pytest.mark.parametrize("mode", [{"rescale": False, "adjust": False}, {"rescale": True, "adjust": True}])
def test_whoever_gets_slopes_back_knows_who_is_of_the_same_class(mode: dict[str, Any]) -> None:
    """Eq. 7 is an attack on labels. It needs only what a passive party receives, whatever the noise on embeddings."""
    task = adaptive_task(rows=300, batches=2, epochs=4, noise=1 << 18, **mode)
    tables, labels = people(task.rows, 5, task.classes, task.passives)
    encoders = {name: LinearEncoder(table, 4) for name, table in tables.items()}
    said: list[adaptive.Said] = []
    adaptive.reference(encoders, SoftmaxHead(labels, 3, 8), task, KEY, _drawn(), said.append)
    for each in said[-2:]:
        found = FuzzyMeans(task.classes).fit(each.slopes)
        assert _purity(found, labels[each.places]) > 0.95


def _drawn() -> Any:
    rng = np.random.default_rng(4)
    return lambda name, variance, count: np.rint(rng.normal(0, float(variance) ** 0.5, count)).astype(np.int64)


def _purity(found: SoftLabels, labels: Array) -> float:
    """The part of rows whose class is the most frequent one in their cluster."""
    inside = [np.bincount(labels[found.cluster == cluster]) for cluster in np.unique(found.cluster)]
    return float(sum(counts.max() for counts in inside) / len(labels))
