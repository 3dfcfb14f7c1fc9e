"""How well a table agrees with the noisy marginals that were released: a comparison that is paid for already.

Nobody looks at data for it. Chi-squared weighs each difference by its noise, whose level is public: about one for each
degree of freedom means that the table says what the release says, as far as the noise can tell. For a table that was
fitted to the same release, chi-squared may be smaller: then the table repeats some of the noise. How far the table is
from the real one can only be estimated from a release that the table was not fitted to; then ``distance`` has no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.release import Floats, Residual, centre, check_residuals


@dataclass(frozen=True)
class Agreement:
    """The residuals of sets of ``order`` columns: the table's beside the released ones.

    ``surprise`` is by how many standard deviations chi-squared exceeds its degrees of freedom; of the set where that
    is largest, ``worst``. ``distance`` estimates the root of the mean squared difference of the shares of people in a
    cell between the table and the truth, noise taken out, and ``deviation`` is the standard error of its square.
    """

    order: int
    sets: int
    chi_squared: float
    degrees: int
    surprise: float
    worst: float
    worst_set: tuple[int, ...]
    distance: float
    squared: float
    deviation: float


def against_release(
    codes: NDArray[np.int64], sizes: Sequence[int], count: float, residuals: Sequence[Residual]
) -> tuple[Agreement, ...]:
    """Compare a table of codes with a release, for each number of columns that was asked for."""
    check_residuals(sizes, residuals)
    people = max(count, 1.0)
    orders = sorted({len(each.columns) for each in residuals if each.degrees and each.columns})
    return tuple(
        _agreement(order, [each for each in residuals if len(each.columns) == order and each.degrees], codes, people)
        for order in orders
    )


def _agreement(order: int, residuals: Sequence[Residual], codes: NDArray[np.int64], people: float) -> Agreement:
    gaps = [float(np.sum((implied(codes, each, people) - each.values) ** 2)) for each in residuals]
    chi = [gap / each.deviation**2 for gap, each in zip(gaps, residuals, strict=True)]
    degrees = [each.degrees for each in residuals]
    surprises = [_surprise(*pair) for pair in zip(chi, degrees, strict=True)]
    worst = int(np.argmax(surprises))
    cells = sum(each.values.size for each in residuals) * people**2
    noise = [each.deviation**2 * each.degrees for each in residuals]
    squared = (sum(gaps) - sum(noise)) / cells
    # The variance of a squared Gaussian around a mean whose square is, in turn, estimated.
    spread = sum(
        2 * each.degrees * each.deviation**4 + 4 * each.deviation**2 * max(gap - part, 0.0)
        for gap, part, each in zip(gaps, noise, residuals, strict=True)
    )
    return Agreement(
        order,
        len(residuals),
        sum(chi),
        sum(degrees),
        _surprise(sum(chi), sum(degrees)),
        surprises[worst],
        residuals[worst].columns,
        math.sqrt(max(squared, 0.0)),
        squared,
        math.sqrt(spread) / cells,
    )


def implied(codes: NDArray[np.int64], residual: Residual, people: float) -> Floats:
    """The residual of a set of columns that a table would have, with as many people as the release counted."""
    shape = residual.values.shape
    cells = np.ravel_multi_index(tuple(codes[:, column] for column in residual.columns), shape)
    counts = np.bincount(cells, minlength=residual.values.size).reshape(shape)
    return centre(np.asarray(people / len(codes) * counts, dtype=np.float64))


def _surprise(chi_squared: float, degrees: int) -> float:
    return (chi_squared - degrees) / math.sqrt(2 * degrees)
