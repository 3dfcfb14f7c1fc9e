"""The functional mechanism as published, in one place: coefficients over the box, Laplace noise, one minimum.

Labelled "as published, not proven" wherever it is shown: in the paper pairs of parties decrypt exact products of
their columns before they add noise, so nothing is promised between parties. The paper does not say what to do when
the noisy quadratic has no minimum; here it is made convex as in the original functional mechanism: a ridge of four
deviations of the noise, and directions whose curvature is still not positive are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.randomness import Stream
from research.formulas import paper_linear_l1, paper_logistic_l1
from research.reproduce.chance import Matrix, laplace


@dataclass(frozen=True)
class Quadratic:
    """``w' curve w + slope' w``: what is minimised, and how many coefficients get noise."""

    curve: Matrix
    slope: Matrix

    @classmethod
    def linear(cls, square: Matrix, product: Matrix) -> Quadratic:
        """Least squares from X'X and X'y (the paper's Equation 2, without the constant)."""
        return cls(square, -2 * product)

    @classmethod
    def logistic(cls, square: Matrix, half: Matrix) -> Quadratic:
        """The logistic loss to second order (Equation 4): X'X / 8 and X'(1/2 - y)."""
        return cls(square / 8, half)

    def minimum(self) -> Matrix:
        """The weights, without any noise."""
        return np.asarray(np.linalg.lstsq(2 * self.curve, -self.slope, rcond=None)[0], dtype=np.float64)

    def noisy(self, sensitivity: float, epsilon: float, source: Stream) -> Matrix:
        """The weights of the perturbed objective: Lap(sensitivity / epsilon) on every coefficient."""
        scale, columns = sensitivity / epsilon, len(self.slope)
        # One number for w_a w_b and one for w_b w_a, as the paper counts them.
        noise = laplace(scale, (columns, columns), source)
        curve = self.curve + (noise + noise.T) / 2
        slope = self.slope + laplace(scale, columns, source)
        return trimmed_minimum(curve, slope, 4 * math.sqrt(2) * scale)


def trimmed_minimum(curve: Matrix, slope: Matrix, ridge: float) -> Matrix:
    """The minimum of a quadratic made convex: a ridge, then only directions of positive curvature."""
    values, vectors = np.linalg.eigh(curve + ridge * np.eye(len(slope)))
    good = values > 0
    kept = vectors[:, good]
    found: Matrix = -kept @ ((kept.T @ slope) / (2 * values[good]))
    return found


def linear_sensitivity(columns: int) -> float:
    """The paper's Delta_f for linear regression."""
    return float(paper_linear_l1(columns))


def logistic_sensitivity(columns: int) -> float:
    """The paper's Delta_f for logistic regression."""
    return float(paper_logistic_l1(columns))
