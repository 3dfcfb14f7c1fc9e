"""Models of a mixture's columns: densities, derivatives and statistics; inference; made-up rows; starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy import stats

from colonnade.errors import SchemaError, StudyError
from colonnade.kinds.synthesis.mixture.components import (
    BETA_INSET,
    PARAMETER_LIMIT,
    BetaColumn,
    ColumnStatistics,
    GaussianColumn,
    OwnComponents,
    choose_families,
)
from colonnade.kinds.synthesis.mixture.learners import (
    ExpectationLearner,
    FittedMixture,
    MixtureModel,
    ParameterPosterior,
    VariationalLearner,
    parameters_from_moments,
    shrink_to_mean,
    simplex,
)
from colonnade.tables.columns import category, flag, number
from colonnade.tables.encoding import decode
from colonnade.tables.schema import Schema
from colonnade.testing import seeded
from research.reproduce.centralised import Clipping, centralised, expected_sums, noiseless_sums
from tests.support.errors import refused

SCHEMA = Schema(
    {
        "age": number(0, 100),
        "city": category(list("abcde"), missing="none"),
        "income": number(0, 1e5, scale="unit", transform="log1p"),
        "member": flag(),
        "visits": number(0, 10, scale="unit"),
        "sort": category(["x", "y"]),
        "height": number(100, 200),
    }
)
FAMILIES = {"visits": "bins:4", "height": "gaussian:20"}


def encoded(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Rows as the encoder would leave them; some have no city."""
    found = np.zeros((rows, SCHEMA.encoded_width))
    places = {name: place.start for name, place in SCHEMA.encoded_slices.items()}
    found[:, places["age"]] = rng.uniform(-1, 1, rows)
    found[:2, places["age"]] = (-1, 1)[:rows]
    city = rng.integers(0, 6, rows)
    living = np.flatnonzero(city < 5)
    found[living, places["city"] + city[living]] = 1
    found[:, places["income"]] = rng.random(rows)
    found[:, places["member"]] = rng.random(rows) < 0.3
    found[:, places["visits"]] = rng.random(rows)
    found[np.arange(rows), places["sort"] + rng.integers(0, 2, rows)] = 1
    found[:, places["height"]] = rng.uniform(-1, 1, rows)
    return found


OWN = OwnComponents(SCHEMA, FAMILIES)
ALONE = MixtureModel([OWN], 3)
SEEDS = st.integers(0, 2**32 - 1)


# --- densities and derivatives of one owner's columns, against scipy and finite differences


def drawn(seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return encoded(rng, 12), spread * rng.normal(size=(4, OWN.width))


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_log_densities_are_those_of_scipy(seed: int) -> None:
    rows, parameters = drawn(seed, 0.5)  # so that scipy's masses of far cells are not rounded to zero
    by_column = {name: rows[:, place] for name, place in SCHEMA.encoded_slices.items()}
    expected = np.zeros((len(rows), len(parameters)))
    for k, row in enumerate(parameters):
        at = {name: row[place] for name, place in OWN.places.items()}
        for name, share in (("age", (by_column["age"] + 1) / 2), ("income", by_column["income"])):
            inside = BETA_INSET + (1 - 2 * BETA_INSET) * share[:, 0]
            expected[:, k] += stats.beta.logpdf(inside, *np.exp(at[name]))
        for name in ("city", "sort"):
            chances = np.exp(at[name]) / np.exp(at[name]).sum()
            expected[:, k] += by_column[name] @ np.log(chances)
        chances = np.exp(at["visits"]) / np.exp(at["visits"]).sum()
        expected[:, k] += np.log(chances[np.minimum(by_column["visits"][:, 0] * 4, 3).astype(int)])
        expected[:, k] += stats.bernoulli.logpmf(by_column["member"][:, 0], 1 / (1 + np.exp(-at["member"])))
        cell = np.minimum((by_column["height"][:, 0] + 1) / 2 * 20, 19).astype(int)
        ends = np.r_[-np.inf, np.arange(1, 20) / 20, np.inf]
        normal = stats.norm(at["height"][0], np.exp(at["height"][1]))
        masses = np.where(ends[:-1] > at["height"][0], -np.diff(normal.sf(ends)), np.diff(normal.cdf(ends)))
        expected[:, k] += np.log(masses[cell])
    np.testing.assert_allclose(OWN.log_densities(rows, parameters), expected, rtol=1e-6, atol=1e-6)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_norms_and_sums_of_derivatives_need_no_derivatives(seed: int) -> None:
    rows, parameters = drawn(seed)
    weights = np.random.default_rng(seed).random((len(rows), len(parameters)))
    slopes = OWN.derivatives(rows, parameters)
    squares = (slopes**2).sum(axis=2)
    np.testing.assert_allclose(OWN.square_norms(rows, parameters), squares, rtol=1e-8, atol=1e-8 * squares.max())
    expected = np.einsum("nk,nkq->kq", weights, slopes)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(OWN.weighted_sums(rows, weights, parameters), expected, rtol=1e-8, atol=1e-10 * scale)


def test_whether_cells_may_be_missing_follows_from_the_schema_and_not_from_cells() -> None:
    """Otherwise one person's missing cell would change how long its owner takes."""
    sure = Schema({"age": number(0, 100), "member": flag()})
    assert OwnComponents(sure).read(np.zeros((3, 2))).present is None
    for column in (number(0, 100, missing="none"), category(["x", "y"], missing="none"), category(["x", "y"])):
        schema = Schema({"age": number(0, 100), "other": column})
        full, gone = np.zeros((2, 3, schema.encoded_width))
        at = schema.encoded_slices["other"].start
        if column.kind == "category":
            full[:, at] = gone[1:, at] = 1
        else:
            gone[0, at + 1] = 1
        own = OwnComponents(schema)
        np.testing.assert_array_equal(own.read(full).present, np.ones((3, 2)))
        np.testing.assert_array_equal(own.read(gone).present, [[1, 0], [1, 1], [1, 1]])


def test_what_was_read_once_gives_the_same_and_large_parameters_finite_numbers() -> None:
    rows, parameters = drawn(4)
    some = np.array([5, 1, 1])
    kept = OWN.read(rows).take(some)
    for of_rows in (OWN.log_densities, OWN.derivatives):
        np.testing.assert_array_equal(of_rows(kept, parameters), of_rows(rows[some], parameters))
    for size in (1e3, 1e30):
        rows, parameters = drawn(5, size)
        for each in (parameters, np.clip(parameters, -PARAMETER_LIMIT, PARAMETER_LIMIT)):
            assert np.isfinite(OWN.log_densities(rows, each)).all()
        assert np.isfinite(OWN.derivatives(rows, parameters)).all()
    assert OwnComponents(SCHEMA).width == 2 + 5 + 2 + 1 + 2 + 2 + 2  # families follow from types


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"age": "normal"}, ("ST495", "age", "normal", "number")),
        ({"age": "categorical"}, ("ST495", "number")),
        ({"city": "beta"}, ("ST495", "category", "categorical")),
        ({"member": "bins"}, ("ST495", "flag", "bernoulli")),
        ({"age": "bins:1"}, ("ST496", "4096")),
        ({"age": "gaussian:x"}, ("ST496", "4096")),
        ({"age": "beta:3"}, ("ST495", "number")),
        ({"age": 3}, "ST494"),
        ({"agee": "beta"}, ("SC071", "agee")),
    ],
)
def test_a_family_that_does_not_fit_is_refused(choice: dict[str, str], said: str) -> None:
    refused((StudyError, SchemaError), said, choose_families, SCHEMA, choice)


# --- statistics within their bound, and parameters from noisy sums


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_no_row_has_longer_statistics_than_the_bound(seed: int) -> None:
    own = ColumnStatistics(OwnComponents(SCHEMA, FAMILIES))
    found = own.read(encoded(np.random.default_rng(seed), 50))
    assert np.linalg.norm(found, axis=1).max() <= own.bound


def test_the_bound_is_reached() -> None:
    schema = Schema({"age": number(0, 1), "city": category(list("abc")), "member": flag()})
    own = ColumnStatistics(OwnComponents(schema))
    found = own.read(np.array([[1.0, 0, 1, 0, 1]]))
    assert np.linalg.norm(found) == pytest.approx(own.bound, rel=1e-12)
    assert own.bound**2 == pytest.approx(1 / 4 + 1 / 64 + 2 / 3 + 1 / 4)


def test_one_component_without_noise_has_the_moments_of_the_rows() -> None:
    rows = encoded(np.random.default_rng(0), 4000)
    own = OwnComponents(SCHEMA, FAMILIES)
    model = MixtureModel([own], 1)
    learned = ExpectationLearner(["a"], model, model.start(seeded(1)), 0.0)
    statistics = [learned.statistics[0].read(rows)]
    learned.step(expected_sums(statistics, model.log_joint([rows], learned.parameters)))
    found = learned.parameters[0, 1:]
    city = rows[:, SCHEMA.encoded_slices["city"]].sum(axis=0)
    np.testing.assert_allclose(np.exp(found[own.places["city"]]), (city + 1) / (city.sum() + 5), rtol=1e-9)
    member = rows[:, SCHEMA.encoded_slices["member"]].mean()
    assert 1 / (1 + np.exp(-found[own.places["member"]][0])) == pytest.approx(member, abs=1e-3)
    left, right = np.exp(found[own.places["age"]])
    share = BETA_INSET + (1 - 2 * BETA_INSET) * (rows[:, 0] + 1) / 2
    assert left / (left + right) == pytest.approx(share.mean(), rel=1e-9)
    assert left * right / ((left + right) ** 2 * (left + right + 1)) == pytest.approx(share.var(), rel=1e-9)
    height = (rows[:, SCHEMA.encoded_slices["height"]][:, 0] + 1) / 2
    np.testing.assert_allclose(found[own.places["height"]], [height.mean(), np.log(height.std())], rtol=1e-6)


@given(st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_the_nearest_chances_are_chances_and_nearest(rows: list[list[float]]) -> None:
    found = np.array(rows)
    chances = simplex(found)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (chances >= 0).all()
    others = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    for row, near in zip(found, chances, strict=True):
        assert (np.linalg.norm(others - row, axis=1) >= np.linalg.norm(near - row) - 1e-9).all()


def test_noise_alone_is_shrunk_and_whatever_is_opened_gives_usable_parameters() -> None:
    people, noisy = np.full(10, 1000.0), 0.2 + np.random.default_rng(0).normal(size=(10, 5)) * 0.05
    assert shrink_to_mean(noisy, people, 50.0**2).std() < noisy.std() / 2
    np.testing.assert_allclose(shrink_to_mean(noisy, people, 0.01), noisy, atol=1e-3)
    for family in (BetaColumn(), GaussianColumn(20)):  # impossible moments become possible ones
        assert np.isfinite(
            parameters_from_moments(np.array([0.5, 0.02, 0.9]), np.array([-1.0, 5.0, 0.0]), family)
        ).all()
    learned = ExpectationLearner(["a"], ALONE, ALONE.start(seeded(1)), 100.0)
    rows = [encoded(np.random.default_rng(1), 20)]
    for seed in range(5):
        learned.step(1e3 * np.random.default_rng(seed).normal(size=(3, learned.parts[-1].stop)))
        assert np.isfinite(ALONE.log_likelihood(rows, learned.parameters)).all()


# --- sums, steps and priors of variational inference


LEFT, RIGHT = SCHEMA.select(["age", "city", "income"]), SCHEMA.without(["age", "city", "income"])


OWNS = OwnComponents(LEFT), OwnComponents(RIGHT, FAMILIES)


MODEL = MixtureModel(OWNS, 3)


def halves(rows: np.ndarray) -> list[np.ndarray]:
    """The rows as two owners hold them."""
    return [rows[:, : LEFT.encoded_width], rows[:, LEFT.encoded_width :]]


def summed(rows: list[np.ndarray], parameters: np.ndarray, clips: list[float], clipping: Clipping) -> np.ndarray:
    cells = [own.read(held) for own, held in zip(OWNS, rows, strict=True)]
    return noiseless_sums(MODEL, cells, parameters, clips, clipping)


@given(SEEDS)
@settings(max_examples=4, deadline=None)
def test_sums_are_the_slope_of_the_log_likelihood(seed: int) -> None:
    rng, step = np.random.default_rng(seed), 1e-5
    rows, parameters = halves(encoded(rng, 20)), rng.uniform(0.3, 1.5) * rng.normal(size=(3, MODEL.width))
    sums = summed(rows, parameters, [1e9, 1e9], "local")
    weights = np.exp(parameters[:, 0]) / np.exp(parameters[:, 0]).sum()
    slope = sums / MODEL.scales(parameters)
    slope[:, 0] -= weights * sums[:, 0].sum()
    for place in np.ndindex(parameters.shape):
        ahead, behind = parameters.copy(), parameters.copy()
        ahead[place] += step
        behind[place] -= step
        found = (MODEL.log_likelihood(rows, ahead) - MODEL.log_likelihood(rows, behind)).sum() / (2 * step)
        assert slope[place] == pytest.approx(found, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("clipping", ["local", "joint"])
def test_no_row_adds_more_than_its_clip(clipping: Clipping) -> None:
    rng = np.random.default_rng(2)
    rows, parameters = halves(encoded(rng, 30)), rng.normal(size=(3, MODEL.width))
    clips, most = ([0.5, 0.7], (1 + 0.25 + 0.49) ** 0.5) if clipping == "local" else ([0.9], 0.9)
    each = [summed([held[at : at + 1] for held in rows], parameters, clips, clipping) for at in range(30)]
    sizes = [np.linalg.norm(one) for one in each]
    assert 0 < min(sizes) <= max(sizes) <= most * (1 + 1e-12)
    np.testing.assert_allclose(summed(rows, parameters, clips, clipping), sum(each), atol=1e-9)


def test_prior_slopes_are_those_of_the_priors() -> None:
    rng, step = np.random.default_rng(0), 1e-6
    parameters = rng.normal(size=(3, MODEL.width))
    found = MODEL.prior_slope(parameters)

    def log_prior(values: np.ndarray) -> np.ndarray:
        """Gamma(1, 1) and its logarithm for most; uniform chances of flags; normals for the Gaussian column."""
        said = stats.loggamma.logpdf(values, 1)
        right = MODEL.parts[1].start
        flag, height = right + OWNS[1].places["member"].start, right + OWNS[1].places["height"].start
        said[:, flag] = stats.logistic.logpdf(values[:, flag])
        said[:, height] = stats.norm.logpdf(values[:, height], 0.5, 0.5)
        said[:, height + 1] = stats.norm.logpdf(values[:, height + 1], np.log(0.2), 1)
        return np.asarray(said)

    slope = (log_prior(parameters + step) - log_prior(parameters - step)) / (2 * step)
    np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-5)


def begun(model: MixtureModel, **how: Any) -> VariationalLearner:
    usual = {"rate": 0.5, "rounds": 3, "learning_rate": 0.1}
    return VariationalLearner(["a", "b"], model, model.start(seeded(3)), seeded(4), **usual | how)


@pytest.mark.parametrize("clipping", ["local", "joint"])
def test_two_groups_of_people_are_found(clipping: Clipping) -> None:
    """Members are of the same sort, and older than others."""
    rows, likely = encoded(np.random.default_rng(1), 600), {}
    member, sort = SCHEMA.encoded_slices["member"].start, SCHEMA.encoded_slices["sort"].start
    rows[:, member] = rows[:, sort] = rows[:, 0] > 0
    rows[:, sort + 1] = rows[:, 0] <= 0
    cells = [own.read(held) for own, held in zip(OWNS, halves(rows), strict=True)]
    clips = [2.0, 2.0] if clipping == "local" else [2.0]
    for components in (1, 2):
        model = MixtureModel(OWNS, components)
        variational = begun(model, rounds=250, rate=0.1, learning_rate=0.05)
        centralised(cells, variational, clips=clips, deviation=1.0, rng=np.random.default_rng(5), clipping=clipping)
        likely[components] = model.log_likelihood(cells, variational.posterior.mean).mean()
    assert likely[2] > likely[1] + 0.5
    assert (variational.posterior.deviation > 0).all()


def test_everybody_draws_the_same_and_takes_over_what_is_told() -> None:
    model = MixtureModel(OWNS, 2)
    first, second = (begun(model) for _ in range(2))
    for _ in range(2):
        np.testing.assert_array_equal(first.parameters, second.parameters)
        before, sums = first.parameters.copy(), np.random.default_rng(3).normal(size=(2, model.width))
        for each in (first, second):
            each.step(sums)
        assert not np.array_equal(first.parameters, before)
    np.testing.assert_allclose(np.exp(first.log_weights).sum(), 1)
    first.step(np.ones((2, model.width)))
    second.restore(first.state)
    np.testing.assert_array_equal(second.fitted.posterior.mean, first.fitted.posterior.mean)
    other = ExpectationLearner(["a", "b"], model, model.start(seeded(5)), 10.0)
    other.restore(first.parameters.copy())
    np.testing.assert_array_equal(other.fitted.posterior.mean, first.parameters)


def test_derivatives_are_linear_in_statistics_where_no_column_is_gaussian() -> None:
    model = MixtureModel([OwnComponents(LEFT), OwnComponents(RIGHT)], 3)
    plain, linear = (begun(model, linear=linear) for linear in (False, True))
    for name, held in zip("ab", halves(encoded(np.random.default_rng(1), 40)), strict=True):
        told, statistics = linear.linear(name), linear.vectors(name, held)
        found = statistics[:, None, : len(told.against)] * told.slope - statistics[:, None, told.against] * told.offset
        np.testing.assert_allclose(found, plain.vectors(name, held), atol=1e-12)
    assert set(np.unique(statistics[:, len(told.against) :])) <= {0.0, 1.0}
    refused(StudyError, "ST498", ExpectationLearner(["a"], ALONE, ALONE.start(seeded(1)), 1.0).linear, "a")


# --- rows that a fitted mixture makes up

MEAN = np.random.default_rng(0).normal(size=(3, ALONE.width))
FITTED = FittedMixture(("clinic",), ALONE, ParameterPosterior(MEAN, np.full_like(MEAN, 0.3)))


def test_made_up_people_have_the_chances_of_the_mixture() -> None:
    rows = 20_000
    found = FITTED.sample(rows, seeded(1))["clinic"]
    weights = np.exp(MEAN[:, 0]) / np.exp(MEAN[:, 0]).sum()
    slack = 6 / np.sqrt(rows)
    member = weights @ (1 / (1 + np.exp(-MEAN[:, 1:][:, OWN.places["member"]][:, 0])))
    assert abs(found[:, SCHEMA.encoded_slices["member"]].mean() - member) < slack
    for name in ("city", "sort"):
        logits = MEAN[:, 1:][:, OWN.places[name]]
        chances = weights @ (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(found[:, SCHEMA.encoded_slices[name]].mean(axis=0), chances, atol=slack)
    shapes = np.exp(MEAN[:, 1:][:, OWN.places["age"]])
    share = BETA_INSET + (1 - 2 * BETA_INSET) * (found[:, 0] + 1) / 2
    assert abs(share.mean() - weights @ (shapes[:, 0] / shapes.sum(axis=1))) < slack
    cells = np.minimum((found[:, SCHEMA.encoded_slices["height"]][:, 0] + 1) / 2 * 20, 19).astype(int)
    ends = np.r_[-np.inf, np.arange(1, 20) / 20, np.inf]
    middle, spread = MEAN[:, 1:][:, OWN.places["height"]].T
    masses = sum(
        w * np.diff(stats.norm.cdf(ends, m, np.exp(s))) for w, m, s in zip(weights, middle, spread, strict=True)
    )
    np.testing.assert_allclose(np.bincount(cells, minlength=20) / rows, masses, atol=slack)


def test_made_up_people_are_likely_under_their_mixture_and_become_a_table_of_the_schema() -> None:
    rows, moved = FITTED.sample(3000, seeded(2)), MEAN + 0.3 * np.random.default_rng(3).normal(size=MEAN.shape)
    other = replace(FITTED, posterior=ParameterPosterior(moved, np.zeros_like(MEAN)))
    assert FITTED.log_likelihood(rows).mean() > other.log_likelihood(rows).mean()
    table = decode(SCHEMA, rows["clinic"])
    assert (table.column_names, table.num_rows) == (list(SCHEMA.names), 3000)
    assert sum(column.null_count for column in table.columns) == 0
    assert FITTED.sample(0, seeded(5))["clinic"].shape == (0, SCHEMA.encoded_width)
    again = FittedMixture(("clinic",), ALONE, ParameterPosterior(**FITTED.arrays()))
    np.testing.assert_array_equal(again.sample(3000, seeded(2))["clinic"], rows["clinic"])
