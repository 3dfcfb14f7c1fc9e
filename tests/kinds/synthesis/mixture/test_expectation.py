"""Statistics within their bound, parameters from noisy sums, and people in two groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.expectation import Expectation, expected_sums, from_moments, shrunk, simplex
from colonnade.kinds.synthesis.mixture.families import INSIDE, Beta, Gaussian
from colonnade.kinds.synthesis.mixture.learners import ExpectationLearner
from colonnade.kinds.synthesis.mixture.model import MixtureModel
from colonnade.kinds.synthesis.mixture.statistics import OwnStatistics
from colonnade.tables.columns import category, flag, number
from colonnade.tables.schema import Schema
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.mixture.people import FAMILIES, SCHEMA, encoded, groups, owners


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_no_row_has_longer_statistics_than_the_bound(seed: int) -> None:
    own = OwnStatistics(OwnComponents(SCHEMA, FAMILIES))
    found = own.read(encoded(np.random.default_rng(seed), 50))
    assert np.linalg.norm(found, axis=1).max() <= own.bound


def test_the_bound_is_reached() -> None:
    schema = Schema({"age": number(0, 1), "city": category(list("abc")), "member": flag()})
    own = OwnStatistics(OwnComponents(schema))
    found = own.read(np.array([[1.0, 0, 1, 0, 1]]))
    assert np.linalg.norm(found) == pytest.approx(own.bound, rel=1e-12)
    assert own.bound**2 == pytest.approx(1 / 4 + 1 / 64 + 2 / 3 + 1 / 4)


def test_one_component_without_noise_has_the_moments_of_the_rows() -> None:
    rows = encoded(np.random.default_rng(0), 4000)
    own = OwnComponents(SCHEMA, FAMILIES)
    model = MixtureModel([own], 1)
    learned = Expectation(model, model.start(seeded(1)), 0.0)
    statistics = [learned.statistics[0].read(rows)]
    learned.step(expected_sums(statistics, model.log_joint([rows], learned.parameters)))
    found = learned.parameters[0, 1:]
    city = rows[:, SCHEMA.places["city"]].sum(axis=0)
    np.testing.assert_allclose(np.exp(found[own.places["city"]]), (city + 1) / (city.sum() + 5), rtol=1e-9)
    member = rows[:, SCHEMA.places["member"]].mean()
    assert 1 / (1 + np.exp(-found[own.places["member"]][0])) == pytest.approx(member, abs=1e-3)
    left, right = np.exp(found[own.places["age"]])
    share = INSIDE + (1 - 2 * INSIDE) * (rows[:, 0] + 1) / 2
    assert left / (left + right) == pytest.approx(share.mean(), rel=1e-9)
    assert left * right / ((left + right) ** 2 * (left + right + 1)) == pytest.approx(share.var(), rel=1e-9)
    height = (rows[:, SCHEMA.places["height"]][:, 0] + 1) / 2
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


def test_components_that_differ_by_noise_alone_become_equal_and_clear_ones_stay() -> None:
    people = np.full(10, 1000.0)
    noisy = 0.2 + np.random.default_rng(0).normal(size=(10, 5)) * 0.05
    assert shrunk(noisy, people, 50.0**2).std() < noisy.std() / 2
    np.testing.assert_allclose(np.ptp(shrunk(noisy, people, 150.0**2), axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(shrunk(noisy, people, 0.01), noisy, atol=1e-3)


@pytest.mark.parametrize("family", [Beta(), Gaussian(20)])
def test_impossible_moments_become_possible_ones(family: Beta | Gaussian) -> None:
    found = from_moments(np.array([0.5, 0.02, 0.9]), np.array([-1.0, 5.0, 0.0]), family)
    assert np.isfinite(found).all()


def test_whatever_is_opened_gives_usable_parameters() -> None:
    model = MixtureModel([OwnComponents(schema) for schema in owners()], 4)
    learned = Expectation(model, model.start(seeded(1)), 100.0)
    rows = groups(np.random.default_rng(1), 20)
    for seed in range(5):
        learned.step(1e3 * np.random.default_rng(seed).normal(size=(4, learned.width)))
        assert np.isfinite(model.log_likelihood(rows, learned.parameters)).all()


def test_two_groups_of_people_are_found_and_the_result_is_taken_over() -> None:
    rows = groups(np.random.default_rng(1), 3000)
    model = MixtureModel([OwnComponents(schema) for schema in owners()], 2)
    learner = ExpectationLearner(["a", "b"], Expectation(model, model.start(seeded(2)), 10.0))
    statistics = [learner.vectors(name, held) for name, held in zip("ab", rows, strict=True)]
    rng, likely = np.random.default_rng(3), []
    for _ in range(12):
        sums = expected_sums(statistics, model.log_joint(rows, learner.parameters))
        learner.step(sums + 10 * rng.normal(size=sums.shape))
        likely.append(model.log_likelihood(rows, learner.parameters).mean())
    assert likely[-1] > likely[0] + 0.3
    shares = np.sort(np.exp(learner.log_weights))
    np.testing.assert_allclose(shares, [0.4, 0.6], atol=0.05)
    other = ExpectationLearner(["a", "b"], Expectation(model, model.start(seeded(5)), 10.0))
    other.restore(learner.state)
    np.testing.assert_array_equal(other.fitted.posterior.mean, learner.parameters)
