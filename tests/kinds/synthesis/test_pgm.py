from __future__ import annotations

import importlib.util
from itertools import product

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.pgm import Network, fit_pgm
from colonnade.testing.seeded import seeded
from tests.kinds.tables.releases import histogram, people, release, sets_of
from tests.support.errors import raises

SIZES = (3, 2, 4)
installed = importlib.util.find_spec("mbi") is not None


def network() -> Network:
    rng = np.random.default_rng(1)
    shapes = [(2, 4, 3), (2,), (2, 4)]
    tables = [rng.random(shape) + 0.1 for shape in shapes]
    return Network((1, 2, 0), ((1, 2), (), (1,)), tuple(table / table.sum(axis=-1, keepdims=True) for table in tables))


def test_marginals_and_likelihoods_are_those_of_the_joint_distribution() -> None:
    model = network()
    cells = np.array(list(product(*(range(size) for size in SIZES))))
    joint = np.exp(model.log_likelihood(cells)).reshape(SIZES)
    assert joint.sum() == pytest.approx(1)
    np.testing.assert_allclose(model.marginal((2, 0)), joint.sum(axis=1).T, rtol=1e-9)
    np.testing.assert_allclose(model.marginal((0, 1, 2)), joint, rtol=1e-9)
    np.testing.assert_allclose(model.marginal((1,)), joint.sum(axis=(0, 2)), rtol=1e-9)
    assert model.marginal(()) == pytest.approx(1)


def test_a_sampled_table_has_the_columns_of_the_model_but_for_few_people() -> None:
    model = network()
    codes = model.sample(10_000, seeded(1))
    for column, size in enumerate(SIZES):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - 10_000 * model.marginal((column,))) < 3).all()
    assert (np.abs(histogram(codes, (0, 1, 2), SIZES) - 10_000 * model.marginal((0, 1, 2))) < 5).all()


def test_numbers_are_kept_exactly() -> None:
    model = network()
    again = Network.from_arrays(model.arrays())
    assert (again.order, again.parents) == (model.order, model.parents)
    assert all((a == b).all() for a, b in zip(again.tables, model.tables, strict=True))
    with raises(StudyError, "ST376"):
        Network.from_arrays(model.arrays() | {"order": np.array([0.0, 1.0, 2.0])})
    with raises(StudyError, "ST375"):
        Network.from_arrays({"table_0": model.tables[0]})


@pytest.mark.skipif(installed, reason="private-pgm is installed")
def test_without_private_pgm_the_fit_is_refused() -> None:
    with raises(StudyError, "ST377"):
        fit_pgm((2,), 10.0, [])


@pytest.mark.skipif(not installed, reason="private-pgm (package mbi) is not installed")
@pytest.mark.filterwarnings("ignore")
def test_private_pgm_fits_the_pairs_it_is_given() -> None:
    sizes = (4, 3, 5, 2, 6)
    codes = people(sizes, 20_000, 1)
    model = fit_pgm(sizes, 20_000, release(codes, sizes, sets_of(5, 3), 30.0, 2), steps=300)
    model.check()
    for pair in ((0, 3), (2, 4), (1, 2)):
        exact = histogram(codes, pair, sizes) / 20_000
        assert np.abs(model.marginal(pair) - exact).sum() < 0.06
