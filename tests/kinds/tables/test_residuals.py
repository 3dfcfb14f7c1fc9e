from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.tables.residuals import Residual, centred, check, misfit, noisy_marginal, subsets
from tests.kinds.tables.releases import histogram, people, release
from tests.support.errors import raises

SIZES = (3, 2, 4)


def exact(codes: np.ndarray, deviation: float) -> list[Residual]:
    return [
        Residual(
            columns, centred(histogram(codes, columns, SIZES)) if columns else np.array(float(len(codes))), deviation
        )
        for columns in subsets(range(3))
    ]


def test_marginals_are_sums_of_residuals() -> None:
    codes = people(SIZES, 500, 1)
    for columns in [(), (1,), (0, 2), (2, 0), (0, 1, 2)]:
        counts, _ = noisy_marginal(columns, SIZES, 500, exact(codes, 1.0))
        np.testing.assert_allclose(counts, histogram(codes, columns, SIZES), atol=1e-9)


def test_deviations_are_those_of_the_linear_map_from_noise_to_cells() -> None:
    """Noise of deviation d on one raw number moves a cell by d times its coefficient; variances add."""
    codes = people(SIZES, 50, 2)
    base = [Residual(each.columns, each.values, 1.0 + place) for place, each in enumerate(exact(codes, 1.0))]
    plain, deviations = noisy_marginal((0, 2), SIZES, 50, base)
    variance = np.zeros_like(plain)
    for place, each in enumerate(base):
        if set(each.columns) <= {0, 2}:
            for cell in product(*(range(size) for size in each.values.shape)):
                unit = np.zeros(each.values.shape)
                unit[cell] = each.deviation
                moved = [*base]
                moved[place] = Residual(each.columns, each.values + centred(unit), each.deviation)
                count = 50 + (each.deviation if not each.columns else 0.0)
                variance += (noisy_marginal((0, 2), SIZES, count, moved)[0] - plain) ** 2
    np.testing.assert_allclose(deviations**2, variance, rtol=1e-9)


def test_a_marginal_that_was_not_asked_for_is_refused() -> None:
    known = [each for each in exact(people(SIZES, 50, 2), 1.0) if len(each.columns) < 2]
    with raises(StudyError, "ST395"):
        noisy_marginal((0, 1), SIZES, 50, known)


def test_the_misfit_of_the_truth_is_the_noise() -> None:
    codes = people(SIZES, 500, 3)
    sets = [each for each in subsets(range(3)) if each]
    noisy = release(codes, SIZES, sets, 2.0, 5)
    squares, degrees = misfit(lambda columns: histogram(codes, columns, SIZES) / 500, 500, noisy)
    noise = [each.values - centred(histogram(codes, each.columns, SIZES)) for each in noisy]
    assert degrees == 3 * 2 * 4 - 1
    assert squares == pytest.approx(sum(float(np.sum(each**2)) for each in noise) / 4)


@pytest.mark.parametrize(
    ("residual", "says"),
    [
        (Residual((1, 0), np.zeros((2, 3)), 1.0), "ST391"),
        (Residual((7,), np.zeros(3), 1.0), "ST392"),
        (Residual((0,), np.zeros(4), 1.0), "ST393"),
        (Residual((0,), np.full(3, np.nan), 1.0), "ST394"),
        (Residual((0,), np.zeros(3), 0.0), "ST394"),
    ],
)
def test_residuals_that_do_not_fit_are_refused(residual: Residual, says: str) -> None:
    with raises(StudyError, says):
        check(SIZES, [residual])
