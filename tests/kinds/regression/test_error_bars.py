"""Weights and their error bars from published second moments, beside what the same moments without noise give.

Draws are seeded, so nothing here fails by chance.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import Ridge

from colonnade import (
    GLM,
    Estimate,
    LinearRegression,
    LogisticRegression,
    Schema,
    category,
    flag,
    number,
)
from colonnade.errors import StudyError
from colonnade.kinds.glm import fitted as glm_kept, programs as exchange
from colonnade.kinds.glm.programs import ExchangeOutcome
from colonnade.kinds.regression import least_squares as error_bars, report as regression
from colonnade.kinds.regression.least_squares import (
    GradientDescent,
    LearnedWeights,
    MomentReading,
    balance_categories,
    check_ridge,
    fit_weights,
    least_squares_problem,
    operator_norm,
    shift_moments,
    solve,
    steepness,
    steepnesses,
)
from colonnade.models import Roster
from colonnade.models.base import Estimator
from colonnade.models.design import weighted_rows
from colonnade.protocols.moments.programs import OwnMoments, exact_gram, sample_noise_share
from colonnade.protocols.moments.task import NoisyMoments
from colonnade.testing import seeded
from tests.support.errors import raises
from tests.support.federations import federation, numbers

CONSTANT = 0.7
FITS = 30


class Published:
    """Second moments of (x, y, constant), with normal noise of these deviations where there is something to draw by."""

    def __init__(self, x, y, deviations=0.0, rng=None, weight=1.0):
        z = np.hstack([x, weight * y, np.full((len(x), 1), CONSTANT)])
        self.matrix, self.constant = z.T @ z, CONSTANT
        self.deviations = np.full_like(self.matrix, deviations)
        if rng is not None:
            drawn = np.triu(rng.normal(size=self.matrix.shape) * self.deviations)
            self.matrix = self.matrix + drawn + np.triu(drawn, 1).T
        self.names = tuple([f"x{k}" for k in range(x.shape[1])] + [f"y{k}" for k in range(y.shape[1])])


def seeded_noise(x, y, deviation, seed):
    return Published(x, y, deviation, np.random.default_rng(seed))


def columns_of(rows, rng):
    """Three numbers, a rare flag, and a category of five values, one of them rare: their sum is 1 for everybody."""
    numbers = rng.uniform(-1, 1, (rows, 3)) @ np.array([[1, 0, 0], [0.6, 0.4, 0], [0, 0, 0.3]])
    chosen = rng.choice(5, rows, p=[0.4, 0.3, 0.2, 0.09, 0.01])
    return np.hstack([numbers, rng.random((rows, 1)) < 0.05, np.eye(5)[chosen]]).astype(float)


COLUMNS = [(1, False)] * 4 + [(5, True)]


def people(labels, rng, rows=4000):
    x = columns_of(rows, rng)
    weights = rng.normal(size=(x.shape[1], labels)) * 0.3
    return x, np.clip(x @ weights + rng.normal(size=(rows, labels)) * 0.3, -1, 1)


def reading(x, y, middles=0.0, label_middles=0.0, weight=1.0, columns=()):
    names = [f"x{k}" for k in range(x.shape[1])], [f"y{k}" for k in range(y.shape[1])]
    centres = np.full(x.shape[1], middles), np.full(y.shape[1], label_middles)
    return MomentReading(*names, *centres, weight, *([columns] if columns else []))


def least_squares(x, y, ridge=0.0):
    """The shortest solution without noise, and the offsets."""
    centred = x - x.mean(axis=0)
    gram = centred.T @ centred
    weights = (np.linalg.pinv(gram + ridge * np.eye(len(gram)), rcond=1e-10) @ (centred.T @ (y - y.mean(axis=0)))).T
    return weights, y.mean(axis=0) - weights @ x.mean(axis=0)


@pytest.mark.parametrize(("deviation", "ridge"), [(0.5, "auto"), (50.0, "auto"), (50.0, 30.0), (500.0, "auto")])
def test_intervals_cover_least_squares_without_noise(deviation, ridge):
    """From hardly any noise to noise far above every eigenvalue, where the interval is what the label allows."""
    rng = np.random.default_rng(int(10 * deviation))
    held = []
    for _ in range(FITS):
        x, y = people(2, rng, 1500)
        found = error_bars.sample_weights(Published(x, y, deviation, rng), reading(x, y, columns=COLUMNS), ridge)
        true, offsets = least_squares(x, y, 0.0 if ridge == "auto" else ridge)
        for drawn, value in ((found.weights, true), (found.offsets, offsets)):
            bars = error_bars.error_bars_of(drawn.mean(axis=0), drawn)
            assert np.isfinite([bars.deviations, bars.low, bars.high]).all()
            held.append(((bars.low <= value) & (value <= bars.high)).ravel())
    assert 0.9 <= np.concatenate(held).mean() <= 0.999


def test_little_noise_gives_the_delta_method():
    """The deviations are those of A^-1 (e - E w), and draws have no ridge in them."""
    rng = np.random.default_rng(3)
    x, y = people(1, rng, 6000)
    x = x[:, :4]
    draws = error_bars.sample_weights(Published(x, y, 2.0, rng), reading(x, y), "auto").weights[:, 0]
    fits = []
    for _ in range(400):
        noisy = Published(x, y, 2.0, rng).matrix
        means, rows = noisy[-1, :-1] / (CONSTANT * noisy[-1, -1] / CONSTANT**2), noisy[-1, -1] / CONSTANT**2
        centred = noisy[:-1, :-1] - rows * np.outer(means, means)
        fits.append(np.linalg.solve(centred[:4, :4], centred[:4, 4]))
    np.testing.assert_allclose(draws.std(axis=0), np.std(fits, axis=0), rtol=0.25)
    np.testing.assert_allclose(draws.mean(axis=0), least_squares(x, y)[0][0], atol=5 * np.std(fits, axis=0).max())


def test_everybody_finds_the_same_error_bars():
    """Draws follow from the published numbers alone, and other numbers have other draws."""
    rng = np.random.default_rng(5)
    x, y = people(1, rng)
    published, found = Published(x, y, 10.0, rng), []
    for moved in (0.0, 0.0, 1e-6):
        published.matrix = published.matrix + moved
        found.append(error_bars.sample_weights(published, reading(x, y, columns=COLUMNS), "auto").weights)
    assert [np.array_equal(found[0], each) for each in found] == [True, True, False]


# --- weights


def small(rows=400, columns=4, labels=1, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, columns)) + 0.2
    weights = rng.normal(size=(columns, labels))
    return x, np.clip(x @ weights / 6 + rng.normal(size=(rows, labels)) / 10, -1, 1)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.floats(0, 50), st.sampled_from([0.0, 0.3]))
def test_without_noise_it_is_scikit_learns_ridge(seed, columns, labels, ridge, middle):
    """Whether or not columns were centred and labels scaled beforehand."""
    x, y = small(200, columns, labels, seed)
    plain = Ridge(alpha=max(ridge, 1e-9)).fit(x, y)
    published = Published(x - middle, y - 2 * middle, weight=1 + 5 * middle)
    found = fit_weights(published, reading(x, y, middle, 2 * middle, 1 + 5 * middle), float(ridge))
    np.testing.assert_allclose(found.weights, plain.coef_.reshape(labels, columns), atol=1e-7)
    np.testing.assert_allclose(found.offsets, np.ravel(plain.intercept_), atol=1e-7)
    np.testing.assert_allclose(found.label_means, y.mean(axis=0), atol=1e-9)
    assert found.rows == pytest.approx(200)


def test_without_an_intercept_it_passes_through_a_given_value():
    x, y = small()
    found = fit_weights(Published(x - 0.3, y - 0.5), reading(x, y, 0.3, 0.5), 0.0, through=0.25)
    best = np.linalg.lstsq(x, y[:, 0] - 0.25, rcond=None)[0]
    np.testing.assert_allclose(found.weights[0], best, atol=1e-8)
    assert found.offsets.tolist() == [0.25]


def test_shifts_carry_their_noise_along():
    """Deviations of shifted moments are those that draws show."""
    x, y = small(50)
    offsets = np.array([0.5, 0.0, -0.5, 0.25, 0.1])
    noisy = [seeded_noise(x, y, 1.0, seed) for seed in range(1200)]
    draws = [shift_moments(each.matrix, each.deviations, CONSTANT, offsets)[0] for each in noisy]
    expected = shift_moments(noisy[0].matrix, noisy[0].deviations, CONSTANT, offsets)[1]
    off = ~np.eye(6, dtype=bool)  # on the diagonal equal pieces of noise add up, which is left out
    np.testing.assert_allclose(np.std(draws, axis=0)[off], expected[off], rtol=0.2)


def test_the_operator_norm_of_noise_is_known_beforehand():
    drawn = np.random.default_rng(3).normal(size=(80, 80)) * 3
    noise = np.triu(drawn) + np.triu(drawn, 1).T
    assert operator_norm(np.full((80, 80), 3.0)) == pytest.approx(np.abs(np.linalg.eigvalsh(noise)).max(), rel=0.2)


def test_negative_eigenvalues_are_clipped_and_counted():
    matrix = np.diag([5.0, -3.0, 2.0, 1.0])
    matrix[0, 2] = matrix[2, 0] = 1.0
    matrix[1, 2] = matrix[2, 1] = 1.0
    given = least_squares_problem(matrix, np.zeros((4, 4)), 1.0, np.array([2]))
    found = solve(given, 0.5)
    assert found.clipped == 1
    np.testing.assert_allclose(found.weights, [[1 / 5.5, 2.0]])
    assert solve(given, 0.0).weights[0, 1] == 0  # nothing is known in that direction, so nothing is said


def test_the_automatic_ridge_is_the_norm_of_the_noise_and_helps():
    x, y = small(300, 12)
    plain = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y[:, 0], rcond=None)[0]
    errors = {}
    for ridge in ("auto", 0.0):
        fits = [fit_weights(seeded_noise(x, y, 20.0, seed), reading(x, y), ridge) for seed in range(20)]
        errors[ridge] = np.mean([np.std(x @ (found.weights[0] - plain[:-1])) for found in fits])
        assert ridge == 0.0 or fits[0].solution.ridge == pytest.approx(40 * math.sqrt(12))
    assert errors["auto"] < 0.5 * errors[0.0]


def test_stretching_undoes_what_the_ridge_shrank():
    x, _ = small(20_000, 3)
    y = x @ np.array([[0.5], [-0.4], [0.3]])
    best = fit_weights(Published(x, y), reading(x, y), 0.0).weights
    fits = [fit_weights(seeded_noise(x, y, 400.0, seed), reading(x, y), "auto") for seed in range(20)]
    with_it = [np.linalg.norm(found.weights - best) for found in fits]
    without = [np.linalg.norm(found.weights / found.solution.stretches[0] - best) for found in fits]
    assert np.mean(with_it) < 0.9 * np.mean(without)
    assert (
        fit_weights(seeded_noise(x, y, 400.0, 0), reading(x, y), 10.0).solution.stretches[0] == 1
    )  # a given ridge is kept to


def test_noise_that_drowns_everything_gives_a_dull_model():
    x, y = small(50)
    for seed in range(20):
        found = fit_weights(seeded_noise(x, y, 1e6, seed), reading(x, y), "auto")
        assert np.abs(found.weights).max() < 2  # which no NaN is
        assert np.abs(found.label_means).max() <= 1


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_steepness_is_that_of_a_logistic_curve(share):
    """Scores that are normal within each class: the slope is that of a logistic regression through the threshold."""
    rng = np.random.default_rng(5)
    labels = rng.random(400_000) < share
    scores = share + 0.35 * (labels - share) + 0.15 * rng.standard_normal(len(labels))
    centred = scores - scores.mean()
    found = steepness(0.5, float(labels.mean()), float(scores.std()), float(np.mean(centred * labels)))
    slope = 1.0
    for _ in range(50):  # Newton's steps of that regression
        chances = 1 / (1 + np.exp(-slope * (scores - 0.5)))
        slope += np.sum((labels - chances) * (scores - 0.5)) / np.sum(chances * (1 - chances) * (scores - 0.5) ** 2)
    assert found == pytest.approx(slope, rel=0.02)


def test_steepnesses_of_draws_are_those_of_each_within_its_limits():
    spreads, agreements = np.array([0.05, 0.2, 0.1, 0.1, 0.0]), np.array([0.003, 0.05, 10.0, -10.0, 0.0])
    one_by_one = [steepness(0.5, 0.3, *map(float, each)) for each in zip(spreads, agreements, strict=True)]
    np.testing.assert_allclose(steepnesses(0.5, 0.3, spreads, agreements), one_by_one)
    assert one_by_one[2:4] == [16.0, 1.0]
    assert all(1.0 <= each <= 16.0 for each in (*one_by_one, steepness(0.5, -0.3, 0.1, 0.01)))


@pytest.mark.parametrize("ridge", [-1, True, math.inf, math.nan, "much", None])
def test_bad_ridges_are_refused(ridge):
    with raises(StudyError, "ST205"):
        check_ridge(ridge)


# --- models


KIND = category(["north", "south", "west"])
LABELS = {"y": number(-6, 6), "yes": flag(), "three": category(["high", "middle", "low"])}


@cache
def prepared(label, rows=3000):
    rng = np.random.default_rng(0)
    a, b, c = rng.uniform(-1, 1, (3, rows))
    kind = rng.choice(["north", "south", "west"], rows, p=[0.6, 0.38, 0.02])
    score = 2 * a - 1.5 * c + (kind == "south")
    labels = {"y": np.clip(score + rng.normal(size=rows) / 2, -6, 6), "yes": score + rng.logistic(size=rows) > 0}
    labels["three"] = np.select([score < -1, score < 1], ["low", "middle"], "high")
    schemas = {"left": Schema({"a": number(-1, 1), "kind": KIND, label: LABELS[label]}), "right": numbers("bc")}
    people = federation({"left": {"a": a, "kind": kind, **labels}, "right": {"b": b, "c": c}}, schemas)
    return people.tables(), Roster.of(schemas)


MODELS = {
    "linear": (LinearRegression, "y", {"method": "one-shot"}),
    "linear, functional": (LinearRegression, "y", {"method": "functional"}),
    "linear, discrete Gaussian, no intercept": (
        LinearRegression,
        "y",
        {"noise": "discrete-gaussian", "intercept": False},
    ),
    "three classes": (LogisticRegression, "three", {"method": "one-shot"}),
    "logistic, no intercept": (LogisticRegression, "yes", {"method": "one-shot", "intercept": False}),
}


def parts(model, tables, task):
    return {
        party: np.vstack(list(weighted_rows(party, tables[party], model.label, task).blocks(task.block_rows)))
        for party in task.owners
    }


def noiseless(model, tables, roster, task):
    """The model that moments without noise or rounding give."""
    rows = list(parts(model, tables, task).values())
    joint = np.hstack([*rows, np.full((len(rows[0]), 1), task.constant / task.gamma)])
    found = NoisyMoments(task, np.zeros(task.width * (task.width + 1) // 2, dtype=np.int64))
    vars(found).update(matrix=joint.T @ joint, deviations=np.zeros((task.width, task.width)))
    return model.conclude(roster, task, found)


def _held(kind, given, tables, roster, fits):
    """Which intervals hold what the model gives without noise, in fits to the same moments: weights, intercepts."""
    model = kind(**given)
    task, held = model.plan(roster), []
    true = noiseless(kind(ridge=1e-6, **given), tables, roster, task)
    stream = seeded(1)
    rows = [OwnMoments(task, party).quantise(part, stream) for party, part in parts(model, tables, task).items()]
    joint = np.hstack([*rows, np.full((len(rows[0]), 1), float(task.constant))])
    exact = exact_gram(joint, task.norm_squared)[np.triu_indices(task.width)] * task.weights
    for _ in range(fits):
        noise = sum(sample_noise_share(task, stream) for _ in task.owners)
        model.conclude(roster, task, NoisyMoments(task, exact + noise))
        weights = (model.coef_low_ <= true.coef_) & (true.coef_ <= model.coef_high_)
        within = (model.intercept_low_ <= true.intercept_ + 1e-9) & (true.intercept_ - 1e-9 <= model.intercept_high_)
        held.append(np.append(weights.ravel(), within))
        assert (model.coef_low_ <= model.coef_).all()
        assert (model.coef_ <= model.coef_high_).all()
    return np.array(held)


@pytest.mark.parametrize("name", MODELS)
def test_fitted_models_cover_what_they_give_without_noise(name):
    """The published coefficients of whole models, with the exact noise, beside a fit that has next to none."""
    kind, label, options = MODELS[name]
    tables, roster = prepared(label)
    budget = {"analyst": 20.0 if options.get("method") == "functional" else 4.0}
    held = _held(kind, {"label": f"left.{label}", "epsilon": budget, **options}, tables, roster, FITS)
    assert 0.9 <= held.mean() <= 0.999


def test_gradients_cover_the_same_rounds_without_noise():
    """Later steps and the ball undo part of the noise; what is left is stated, and is not far from the truth."""
    tables, roster = prepared("yes", rows=200)
    model = LogisticRegression(
        label="left.yes", epsilon=10.0, method="sqm", rows=200, rate=0.2, epochs=6, sampling="disjoint"
    )
    task, held = model.plan(roster), []
    quiet = replace(task, noise=len(task.owners))
    for seed in range(6):
        true = model.simulate(tables, roster, seeded(seed), task=quiet).coef_.copy()
        model.simulate(tables, roster, seeded(seed), task=task)
        held.append((model.coef_low_ <= true) & (true <= model.coef_high_))
        assert np.ptp(model.coef_deviations_) == 0
    assert np.mean(held) >= 0.93
    far = LogisticRegression(label="left.yes", epsilon=3.0, method="sqm", rows=200, rate=0.5, learning_rate=9.0)
    assert far.simulate(tables, roster, seeded(0)).coef_deviations_ is None


@pytest.mark.parametrize("share", [0.4, 100.0])
def test_the_ball_of_weights_keeps_noise_within_bounds(share):
    """Rounds of a flat loss in a ball that is smaller than their noise, one by one, against the replay in steps."""
    task = LogisticRegression(label="left.yes", epsilon=3.0, method="sqm", rows=600, rate=0.1, epochs=3).plan(
        prepared("yes", rows=20)[1]
    )
    free = LearnedWeights(task, np.zeros((1, task.width))).deviation
    task = replace(task, weight_bound=share * free * task.width**0.5)
    rng, found = np.random.default_rng(2), []
    for _ in range(150):
        descent = GradientDescent(task)
        for _ in range(task.rounds):
            descent.step(rng.normal(size=task.entries) * task.noise_std * task.batch * task.divisor)
        found.append(descent.learned.weights)
    claimed = error_bars.weight_deviations(LearnedWeights(task, np.zeros((1, task.width))))
    left = 0.8  # by later steps, of which a flat loss has none
    assert np.std(found) * left == pytest.approx(claimed[0], rel=0.12)
    assert (claimed[0] < 0.9 * left * free) == (share < 1)


@pytest.mark.parametrize("method", ["alternating", "gradient"])
def test_released_weights_cover_those_before_the_noise_of_the_release(method):
    tables, roster = prepared("yes", rows=300)
    model = GLM(label="left.yes", epsilon=20.0, release=True, method=method, epochs=2)
    task, held = model.plan_for_rows(roster, 300), []
    held_by = {party: model._rows(party, tables[party], task) for party in task.owners}
    matrices = {party: centred.centre_features(tables[party]).matrix() for party, (centred, _) in held_by.items()}
    for seed in range(4):
        fits = []
        for share in (0, 1):
            stream = seeded(seed)

            def draw(name, variance, count, share=share, stream=stream):
                noise = exchange.own_noise(name, variance).draw((count,), stream)
                return noise * share if count == task.weights(name) else noise

            fits.append(exchange.reference(matrices, held_by["left"][1], task, draw))
        quiet, noisy = (ExchangeOutcome({}, released) for _, released in fits)
        # A party's weights times the released factor, which has noise of its own.
        factors = {"left": {**noisy.released["left"].factors}}
        same = {name: replace(each, factors=factors.get(name, {})) for name, each in quiet.released.items()}
        model.conclude(roster, task, noisy)
        true, _ = glm_kept.combine_weights(same, model.family_, model.design_)
        held.append((model.coef_low_ <= true) & (true <= model.coef_high_))
    assert np.mean(held) >= 0.88


# --- what people see


@pytest.fixture(scope="module")
def logistic():
    tables, roster = prepared("yes")
    return LogisticRegression(label="left.yes", epsilon=3.0, method="one-shot").simulate(tables, roster, seeded(7))


def test_coefficients_know_their_error_and_the_surest_are_shown_first(logistic):
    found, total = logistic.coefficients(), len(logistic.feature_names_in_)
    age = found["left"]["a"]
    assert isinstance(age, Estimate)
    assert age.low <= age == logistic.coef_[0, 0] <= age.high
    assert logistic.to_json()["error_bars"]["coef_low"] == logistic.coef_low_.tolist()
    clear = [f"{party}.{name}" for party, each in found.items() for name, value in each.items() if value.clear]
    assert "left.kind=west" not in clear  # there are few such people
    line = logistic.summary()[1]
    assert line.startswith("  left.a ")
    assert all(name in line for name in clear)
    assert line.endswith(f"{total - len(clear)} of {total} columns cannot be told from zero")
    assert "cannot be told from zero" in logistic._repr_html_()


def test_error_bars_are_saved_and_may_be_absent(logistic, tmp_path):
    path = logistic.save(tmp_path / "model.json")
    again, content = Estimator.load(path), json.loads(path.read_text())
    for name in LogisticRegression.barred:
        np.testing.assert_array_equal(getattr(again, f"{name}_"), getattr(logistic, f"{name}_"))
        del content["learned"][name]
    path.write_text(json.dumps(content))
    earlier = Estimator.load(path)
    assert earlier.coefficients()["left"]["a"].deviation is earlier.coef_deviations_ is None
    assert not earlier.coefficients()["left"]["a"].clear
    assert "±" not in earlier.summary()[1]
    assert "error_bars" not in earlier.to_json()
    content["learned"]["coef_low"] = logistic.coef_low_.tolist()
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Estimator.load(path)


def test_weights_of_other_columns_are_refused(logistic, tmp_path):
    path = logistic.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    content["learned"]["feature_names_in"].reverse()
    path.write_text(json.dumps(content))
    with raises(StudyError, "ST091"):
        Estimator.load(path)


def test_the_report_draws_error_bars_and_greys_what_is_not_clear(logistic):
    page, total = str(regression.coefficients(logistic, ("left", "right"))), len(logistic.feature_names_in_)
    doubtful = sum(not logistic.estimate(0, place).clear for place in range(total))
    assert page.count('class="error"') == 3 * total * page.count("<svg")
    assert f"{doubtful} of {total} numbers cannot be told from zero." in page
    assert page.count("unclear") == doubtful * page.count("<svg")


def test_what_all_values_of_a_category_share_is_in_the_intercept(logistic):
    """Weights of values add up to 0, and predictions are those of weights that do not."""
    assert logistic.coef_[0, 1:4].sum() == pytest.approx(0.0, abs=1e-12)
    weights, offsets = np.array([[1.0, 2.0, 3.0, 7.0]]), np.array([0.5])
    moved, offset = balance_categories(weights, offsets, [(1, False), (3, True)])
    x = np.array([[0.3, 0, 1, 0], [-0.4, 1, 0, 0]])
    np.testing.assert_allclose(x @ moved.T + offset, x @ weights.T + offsets)
    assert moved[0].tolist() == [1.0, -2.0, -1.0, 3.0]
