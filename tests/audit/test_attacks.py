"""Who was among the people, which labels have they, and can columns be recovered? Attacks on numbers and models."""

from __future__ import annotations

import json
import math
import stat
import sys
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy.special import softmax
from scipy.stats import beta, norm

from colonnade import GLM, PCA, LinearRegression, LogisticRegression
from colonnade.audit.attacks import (
    InversionData,
    Promise,
    Rates,
    ReturnedGradients,
    ShadowModels,
    confidence,
    draw_members,
    fit_shadows,
    infer_labels,
    infer_membership,
    invert,
    label_accuracy,
    likelihood_ratios,
    psnr,
    read_promise,
    shadow_models,
    ssim,
)
from colonnade.audit.attacks.inversion import as_pictures, recognised
from colonnade.audit.attacks.membership import clopper_pearson, curve, log_odds, match_clusters, nearness
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.models.base import match_people
from colonnade.models.federation import Roster
from colonnade.privacy import Adjacency, NonPrivate, Observer, Statement, Trust
from colonnade.privacy.noise_laws import DiscreteGaussianRelease
from colonnade.report.audit_pages import render_attack
from colonnade.tables import Schema
from tests.support.errors import refused
from tests.support.pages import Page

ILL = '[columns.ill]\ntype = "flag"\n'


def schema(names, label="", low=-3):
    columns = "".join(f'[columns.{name}]\ntype = "number"\nlow = {low}\nhigh = 3\n' for name in names)
    return Schema.from_toml(columns + label)


def people(rows, width=16, label=ILL):
    """Columns that say nothing about the label, so that a model can only remember."""
    draw = np.random.default_rng(5)
    columns = {f"c{k}": draw.normal(size=rows).clip(-3, 3) for k in range(width)}
    ill = draw.random(rows) < 0.5 if label == ILL else draw.normal(size=rows).clip(-3, 3)
    half, rest = list(columns)[: width // 2], list(columns)[width // 2 :]
    given = {
        "bank": pa.table({name: columns[name] for name in half}),
        "shop": pa.table({name: columns[name] for name in rest} | {"ill": ill}),
    }
    schemas = {"bank": schema(half), "shop": schema(rest, label)}
    return match_people(given, schemas, None, "a test", same_order=True), Roster.of(schemas)


def first(pool, rows):
    return {party: table.take_rows(np.arange(rows)) for party, table in pool.items()}


# --- numbers


def test_everybody_is_inside_half_of_the_models_and_partners_share_nobody():
    inside, uneven = (
        draw_members(people, 20, models, np.random.default_rng(1)) for people, models in ((40, 10), (30, 12))
    )
    assert (set(inside.sum(axis=1)), set(inside.sum(axis=0)), set(uneven.sum(axis=0))) == ({20}, {5}, {8})
    assert not (inside[0::2] & inside[1::2]).any()
    refused(DataError, "DA021", draw_members, 20, 20, 4, np.random.default_rng(1))


def test_the_ratio_is_that_of_two_normal_laws_and_several_numbers_of_a_person_add_up():
    draw = np.random.default_rng(2)
    inside = draw_members(30, 15, 200, draw)
    shadows = ShadowModels(draw.normal(size=inside.shape) * np.where(inside, 0.5, 1.0) + inside, inside)
    target = draw.normal(size=30)
    found, away = (likelihood_ratios(target, shadows, offline=offline) for offline in (False, True))
    for person in (0, 17):
        a, b = (shadows.seen[where, person] for where in (inside[:, person], ~inside[:, person]))
        log = [-((target[person] - s.mean()) ** 2) / (2 * s.var(ddof=1)) - np.log(s.std(ddof=1)) for s in (a, b)]
        assert found[person] == pytest.approx(log[0] - log[1])
        assert away[person] == pytest.approx((target[person] - b.mean()) / b.std(ddof=1))
    twice = ShadowModels(np.stack([shadows.seen] * 2, axis=2), inside)
    assert likelihood_ratios(np.stack([target] * 2, axis=1), twice) == pytest.approx(2 * found)
    refused(DataError, "DA014", likelihood_ratios, np.stack([target] * 2, axis=1), twice, offline=True)


@pytest.mark.parametrize(("offline", "size"), [(False, 100), (True, 120)])
def test_models_that_know_nothing_of_anybody_are_not_refuted(offline, size):
    draw = np.random.default_rng(4)
    inside = draw_members(200, size, 20, draw)
    people = draw.normal(size=200) * 3  # people differ, whoever is inside
    found = infer_membership(ShadowModels(draw.normal(size=inside.shape) + people, inside), offline=offline)
    assert found.one is None
    assert (found.alike.accuracy, found.alike.auc) == pytest.approx((0.5, 0.5), abs=0.03)
    assert ("8 models that it fitted in the same way without" if offline else "half of which ") in found.needed


def test_models_that_remember_are_caught_with_hardly_a_false_alarm():
    draw = np.random.default_rng(5)
    inside = draw_members(200, 100, 64, draw)
    seen = draw.normal(size=inside.shape) + draw.normal(size=200) * 3 + 4 * inside
    found = infer_membership(ShadowModels(seen[2:], inside[2:]), seen[0], inside[0])
    assert min(found.one.accuracy, found.alike.accuracy) > 0.95
    assert found.alike.hits > 0.5
    assert (found.to_dict()["needed"], found.to_dict()["inside"]) == (found.needed, 0.5)


def test_what_cannot_be_attacked_or_judged_is_refused():
    inside, labels = draw_members(20, 10, 8, np.random.default_rng(1)), np.array([0, 1] * 10)
    seen, found = np.zeros(inside.shape), slopes(labels, 2, 6)
    for code, call, *words in (
        ("DA011", infer_membership, ShadowModels(seen[:6], inside[:6])),
        ("DA012", infer_membership, ShadowModels(seen, np.zeros_like(inside))),
        ("DA009", ShadowModels, seen[0], inside[0]),
        ("DA010", ShadowModels, seen * np.nan, inside),
        ("DA013", likelihood_ratios, np.zeros(3), ShadowModels(seen, inside)),
        ("DA005", ReturnedGradients, found[1:], labels, np.arange(3), 2),
        ("DA007", ReturnedGradients, found, labels, np.arange(20), 2),
        ("DA008", ReturnedGradients, found, labels + 1, np.arange(3), 2),
        ("DA006", ReturnedGradients, found * np.nan, labels, np.arange(3), 2),
        ("DA*", Rates.of, np.zeros(3), np.zeros(10)),
        ("DA*", Rates.of, np.array([0.0, 1, 2, np.nan]), np.zeros(10)),
    ):
        refused(DataError, code, call, *words)


@pytest.mark.parametrize(("size", "least"), [(10, 8), (15, 12), (3, 20), (17, 20)])
def test_shadow_models_are_asked_in_turn_and_too_few_are_known_before_one_is_fitted(size, least):
    draw, fitted, steps = np.random.default_rng(1), [], []

    def fit(places):
        fitted.append(places)
        return np.bincount(places, minlength=20) * 1.0

    refused(DataError, "DA011|DA012", least, shadow_models, fit, draw_members(20, size, least - 2, draw))
    assert not fitted
    inside = draw_members(20, size, least, draw)
    found = shadow_models(fit, inside, lambda *step: steps.append(step))
    assert (found.seen == inside).all()
    assert (len(found), len(fitted), steps[-1]) == (least, least, ("shadows", least, least))


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
    assert np.mean(nearness(numbers, (true > 0).astype(float)[:, None]) > 0) > 0.6


def test_a_private_model_keeps_its_promise_and_one_with_little_noise_gives_more_away(stream):
    pool, roster = people(72, width=8)
    found = []
    for epsilon in (1.0, 60.0):
        model = LogisticRegression(epsilon=epsilon, label="shop.ill", method="one-shot")
        model.simulate(first(pool, 36), roster, stream)
        shadows = fit_shadows(model, pool, 36, 96, seed=1, stream=stream)
        seen = confidence(model, pool), np.arange(72) < 36
        found.append(infer_membership(shadows, *seen, promise=Promise.of(model.privacy_)))
    private, careless = found
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
    assert fit_shadows(model, pool, 20, 8, seed=1, stream=stream).seen.shape == (8, 40)


def test_only_released_weights_are_covered_by_a_promise_and_what_says_nothing_of_a_person_is_refused(stream):
    pool, roster = people(40, width=4)
    for release in (True, False):
        model = GLM(label="shop.ill", epsilon=3.0, release=release).simulate(first(pool, 20), roster, stream)
        found = infer_membership(fit_shadows(model, pool, 20, 8, seed=1, stream=stream), promise=read_promise(model))
        assert (found.promise is not None, found.alike.members) == (release, 160)
    silent = PCA(n_components=2, epsilon=1.0).simulate(first(pool, 20), roster, stream)
    refused(StudyError, "ST003", fit_shadows, silent, pool, 20, 8, seed=1)


# --- labels from returned slopes


WIDTH = 12


def slopes(labels, classes, seed, rounds=1):
    """What a softmax head returns whose predictions know nothing of the labels."""
    draw = np.random.default_rng(seed)
    weights = draw.normal(size=(rounds, classes, WIDTH))
    chances = softmax(draw.normal(size=(rounds, len(labels), classes)) * 0.3, axis=2)
    found = (chances - np.eye(classes)[labels]) @ weights
    return found[0] if rounds == 1 else found


@pytest.mark.parametrize(("classes", "rounds"), [(2, 1), (4, 1), (10, 3)])
def test_slopes_of_true_labels_give_nearly_all_of_them_away(classes, rounds):
    labels = np.random.default_rng(1).integers(0, classes, 600)
    found = infer_labels(ReturnedGradients(slopes(labels, classes, 2, rounds), labels, np.arange(60), classes))
    assert found.accuracy > 0.95
    assert found.base_rate < 0.6
    assert (found.most, found.rounds) == (None, rounds)
    assert "labels of 60 people" in found.needed


@pytest.mark.parametrize("classes", [2, 5])
def test_randomised_labels_stay_below_the_bound(classes):
    draw = np.random.default_rng(3)
    labels, epsilon = draw.integers(0, classes, 3000), 1.0
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    shift = draw.integers(1, classes, len(labels))
    told = np.where(draw.random(len(labels)) < kept, labels, (labels + shift) % classes)
    found = infer_labels(ReturnedGradients(slopes(told, classes, 4), labels, np.arange(200), classes, epsilon))
    assert found.accuracy < found.most + 0.05  # five deviations of 2,800 guesses
    assert found.accuracy > found.base_rate + 0.05
    assert "to who knows nothing else of a person" in Page(render_attack("runs", found)).words


def test_known_people_of_one_class_leave_the_groups_alone():
    labels = np.array([0, 1] * 50)
    found = infer_labels(ReturnedGradients(slopes(labels, 2, 5), labels, np.arange(0, 20, 2), 2))
    assert found.learned is None
    assert found.accuracy == found.clusters > 0.9
    groups, named = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 1, 1])
    assert (match_clusters(groups, named, np.array([0, 2, 4]), 3) == named).all(), "named by those who are known"


# --- what scores of an attack are worth, and what a promise leaves to any attack


TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)


def test_an_interval_holds_what_it_says():
    assert (clopper_pearson(0, 10)[0], clopper_pearson(10, 10)[1]) == (0, 1)
    assert clopper_pearson(3, 20) == pytest.approx((beta.ppf(0.025, 3, 18), beta.ppf(0.975, 4, 17)))


def test_a_curve_only_rises_and_goes_from_corner_to_corner():
    draw = np.random.default_rng(1)
    members, others = draw.integers(0, 9, 200).astype(float), draw.integers(0, 7, 300).astype(float)
    alarms, hits = curve(members, others)
    assert (alarms[0], hits[0], alarms[-1], hits[-1]) == (0, 0, 1, 1)
    assert min(np.diff(alarms).min(), np.diff(hits).min()) >= 0
    points = [(np.mean(others >= cut), np.mean(members >= cut)) for cut in range(9)]  # each point is a threshold
    assert all(np.isclose(points, pair).all(axis=1).any() for pair in zip(alarms[1:], hits[1:], strict=True))


def test_scores_that_tell_everything_and_nothing():
    noise, few = np.random.default_rng(2).normal(size=2000), np.arange(10.0)
    perfect, nothing, constant, short = (
        Rates.of(members, others)
        for members, others in (
            (noise[:1000] + 100, noise[1000:]), (noise[:1000], noise[1000:]),
            (np.zeros(50), np.zeros(60)), (few, few - 2.5),
        )
    )  # fmt: skip
    assert (perfect.auc, perfect.accuracy, perfect.hits) == (1, 1, 1)
    assert (constant.auc, constant.accuracy, constant.hits) == (0.5, 0.5, 0)
    assert (short.false_alarms, short.hits) == (0, pytest.approx(0.3))  # 7, 8 and 9 are above 6.5
    for low, high in (nothing.auc_interval, nothing.accuracy_interval):
        assert low < 0.5 < high
    assert (nothing.false_alarms, nothing.hits < 0.02, len(nothing.roc) <= 402) == (1, True, True)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_one_epsilon_bounds_accuracy_and_hits(epsilon):
    promise, odds = Promise("anybody", (epsilon,), (0.0,)), math.exp(epsilon)
    assert promise.accuracy == pytest.approx(odds / (1 + odds))
    assert float(promise.hits(0.01)) <= odds * 0.01 + 1e-12
    assert float(promise.hits(0.5)) == pytest.approx(min(0.5 * odds, 1 - 0.5 / odds))


_UNIT = 10**12  # of a grid on which whole-number noise is as good as continuous


@pytest.mark.parametrize("mu", [0.25, 1.0, 2.0])
def test_a_whole_curve_is_the_best_attack_on_gaussian_noise_and_hardly_more(mu):
    """Somebody's number in [-1/2, 1/2], told with noise at which replacing it is worth ``mu`` deviations."""
    noise = Fraction(1 / mu**2).limit_denominator(10**9)
    told = DiscreteGaussianRelease("a number", (("bank", noise * _UNIT**2),), 1, *[_UNIT, _UNIT**2] * 2)
    promise = Promise.of(Statement.of((told,), TRUST, 1e-5))
    alarms = np.geomspace(1e-3, 0.999, 60)
    more = promise.hits(alarms) - norm.cdf(norm.ppf(alarms) + mu)
    assert -1e-9 <= more.min() <= more.max() < 0.01
    assert norm.cdf(mu / 2) - 1e-9 <= promise.accuracy < norm.cdf(mu / 2) + 0.002


def test_the_analyst_is_held_to_replacing_a_person_and_where_nothing_is_proven_there_is_no_promise():
    noise = (("bank", Fraction(_UNIT**2)),)
    event = DiscreteGaussianRelease("a sum", noise, 1, _UNIT, _UNIT**2, 2 * _UNIT, 4 * _UNIT**2)
    statement = Statement.of((event,), TRUST, 1e-5)
    assert statement.trust.adjacency(Observer.analyst()) is Adjacency.ADD_REMOVE
    assert Promise.of(statement).accuracy == pytest.approx(norm.cdf(1.0), abs=0.002)  # two deviations, and not one
    assert Promise.of(Statement.of((event, NonPrivate("not protected")), TRUST, 1e-5)) is None
    refused(PrivacyError, "PR102", Promise.of, statement, "nobody")


@pytest.mark.parametrize("classes", [2, 10])
def test_randomised_response_gives_away_what_the_bound_says(classes):
    epsilon = 1.5
    kept = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert label_accuracy(np.full(classes, 1 / classes), epsilon) == pytest.approx(kept)
    assert label_accuracy([[1.0, 0.0], [0.5, 0.5]], 0.0) == pytest.approx(0.75)
    assert label_accuracy([0.5, 0.5], 1e6) == 1.0


# --- can columns be recovered from what is seen?


SHAPE = (8, 6)


def pictures(count, seed):
    """Bright bars on dark ground: two numbers a picture."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    middle, slope = draw.uniform(0, 6, (count, 1, 1)), draw.uniform(-1, 1, (count, 1, 1))
    return np.exp(-((columns - middle - slope * (rows - 4)) ** 2)).reshape(count, -1)


@cache
def views(noise, width=32):
    draw = np.random.default_rng(7)
    weights = draw.normal(size=(SHAPE[0] * SHAPE[1], width))
    known, asked = pictures(400, 1), pictures(60, 2)
    seen = [np.tanh(each @ weights / 4) for each in (known, asked)]
    seen = [each + noise * draw.normal(size=each.shape) for each in seen]
    return InversionData(seen[0], known, seen[1], asked, "noised embeddings")


def test_least_squares_recovers_what_is_not_protected_and_nothing_under_much_noise():
    clear, hidden = (invert(views(noise), "ridge", shape=SHAPE) for noise in (0.0, 20.0))
    assert clear.found.psnr > clear.blind.psnr + 6
    assert clear.found.ssim > 0.8 > 0.3 > clear.blind.ssim
    assert clear.found.explained > 0.8 > 0.05 > hidden.found.explained
    assert clear.found.recognised > 0.9 > 0.15 > hidden.found.recognised
    assert abs(hidden.found.psnr - hidden.blind.psnr) < 0.5
    assert clear.blind == hidden.blind
    assert clear.blind.recognised == pytest.approx(1 / 60, abs=0.05)
    page = Page(render_attack("runs", clear))
    assert len(page.all("svg")) == 2
    assert len([each for each in page.all("rect") if each.get("fill")]) > 500, "true and recovered pictures"
    assert "The attacker needed the noised embeddings" in page.words


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_networks_recover_columns_too(kind):
    pytest.importorskip("torch")
    found = invert(views(0.0), kind, shape=SHAPE, epochs=20, width=48).found
    assert min(found.explained, found.recognised) > 0.4


def test_pictures_with_channels_come_back_in_the_order_of_their_columns():
    pytest.importorskip("torch")
    draw = np.random.default_rng(8)
    shape = (5, 7, 3)
    colours = draw.random((300, 3))  # each picture is of one colour, brighter to the right
    rows = (colours[:, None, None, :] * np.linspace(0.2, 1, 7)[:, None]).repeat(5, axis=1).reshape(300, -1)
    found = invert(
        InversionData(colours[:250], rows[:250], colours[250:], rows[250:]), "cnn", shape=shape, epochs=25, width=32
    )
    assert found.found.explained > 0.4  # of mixed channels it would be nothing


def test_the_best_decoder_is_chosen_on_people_held_out_and_without_torch_least_squares_is_left(monkeypatch):
    ridge, best, again = (invert(views(0.05), kind, epochs=3, width=16) for kind in ("ridge", "auto", "auto"))
    assert best.found.psnr >= ridge.found.psnr - 0.5
    assert (again.guesses == best.guesses).all()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert (invert(views(0.05), "auto").guesses == ridge.guesses).all()
    refused(StudyError, "ST329", invert, views(0.05), "mlp")


def test_recognising_counts_ties_by_their_share():
    truth = np.eye(4)
    assert [recognised(truth, guess) for guess in (truth, 0 * truth, truth[::-1])] == [1.0, 0.25, 0.0]


def test_what_does_not_belong_together_or_is_no_picture_is_refused():
    some = views(0.0)
    seen, known, other, truth = some.auxiliary_seen, some.auxiliary, some.seen, some.truth
    for error, said, call, *words in (
        (DataError, "DA001", InversionData, seen, known, other[:, 1:], truth),
        (DataError, "DA002", InversionData, seen[1:], known, other, truth),
        (DataError, "DA003", InversionData, seen[:5], known[:5], other, truth),
        (DataError, "DA004", InversionData, seen * np.inf, known, other, truth),
        (DataError, ["DA016", "9"], partial(invert, shape=(9, 9)), some, "ridge"),
        (StudyError, "ST002", invert, some, "cnn"),
        (StudyError, "ST001", invert, some, "magic"),
        (DataError, ["DA016", "28", "14"], as_pictures, np.zeros((1, 391)), (28, 14)),
        (DataError, "DA017", psnr, np.zeros((1, 4)), np.zeros((1, 5))),
        (DataError, "DA015", ssim, np.zeros((1, 2, 9)), np.zeros((1, 2, 9))),
        (DataError, "DA018", ssim, np.zeros((1, 9)), np.zeros((1, 9))),
    ):
        refused(error, said, call, *words)


# --- how alike two pictures are


def by_hand(first, second, side, span):
    """Structural similarity, window by window."""
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for row in range(first.shape[0] - side + 1):
        for column in range(first.shape[1] - side + 1):
            a, b = (each[row : row + side, column : column + side].ravel() for each in (first, second))
            both = np.cov(a, b)
            found.append(
                (2 * a.mean() * b.mean() + c1)
                * (2 * both[0, 1] + c2)
                / ((a.mean() ** 2 + b.mean() ** 2 + c1) * (both[0, 0] + both[1, 1] + c2))
            )
    return np.mean(found)


@pytest.mark.parametrize(("shape", "side", "span"), [((28, 14), 7, 1.0), ((9, 12), 7, 255.0), ((4, 6), 3, 1.0)])
def test_structural_similarity_is_that_of_every_window(shape, side, span):
    draw = np.random.default_rng(3)
    first = draw.random((3, *shape)) * span
    second = np.clip(first + draw.normal(size=first.shape) * 0.2 * span, 0, span)
    assert ssim(first, second, span) == pytest.approx(
        [by_hand(a, b, side, span) for a, b in zip(first, second, strict=True)]
    )


def test_equal_pictures_channels_and_decibels():
    pictures, black = np.random.default_rng(4).random((2, 16, 32, 3)), np.zeros((2, 8, 8))
    other = pictures[..., ::-1]
    each = [ssim(pictures[..., k], other[..., k]) for k in range(3)]
    assert ssim(pictures, other) == pytest.approx(np.mean(each, axis=0))
    assert (ssim(pictures, pictures)[0], ssim(black, black + 1.0)[0]) == pytest.approx((1.0, 1e-4 / 1.0001))
    for first, second, span, decibels in (
        (other, other, 1.0, 100),
        (black, black + 0.1, 1.0, 20),
        (black, black + 1, 10.0, 20),
    ):
        assert psnr(first, second, span=span) == pytest.approx(decibels)


# --- ``colonnade audit membership | inversion | labels``: what they print, what they leave behind, what they refuse


FEW = ("--shadows", 8)


def table_of(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    cells = {name: np.round(draw.random(rows), 3) for name in ("a", "b", "c")}
    ill = draw.random(rows) < cells["a"]
    return pa.table(
        {"person": [f"{seed}-{k:04d}" for k in range(rows)], **cells, "ill": ["yes" if each else "no" for each in ill]}
    )


@pytest.fixture
def there(tmp_path, monkeypatch, stream):
    """A model, and files of members and others: of both parties side by side, and in different orders."""
    monkeypatch.chdir(tmp_path)
    schemas = {
        "bank": schema("ab", low=0),
        "shop": schema("c", ILL, low=0),
    }
    for group, seed in (("members", 1), ("others", 2)):
        table = table_of(80, seed)
        mixed = table.take(pa.array(np.random.default_rng(3).permutation(80)))
        for file, rows in (
            ("", table), ("-bank", table.select(["person", "a", "b"])), ("-shop", mixed.select(["person", "c", "ill"])),
        ):  # fmt: skip
            pyarrow.csv.write_csv(rows, tmp_path / f"{group}{file}.csv")
    members = match_people(dict.fromkeys(schemas, tmp_path / "members.csv"), schemas, "person", "a test")
    model = LogisticRegression(epsilon=1.0, label="shop.ill", method="one-shot")
    model.simulate(members, Roster.of(schemas), stream).save(tmp_path / "model.json")
    return tmp_path


def test_members_are_attacked_and_the_promise_stands_beside(colonnade, there):
    text = colonnade("audit", "membership", "model.json", *WHOLE, *FEW)
    for said in ("balanced accuracy", "leaves any attack at most", "The attacker needed the model"):
        assert said in text
    page = there / "runs" / "audit" / "membership.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert len(Page(page.read_text(encoding="utf-8")).all("svg")) == 4
    figures = json.loads((there / "runs" / "audit" / "membership.json").read_text(encoding="utf-8"))
    assert (figures["attack"], figures["this_model"]["members"]) == ("membership", 80)
    assert 0.5 < figures["promise"]["accuracy"] < 0.6


def test_files_of_each_party_are_matched_by_ids(colonnade, there):
    files = [f"--{group}={party}={group}-{party}.csv" for group in ("members", "others") for party in ("bank", "shop")]
    apart, whole = (
        colonnade("audit", "membership", "model.json", *given, "--id", "person", "--offline", *FEW, "--json")
        for given in (files, WHOLE)
    )
    assert (apart["members"], apart["others"], apart["offline"]) == (80, 80, True)
    assert apart["this_model"]["members"] == whole["this_model"]["members"]


def test_columns_are_recovered_from_scores(colonnade, there):
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, "--shape", "1x2", "--json", code=DataError.exit_code)
    assert "3 by 3" in facts["message"]
    facts = colonnade("audit", "inversion", "model.json", *given, "--json")
    assert (facts["seen"], facts["people"], facts["auxiliary"]) == ("exact scores", 80, 80)
    assert facts["found"]["explained"] < 1
    assert "not for publication" in colonnade("audit", "inversion", "model.json", *given)
    assert (there / "runs" / "audit" / "inversion.html").exists()


WHOLE = ("--members", "members.csv", "--others", "others.csv")
MEMBERS = ("membership", "model.json", "--others", "others.csv", "--members")
RECOVER = ("inversion", "model.json", "--people", "others.csv", "--auxiliary", "members.csv", "--party")
MISTAKES = [
    (["membership", "none.json", *WHOLE], "none.json", StudyError),
    ([*MEMBERS, "bank=members.csv"], "shop", DataError),
    ([*MEMBERS, "mill=members.csv"], "mill", DataError),
    ([*MEMBERS, "members-bank.csv"], "'c'", DataError),
    ([*MEMBERS, "members.csv", "--kept", "x.npz"], "--kept has no use", StudyError),
    (
        ["membership", "model.json", "--members", "members.csv", "--others", "members.csv", "--id", "person"],
        "80 of the people of --others are among those of --members, too",
        DataError,
    ),
    ([*MEMBERS, "members.csv", "--id", "name"], "no column 'name', which --id names", DataError),
    (
        [*MEMBERS, "bank=members-bank.csv", "--members", "shop=members-shop.csv"],
        "in different orders: say --id person",
        DataError,
    ),
    ([*MEMBERS, "wrong.csv"], "the files of shop", DataError),
    (["labels", "model.json", "--members", "members.csv"], "nobody is told anything", StudyError),
    (["labels", "model.json", "--members", "members.csv", "--known", "80"], "fewer than that", DataError),
    ([*RECOVER, "x"], "no party x", StudyError),
    ([*RECOVER, "bank", "--shape", "2by1"], "--shape", StudyError),
]


def test_mistakes_are_one_sentence(colonnade, there):
    wrong = (there / "members.csv").read_text(encoding="utf-8").replace('"no"', '"perhaps"', 1)
    (there / "wrong.csv").write_text(wrong, encoding="utf-8")
    for words, said, error in MISTAKES:
        text = colonnade("audit", *words, code=error.exit_code)
        assert text.startswith("colonnade: ")
        assert said in text
        assert not any(word in text for word in ("Traceback", "perhaps"))
