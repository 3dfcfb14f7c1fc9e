"""From a published noisy matrix of second moments to weights, their error bars, and the spread of parts of scores.

Nothing here uses data or chance: it reads published numbers and public bounds, and draws with a public key that follows
from them, so it costs no privacy and everybody finds the same. With its noise the matrix may not be convex. Four steps
correct that:

1. subtract the noisy means: A = S - n m m', b = cov(x, y);
2. clip negative eigenvalues of A to zero: a covariance has none, so these are noise;
3. add a ridge as large as the noise's own operator norm, which is known beforehand. A symmetric d x d matrix of noise
   of deviation s has norm about 2 s sqrt(d); directions with less signal than that get almost no weight;
4. such a ridge shrinks the weights, so stretch each label's by one number, the least squares slope of the label on the
   fitted values, less the part of it that noise alone would give.

Error bars (docs/theory/error-bars.md): the weights w without noise solve A0 w = b0, so A w - b is noise whose
covariance is known. Where the eigenvalues of A stand out of the noise, this determines w; elsewhere nothing published
does, and the label's own variance limits w. Whoever receives scores of new people starts from the spread of each part;
with little budget it is rough, and a variance is put higher by two deviations that noise gives it.

Besides: from opened gradients to weights, and how far the noise of all rounds may have moved these.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds.regression.task import GradientTask
from colonnade.models.design import Matrix, owner_of
from colonnade.models.estimates import ErrorBars, public_normals
from colonnade.models.serialization import read_array, read_number, read_size
from colonnade.protocols.moments.task import NoisyMoments

Vector = NDArray[np.float64]

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


def order_moments(published: NoisyMoments, reading: MomentReading) -> tuple[Matrix, Matrix]:
    """Moments of the features, the labels in their own scale, and the constant, in this order; and their deviations."""
    place = {name: index for index, name in enumerate(published.names)}
    order = [*(place[name] for name in (*reading.features, *reading.labels)), -1]
    chosen = np.ix_(order, order)
    factors = np.ones(len(order))
    factors[len(reading.features) : -1] = 1 / reading.label_weight
    both = np.outer(factors, factors)
    return published.matrix[chosen] * both, published.deviations[chosen] * np.abs(both)


def fit_weights(
    published: NoisyMoments, reading: MomentReading, ridge: float | str, through: float | None = None
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


DRAWS = 1000
_SLOPE_POINTS = 40
_EXPLAINED = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Shares of the label's variance that the features may explain; how likely each is follows from what is published."""
_TURNS = 4
_ROUNDING = 1e-12


@dataclass(frozen=True)
class WeightDraws:
    """Weights and offsets that may be those without noise: draws given what is published.

    ``weights`` has the shape (draws, labels, features), the others (draws, labels). Offsets are for encoded columns;
    ``explained`` is the variance of the fitted values, ``agreements`` their covariance with the label.
    """

    weights: Matrix
    offsets: Matrix
    explained: Matrix
    agreements: Matrix


def sample_weights(
    published: NoisyMoments, reading: MomentReading, ridge: float | str, through: float | None = None
) -> WeightDraws:
    """Draws for the problem that :func:`fit_weights` solves with these arguments."""
    strength = 0.0 if ridge == "auto" else float(ridge)
    seen = _Seen.of(published, reading, strength, through)
    key = hashlib.sha256(b"colonnade error bars 1" + np.ascontiguousarray(published.matrix).tobytes()).digest()
    classes, width = len(reading.labels), len(reading.features)
    normals = public_normals(key, (classes, DRAWS, 2 * width + 1))
    weights, offsets = np.empty((DRAWS, classes, width)), np.full((DRAWS, classes), 0.0 if through is None else through)
    explained = np.empty((DRAWS, classes))
    for label in range(classes):
        weights[:, label] = seen.weights(label, normals[label, :, :-1])
        explained[:, label] = seen.explained(label, weights[:, label])
        if through is None:
            centred = seen.offsets(label, weights[:, label], normals[label, :, -1])
            offsets[:, label] = centred + reading.label_middles[label] - weights[:, label] @ reading.middles
    return WeightDraws(weights, offsets, explained, explained + strength * np.square(weights).sum(axis=2) / seen.rows)


def error_bars_of(value: Matrix, draws: Matrix) -> ErrorBars:
    """The deviation of draws, and an interval that holds 95 % of them and the published value."""
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return ErrorBars(draws.std(axis=0), np.minimum(low, value), np.maximum(high, value))


def slopes(draws: WeightDraws, label_means: Vector) -> Vector:
    """The slope of probabilities for each draw: the average of those of all labels.

    It is a smooth function of what a draw explains, so it is computed for some draws and interpolated between them.
    """
    total = np.zeros(len(draws.explained))
    for label, mean in enumerate(label_means):
        explained, agreements = draws.explained[:, label], draws.agreements[:, label]
        some = np.argsort(explained)[np.linspace(0, len(explained) - 1, _SLOPE_POINTS).astype(int)]
        known = steepnesses(0.5, float(mean), np.sqrt(explained[some]), agreements[some])
        total += np.interp(explained, explained[some], known)
    return total / len(label_means)


@dataclass(frozen=True)
class _Given:
    """The weights if features explain a certain share: before anything is seen, and how what is seen corrects them.

    ``root`` times standard normal numbers is a draw beforehand; ``reach`` times the weights is seen as ``cross``, with
    ``noise``; ``gain`` times the difference is what has to be added. ``chance`` is the logarithm of the share's own.
    """

    root: Matrix
    reach: Matrix
    noise: Matrix
    gain: Matrix
    cross: Vector
    chance: float

    def draws(self, normals: Matrix) -> Matrix:
        """Draws of the weights given what is seen, from standard normal numbers."""
        width, seen = self.root.shape[1], len(self.cross)
        before = normals[:, :width] @ self.root.T
        values, vectors = np.linalg.eigh(self.noise)
        error = (normals[:, width : width + seen] * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        found: Matrix = before + (self.cross - before @ self.reach.T - error) @ self.gain.T
        return found


@dataclass(frozen=True)
class _Seen:
    """What is published about the features and labels of one regression.

    ``moments`` and ``variances`` (those of the entries' noise) are of features, labels and the constant. ``features``
    and ``labels`` say how the problem's columns are made of these: minus their means, or plus an offset.
    """

    moments: Matrix
    variances: Matrix
    features: Matrix
    labels: Matrix
    rows: float
    constant: float
    prior: Vector
    """A weight's variance if the features explained all of the label's, for a label of variance 1 in all rows."""
    fixed: Matrix
    """Orthonormal columns: combinations of weights that are 0, as the sum of these features is the same for all."""
    gram: Matrix
    """The features' products, as far as they stand out of the noise."""
    seen: Matrix
    """Orthonormal columns: the directions in which they do; all of them, if there is a ridge."""
    ridge: float
    hidden: float
    """What is left of the sum of squares of a feature, on average."""

    @classmethod
    def of(cls, published: NoisyMoments, reading: MomentReading, ridge: float, through: float | None) -> _Seen:
        moments, deviations = order_moments(published, reading)
        width, last, constant = len(reading.features), len(moments) - 1, published.constant
        variances = np.square(np.maximum(deviations, _ROUNDING * np.abs(moments).max(initial=1.0)))
        rows = max(1.0, max(float(moments[last, last]), float(deviations[last, last])) / constant**2)
        change = np.eye(last, last + 1)
        if through is None:
            change[:, -1] = -np.clip(moments[last, :last] / (constant * rows), -1.0, 1.0) / constant
        else:
            change[:, -1] = np.append(reading.middles, reading.label_middles - through) / constant
        features, labels = change[:width], change[width:]
        columns = reading.columns or [(1, False)] * width
        raw = features @ moments @ features.T
        sizes = np.maximum(raw.diagonal(), 0.0)
        floor = np.sqrt(variances.diagonal()[:width])
        fixed = _fixed(columns, width) if through is None else np.zeros((width, 0))
        gram, seen = above_noise(raw, variances[:width, :width], fixed)
        hidden = max(0.0, float(raw.trace() - gram.trace())) / width
        seen = np.eye(width) if ridge else seen
        prior = _prior(sizes, floor, columns)
        return cls(moments, variances, features, labels, rows, constant, prior, fixed, gram, seen, ridge, hidden)

    def weights(self, label: int, normals: Matrix) -> Matrix:
        """Draws of one label's weights, from standard normal numbers: as many as features twice."""
        found = [self._given(label, share) for share in _EXPLAINED]
        logarithms = [each.chance for each in found]
        chances = np.exp(np.array(logarithms) - max(logarithms))
        ends = np.rint(len(normals) * np.cumsum(chances / chances.sum())).astype(int)
        pieces = np.split(normals, ends[:-1])
        return np.vstack([each.draws(piece) for each, piece in zip(found, pieces, strict=True)])

    def _given(self, label: int, share: float) -> _Given:
        """What is known of the weights if the features explain this share of the label's variance."""
        cross = self.seen.T @ self.features @ self.moments @ self.labels[label]
        deviations = np.sqrt(share * self._label_size(label) * self.prior)
        # A row of a root of the prior's covariance for each feature; its columns leave out what is fixed.
        root = np.diag(deviations) - self.fixed @ (self.fixed.T * deviations)
        prior = root @ root.T
        reach = self.seen.T @ self.gram + self.ridge * self.seen.T
        mean, covariance = np.zeros(len(root)), prior
        for _ in range(_TURNS):
            noise = self._noise(label, mean, covariance)
            whole = reach @ prior @ reach.T + noise
            whole += _ROUNDING * whole.trace() * np.eye(len(whole))  # else it may be singular, if there is no noise
            gain: Matrix = np.linalg.solve(whole, reach @ prior).T.astype(np.float64, copy=False)
            mean, covariance = gain @ cross, prior - gain @ reach @ prior
        half = np.linalg.cholesky(whole)
        chance = -np.square(np.linalg.solve(half, cross)).sum() / 2 - np.log(half.diagonal()).sum()
        return _Given(root, reach, noise, gain, cross, float(chance))

    def _noise(self, label: int, mean: Vector, covariance: Matrix) -> Matrix:
        """The covariance of the noise in A w - b along what is seen, for weights of this mean and covariance."""
        residual = self.labels[label] - mean @ self.features
        squares, last, width = np.outer(residual, residual), self.features[:, -1], len(mean)
        moved = covariance @ last
        squares[:width, :width] += covariance
        squares[:width, -1] += moved
        squares[-1, :width] += moved
        squares[-1, -1] += last @ moved
        entries = self.variances * squares
        np.fill_diagonal(entries, self.variances @ squares.diagonal())
        along = self.seen.T @ self.features
        found: Matrix = along @ entries @ along.T
        return found

    def _label_size(self, label: int) -> float:
        """The label's sum of squares, not below its noise."""
        row = self.labels[label]
        deviation = np.sqrt(np.square(row) @ self.variances @ np.square(row))
        return max(float(row @ self.moments @ row), float(deviation))

    def explained(self, label: int, weights: Matrix) -> Vector:
        """The variance of the fitted values, at most that of the label."""
        products = self.gram + self.hidden * np.eye(len(self.gram))
        found: Vector = np.einsum("nj,nj->n", weights @ products, weights) / self.rows
        return np.clip(found, 0.0, self._label_size(label) / self.rows)

    def offsets(self, label: int, weights: Matrix, normals: Vector) -> Vector:
        """The mean of the label minus that of the fitted values, and its noise."""
        residuals = self.labels[label] - weights @ self.features
        deviations = np.sqrt(np.square(residuals) @ self.variances[-1]) / (self.constant * self.rows)
        means = -self.constant * np.append(self.features[:, -1], self.labels[label, -1])
        found: Vector = means[-1] - weights @ means[:-1] + deviations * normals
        return found


def above_noise(gram: Matrix, variances: Matrix, fixed: Matrix) -> tuple[Matrix, Matrix]:
    """The part of a symmetric matrix that stands out of its noise, and orthonormal directions of it as columns.

    ``fixed`` are directions in which the matrix is 0. Noise of variance 1 hides eigenvalues below the root of the size
    d, and moves larger ones to l + d / l along directions that it turns; of an eigenvalue seen at m the part
    sqrt(m^2 - 4 d) is left. Columns with more noise than others are made smaller first.
    """
    sums = variances.sum(axis=1)
    scales = np.sqrt(sums / np.sqrt(sums.sum()))
    turned, _ = np.linalg.qr(fixed * scales[:, None])
    scaled = gram / np.outer(scales, scales)
    within = np.eye(len(gram)) - turned @ turned.T
    values, vectors = np.linalg.eigh(within @ scaled @ within)
    left = np.sqrt(np.maximum(np.square(np.maximum(values, 0.0)) - 4 * len(gram), 0.0))
    longer = vectors[:, left > 0] * scales[:, None]
    directions, _ = np.linalg.qr(longer)
    return (longer * left[left > 0]) @ longer.T, directions


def _fixed(columns: Sequence[tuple[int, bool]], width: int) -> Matrix:
    ends = np.cumsum([size for size, _ in columns])
    closed = [(end, size) for (size, whole), end in zip(columns, ends, strict=True) if whole]
    found = np.zeros((width, len(closed)))
    for place, (end, size) in enumerate(closed):
        found[end - size : end, place] = 1 / np.sqrt(size)
    return found


def _prior(sizes: Vector, floor: Vector, columns: Sequence[tuple[int, bool]]) -> Vector:
    """Variances of weights under which the features explain a label of variance 1.

    All weights have the same one, or a larger one where that is needed for each column to explain an equal share.
    """
    everything = max(float(sizes.sum()), float(np.linalg.norm(floor)), np.finfo(np.float64).tiny)
    found, start = np.empty(len(sizes)), 0
    for size, _ in columns:
        place = slice(start, start + size)
        own = max(float(sizes[place].sum()), float(np.linalg.norm(floor[place])))
        found[place] = max(1.0, everything / (len(columns) * max(own, np.finfo(np.float64).tiny))) / everything
        start += size
    return found


_MOST_PARTIES = 8  # each needs a map for every other one


@dataclass(frozen=True)
class PartForecast:
    """One party's part of a score, as another party's encoded columns foretell it: a linear map, and what it misses."""

    weights: Vector
    offset: float
    variance: float

    def of(self, rows: Matrix) -> Vector:
        """The expectation for each of these encoded rows."""
        found: Vector = rows @ self.weights + self.offset
        return found


@dataclass(frozen=True)
class PartLaw:
    """The mean and the variance of one party's part of a score, and what it foretells of the parts of others."""

    mean: float
    variance: float
    foretells: Mapping[str, PartForecast]


def part_laws(
    published: NoisyMoments, reading: MomentReading, weights: Matrix, parties: Sequence[str]
) -> dict[str, PartLaw] | None:
    """The law of every party's part, for one row of weights; ``None`` for several classes or many parties."""
    if len(weights) != 1 or len(parties) > _MOST_PARTIES:
        return None
    places: dict[str, list[int]] = {}
    for index, name in enumerate(reading.features):
        places.setdefault(str(owner_of(name, parties)[0]), []).append(index)
    place = {name: index for index, name in enumerate(published.names)}
    order = [*(place[name] for name in reading.features), -1]
    matrix, deviations = (each[np.ix_(order, order)] for each in (published.matrix, published.deviations))
    given = least_squares_problem(matrix, deviations, published.constant, np.empty(0, dtype=np.intp))
    parts = {party: _Part(given, deviations[:-1, :-1], weights[0], reading.middles, at) for party, at in places.items()}
    return {
        party: PartLaw(own.mean, own.variance, own.foretell({name: parts[name] for name in parts if name != party}))
        for party, own in parts.items()
    }


class _Part:
    """One party's part of a score in the noisy moments."""

    def __init__(
        self, given: LeastSquaresProblem, deviations: Matrix, weights: Vector, middles: Vector, at: list[int]
    ) -> None:
        self.given, self.deviations, self.at, self.weights = given, deviations, at, weights[at]
        self.middles = middles[at]
        self.mean = float(self.weights @ (given.feature_means[at] + self.middles))
        inside = np.ix_(at, at)
        spread = float(self.weights @ given.gram[inside] @ self.weights) / given.rows
        squares = np.square(self.weights)
        blur = float(np.sqrt(squares @ np.square(deviations[inside]) @ squares)) / given.rows
        # Weights are large where noise made moments small, so the spread they see is too small by about this much.
        self.variance = max(spread, 0.0) + 2 * blur

    def foretell(self, others: Mapping[str, _Part]) -> dict[str, PartForecast]:
        """Least squares of the others' parts on this party's columns, with a ridge as large as the noise."""
        if not others:
            return {}
        gram, at = self.given.gram, self.at
        cross = [gram[np.ix_(at, other.at)] @ other.weights for other in others.values()]
        blurs = [
            np.sqrt(np.square(self.deviations[np.ix_(at, other.at)]) @ np.square(other.weights))
            for other in others.values()
        ]
        found = solve(
            LeastSquaresProblem(
                gram=gram[np.ix_(at, at)],
                cross=np.stack(cross, axis=1),
                rows=self.given.rows,
                feature_means=self.given.feature_means[at],
                label_means=np.array([other.mean for other in others.values()]),
                noise=operator_norm(self.deviations[np.ix_(at, at)]),
                cross_deviations=np.stack(blurs, axis=1),
            )
        )
        # A map that noise alone could have made explains nothing: then the mean is all that is foretold.
        explained = 2 * found.agreements - np.square(found.spreads)
        laws = {}
        for index, (name, other) in enumerate(others.items()):
            helps = 0 < explained[index] < other.variance
            slopes = found.weights[index] if helps else np.zeros(len(at))
            offset = other.mean - float(slopes @ (self.given.feature_means[at] + self.middles))
            laws[name] = PartForecast(slopes, offset, other.variance - (float(explained[index]) if helps else 0.0))
        return laws


def read_laws(values: Mapping[str, Any]) -> dict[str, PartLaw]:
    """The laws from plain values."""
    return {
        party: PartLaw(
            read_number(law["mean"]),
            read_size(law["variance"]),
            {
                name: PartForecast(
                    read_array(each["weights"]), read_number(each["offset"]), read_size(each["variance"])
                )
                for name, each in law["foretells"].items()
            },
        )
        for party, law in values.items()
    }


_LARGEST_RATE = 8.0  # a row of norm 1 bends the loss by 1/4, and steps shrink errors while rate x 1/4 is below 2


@dataclass(frozen=True)
class LearnedWeights:
    """The published result: the average weights of the last half of the rounds, one row per class, the intercept last.

    The weights are for scaled rows; :attr:`slopes` and :attr:`offsets` are for the rows before scaling.
    """

    task: GradientTask
    weights: NDArray[np.float64]

    @property
    def slopes(self) -> NDArray[np.float64]:
        """Weights of the unscaled columns, (classes, columns)."""
        slopes: NDArray[np.float64] = self.weights[:, :-1] * self.task.scale
        return slopes

    @property
    def offsets(self) -> NDArray[np.float64]:
        """What is added to each class's score."""
        offsets: NDArray[np.float64] = self.weights[:, -1] * (self.task.constant / self.task.gamma)
        return offsets

    @property
    def deviation(self) -> float | None:
        """About the largest deviation that the rounds' noise can give a weight, as if no step undid earlier noise.

        ``None`` if the learning rate is so large that steps may even enlarge it.
        """
        task, early = self.task, self.task.rounds // 2
        if task.learning_rate > _LARGEST_RATE:
            return None
        late = task.rounds - early
        # Noise of a round stays in all later weights, and the last ``late`` of them are averaged.
        steps = early + (late + 1) * (2 * late + 1) / (6 * late)
        return task.learning_rate * task.noise_std * math.sqrt(steps)


class GradientDescent:
    """The public part of the iteration, equal at every participant: opened integers go in, integer weights come out.

    It uses only operations that every machine rounds in the same way: elementwise arithmetic and ``fsum``.
    """

    def __init__(self, task: GradientTask) -> None:
        self.task = task
        self.weights = np.zeros((task.classes, task.width))
        self._total = np.zeros_like(self.weights)
        self._done = 0
        self._rate, self._divisor = task.learning_rate / task.batch, task.divisor

    @property
    def integer_weights(self) -> NDArray[np.int64]:
        """The weights as integers, whose norm the sensitivity counts on."""
        whole = np.rint(self.weights * float(self.task.gamma))
        for row in whole:
            if squared_norm(row) > self.task.weights_squared:
                raise PrivacyError(
                    "the weights are longer than the sensitivity allows; nothing more is revealed [PR113]"
                )
        return whole.astype(np.int64)

    def step(self, opened: NDArray[Any]) -> None:
        """Take one step against the opened gradient, back into the ball, and add the weights to the average."""
        task = self.task
        gradient = (opened / self._divisor).astype(np.float64, copy=False).reshape(task.width, task.classes).T
        self.weights = self.weights - self._rate * gradient
        for row in self.weights:
            self._keep_inside(row)
        self._done += 1
        if self._done > task.rounds // 2:
            self._total += self.weights

    def _keep_inside(self, row: NDArray[np.float64]) -> None:
        norm = math.sqrt(math.fsum((row * row).tolist()))
        if not norm <= self.task.weight_bound:
            # A little inside the ball, so that rounding cannot leave it.
            row *= self.task.weight_bound / norm * (1 - 2.0**-40)

    @property
    def learned(self) -> LearnedWeights:
        """The average of the last half of the iterates."""
        return LearnedWeights(self.task, self._total / (self.task.rounds - self.task.rounds // 2))


def squared_norm(row: NDArray[np.float64]) -> int:
    """The exact squared norm of whole numbers (docs/theory/gradient-sensitivity.md, section 7); refuses others."""
    about = float(row.dot(row))
    if about < 2.0**53:  # sums of squares only grow, so none on the way was rounded
        return int(about)
    if not np.isfinite(row).all():
        raise PrivacyError("the weights cannot be computed from what was opened; nothing more is revealed [PR114]")
    return sum(int(value) ** 2 for value in row.tolist())


_UNDONE = 0.8
"""What later steps leave of a deviation that no step undoes: measured, as it depends on columns that nobody sees."""
_STEPS = 100
_NUMBERS = 4000  # of noise in each of these steps: many columns need few draws


def weight_deviations(result: LearnedWeights) -> NDArray[np.float64] | None:
    """The deviation of each class's weights, about the same for all of them; ``None`` where steps enlarge noise."""
    if (largest := result.deviation) is None:
        return None
    key = hashlib.sha256(b"colonnade error bars of rounds 1" + np.ascontiguousarray(result.weights).tobytes()).digest()
    classes, width = result.weights.shape
    noise = public_normals(key, (classes, min(_STEPS, result.task.rounds), max(2, min(40, _NUMBERS // width)), width))
    bound = result.task.weight_bound
    kept = [_kept(row, drawn, largest, bound) for row, drawn in zip(result.weights, noise, strict=True)]
    return _UNDONE * largest * np.array(kept)


def _kept(weights: NDArray[np.float64], noise: NDArray[np.float64], largest: float, bound: float) -> float:
    """What the ball leaves of this deviation, if the weights without noise are the published ones; at most 1.

    These are reached in the first half of the steps. Many rounds are one step here.
    """
    steps, draws, width = noise.shape
    early = steps // 2
    late = steps - early
    each = largest / np.sqrt(early + (late + 1) * (2 * late + 1) / (6 * late))
    noisy, apart = np.zeros((draws, width)), np.zeros((draws, width))
    for step in range(steps):
        share = min(1.0, (step + 1) / max(1, early))
        noisy = noisy + each * noise[step] + (weights / max(1, early) if step < early else 0.0)
        noisy = noisy * np.minimum(1.0, bound / np.maximum(np.linalg.norm(noisy, axis=1), bound / 2))[:, None]
        if step >= early:
            apart += noisy - share * weights
    return min(1.0, float(np.sqrt(np.mean(np.square(apart / late)))) / largest)
