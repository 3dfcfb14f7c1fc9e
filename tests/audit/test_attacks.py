"""Who was among the people? The likelihood-ratio attack, on numbers and on models."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import sklearn.linear_model
from scipy.special import softmax
from scipy.stats import beta, norm

from colonnade import GLM, PCA, LinearRegression, LogisticRegression
from colonnade.audit.attacks import (
    Promise,
    Rates,
    Returned,
    Shadows,
    confidence,
    drawn,
    infer_labels,
    infer_membership,
    label_accuracy,
    likelihood_ratios,
    promised,
    shadow_models,
    shadows_of,
)
from colonnade.audit.attacks.labels import matched
from colonnade.audit.attacks.odds import log_odds, nearness
from colonnade.audit.attacks.rates import clopper_pearson, curve
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.models.federation import Roster
from colonnade.models.newcomers import same_people
from colonnade.privacy import Statement, Trust
from colonnade.privacy.observers import Adjacency, Observer
from colonnade.privacy.releases import GaussianRelease, NonPrivate
from colonnade.report.attacks import render_attack
from colonnade.tables import Schema
from tests.support.errors import refused
from tests.support.pages import Page


def schema(names, label=""):
    columns = "".join(f'[columns.{name}]\ntype = "number"\nlow = -3\nhigh = 3\n' for name in names)
    return Schema.from_toml(columns + label)


def people(rows, width=16, label='[columns.ill]\ntype = "flag"\n'):
    """Columns that say nothing about the label, so that a model can only remember."""
    draw = np.random.default_rng(5)
    columns = {f"c{k}": draw.normal(size=rows).clip(-3, 3) for k in range(width)}
    half = list(columns)[: width // 2]
    rest = list(columns)[width // 2 :]
    ill = draw.random(rows) < 0.5 if "flag" in label else draw.normal(size=rows).clip(-3, 3)
    given = {
        "bank": pa.table({name: columns[name] for name in half}),
        "shop": pa.table({name: columns[name] for name in rest} | {"ill": ill}),
    }
    schemas = {"bank": schema(half), "shop": schema(rest, label)}
    return same_people(given, schemas, None, "a test", same_order=True), Roster.of(schemas)


def first(pool, rows):
    return {party: table.take_rows(np.arange(rows)) for party, table in pool.items()}


# --- numbers


def test_everybody_is_inside_half_of_the_models_and_partners_share_nobody():
    inside = drawn(40, 20, 10, np.random.default_rng(1))
    assert (inside.sum(axis=1) == 20).all()
    assert (inside.sum(axis=0) == 5).all()
    assert not (inside[0::2] & inside[1::2]).any()
    uneven = drawn(30, 20, 12, np.random.default_rng(1))
    assert set(uneven.sum(axis=0)) == {8}
    refused(DataError, "DA021", drawn, 20, 20, 4, np.random.default_rng(1))


def test_the_ratio_is_that_of_two_normal_laws():
    draw = np.random.default_rng(2)
    inside = drawn(30, 15, 200, draw)
    seen = draw.normal(size=inside.shape) * np.where(inside, 0.5, 1.0) + np.where(inside, 1.0, 0.0)
    shadows = Shadows(seen, inside)
    target = draw.normal(size=30)
    found = likelihood_ratios(target, shadows)
    for person in (0, 17):
        a, b = seen[inside[:, person], person], seen[~inside[:, person], person]
        log = [-((target[person] - s.mean()) ** 2) / (2 * s.var(ddof=1)) - np.log(s.std(ddof=1)) for s in (a, b)]
        assert found[person] == pytest.approx(log[0] - log[1])
        away = likelihood_ratios(target, shadows, offline=True)[person]
        assert away == pytest.approx((target[person] - b.mean()) / b.std(ddof=1))


def test_several_numbers_of_a_person_add_up():
    draw = np.random.default_rng(3)
    inside = drawn(20, 10, 100, draw)
    seen = draw.normal(size=(*inside.shape, 2)) + inside[..., None]
    target = draw.normal(size=(20, 2))
    each = [likelihood_ratios(target[:, k], Shadows(seen[..., k], inside)) for k in (0, 1)]
    assert likelihood_ratios(target, Shadows(seen, inside)) == pytest.approx(each[0] + each[1])
    refused(DataError, "DA014", likelihood_ratios, target, Shadows(seen, inside), offline=True)


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("size", [100, 120], ids=["half", "more than half"])
def test_models_that_know_nothing_of_anybody_are_not_refuted(offline, size):
    draw = np.random.default_rng(4)
    inside = drawn(200, size, 20, draw)
    people = draw.normal(size=200) * 3  # people differ, whoever is inside
    found = infer_membership(Shadows(draw.normal(size=inside.shape) + people, inside), offline=offline)
    assert found.one is None
    assert abs(found.alike.accuracy - 0.5) < 0.03
    assert abs(found.alike.auc - 0.5) < 0.03


def test_models_that_remember_are_caught_with_hardly_a_false_alarm():
    draw = np.random.default_rng(5)
    inside = drawn(200, 100, 64, draw)
    people = draw.normal(size=200) * 3
    seen = draw.normal(size=inside.shape) + people + 4 * inside
    target, member = seen[0], inside[0]
    found = infer_membership(Shadows(seen[2:], inside[2:]), target, member)
    assert found.one.accuracy > 0.95
    assert found.alike.accuracy > 0.95
    assert found.alike.hits > 0.5
    assert found.to_dict()["needed"].startswith("the attacker needed")


def test_an_attack_needs_models_and_people():
    inside = drawn(20, 10, 8, np.random.default_rng(1))
    seen = np.zeros(inside.shape)
    refused(DataError, "DA011", infer_membership, Shadows(seen[:6], inside[:6]))
    refused(DataError, "DA012", infer_membership, Shadows(seen, np.zeros_like(inside)))
    refused(DataError, "DA009", Shadows, seen[0], inside[0])
    refused(DataError, "DA010", Shadows, seen * np.nan, inside)
    refused(DataError, "DA013", likelihood_ratios, np.zeros(3), Shadows(seen, inside))


@pytest.mark.parametrize(
    ("size", "said", "alone"),
    [(100, "24 models that it fitted in the same way, half of which", 12), (150, "75 % of which", 6), (66, "33 %", 16)],
)
def test_the_sentence_says_how_many_models_knew_the_person(size, said, alone):
    inside = drawn(200, size, 24, np.random.default_rng(1))
    shadows = Shadows(np.random.default_rng(2).normal(size=inside.shape), inside)
    found = infer_membership(shadows)
    assert f"{said} " in found.needed
    assert found.to_dict()["inside"] == inside.mean()
    assert (
        f"and {alone} models that it fitted in the same way without" in infer_membership(shadows, offline=True).needed
    )


@pytest.mark.parametrize(("size", "least"), [(10, 8), (15, 12), (3, 20), (17, 20)])
def test_too_few_models_are_known_before_one_is_fitted(size, least):
    draw, fitted = np.random.default_rng(1), []

    def fit(places):
        fitted.append(places)
        return np.zeros(20)

    assert len(shadow_models(fit, drawn(20, size, least, draw))) == len(fitted) == least
    fitted.clear()
    refused(DataError, "DA011|DA012", least, shadow_models, fit, drawn(20, size, least - 2, draw))
    assert not fitted


# --- models


def test_the_log_odds_of_the_true_class():
    scores = np.array([[2.0], [-1.0]])
    assert log_odds(scores, np.array([[1.0], [0.0]])) == pytest.approx([2.0, 1.0])
    several = np.log([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    labels = np.eye(3)[[0, 1]]
    assert log_odds(several, labels) == pytest.approx(np.log([0.7 / 0.3, 0.3 / 0.7]))


def test_nearness_is_the_log_odds_by_distance_from_class_means():
    draw = np.random.default_rng(6)
    true = draw.integers(0, 3, 90)
    numbers = draw.normal(size=(90, 2)) + np.array([[0, 0], [4, 0], [0, 4]])[true]
    means = np.array([numbers[true == k].mean(axis=0) for k in range(3)])
    spread = np.mean((numbers - means[true]) ** 2)
    chances = np.exp(-((numbers[0] - means) ** 2).sum(axis=1) / (2 * spread))
    odds = chances[true[0]] / (chances.sum() - chances[true[0]])
    assert nearness(numbers, np.eye(3)[true])[0] == pytest.approx(np.log(odds))
    flags = (true > 0).astype(float)[:, None]
    assert np.mean(nearness(numbers, flags) > 0) > 0.6


def test_shadow_models_are_asked_in_turn():
    inside = drawn(12, 6, 8, np.random.default_rng(1))
    steps = []
    found = shadow_models(
        lambda places: np.bincount(places, minlength=12) * 1.0, inside, lambda *step: steps.append(step)
    )
    assert (found.seen == inside).all()
    assert steps[-1] == ("shadows", 8, 8)


def test_a_model_without_noise_that_remembers_gives_members_away():
    pool, _ = people(160, width=40)
    columns = np.hstack([pool["bank"].matrix(), pool["shop"].without(["ill"]).matrix()])
    ill = pool["shop"].column("ill")

    def fit(places):
        model = sklearn.linear_model.LogisticRegression(C=100.0, max_iter=200).fit(columns[places], ill[places, 0])
        return log_odds(model.decision_function(columns)[:, None], ill)

    found = infer_membership(shadow_models(fit, drawn(160, 80, 64, np.random.default_rng(1))))
    assert found.alike.accuracy_interval[0] > 0.65
    assert found.alike.hits_interval[0] > 0.003  # three times as many as false alarms


def test_a_private_model_keeps_its_promise_and_one_with_little_noise_gives_more_away(stream):
    pool, roster = people(72, width=8)
    member, found = np.arange(72) < 36, {}
    for epsilon in (1.0, 60.0):
        model = LogisticRegression(epsilon=epsilon, label="shop.ill", method="one-shot")
        model.simulate(first(pool, 36), roster, stream)
        shadows = shadows_of(model, pool, 36, 96, seed=1, stream=stream)
        found[epsilon] = infer_membership(shadows, confidence(model, pool), member, promise=Promise.of(model.privacy_))
    private, careless = found[1.0], found[60.0]
    assert private.promise.accuracy < 0.6
    assert private.alike.accuracy_interval[0] < private.promise.accuracy
    assert private.alike.hits_interval[0] < float(private.promise.hits(private.alike.rare))
    assert careless.alike.auc > private.alike.auc  # 0.56 and 0.50 on average, with a deviation of 0.012 between them
    assert careless.alike.auc_interval[0] > 0.5
    assert (private.one.members, private.one.others) == (36, 36)


def test_of_a_regression_the_distance_to_the_label_is_seen(stream):
    pool, roster = people(40, width=4, label='[columns.ill]\ntype = "number"\nlow = -3\nhigh = 3\n')
    model = LinearRegression(epsilon=10.0, label="shop.ill").simulate(first(pool, 20), roster, stream)
    assert confidence(model, pool) == pytest.approx(-abs(model.scores(pool) - model.label_of(pool))[:, 0])
    assert shadows_of(model, pool, 20, 8, seed=1, stream=stream).seen.shape == (8, 40)


@pytest.mark.parametrize("release", [True, False])
def test_only_released_weights_are_covered_by_a_promise(stream, release):
    pool, roster = people(40, width=4)
    model = GLM(label="shop.ill", epsilon=3.0, release=release).simulate(first(pool, 20), roster, stream)
    found = infer_membership(shadows_of(model, pool, 20, 8, seed=1, stream=stream), promise=promised(model))
    assert (found.promise is not None) == release
    assert found.alike.members == 160


def test_a_model_that_says_nothing_about_a_person_is_refused(stream):
    pool, roster = people(20, width=4)
    model = PCA(n_components=2, epsilon=1.0).simulate(first(pool, 10), roster, stream)
    refused(StudyError, "ST003", shadows_of, model, pool, 10, 8, seed=1)


# --- labels from returned slopes


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
    refused(DataError, "DA005", Returned, found[1:], labels, np.arange(3), 2)
    refused(DataError, "DA007", Returned, found, labels, np.arange(20), 2)
    refused(DataError, "DA008", Returned, found, labels + 1, np.arange(3), 2)
    refused(DataError, "DA006", Returned, found * np.nan, labels, np.arange(3), 2)


# --- what scores of an attack are worth, and what a promise leaves to any attack


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
