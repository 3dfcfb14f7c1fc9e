"""Labels from returned slopes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import softmax

from colonnade.audit.attacks import Returned, infer_labels
from colonnade.audit.attacks.labels import matched
from colonnade.errors import DataError
from colonnade.report.attacks import render_attack
from tests.support.errors import raises
from tests.support.pages import Page

WIDTH = 12


def slopes(labels, classes, seed, rounds=1):
    """What a softmax head returns whose predictions know nothing of the labels."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        weights = draw.normal(size=(classes, WIDTH))
        chances = softmax(draw.normal(size=(len(labels), classes)) * 0.3, axis=1)
        found.append((chances - np.eye(classes)[labels]) @ weights)
    return found[0] if rounds == 1 else np.stack(found)


@pytest.mark.parametrize(("classes", "rounds"), [(2, 1), (4, 1), (10, 3)])
def test_slopes_of_true_labels_give_nearly_all_of_them_away(classes, rounds):
    labels = np.random.default_rng(1).integers(0, classes, 600)
    found = infer_labels(Returned(slopes(labels, classes, 2, rounds), labels, np.arange(60), classes))
    assert found.accuracy > 0.95
    assert found.base_rate < 0.6
    assert found.most is None
    assert found.rounds == rounds
    assert "labels of 60 people" in found.needed


@pytest.mark.parametrize("classes", [2, 5])
def test_randomised_labels_stay_below_the_bound(classes):
    draw = np.random.default_rng(3)
    labels, epsilon = draw.integers(0, classes, 3000), 1.0
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    shift = draw.integers(1, classes, len(labels))
    told = np.where(draw.random(len(labels)) < kept, labels, (labels + shift) % classes)
    found = infer_labels(Returned(slopes(told, classes, 4), labels, np.arange(200), classes, epsilon))
    assert found.most is not None
    assert found.accuracy < found.most + 0.05  # five deviations of 2,800 guesses
    assert found.accuracy > found.base_rate + 0.05
    assert "to who knows nothing else of a person" in Page(render_attack("runs", found)).words


def test_groups_are_named_by_those_who_are_known():
    groups, labels = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 1, 1])
    assert (matched(groups, labels, np.array([0, 2, 4]), 3) == labels).all()


def test_known_people_of_one_class_leave_the_groups_alone():
    labels = np.array([0, 1] * 50)
    found = infer_labels(Returned(slopes(labels, 2, 5), labels, np.arange(0, 20, 2), 2))
    assert found.learned is None
    assert found.accuracy == found.clusters > 0.9


def test_what_cannot_be_attacked_is_refused():
    labels = np.array([0, 1] * 10)
    found = slopes(labels, 2, 6)
    with raises(DataError, "DA005"):
        Returned(found[1:], labels, np.arange(3), 2)
    with raises(DataError, "DA007"):
        Returned(found, labels, np.arange(20), 2)
    with raises(DataError, "DA008"):
        Returned(found, labels + 1, np.arange(3), 2)
    with raises(DataError, "DA006"):
        Returned(found * np.nan, labels, np.arange(3), 2)
