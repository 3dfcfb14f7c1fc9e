"""The two fits of an alternating exchange, each to a gradient that is certified to be short.

The proofs speak of minimisers of a slightly tilted objective; the length of the gradient at which a fit stops is how
far it is tilted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.protocols.families import Family

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
_MOST_STEPS = 500
_SHORTEST = 2.0**-40
_STILL = 1e-7


def penalised_fit(
    rows: Matrix, labels: Vector, family: Family, penalties: Vector, centre: Vector, slack: float
) -> Vector:
    """The weights that minimise the mean loss and ``sum of penalties (w - centre)^2 / 2``, by damped Newton steps."""
    weights = centre.copy()
    value, scores = _objective(rows, labels, family, penalties, centre, weights)
    for _ in range(_MOST_STEPS):
        gradient = rows.T @ family.slopes(scores, labels) / len(rows) + penalties * (weights - centre)
        if math.sqrt(float(gradient @ gradient)) <= slack:
            return weights
        curved = (rows * family.hessian(scores, labels)[:, None]).T @ rows / len(rows)
        step = np.linalg.solve(curved + np.diag(penalties), gradient)
        size = 1.0
        while True:
            after, moved = _objective(rows, labels, family, penalties, centre, weights - size * step)
            # Near the minimum the objective is flat to the last digit; a shorter gradient is then what counts.
            if after <= value - 1e-4 * size * float(gradient @ step) or size < _SHORTEST:
                break
            size /= 2
        weights, value, scores = weights - size * step, after, moved
    raise ProtocolError("a fit did not converge: raise the ridge")


def sparse_fit(rows: Matrix, labels: Vector, family: Family, penalties: Vector, centre: Vector, l1: Vector) -> Vector:
    """The same with ``sum of l1 |w|`` besides, by accelerated proximal steps: many weights end at zero exactly.

    It is for a fit that nobody else sees, so it stops when it hardly moves and certifies nothing.
    """
    steepest = family.curvature * float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]) + penalties
    weights = ahead = centre.copy()
    pace = 1.0
    for _ in range(_MOST_STEPS):
        gradient = rows.T @ family.slopes(rows @ ahead, labels) / len(rows) + penalties * (ahead - centre)
        moved = ahead - gradient / steepest
        after = np.sign(moved) * np.maximum(0.0, np.abs(moved) - l1 / steepest)
        if float((ahead - after) @ (after - weights)) > 0:
            pace, ahead = 1.0, weights  # it overshot: start to gather speed again
            continue
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        step = after - weights
        weights, ahead, pace = after, after + (pace - 1) / faster * step, faster
        if math.sqrt(float(step @ step)) <= _STILL * (1 + math.sqrt(float(weights @ weights))):
            break
    return weights


def _objective(
    rows: Matrix, labels: Vector, family: Family, penalties: Vector, centre: Vector, weights: Vector
) -> tuple[float, Vector]:
    scores: Vector = rows @ weights
    away = weights - centre
    return float(family.loss(scores, labels).mean() + penalties @ (away * away) / 2), scores


@dataclass(frozen=True)
class BallFit:
    """Minimises ``mean of a x(w - v) + curvature/2 (x(w - v))^2`` and ``ridge/2 |w|^2`` over a ball, for many a and v.

    The second moments of the rows do not change, so they are taken apart once.
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
        """The new weights; ``gradient`` is the mean of a x, ``before`` the weights v that the scores were made of."""
        wanted = self.curvature * (self.gram @ before) - gradient
        tall = self.curvature * self.sizes + self.ridge
        along = self.axes.T @ wanted
        held = self._held(along, tall)
        weights: Vector = self.axes @ (along / (tall + held))
        norm = math.sqrt(float(weights @ weights))
        if norm > self.radius:
            weights *= self.radius / norm * (1 - 2.0**-50)
        tilt = self.curvature * (self.gram @ weights) + (self.ridge + held) * weights - wanted
        if math.sqrt(float(tilt @ tilt)) > self.slack:
            raise ProtocolError("a fit did not converge: raise the ridge")
        return weights

    def _held(self, along: Vector, tall: Vector) -> float:
        """The multiplier that keeps the weights within the ball, by Newton on the inverse of their norm."""
        held = 0.0
        for _ in range(_MOST_STEPS):
            parts = along / (tall + held)
            norm = math.sqrt(float(parts @ parts))
            if norm <= self.radius * (1 + 2.0**-48):
                return held
            slope = float((parts * parts / (tall + held)).sum())
            held += norm * norm / slope * (norm / self.radius - 1)
        return held
