"""How far noise may have moved weights that were computed from noisy second moments.

Nothing here uses data or chance: it reads published numbers, and draws with a public key that follows from them, so
it costs no privacy and everybody finds the same. The theory is in docs/theory/error-bars.md. In short: the weights w
without noise solve A0 w = b0, so A w - b is noise whose covariance is known. Where the eigenvalues of A stand out of
the noise, this determines w; elsewhere nothing published does, and the label's own variance limits w.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.kinds.regression.least_squares import (
    Matrix,
    MomentReading,
    MomentRelease,
    Vector,
    order_moments,
    steepnesses,
)
from colonnade.models.estimates import ErrorBars, public_normals

DRAWS = 1000
_SLOPES = 40
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
    published: MomentRelease, reading: MomentReading, ridge: float | str, through: float | None = None
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
        some = np.argsort(explained)[np.linspace(0, len(explained) - 1, _SLOPES).astype(int)]
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
    def of(cls, published: MomentRelease, reading: MomentReading, ridge: float, through: float | None) -> _Seen:
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
        ends = np.rint(len(normals) * np.cumsum(_normalised([each.chance for each in found]))).astype(int)
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


def _normalised(logarithms: Sequence[float]) -> Vector:
    chances = np.exp(np.array(logarithms) - max(logarithms))
    return np.asarray(chances / chances.sum())
