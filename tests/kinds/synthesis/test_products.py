from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.products import Products, apportioned, systematic
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

SIZES = (3, 2, 4)


def mixture(components: int = 7, sizes: tuple[int, ...] = SIZES, seed: int = 1, even: bool = False) -> Products:
    rng = np.random.default_rng(seed)
    weights = np.ones(components) if even else rng.random(components)
    tables = [rng.random((components, size)) ** 4 for size in sizes]
    return Products(weights / weights.sum(), tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def test_marginals_and_likelihoods_are_those_of_the_joint_distribution() -> None:
    model = mixture()
    cells = np.array(list(product(*(range(size) for size in SIZES))))
    joint = np.einsum("k,ka,kb,kc->abc", model.weights, *model.tables)
    np.testing.assert_allclose(np.exp(model.log_likelihood(cells)), joint.ravel(), rtol=1e-12)
    np.testing.assert_allclose(model.marginal((0, 1, 2)), joint, rtol=1e-12)
    np.testing.assert_allclose(model.marginal((2, 0)), joint.sum(axis=1).T, rtol=1e-12)
    assert model.marginal(()) == pytest.approx(1)


def test_a_row_that_no_component_allows_has_no_likelihood() -> None:
    model = Products(np.array([1.0]), (np.array([[0.0, 1.0]]),))
    assert model.log_likelihood(np.array([[0], [1]])).tolist() == [-np.inf, 0.0]


def test_systematic_rounding_keeps_every_number_within_one() -> None:
    rng = np.random.default_rng(3)
    for seed in range(50):
        expected = rng.random(9)
        expected *= 40 / expected.sum()
        found = systematic(expected, seeded(seed))
        assert found.sum() == 40
        assert (np.abs(found - expected) < 1).all()


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_codes_are_apportioned_within_one_in_each_component_and_closely_over_all(size: int) -> None:
    rng = np.random.default_rng(size)
    for seed in range(20):
        people = rng.integers(0, 90, 300)
        table = rng.random((300, size)) ** 6
        table /= table.sum(axis=1, keepdims=True)
        expected = people[:, None] * table
        totals = expected.sum(axis=0)
        shifted = totals + (rng.permutation(size) - (size - 1) / 2) / size
        found = apportioned(people, table, shifted, seeded(seed))
        assert (found.sum(axis=1) == people).all()
        assert (np.abs(found - expected) < 1).all()
        assert (np.abs(found.sum(axis=0) - shifted) < 2).all()


def test_single_columns_of_a_sampled_table_are_the_models_but_for_few_people() -> None:
    model = mixture(components=150, sizes=(3, 2, 20), even=True)
    codes = model.sample(20_011, seeded(2))
    assert codes.shape == (20_011, 3)
    for column, size in enumerate((3, 2, 20)):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - 20_011 * model.marginal((column,))) < 2).all()


def test_pairs_of_a_sampled_table_follow_the_model_within_sampling() -> None:
    model = mixture(components=50, even=True)
    codes = model.sample(40_000, seeded(3))
    counts = np.zeros((3, 4))
    np.add.at(counts, (codes[:, 0], codes[:, 2]), 1)
    expected = 40_000 * model.marginal((0, 2))
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected) + 3).all()


def test_another_stream_gives_another_table() -> None:
    model = mixture()
    assert (model.sample(100, seeded(1)) != model.sample(100, seeded(2))).any()
    assert (model.sample(100, seeded(1)) == model.sample(100, seeded(1))).all()


def test_numbers_are_kept_exactly() -> None:
    model = mixture()
    again = Products.from_arrays(model.arrays())
    assert (again.weights == model.weights).all()
    assert all((a == b).all() for a, b in zip(again.tables, model.tables, strict=True))
    with raises(StudyError, "ST385"):
        Products.from_arrays({"table_0": model.tables[0]})


def test_what_does_not_fit_is_refused() -> None:
    model = mixture()
    with raises(StudyError, "ST383"):
        Products(np.array([0.5]), (np.array([[1.0]]),))
    with raises(StudyError, "ST382"):
        Products(np.array([1.0]), (np.ones((2, 1)),))
    with raises(StudyError, "ST386"):
        model.marginal((0, 0))
    with raises(StudyError, "ST389"):
        model.log_likelihood(np.array([[0, 2, 0]]))
    with raises(StudyError, "ST388", "3"):
        model.log_likelihood(np.array([[0, 1]]))
    with raises(StudyError, "ST384"):
        model.sample(0, seeded(1))
