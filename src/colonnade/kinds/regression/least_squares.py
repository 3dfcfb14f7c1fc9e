"""From a published noisy matrix of second moments to the weights of a regression.

Nothing here uses data: it reads published numbers and public bounds, so it costs no privacy and may be repeated in
another way. With its noise the matrix may not be convex. Four steps correct that:

1. subtract the noisy means: A = S - n m m', b = cov(x, y);
2. clip negative eigenvalues of A to zero: a covariance has none, so these are noise;
3. add a ridge as large as the noise's own operator norm, which is known beforehand. A symmetric d x d matrix of noise
   of deviation s has norm about 2 s sqrt(d); directions with less signal than that get almost no weight;
4. such a ridge shrinks the weights, so stretch each label's by one number, the least squares slope of the label on the
   fitted values, less the part of it that noise alone would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

TAYLOR = 4.0  # log-odds of a probability p are about 4 (p - 1/2)
_SLOPES = (1.0, 16.0)
_RAREST = 1e-3  # no class is taken for rarer, whatever noise made of its share
_MOST_BETWEEN = 0.9  # of the deviation of scores at most so much lies between the classes
_MOST_STRETCH = 2.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)


@dataclass(frozen=True)
class LeastSquaresProblem:
    """Least squares of one or more labels on the features, from noisy moments.

    ``gram`` is the sum of centred products of features, ``cross`` that of features and labels, both over all rows.
    """

    gram: Matrix
    cross: Matrix
    rows: float
    feature_means: Vector
    label_means: Vector
    noise: float
    """About the operator norm of the noise in ``gram``."""
    cross_deviations: Matrix


@dataclass(frozen=True)
class LeastSquaresSolution:
    """Weights (labels, features) and intercepts, and what was done to get them."""

    weights: Matrix
    intercepts: Vector
    ridge: float
    clipped: int
    """How many eigenvalues were negative."""
    stretches: Vector
    spreads: Vector
    """The deviation of each label's fitted values."""
    agreements: Vector
    """The covariance of fitted values and label, less what the noise in ``cross`` is expected to add to it."""


@dataclass(frozen=True)
class FittedWeights:
    """Least squares in the encoded columns: label = weights . x + offset."""

    weights: Matrix
    offsets: Vector
    label_means: Vector
    rows: float
    solution: LeastSquaresSolution


class MomentRelease(Protocol):
    """What must be known about published second moments."""

    @property
    def matrix(self) -> Matrix:
        """Second moments; the constant is last."""

    @property
    def deviations(self) -> Matrix:
        """Deviations of the entries' noise."""

    @property
    def constant(self) -> float:
        """The constant's value."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, without the constant."""


@dataclass(frozen=True)
class MomentReading:
    """How to read published moments: which columns are features and labels, and how they were centred and scaled."""

    features: Sequence[str]
    labels: Sequence[str]
    middles: Vector
    label_middles: Vector
    label_weight: float
    columns: Sequence[tuple[int, bool]] = ()
    """For each column of a table, how many features it has, and whether their sum is the same for everybody."""


def order_moments(published: MomentRelease, reading: MomentReading) -> tuple[Matrix, Matrix]:
    """Moments of the features, the labels in their own scale, and the constant, in this order; and their deviations."""
    place = {name: index for index, name in enumerate(published.names)}
    order = [*(place[name] for name in (*reading.features, *reading.labels)), -1]
    chosen = np.ix_(order, order)
    factors = np.ones(len(order))
    factors[len(reading.features) : -1] = 1 / reading.label_weight
    return rescale_moments(published.matrix[chosen], published.deviations[chosen], factors)


def fit_weights(
    published: MomentRelease, reading: MomentReading, ridge: float | str, through: float | None = None
) -> FittedWeights:
    """Weights for encoded columns; with ``through`` they pass through that value of the label where all x are 0."""
    constant, count, classes = published.constant, len(reading.features), len(reading.labels)
    matrix, deviations = order_moments(published, reading)
    if through is not None:
        offsets = np.concatenate([reading.middles, reading.label_middles - through])
        matrix, deviations = shift_moments(matrix, deviations, constant, offsets)
    labels = np.arange(count, count + classes)
    given = least_squares_problem(matrix, deviations, constant, labels, centred=through is None)
    found = solve(given, ridge, stretch=through is None)
    if through is not None:
        return FittedWeights(found.weights, np.full(classes, through), given.label_means, given.rows, found)
    encoded = found.intercepts + reading.label_middles - found.weights @ reading.middles
    weights, encoded = balance_categories(found.weights, encoded, reading.columns)
    return FittedWeights(weights, encoded, given.label_means + reading.label_middles, given.rows, found)


def balance_categories(weights: Matrix, offsets: Vector, columns: Sequence[tuple[int, bool]]) -> tuple[Matrix, Vector]:
    """The same predictions by weights whose sum is 0 for the values of a category, as everybody has one of them.

    Without noise the shortest solution is so; what noise adds to all values alike is moved to the offset.
    """
    found, moved, start = weights.copy(), offsets.copy(), 0
    for size, whole in columns:
        if whole:
            common = found[:, start : start + size].mean(axis=1)
            found[:, start : start + size] -= common[:, None]
            moved += common
        start += size
    return found, moved


def least_squares_problem(
    matrix: Matrix, deviations: Matrix, constant: float, labels: NDArray[np.intp], *, centred: bool = True
) -> LeastSquaresProblem:
    """The least squares problem in a noisy matrix of second moments whose last row and column are the constant's.

    ``deviations`` are those of the entries' noise. The noisy number of rows is kept above its own deviation, and means
    within -1 and 1, the public bounds of columns, so that a very small budget gives weights near 0 and not huge ones.
    """
    last = len(matrix) - 1
    features = np.setdiff1d(np.arange(last), labels)
    rows = max(1.0, max(float(matrix[last, last]), float(deviations[last, last])) / constant**2)
    means = np.clip(matrix[last, :last] / (constant * rows), -1.0, 1.0)
    moments = matrix[:last, :last]
    if centred:
        moments = moments - rows * np.outer(means, means)
    return LeastSquaresProblem(
        gram=moments[np.ix_(features, features)],
        cross=moments[np.ix_(features, labels)],
        rows=rows,
        feature_means=means[features] if centred else np.zeros(len(features)),
        label_means=means[labels] if centred else np.zeros(len(labels)),
        noise=operator_norm(deviations[np.ix_(features, features)]),
        cross_deviations=deviations[np.ix_(features, labels)],
    )


def rescale_moments(matrix: Matrix, deviations: Matrix, factors: Vector) -> tuple[Matrix, Matrix]:
    """The moments of columns that are multiplied by these factors, and their deviations."""
    both = np.outer(factors, factors)
    return matrix * both, deviations * np.abs(both)


def shift_moments(matrix: Matrix, deviations: Matrix, constant: float, offsets: Vector) -> tuple[Matrix, Matrix]:
    """The moments of columns to which these offsets are added; the last column is the constant."""
    change = np.eye(len(matrix))
    change[:-1, -1] = offsets / constant
    spread = np.square(change)
    return change @ matrix @ change.T, np.sqrt(spread @ np.square(deviations) @ spread.T)


def operator_norm(deviations: Matrix) -> float:
    """About the largest eigenvalue of a symmetric matrix of independent noise with these deviations."""
    return 2 * math.sqrt(float(np.square(deviations).sum(axis=1).max(initial=0.0)))


def solve(given: LeastSquaresProblem, ridge: float | str = "auto", *, stretch: bool = True) -> LeastSquaresSolution:
    """The weights, for all labels by one eigendecomposition; ``"auto"`` takes the ridge from the noise."""
    strength = given.noise if ridge == "auto" else check_ridge(ridge)
    values, vectors = np.linalg.eigh(given.gram)
    kept = np.maximum(values, 0.0)
    floor = float(kept.max(initial=0.0)) * len(kept) * float(np.finfo(np.float64).eps)
    total = kept + strength
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > floor)
    along = vectors.T @ given.cross
    weights = (vectors * inverse) @ along
    squares = kept @ np.square(inverse[:, None] * along) / given.rows
    illusion = inverse @ np.square(vectors).T @ np.square(given.cross_deviations)
    agreements = (np.einsum("jk,jk->k", weights, given.cross) - illusion) / given.rows
    stretches = np.ones(len(squares))
    if ridge == "auto" and stretch:
        ratios = np.divide(agreements, squares, out=stretches.copy(), where=squares > 0)
        stretches = np.clip(ratios, 1.0, _MOST_STRETCH)
    return LeastSquaresSolution(
        weights=(weights * stretches).T,
        intercepts=given.label_means - given.feature_means @ (weights * stretches),
        ridge=strength,
        clipped=int(np.count_nonzero(values < 0)),
        stretches=stretches,
        spreads=np.sqrt(squares) * stretches,
        agreements=agreements * stretches,
    )


def check_ridge(ridge: object) -> float:
    """The ridge that the user gave, as a float; an error if it is not a number from 0 on."""
    if isinstance(ridge, bool) or not isinstance(ridge, int | float) or not 0 <= ridge < math.inf:
        raise StudyError(f'ridge must be "auto" or a number from 0 on, not {ridge!r} [ST205]')
    return float(ridge)


def steepness(threshold: float, mean: float, spread: float, agreement: float) -> float:
    """The slope k of the probabilities sigmoid(k (s - threshold)) for a least squares score s.

    The score equation of a logistic regression on s alone, with the threshold fixed, needs the mean of
    y (s - threshold), which follows from the moments, and that of sigmoid(k (s - threshold)) (s - threshold), for which
    s is assumed to be normal within each of the two classes, around means and with a deviation that follow from the
    moments, too. The slope is kept between 1 and 16; the Taylor slope is 4.
    """
    return float(steepnesses(threshold, mean, np.array([spread]), np.array([agreement]))[0])


def steepnesses(threshold: float, mean: float, spreads: Vector, agreements: Vector) -> Vector:
    """The slopes for several spreads and agreements of the scores."""
    rarer = min(max(mean, _RAREST), 1 - _RAREST)
    classes = math.sqrt(rarer * (1 - rarer))
    between = np.clip(agreements / classes, 0, _MOST_BETWEEN * spreads)
    within = np.sqrt(np.square(spreads) - np.square(between))
    means = [mean - rarer / classes * between, mean + (1 - rarer) / classes * between]
    scores = np.hstack([each[:, None] + np.multiply.outer(within, _NODES) - threshold for each in means])
    weights = np.concatenate([(1 - rarer) * _WEIGHTS, rarer * _WEIGHTS]) / _WEIGHTS.sum()
    wanted = agreements + mean * (mean - threshold)

    def short(slopes: Vector) -> NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            reached: Vector = (scores / (1 + np.exp(-slopes[:, None] * scores))) @ weights
        return reached < wanted

    low, high = (np.full(len(spreads), slope) for slope in _SLOPES)
    none, never = ~short(low), short(high)
    for _ in range(40):
        middle = (low + high) / 2
        below = short(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(never, _SLOPES[1], np.where(none, _SLOPES[0], low))
