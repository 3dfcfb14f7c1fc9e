"""What is said of a model: of probabilities whose labels are known, and beforehand of what noise will do to it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import linear_model
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score, roc_auc_score

from colonnade import GLM, PCA, LinearRegression, LogisticRegression, SplitClassifier, Synthesizer
from colonnade.errors import DataError
from colonnade.models import Roster
from colonnade.models.assessment import assess
from colonnade.models.outlook import Outlook
from colonnade.report.reliability import reliability_plot, roc_plot
from colonnade.tables import population
from colonnade.testing.seeded import seeded
from tests.support.errors import raises


def made_up():
    """Labels, and probabilities that are three times as sure as they should be."""
    rng = np.random.default_rng(1)
    odds = rng.normal(-1, 1.5, 4000)
    return rng.random(4000) < 1 / (1 + np.exp(-odds / 3)), 1 / (1 + np.exp(-np.round(odds, 2)))


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_finds_the_same(weighted):
    truth, chance = made_up()
    weights = np.random.default_rng(2).uniform(0, 3, len(truth)) if weighted else None
    found = assess(truth, chance, weights)
    theirs = [of(truth, chance, sample_weight=weights) for of in (roc_auc_score, log_loss, brier_score_loss)]
    assert (found.auc, found.log_loss, found.brier) == pytest.approx(theirs, abs=1e-12)
    odds = np.log(chance / (1 - chance))[:, None]
    line = linear_model.LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(odds, truth, sample_weight=weights)
    assert (found.slope, found.intercept) == pytest.approx((line.coef_[0, 0], line.intercept_[0]), abs=1e-4)
    at = found.at(0.3)
    theirs = [of(truth, chance > 0.3, sample_weight=weights) for of in (precision_score, recall_score)]
    assert (at.precision, at.recall) == pytest.approx(theirs)
    assert at.accuracy == pytest.approx(np.average(truth == (chance > 0.3), weights=weights))
    assert at.balanced_accuracy == pytest.approx((at.recall + at.specificity) / 2)


def test_groups_hold_everybody_once_and_their_means_add_up():
    truth, chance = made_up()
    groups = assess(truth, chance).reliability
    counts, said = np.array([each.count for each in groups]), [each.probability for each in groups]
    assert 8 <= len(counts) <= 11
    assert counts.sum() == len(truth)
    assert counts @ [each.share for each in groups] == pytest.approx(truth.sum())
    assert counts @ said == pytest.approx(chance.sum())
    assert said == sorted(said)
    curve = assess(truth, chance + np.arange(len(truth)) * 1e-9).roc
    assert len(curve) <= 201  # thinned, and its ends stay
    assert (curve[0], curve[-1]) == ((0.0, 0.0), (1.0, 1.0))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
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
    assert "<figure>" in reliability_plot(found)
    assert ("no curve" in roc_plot(found)) == (found.auc is None)


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
    with raises(DataError, "DA050"):  # a threshold is a probability
        assess([True, False], [0.2, 0.7]).at(1.5)


# --- forecasts follow from public numbers, and are about what noise really does


PEOPLE = population(600)
ROSTER = Roster.of(PEOPLE.feature_schemas)
TABLES = {name: PEOPLE.table(name).select(ROSTER.schemas[name].names).sorted_by_id() for name in PEOPLE.parties}
LABEL = "bank.mortgage"


def forecast(model, rows=600):
    task = model.plan(ROSTER)
    return task, model.outlook(ROSTER, task, rows)


def test_an_error_that_falls_with_the_number_of_people():
    few, enough, unknown = (Outlook.falling("a number", 0.1, 417.3, rows) for rows in (1000, 5000, None))
    assert (few.error, few.people, few.too_few) == (0.4173, 4200, True)
    assert few.forecast == "FORECAST for 1,000 people: noise moves a number by about 0.42; 0.1 takes about 4,200 people"
    assert few.warning.endswith("it takes about 4,200 people, or about 4.2 times the epsilon")
    assert (enough.too_few, enough.warning) == (False, None)
    assert (unknown.error, unknown.too_few, unknown.warning) == (None, False, None)
    assert Outlook.falling("a number", 0.1, 0.001, None).people == 1
    assert "many more people" in Outlook("it", 0.5, 10, 0.9, None).warning


@pytest.mark.parametrize("method", ["moments", "power"])
def test_components(method):
    model = PCA(2, epsilon=1.0, delta=1e-5, method=method)
    task, found = forecast(model)
    half, _ = forecast(PCA(2, epsilon=0.5, delta=1e-5, method=method))
    assert found.people == model.outlook(ROSTER, task, None).people
    assert model.outlook(ROSTER, task, 1200).error == pytest.approx(found.error / 2)
    assert model.outlook(ROSTER, half, 600).error == pytest.approx(2 * found.error, rel=0.25)
    if method == "moments":
        exact = np.hstack([table.matrix() for table in TABLES.values()])
        noisy = model.simulated(TABLES, task, seeded(11)).second_moments - exact.T @ exact
        share = sum(block.clip**2 for block in task.blocks) / (2 * len(task.names))
        # The largest eigenvalue of so many columns is within a few percent of its limit; the draw is always the same.
        assert np.abs(np.linalg.eigvalsh(noisy)).max() / 600 / share == pytest.approx(found.error, rel=0.2)


def test_noise_moves_marginals_as_far_as_said():
    model = Synthesizer(epsilon=1.0, delta=1e-5)
    task, found = forecast(model)
    clear, _ = forecast(Synthesizer(epsilon=50.0, delta=1e-5))

    def cells(planned):
        return [
            each.values for each in model.simulated(TABLES, planned, seeded(12)).residuals() if len(each.columns) == 2
        ]

    off = [np.abs(noisy - exact).sum() / 2 / 600 for noisy, exact in zip(cells(task), cells(clear), strict=True)]
    assert np.mean(off) == pytest.approx(found.error, rel=0.1)  # exact answers have a fiftieth of the noise


def test_noise_moves_probabilities_about_as_far_as_said():
    encoded = np.hstack([table.matrix() for table in TABLES.values()])
    names = [f"{party}.{name}" for party, table in TABLES.items() for name in table.schema.encoded_names]

    def fitted(epsilon):
        model = LogisticRegression(label=LABEL, epsilon=epsilon, delta=1e-5, method="one-shot")
        task, found = forecast(model)
        model.conclude(ROSTER, task, model.simulated(TABLES, task, seeded(13)))
        columns = [names.index(name) for name in model.feature_names_in_]
        return 1 / (1 + np.exp(-(encoded[:, columns] @ model.coef_[0] + model.intercept_[0]))), found.error

    clear, _ = fitted(60.0)
    noisy, expected = fitted(10.0)
    moved = float(np.sqrt(np.mean((noisy - clear) ** 2)))
    assert expected / 4 < moved < 4 * expected  # rough, as the page says


def test_every_kind_with_a_figure_has_one_that_needs_no_data():
    for model in (
        LinearRegression(label="bank.age", epsilon=1.0, delta=1e-5),
        LogisticRegression(label=LABEL, epsilon=1.0, delta=1e-5, method="sqm", rows=600, epochs=1, sampling="disjoint"),
        SplitClassifier(label=LABEL, epsilon=1.0, delta=1e-5),
        GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600),
    ):
        found = forecast(model)[1]
        assert (found.rows, found.too_few) == (600, True)
        assert found.people > 600
    exchanged = GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600, weight_bound=1.0)
    assert forecast(exchanged)[1] is None  # nothing was guessed of the signal
