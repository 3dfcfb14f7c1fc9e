"""Sums, steps and priors of variational inference, and the whole of it on people in two groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.centralised import Clipping, centralised, noiseless_sums
from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.inference import Variational
from colonnade.kinds.synthesis.mixture.learners import VariationalLearner
from colonnade.kinds.synthesis.mixture.model import MixtureModel
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.mixture.people import FAMILIES, SCHEMA, encoded, groups, owners
from tests.support.errors import raises

LEFT, RIGHT = SCHEMA.select(["age", "city", "income"]), SCHEMA.without(["age", "city", "income"])
OWNS = OwnComponents(LEFT), OwnComponents(RIGHT, FAMILIES)
MODEL = MixtureModel(OWNS, 3)


def halves(rows: np.ndarray) -> list[np.ndarray]:
    """The rows as two owners hold them."""
    width = LEFT.encoded_width
    return [rows[:, :width], rows[:, width:]]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_sums_are_the_slope_of_the_log_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, parameters = halves(encoded(rng, 20)), rng.normal(size=(3, MODEL.width))
    cells = [own.read(held) for own, held in zip(OWNS, rows, strict=True)]
    sums = noiseless_sums(MODEL, cells, parameters, [1e9, 1e9], "local")
    weights = np.exp(parameters[:, 0]) / np.exp(parameters[:, 0]).sum()
    slope = sums / MODEL.scales(parameters)
    slope[:, 0] -= weights * sums[:, 0].sum()
    step = 1e-5
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
    total, sizes = np.zeros_like(parameters), []
    for place in range(30):
        cells = [own.read(held[place : place + 1]) for own, held in zip(OWNS, rows, strict=True)]
        one = noiseless_sums(MODEL, cells, parameters, clips, clipping)
        sizes.append(np.linalg.norm(one))
        total += one
    assert max(sizes) <= most * (1 + 1e-12)
    assert min(sizes) > 0
    cells = [own.read(held) for own, held in zip(OWNS, rows, strict=True)]
    np.testing.assert_allclose(noiseless_sums(MODEL, cells, parameters, clips, clipping), total, atol=1e-9)


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


def test_logits_under_the_prior_are_uniform_chances() -> None:
    """Exponentials of draws from the prior, divided by their sum, have the variance of a uniform simplex."""
    logits = stats.loggamma.rvs(1, size=(40_000, 4), random_state=1)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = stats.dirichlet.var(np.ones(4))
    np.testing.assert_allclose(chances.var(axis=0), expected, rtol=0.05)


@pytest.mark.parametrize("clipping", ["local", "joint"])
def test_two_groups_of_people_are_found(clipping: Clipping) -> None:
    rows = groups(np.random.default_rng(1), 2000)
    model = MixtureModel([OwnComponents(schema) for schema in owners()], 2)
    cells = [own.read(held) for own, held in zip(model.owns, rows, strict=True)]
    variational = Variational(model, model.start(seeded(3)), seeded(4), rate=0.1, rounds=400, learning_rate=0.05)
    before = model.log_likelihood(cells, variational.mean).mean()
    clips = [2.0, 2.0] if clipping == "local" else [2.0]
    centralised(cells, variational, clips=clips, deviation=1.0, rng=np.random.default_rng(5), clipping=clipping)
    posterior = variational.posterior
    likely = model.log_likelihood(cells, posterior.mean).mean()
    alone = MixtureModel(model.owns, 1)
    single = Variational(alone, alone.start(seeded(3)), seeded(4), rate=0.1, rounds=400, learning_rate=0.05)
    centralised(cells, single, clips=clips, deviation=1.0, rng=np.random.default_rng(5), clipping=clipping)
    assert likely > before + 1
    assert likely > alone.log_likelihood(cells, single.posterior.mean).mean() + 0.5
    assert (posterior.deviation > 0).all()
    assert np.std([posterior.draw(seeded(seed))[0, 0] for seed in range(20)]) > 0


def test_everybody_draws_the_same_and_takes_over_what_is_told() -> None:
    model = MixtureModel([OwnComponents(schema) for schema in owners()], 2)
    first, second = (
        VariationalLearner(
            ["a", "b"],
            Variational(model, model.start(seeded(1)), seeded(2), rate=0.5, rounds=3, learning_rate=0.1),
        )
        for _ in range(2)
    )
    rows = groups(np.random.default_rng(1), 50)
    for _ in range(2):
        np.testing.assert_array_equal(first.parameters, second.parameters)
        drawn = first.parameters.copy()
        sums = np.random.default_rng(3).normal(size=(2, model.width))
        first.step(sums)
        second.step(sums)
        assert not np.array_equal(first.parameters, drawn)
    assert first.vectors("b", rows[1]).shape == (50, 2, model.owns[1].width)
    assert first.log_densities("a", rows[0]).shape == (50, 2)
    np.testing.assert_allclose(np.exp(first.log_weights).sum(), 1)
    first.step(np.ones((2, model.width)))
    second.restore(first.state)
    np.testing.assert_array_equal(second.fitted.posterior.mean, first.fitted.posterior.mean)
    np.testing.assert_array_equal(second.state, first.state)


def test_derivatives_are_linear_in_statistics_where_no_column_is_gaussian() -> None:
    rows = groups(np.random.default_rng(1), 40)
    model = MixtureModel([OwnComponents(schema) for schema in owners()], 3)
    plain, linear = (
        VariationalLearner(
            ["a", "b"],
            Variational(model, model.start(seeded(1)), seeded(2), rate=0.5, rounds=3, learning_rate=0.1),
            linear=linear,
        )
        for linear in (False, True)
    )
    for name, held in zip("ab", rows, strict=True):
        told, statistics = linear.linear(name), linear.vectors(name, held)
        found = statistics[:, None, : len(told.against)] * told.slope - statistics[:, None, told.against] * told.offset
        np.testing.assert_allclose(found, plain.vectors(name, held), atol=1e-12)
    assert set(np.unique(statistics[:, len(told.against) :])) <= {0.0, 1.0}
    gaussian = Variational(MODEL, MODEL.start(seeded(1)), seeded(2), rate=0.5, rounds=3, learning_rate=0.1)
    with raises(StudyError, "ST497"):
        VariationalLearner(["a", "b"], gaussian, linear=True)
