from __future__ import annotations

import numpy as np
import pytest

from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.synthesis.targets import Targets, contrasts
from colonnade.kinds.tables.residuals import misfit
from tests.kinds.tables.releases import people, release, sets_of


def mixture(sizes: tuple[int, ...], components: int) -> tuple[Products, np.ndarray]:
    rng = np.random.default_rng(4)
    tables = [rng.random((components, size)) + 0.1 for size in sizes]
    tables = [table / table.sum(axis=1, keepdims=True) for table in tables]
    return Products(np.full(components, 1 / components), tuple(tables)), np.concatenate(tables, axis=1)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_contrasts_are_orthonormal_and_sum_to_zero(size: int) -> None:
    found = contrasts(size)
    np.testing.assert_allclose(found @ found.T, np.eye(size - 1), atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-12)


SETS = [
    ((3, 2, 4, 2), sets_of(4, 1)),
    ((3, 5, 4, 1), sets_of(4, 0)),
    ((3, 2, 4, 2), sets_of(4, None)),
    ((3, 2, 4, 2), [(0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (0, 3)]),
    ((3, 4, 2, 3, 2), [(0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4), (2,)]),
]


@pytest.mark.parametrize(("sizes", "sets"), SETS)
def test_the_misfit_is_that_of_exact_marginals_and_slopes_are_its_derivatives(
    sizes: tuple[int, ...], sets: list[tuple[int, ...]]
) -> None:
    noisy = release(people(sizes, 2000, 1), sizes, sets, 20.0, 2)
    targets = Targets(sizes, 2000, noisy)
    model, chances = mixture(sizes, 5)
    squares, slopes = targets.misfit(chances.astype(np.float32))
    assert (squares, targets.degrees) == (
        pytest.approx(misfit(model.marginal, 2000, noisy)[0], rel=1e-4),
        sum(each.degrees for each in noisy),
    )
    rng = np.random.default_rng(6)
    for _ in range(4):
        step = np.concatenate([d - d.mean(axis=1, keepdims=True) for d in (rng.random((5, s)) for s in sizes)], axis=1)
        sides = []
        for sign in (1, -1):
            moved = np.split(chances + sign * 1e-4 * step, np.cumsum(sizes)[:-1], axis=1)
            sides.append(misfit(Products(model.weights, tuple(moved)).marginal, 2000, noisy)[0])
        slope = (sides[0] - sides[1]) / 2e-4
        assert 2 * float(np.sum(slopes * step)) == pytest.approx(slope, rel=2e-3, abs=1e-3 * squares)
