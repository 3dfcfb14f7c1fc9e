from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fit import fit, nearest_chances, wanted_misfit
from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.tables.residuals import Residual, misfit, noisy_marginal
from tests.kinds.tables.releases import histogram, people, release, sets_of
from tests.support.errors import raises

SIZES = (4, 3, 5, 2, 6)
LABEL = 3
ROWS = 20_000


@pytest.fixture(scope="module")
def fitted() -> tuple[list[Residual], Products]:
    noisy = release(people(SIZES, ROWS, 1), SIZES, sets_of(5, LABEL), 60.0, 2)
    return noisy, fit(SIZES, ROWS, noisy, components=60)


def test_the_misfit_ends_where_it_should(fitted: tuple[list[Residual], Products]) -> None:
    noisy, model = fitted
    squares, degrees = misfit(model.marginal, ROWS, noisy)
    assert squares == pytest.approx(wanted_misfit(degrees), rel=0.03)


def test_the_fit_is_closer_to_people_than_the_noise_is(fitted: tuple[list[Residual], Products]) -> None:
    noisy, model = fitted
    codes = people(SIZES, ROWS, 1)
    fits, raw = 0.0, 0.0
    for columns in sets_of(5, LABEL):
        exact = histogram(codes, columns, SIZES)
        fits += np.abs(ROWS * model.marginal(columns) - exact).sum()
        raw += np.abs(noisy_marginal(columns, SIZES, ROWS, noisy)[0] - exact).sum()
    assert fits < 0.9 * raw
    joint = histogram(codes, (2, 4), SIZES) / ROWS
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.abs(model.marginal((2, 4)) - joint).sum() < 0.4 * np.abs(independent - joint).sum()


def test_the_same_numbers_give_the_same_fit(fitted: tuple[list[Residual], Products]) -> None:
    noisy, _ = fitted
    first, second = (fit(SIZES, ROWS, noisy, components=8, steps=20) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first.tables, second.tables, strict=True))


def test_a_warm_start_needs_few_steps(fitted: tuple[list[Residual], Products]) -> None:
    noisy, model = fitted
    squares, degrees = misfit(fit(SIZES, ROWS, noisy, start=model, steps=100).marginal, ROWS, noisy)
    assert squares == pytest.approx(wanted_misfit(degrees), rel=0.1)


def test_noise_alone_gives_nearly_independent_columns() -> None:
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, size, 300) for size in SIZES], axis=1)
    model = fit(SIZES, 300, release(codes, SIZES, sets_of(5, None), 100.0, 6), components=40, steps=300)
    joint = model.marginal((0, 2))
    assert np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum() < 0.2


def test_constant_columns_and_empty_releases_are_fitted() -> None:
    model = fit((1, 3), 10.0, [], components=2, steps=5)
    np.testing.assert_allclose(model.marginal((0, 1)), np.full((1, 3), 1 / 3), atol=0.15)
    assert fit((2,), -5.0, [Residual((0,), np.array([3.0, -3.0]), 10.0)], components=2, steps=50).sizes == (2,)


def test_the_wanted_misfit_is_that_of_the_truth() -> None:
    assert wanted_misfit(50_000) == pytest.approx(50_000, rel=0.01)
    assert wanted_misfit(8) == 4
    assert wanted_misfit(0) == 1


def test_nearest_chances() -> None:
    np.testing.assert_allclose(nearest_chances(np.array([0.5, 0.7, -0.2])), [0.4, 0.6, 0.0])
    np.testing.assert_allclose(nearest_chances(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])


def test_a_fit_that_cannot_be_made_is_refused() -> None:
    with raises(StudyError, "ST344"):
        fit((2,), 10.0, [], components=0)
    with raises(StudyError, "ST345"):
        fit((2,), 10.0, [], start=Products(np.ones(1), (np.full((1, 3), 1 / 3),)))
    with raises(StudyError, "ST346"):
        fit((2,), 10.0, [], start=Products(np.array([0.1, 0.9]), (np.full((2, 2), 0.5),)))
