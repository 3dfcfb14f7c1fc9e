"""What is said of probabilities whose labels are known, beside scikit-learn and beside what must hold."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score, roc_auc_score

from colonnade.errors import DataError
from colonnade.models.assessment import assess
from colonnade.report.reliability import reliability_plot, roc_plot
from tests.support.errors import raises


def made_up(rows=4000, slope=1.0, seed=1):
    """Labels, and probabilities whose log-odds are those of the labels divided by ``slope``."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1, 1.5, rows)
    truth = rng.random(rows) < 1 / (1 + np.exp(-odds))
    return truth, 1 / (1 + np.exp(-np.round(odds / slope, 2)))


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_finds_the_same(weighted):
    truth, chance = made_up()
    weights = np.random.default_rng(2).uniform(0, 3, len(truth)) if weighted else None
    found = assess(truth, chance, weights)
    assert found.auc == pytest.approx(roc_auc_score(truth, chance, sample_weight=weights), abs=1e-12)
    assert found.log_loss == pytest.approx(log_loss(truth, chance, sample_weight=weights), abs=1e-12)
    assert found.brier == pytest.approx(brier_score_loss(truth, chance, sample_weight=weights), abs=1e-12)
    odds = np.log(chance / (1 - chance))[:, None]
    line = LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(odds, truth, sample_weight=weights)
    assert found.slope == pytest.approx(line.coef_[0, 0], abs=1e-4)
    assert found.intercept == pytest.approx(line.intercept_[0], abs=1e-4)
    at = found.at(0.3)
    assert at.precision == pytest.approx(precision_score(truth, chance > 0.3, sample_weight=weights))
    assert at.recall == pytest.approx(recall_score(truth, chance > 0.3, sample_weight=weights))
    assert at.accuracy == pytest.approx(np.average(truth == (chance > 0.3), weights=weights))
    assert at.balanced_accuracy == pytest.approx((at.recall + at.specificity) / 2)


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_the_slope_says_how_much_too_sure_probabilities_are(slope):
    truth, chance = made_up(100_000, slope)
    assert assess(truth, chance).slope == pytest.approx(slope, rel=0.05)


def test_groups_hold_everybody_once_and_their_means_add_up():
    truth, chance = made_up()
    found = assess(truth, chance)
    counts = np.array([each.count for each in found.reliability])
    assert 8 <= len(counts) <= 11
    assert counts.sum() == len(truth)
    assert counts @ [each.share for each in found.reliability] == pytest.approx(truth.sum())
    assert counts @ [each.probability for each in found.reliability] == pytest.approx(chance.sum())
    said = [each.probability for each in found.reliability]
    assert said == sorted(said)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_labels_are_assessed_or_said_why_not(pairs):
    truth, chance = (np.array(column) for column in zip(*pairs, strict=True))
    found = assess(truth, chance)
    pairs_of = [(a > b) + (a == b) / 2 for a in chance[truth] for b in chance[~truth]]
    assert found.auc == (pytest.approx(np.mean(pairs_of)) if pairs_of else None)
    assert (found.auc is None) == (truth.all() or not truth.any())
    assert (found.slope is None) == (found.lacking is not None)
    if found.slope is not None:  # the score of the likelihood is zero there
        odds = np.log(np.clip(chance, 1e-12, 1 - 1e-12) / (1 - np.clip(chance, 1e-12, 1 - 1e-12)))
        left = truth - 1 / (1 + np.exp(-(found.intercept + found.slope * odds)))
        assert abs(left.mean()) < 1e-6
        assert abs((left * odds).mean()) < 1e-5
    json.dumps(found.to_dict(), allow_nan=False)
    assert 0 <= found.at(0.5).accuracy <= 1
    assert str(found)
    assert "<figure>" in reliability_plot(found)
    assert ("no curve" in roc_plot(found)) == (found.auc is None)


def test_the_curve_is_thinned_and_its_ends_stay():
    truth, chance = made_up(50_000)
    found = assess(truth, chance + np.arange(50_000) * 1e-9)
    assert len(found.roc) <= 201
    assert found.roc[0] == (0.0, 0.0)
    assert found.roc[-1] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("truth", "chance", "weights", "said"),
    [
        ([], [], None, "DA052"),
        ([True], [0.1, 0.2], None, "DA051"),
        (["yes"], [0.1], None, "DA053"),
        ([2], [0.1], None, "DA053"),
        ([True], [1.2], None, "DA054"),
        ([True], [np.nan], None, "DA054"),
        ([True, False], [0.1, 0.2], [0.0, 0.0], "DA055"),
    ],
)
def test_what_cannot_be_assessed_is_refused(truth, chance, weights, said):
    with raises(DataError, said):
        assess(truth, chance, weights)


def test_a_threshold_is_a_probability():
    with raises(DataError, "DA050"):
        assess([True, False], [0.2, 0.7]).at(1.5)
