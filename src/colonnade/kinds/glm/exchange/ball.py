"""A passive party's fit over a ball. Its steps are as many for all rows: others see how long it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.kinds.glm.exchange.fits import Matrix, Vector

_EXACT = 52  # halvings after which the norm of the weights is known as exactly as floats can be


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
    steps: int

    @classmethod
    def of(cls, rows: Matrix, curvature: float, ridge: float, radius: float, pull: float) -> BallFit:
        """For the rows of one party; ``pull`` bounds the gradient at zero weights, whatever the rows are."""
        gram = rows.T @ rows / len(rows)
        sizes, axes = np.linalg.eigh(gram)
        steps = _EXACT + max(0, math.ceil(math.log2(pull / (radius * ridge))))
        return cls(gram, np.maximum(sizes, 0.0), axes, curvature, ridge, radius, steps)

    def minimise(self, gradient: Vector, before: Vector) -> Vector:
        """The new weights; ``gradient`` is the mean of a x, ``before`` are the weights v of the present scores."""
        along = self.axes.T @ (self.curvature * (self.gram @ before) - gradient)
        tall = self.curvature * self.sizes + self.ridge
        weights: Vector = self.axes @ (along / (tall + self._held(along, tall)))
        norm = math.sqrt(float(weights @ weights))
        return weights * (self.radius / norm * (1 - 2.0**-50) if norm > self.radius else 1.0)

    def _held(self, along: Vector, tall: Vector) -> float:
        """The multiplier that keeps the weights within the ball; 0 if they are within it anyway.

        Each step halves where it can be, which is proven to be enough. Newton's step on the inverse of the norm, which
        is concave, never goes too far, and is enough long before.
        """
        low, high = 0.0, math.sqrt(float(along @ along)) / self.radius
        for _ in range(self.steps):
            middle = (low + high) / 2
            norm, _ = _curve(along, tall + middle)
            low, high = (middle, high) if norm > self.radius else (low, middle)
            norm, slope = _curve(along, tall + low)
            further = norm * norm / slope * (norm / self.radius - 1) if slope else 0.0
            low = min(max(low, low + further), high)
        return low


def _curve(along: Vector, tall: Vector) -> tuple[float, float]:
    """The norm of the weights for one multiplier, and how fast the half of its square falls as that grows."""
    parts = along / tall
    squares = parts * parts
    return math.sqrt(float(squares.sum())), float((squares / tall).sum())
