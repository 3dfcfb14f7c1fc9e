"""The active party's fits. What is sent of a fit is certified: its gradient is short enough for the proofs.

A point with a short gradient is the exact minimum of a slightly changed objective, and the proofs count with that.
Others see how long a certified fit takes, so the number of its steps follows from public numbers and not from the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.glm.families import Family, Matrix, Vector

NEWTON_STEPS = 12
TRIALS = 8  # points at which a line is looked at in each of these steps
_FARTHEST = 8.0  # in Newton's steps
AT_ONCE = 4_000_000  # rows times steps: proven steps are taken, needed or not, if they are no more than this
_MOST_STEPS = 500
_STILL = 1e-7
_UNSURE = 0.7  # relative error of the variance that was expected of a party's scores
_LEAST = 0.1  # as part of the expected variance: the least variance of scores, and the variance of their mean


@dataclass(frozen=True)
class FitObjective:
    """The mean loss of rows and labels and ``sum of penalties (w - centre)^2 / 2``."""

    rows: Matrix
    labels: Vector
    family: Family
    penalties: Vector
    centre: Vector

    def at(self, weights: Vector) -> FitPoint:
        """These weights, with what follows from them."""
        return FitPoint(self, weights, self.rows @ weights)

    def newton(self, point: FitPoint) -> Vector:
        """The step to the minimum of its quadratic expansion."""
        bent = (self.rows * self.family.hessian(point.scores, self.labels)[:, None]).T @ self.rows / len(self.rows)
        return np.asarray(np.linalg.solve(bent + np.diag(self.penalties), point.gradient), dtype=np.float64)

    def decrease(self, before: FitPoint, after: FitPoint) -> float:
        """By how much a step lowers the objective: summed row by row, as a difference of totals would lose it."""
        losses = self.family.loss(before.scores, self.labels) - self.family.loss(after.scores, self.labels)
        moved, both = before.weights - after.weights, before.weights + after.weights
        return float(losses.mean() + (self.penalties * moved * (both - 2 * self.centre) / 2).sum())


@dataclass(frozen=True)
class FitPoint:
    """Weights, the scores that they give, and the gradient of an objective there."""

    objective: FitObjective
    weights: Vector
    scores: Vector

    @cached_property
    def gradient(self) -> Vector:
        """The gradient of the objective."""
        of = self.objective
        slopes = of.family.slopes(self.scores, of.labels)
        gradient: Vector = of.rows.T @ slopes / len(of.rows) + of.penalties * (self.weights - of.centre)
        return gradient

    @cached_property
    def length(self) -> float:
        """The length of the gradient."""
        return _norm(self.gradient)


def certified_fit(objective: FitObjective, row_norm: float, slack: float) -> Vector:
    """The minimum of an objective up to a gradient of length ``slack``, for any rows of norm at most ``row_norm``.

    A fixed number of Newton's steps comes there for every table that was tried. Where it does not, as many accelerated
    gradient steps follow as are proven to be enough. They are taken at any rate where they are few.
    """
    found = _newton(objective, 0.0)
    steps = proven_steps(objective.family, objective.penalties, row_norm, slack)
    if steps * len(objective.rows) <= AT_ONCE or found.length > slack:
        found = min(found, _accelerated(objective, found, row_norm, steps), key=lambda point: point.length)
    return found.weights


def free_fit(objective: FitObjective) -> Vector:
    """The minimum, as far as it matters: a fit of which nothing is sent may end early, and no proof may use it."""
    return _newton(objective, _STILL * objective.family.slope_bound).weights


def _newton(objective: FitObjective, enough: float) -> FitPoint:
    """The point with the shortest gradient, of Newton's steps to the minimum along each of their directions.

    At a corner of the loss a whole step crosses over, and the next one comes back: halves of steps would zigzag there
    for thousands of steps, where the minimum along the line lies at the corner.
    """
    point = best = objective.at(objective.centre.copy())
    for _ in range(NEWTON_STEPS):
        if best.length <= enough and enough:
            break
        step = objective.newton(point)
        point = objective.at(point.weights - _size(point, step) * step)
        best = min(best, point, key=lambda each: each.length)
    return best


def _size(point: FitPoint, step: Vector) -> float:
    """The part of a step after which the objective hardly falls along it, by false position at so many points."""
    of = point.objective
    across: Vector = of.rows @ step
    pulled, held = float((of.penalties * step) @ (point.weights - of.centre)), float((of.penalties * step) @ step)

    def tilt(size: float) -> float:
        slopes = of.family.slopes(point.scores - size * across, of.labels)
        return size * held - pulled - float(slopes @ across) / len(across)

    # As many calls on every path: a look at the end of a whole step, then at the farthest point if it is still falling
    # there, and from then on between the nearest points where it falls and where it rises.
    low, high = (0.0, -float(point.gradient @ step)), (_FARTHEST, math.inf)
    best, came = low, 0
    for trial in range(TRIALS):
        if trial == 0:
            size = 1.0
        elif high[1] == math.inf:
            size = high[0]
        else:
            apart = high[1] - low[1]
            size = low[0] - low[1] * (high[0] - low[0]) / apart if apart > 0 else (low[0] + high[0]) / 2
        looked = (size := min(max(size, low[0]), high[0]), tilt(size))
        best = min(best, looked, key=lambda each: abs(each[1]))
        # A side that stays twice counts half, so that both close in.
        if looked[1] < 0:
            low, high = looked, (high[0], high[1] / 2 if came < 0 else high[1])
            came = -1
        else:
            low, high = (low[0], low[1] / 2 if came > 0 else low[1]), looked
            came = 1
    return best[0]


def proven_steps(family: Family, penalties: Vector, row_norm: float, slack: float) -> int:
    """How many accelerated steps reach a gradient of ``slack`` for any rows (docs/theory/alternating-fits.md).

    It follows from public bounds and from penalties, which are made of public numbers and of what was received.
    """
    bent, least = family.curvature * row_norm**2, float(penalties.min())
    steepest = bent + float(penalties.max())
    shorter = 8 * steepest / least * (family.slope_bound * row_norm / slack) ** 2
    return math.ceil(math.sqrt(bent / least + 1) * math.log(shorter))


def _accelerated(objective: FitObjective, start: FitPoint, row_norm: float, steps: int) -> FitPoint:
    """Nesterov's steps for the largest curvature that such rows allow, from ``start`` if it is below the centre."""
    centre = objective.at(objective.centre)
    point = start if objective.decrease(centre, start) >= 0 else centre
    bent, least = objective.family.curvature * row_norm**2, float(objective.penalties.min())
    root = math.sqrt(least / (bent + least))
    ahead, weights, steepest = point.weights, point.weights, bent + objective.penalties
    for _ in range(steps):
        after = ahead - objective.at(ahead).gradient / steepest
        ahead, weights = after + (1 - root) / (1 + root) * (after - weights), after
    return objective.at(weights)


def _norm(vector: Vector) -> float:
    return math.sqrt(float(vector @ vector))


def sparse_fit(objective: FitObjective, l1: Vector) -> Vector:
    """The minimum with the penalty ``sum of l1 |w|`` too, by accelerated proximal steps; many weights become zero.

    It is for a fit that nobody else sees, so it may stop when it hardly moves.
    """
    gram = objective.rows.T @ objective.rows / len(objective.rows)
    steepest = objective.family.curvature * float(np.linalg.eigvalsh(gram)[-1]) + objective.penalties
    weights = ahead = objective.centre.copy()
    pace = 1.0
    for _ in range(_MOST_STEPS):
        moved = ahead - objective.at(ahead).gradient / steepest
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
class ScoreEstimate:
    """An estimate from received scores: mean and variance of the true scores, and the variance of noise on each."""

    middle: float
    signal: float
    noise: float

    @property
    def share(self) -> float:
        """The part of the variance that is no noise."""
        return self.signal / (self.signal + self.noise)


def estimate_scores(received: NDArray[np.float64], clip: float, noise: float, shared: float = 0.0) -> ScoreEstimate:
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
    return ScoreEstimate(middle, signal, whole)
