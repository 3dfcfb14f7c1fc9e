"""The two fits of an alternating exchange; each stops only when its gradient is short enough for the proofs.

A point with a short gradient is the exact minimum of a slightly changed objective, and the proofs count with that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.protocols.losses.labels import Family

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
_MOST_STEPS = 500
_SHORTEST = 2.0**-40
_STILL = 1e-7
_MOST_CRAWLED = 1_000_000
_UNSURE = 0.7  # relative error of the variance that was expected of a party's scores
_LEAST = 0.1  # as part of the expected variance: the least variance of scores, and the variance of their mean


@dataclass(frozen=True)
class Objective:
    """The mean loss of rows and labels and ``sum of penalties (w - centre)^2 / 2``."""

    rows: Matrix
    labels: Vector
    family: Family
    penalties: Vector
    centre: Vector

    def gradient(self, weights: Vector, scores: Vector) -> Vector:
        """Its gradient."""
        slopes = self.family.slopes(scores, self.labels)
        gradient: Vector = self.rows.T @ slopes / len(self.rows) + self.penalties * (weights - self.centre)
        return gradient

    def newton(self, gradient: Vector, scores: Vector) -> Vector:
        """The step to the minimum of its quadratic expansion."""
        bent = (self.rows * self.family.hessian(scores, self.labels)[:, None]).T @ self.rows / len(self.rows)
        return np.asarray(np.linalg.solve(bent + np.diag(self.penalties), gradient), dtype=np.float64)

    def gained(self, weights: Vector, scores: Vector, after: Vector, moved: Vector) -> float:
        """By how much a step lowers the objective: summed row by row, as a difference of totals would lose it."""
        losses = self.family.loss(scores, self.labels) - self.family.loss(moved, self.labels)
        nearer = self.penalties * (weights - after) * (weights + after - 2 * self.centre) / 2
        return float(losses.mean() + nearer.sum())


def penalised_fit(objective: Objective, slack: float | None) -> Vector:
    """The weights that minimise an objective: damped Newton steps, until the gradient is no longer than ``slack``.

    Without a slack the fit stops when it makes no more progress, and no proof may use its result. With a slack, short
    gradient steps follow where Newton's steps stop: they converge for every convex, smooth and penalised objective, so
    a fit does not fail because of its data, unless it needs too many steps.
    """
    weights = objective.centre.copy()
    scores: Vector = objective.rows @ weights
    for _ in range(_MOST_STEPS):
        gradient = objective.gradient(weights, scores)
        length = _norm(gradient)
        if length <= (_STILL * objective.family.slope_bound if slack is None else slack):
            return weights
        found = _shortened(objective, weights, scores, gradient, length)
        if found is None:
            break
        weights, scores = found
    return weights if slack is None else _crawled(objective, weights, slack)


def _shortened(
    objective: Objective, weights: Vector, scores: Vector, gradient: Vector, length: float
) -> tuple[Vector, Vector] | None:
    """A part of Newton's step that makes the objective smaller or the gradient shorter; ``None`` if no part does."""
    step = objective.newton(gradient, scores)
    promised, size = float(gradient @ step), 1.0
    while size >= _SHORTEST:
        after = weights - size * step
        moved: Vector = objective.rows @ after
        if objective.gained(weights, scores, after, moved) >= 1e-4 * size * promised:
            return after, moved
        if _norm(objective.gradient(after, moved)) <= (1 - 1e-4 * size) * length:
            return after, moved
        size /= 2
    return None


def _crawled(objective: Objective, weights: Vector, slack: float) -> Vector:
    """Gradient steps that are short enough for the largest curvature."""
    gram = objective.rows.T @ objective.rows / len(objective.rows)
    steepest = objective.family.curvature * float(np.linalg.eigvalsh(gram)[-1]) + objective.penalties
    for _ in range(_MOST_CRAWLED):
        gradient = objective.gradient(weights, objective.rows @ weights)
        if _norm(gradient) <= slack:
            return weights
        weights = weights - gradient / steepest
    raise ProtocolError("a fit did not converge")


def _norm(vector: Vector) -> float:
    return math.sqrt(float(vector @ vector))


def sparse_fit(objective: Objective, l1: Vector) -> Vector:
    """The minimum with the penalty ``sum of l1 |w|`` too, by accelerated proximal steps; many weights become zero.

    It is for a fit that nobody else sees, so it may stop when it hardly moves.
    """
    gram = objective.rows.T @ objective.rows / len(objective.rows)
    steepest = objective.family.curvature * float(np.linalg.eigvalsh(gram)[-1]) + objective.penalties
    weights = ahead = objective.centre.copy()
    pace = 1.0
    for _ in range(_MOST_STEPS):
        moved = ahead - objective.gradient(ahead, objective.rows @ ahead) / steepest
        after = np.sign(moved) * np.maximum(0.0, np.abs(moved) - l1 / steepest)
        if float((ahead - after) @ (after - weights)) > 0:
            pace, ahead = 1.0, weights  # it went too far: start to accelerate again
            continue
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        step = after - weights
        weights, ahead, pace = after, after + (pace - 1) / faster * step, faster
        if _norm(step) <= _STILL * (1 + _norm(weights)):
            break
    return weights


@dataclass(frozen=True)
class BallFit:
    """Minimises ``mean of a x(w - v) + curvature/2 (x(w - v))^2`` and ``ridge/2 |w|^2`` over a ball, for many a and v.

    The second moments of the rows do not change, so their eigenvectors are computed once.
    """

    gram: Matrix
    sizes: Vector
    axes: Matrix
    curvature: float
    ridge: float
    radius: float
    slack: float

    @classmethod
    def of(cls, rows: Matrix, curvature: float, ridge: float, radius: float, slack: float) -> BallFit:
        """For the rows of one party."""
        gram = rows.T @ rows / len(rows)
        sizes, axes = np.linalg.eigh(gram)
        return cls(gram, np.maximum(sizes, 0.0), axes, curvature, ridge, radius, slack)

    def minimise(self, gradient: Vector, before: Vector) -> Vector:
        """The new weights; ``gradient`` is the mean of a x, ``before`` are the weights v of the present scores."""
        wanted = self.curvature * (self.gram @ before) - gradient
        tall = self.curvature * self.sizes + self.ridge
        along = self.axes.T @ wanted
        held = self._held(along, tall)
        weights: Vector = self.axes @ (along / (tall + held))
        norm = _norm(weights)
        if norm > self.radius:
            weights *= self.radius / norm * (1 - 2.0**-50)
        tilt = self.curvature * (self.gram @ weights) + (self.ridge + held) * weights - wanted
        if _norm(tilt) > self.slack:
            raise ProtocolError("a fit did not converge: raise strength")
        return weights

    def _held(self, along: Vector, tall: Vector) -> float:
        """The multiplier that keeps the weights within the ball, by Newton on the inverse of their norm."""
        held = 0.0
        for _ in range(_MOST_STEPS):
            parts = along / (tall + held)
            norm = _norm(parts)
            if norm <= self.radius * (1 + 2.0**-48):
                return held
            slope = float((parts * parts / (tall + held)).sum())
            held += norm * norm / slope * (norm / self.radius - 1)
        return held


@dataclass(frozen=True)
class Believed:
    """An estimate from received scores: mean and variance of the true scores, and the variance of noise on each."""

    middle: float
    signal: float
    noise: float

    @property
    def share(self) -> float:
        """The part of the variance that is no noise."""
        return self.signal / (self.signal + self.noise)


def believed(received: NDArray[np.float64], clip: float, noise: float, shared: float = 0.0) -> Believed:
    """An estimate from scores within ``clip``; ``noise`` is the variance on each, ``shared`` that of a common error.

    The deviation of scores is expected to be half of their clip; received scores correct that, the more there are. A
    shared error, such as that of blurred weights, is drawn once for all scores, so averages over scores keep it.
    """
    count, expected, whole = len(received), (clip / 2) ** 2, noise + shared
    # Most of a noisy mean is noise, and its error would shift the scores of everybody.
    middle = float(received.mean()) * _LEAST * expected / (_LEAST * expected + noise / count + shared)
    seen = float(received.var()) - whole
    doubt, error = (_UNSURE * expected) ** 2, 2 * (whole + expected) ** 2 / count + 2 * shared**2
    signal = max((expected * error + seen * doubt) / (error + doubt), _LEAST * expected)
    return Believed(middle, signal, whole)
