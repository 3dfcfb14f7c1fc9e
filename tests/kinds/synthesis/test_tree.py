from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.tree import Tree, fit_tree
from colonnade.kinds.tables.residuals import Residual
from colonnade.testing.seeded import seeded
from tests.kinds.tables.releases import histogram, release, sets_of
from tests.support.errors import raises

SIZES = (3, 2, 4, 3)


def chain(rows: int) -> np.ndarray:
    """Codes of columns each of which depends on the one before."""
    rng = np.random.default_rng(1)
    codes = [rng.choice(3, rows, p=[0.5, 0.3, 0.2])]
    for size in SIZES[1:]:
        codes.append(np.where(rng.random(rows) < 0.7, codes[-1] % size, rng.integers(0, size, rows)))
    return np.stack(codes, axis=1)


@pytest.fixture(scope="module")
def fitted() -> Tree:
    return fit_tree(SIZES, 20_000, release(chain(20_000), SIZES, sets_of(4, None), 30.0, 2))


def test_the_tree_follows_what_depends_on_what(fitted: Tree) -> None:
    edges = {frozenset((column, parent)) for column, parent in enumerate(fitted.parents) if column != parent}
    assert edges == {frozenset(pair) for pair in ((0, 1), (1, 2), (2, 3))}
    exact = histogram(chain(20_000), (1, 3), SIZES) / 20_000
    assert np.abs(fitted.marginal((1, 3)) - exact).sum() < 0.05


def test_marginals_and_likelihoods_are_those_of_the_joint_distribution(fitted: Tree) -> None:
    cells = np.array(list(product(*(range(size) for size in SIZES))))
    joint = np.exp(fitted.log_likelihood(cells)).reshape(SIZES)
    assert joint.sum() == pytest.approx(1)
    np.testing.assert_allclose(fitted.marginal((0, 1, 2, 3)), joint, rtol=1e-9)
    np.testing.assert_allclose(fitted.marginal((3, 0)), joint.sum(axis=(1, 2)).T, rtol=1e-9)
    np.testing.assert_allclose(fitted.marginal((2,)), joint.sum(axis=(0, 1, 3)), rtol=1e-9)
    assert fitted.marginal(()) == pytest.approx(1)


def test_a_sampled_table_has_the_columns_of_the_model_but_for_few_people(fitted: Tree) -> None:
    codes = fitted.sample(10_000, seeded(4))
    for column, size in enumerate(SIZES):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - 10_000 * fitted.marginal((column,))) < 3).all()
    pair = np.zeros((4, 3))
    np.add.at(pair, (codes[:, 2], codes[:, 3]), 1)
    assert (np.abs(pair - 10_000 * fitted.marginal((2, 3))) < 3).all()


def test_columns_without_pairs_are_independent() -> None:
    single = [Residual((column,), np.zeros(size), 1.0) for column, size in enumerate((2, 3))]
    tree = fit_tree((2, 3, 1), 100.0, single)
    np.testing.assert_allclose(tree.marginal((0, 1, 2)), np.full((2, 3, 1), 1 / 6), rtol=1e-6)


def test_numbers_are_kept_exactly(fitted: Tree) -> None:
    again = Tree.from_arrays(fitted.arrays())
    assert (again.order, again.parents) == (fitted.order, fitted.parents)
    assert all((a == b).all() for a, b in zip(again.tables, fitted.tables, strict=True))
    with raises(StudyError, "ST398"):
        Tree.from_arrays(fitted.arrays() | {"parents": np.zeros(4)})
    with raises(StudyError, "ST397"):
        Tree.from_arrays({"table_0": fitted.tables[0]})
