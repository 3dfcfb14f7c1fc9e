"""What scores of an attack are worth, and what a promise leaves to any attack."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, norm

from colonnade.audit.attacks import Promise, Rates, label_accuracy
from colonnade.audit.attacks.rates import clopper_pearson, curve
from colonnade.errors import DataError, PrivacyError
from colonnade.privacy import Statement, Trust
from colonnade.privacy.observers import Adjacency, Observer
from colonnade.privacy.releases import GaussianRelease, NonPrivate

TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)


def told(mu: float) -> GaussianRelease:
    """Somebody's number in [-1/2, 1/2], told with noise at which replacing it is worth ``mu`` deviations."""
    return GaussianRelease(
        "a number",
        (("bank", Fraction(1 / mu**2).limit_denominator(10**9)),),
        1,
        l1=1,
        l2_squared=1,
        replace_l1=1,
        replace_l2_squared=1,
    )


def test_an_interval_holds_what_it_says():
    assert clopper_pearson(0, 10)[0] == 0
    assert clopper_pearson(10, 10)[1] == 1
    low, high = clopper_pearson(3, 20)
    assert low == pytest.approx(beta.ppf(0.025, 3, 18))
    assert high == pytest.approx(beta.ppf(0.975, 4, 17))


def test_a_curve_only_rises_and_goes_from_corner_to_corner():
    draw = np.random.default_rng(1)
    members, others = draw.integers(0, 9, 200).astype(float), draw.integers(0, 7, 300).astype(float)
    alarms, hits = curve(members, others)
    assert (np.diff(alarms) >= 0).all()
    assert (np.diff(hits) >= 0).all()
    assert (alarms[0], hits[0], alarms[-1], hits[-1]) == (0, 0, 1, 1)
    for a, h in zip(alarms[1:], hits[1:], strict=True):  # each point is a threshold
        assert any(np.isclose([np.mean(others >= cut), np.mean(members >= cut)], [a, h]).all() for cut in range(9))


def test_scores_that_tell_everything_and_nothing():
    draw = np.random.default_rng(2)
    noise = draw.normal(size=2000)
    perfect = Rates.of(noise[:1000] + 100, noise[1000:])
    assert (perfect.auc, perfect.accuracy, perfect.hits) == (1, 1, 1)
    nothing = Rates.of(noise[:1000], noise[1000:])
    assert nothing.auc_interval[0] < 0.5 < nothing.auc_interval[1]
    assert nothing.accuracy_interval[0] < 0.5 < nothing.accuracy_interval[1]
    assert nothing.false_alarms == 1
    assert nothing.hits < 0.02
    assert len(Rates.of(draw.normal(size=5000), draw.normal(size=5000)).roc) <= 402


def test_constant_scores_are_worth_guessing():
    rates = Rates.of(np.zeros(50), np.zeros(60))
    assert (rates.auc, rates.accuracy, rates.hits) == (0.5, 0.5, 0)


def test_few_others_are_no_excuse_for_false_alarms():
    rates = Rates.of(np.arange(10.0), np.arange(10.0) - 2.5)
    assert rates.false_alarms == 0
    assert rates.hits == pytest.approx(0.3)  # 7, 8 and 9 are above 6.5


@pytest.mark.parametrize("members", [np.zeros(3), np.array([0.0, 1, 2, np.nan])], ids=["few", "not a number"])
def test_scores_that_cannot_be_judged_are_refused(members):
    with pytest.raises(DataError):
        Rates.of(members, np.zeros(10))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_one_epsilon_bounds_accuracy_and_hits(epsilon):
    promise = Promise.simple(epsilon)
    assert promise.accuracy == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)))
    assert float(promise.hits(0.01)) <= math.exp(epsilon) * 0.01 + 1e-12
    assert float(promise.hits(0.5)) == pytest.approx(min(0.5 * math.exp(epsilon), 1 - math.exp(-epsilon) * 0.5))
    with pytest.raises(PrivacyError):
        Promise.simple(-1.0)


@pytest.mark.parametrize("mu", [0.25, 1.0, 2.0])
def test_a_whole_curve_is_the_best_attack_on_gaussian_noise_and_hardly_more(mu):
    promise = Promise.of(Statement.of((told(mu),), TRUST, 1e-5))
    assert promise is not None
    alarms = np.geomspace(1e-3, 0.999, 60)
    best = norm.cdf(norm.ppf(alarms) + mu)
    assert (promise.hits(alarms) >= best - 1e-9).all()
    assert np.max(promise.hits(alarms) - best) < 0.01
    assert norm.cdf(mu / 2) - 1e-9 <= promise.accuracy < norm.cdf(mu / 2) + 0.002


def test_the_analyst_is_held_to_replacing_a_person():
    event = GaussianRelease(
        "a sum", (("bank", Fraction(1)),), 1, l1=1, l2_squared=1, replace_l1=2, replace_l2_squared=4
    )
    statement = Statement.of((event,), TRUST, 1e-5)
    assert statement.trust.adjacency(Observer.analyst()) is Adjacency.ADD_REMOVE
    promise = Promise.of(statement)
    assert promise is not None
    assert promise.accuracy == pytest.approx(norm.cdf(1.0), abs=0.002)  # two deviations, and not one


def test_where_nothing_is_proven_there_is_no_promise():
    statement = Statement.of((told(1.0), NonPrivate("not protected", name="embeddings")), TRUST, 1e-5)
    assert Promise.of(statement) is None
    with pytest.raises(PrivacyError):
        Promise.of(statement, "nobody")


@pytest.mark.parametrize("classes", [2, 10])
def test_randomised_response_gives_away_what_the_bound_says(classes):
    epsilon = 1.5
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert label_accuracy(np.full(classes, 1 / classes), epsilon) == pytest.approx(kept)
    assert label_accuracy([[1.0, 0.0], [0.5, 0.5]], 0.0) == pytest.approx(0.75)
    assert label_accuracy([0.5, 0.5], 1e6) == 1.0
