"""The Gaussian mechanism's exact privacy profile, evaluated without cancellation (docs/theory/gaussian-transfer.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting import special
from colonnade.privacy.observers import check_delta

HAIR = 1e-12
"""Results are pushed to the safe side by this much, which is far more than the rounding error."""
Array = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def _mills(t: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(t / math.sqrt(2)))


def _mills_drop(t: Array) -> Array:
    """Minus the derivative of the Mills ratio, ``1 - t M(t)``, without cancellation for large ``t``."""
    near = np.minimum(t, 25.0)
    plain = 1 - near * math.sqrt(math.pi / 2) * special.erfcx(near / math.sqrt(2))
    if t.size and t.max() < 25.0:
        return np.asarray(plain)
    far = np.maximum(t, 25.0) ** -2.0
    series = np.zeros_like(t)
    for odd in range(19, 1, -2):
        series = far * odd * (1 - series)
    return np.asarray(np.where(t < 25.0, plain, far * (1 - series)))


def log_gaussian_deltas(mus: Array, epsilon: Array | float) -> Array:
    """The same as :func:`log_gaussian_delta`, for many pairs at once."""
    mu, eps = (np.asarray(given, dtype=np.float64).ravel() for given in np.broadcast_arrays(mus, epsilon))
    found = np.full(mu.shape, -np.inf)
    found[np.isinf(mu)] = 0.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        low, high = eps / mu - mu / 2, eps / mu + mu / 2
        square = low * low
    open_ = (mu > 0) & np.isfinite(high)
    # With phi the normal density and M its Mills ratio, delta = phi(low) (M(low) - M(high)), because
    # e^epsilon phi(high) = phi(low). Close arguments are not subtracted but integrated.
    density = np.full(mu.shape, -np.inf)
    density[open_] = -square[open_] / 2 - math.log(2 * math.pi) / 2
    far = open_ & (low > 1e6)
    small = open_ & ~far & (mu < 0.5)
    right = open_ & ~far & ~small & (low > 0)
    left = open_ & ~far & ~small & ~right
    found[far] = density[far]
    points = ((low[small] + high[small]) / 2)[:, None] + mu[small, None] / 2 * _NODES
    found[small] = density[small] + np.log(mu[small] / 2 * (_mills_drop(points) @ _WEIGHTS))
    found[right] = density[right] + np.log(_mills(low[right]) - _mills(high[right]))
    found[left] = np.log(special.ndtr(-low[left]) - np.exp(density[left]) * _mills(high[left]))
    return found


def log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Logarithm of the exact delta at ``epsilon`` of the Gaussian mechanism of sensitivity ``mu`` deviations."""
    return float(log_gaussian_deltas(np.array([mu]), epsilon)[0])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon at ``delta`` of the Gaussian mechanism, rounded up."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    target = math.log(delta) - HAIR

    def excess(epsilon: float) -> float:
        return log_gaussian_delta(mu, epsilon) - target

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    # P(loss > eps) bounds delta, and the loss is normal with mean mu^2/2 and standard deviation mu.
    high = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + mu
    return find_last_nonpositive(excess, 0.0, high) * (1 + HAIR)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity, in standard deviations, that is (epsilon, delta)-private; rounded down."""
    check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise PrivacyError(f"epsilon must be a finite number, not negative: {epsilon} [PR084]")
    target = math.log(delta) - HAIR

    def excess(mu: float) -> float:
        return log_gaussian_delta(mu, epsilon) - target

    low, high = 1.0, 1.0
    while excess(low) > 0:
        low /= 2
    while excess(high) <= 0:
        high *= 2
    return find_last_nonpositive(excess, high, low) * (1 - HAIR)


def find_last_nonpositive(excess: Callable[[float], float], bad: float, good: float) -> float:
    """A point where a monotone excess is not positive, next to its change of sign (Illinois rule)."""
    at_bad, at_good, last = excess(bad), excess(good), 0
    for _ in range(300):
        if abs(good - bad) <= 1e-13 * abs(good):
            break
        middle = good - at_good * (good - bad) / (at_good - at_bad)
        if not min(good, bad) < middle < max(good, bad):
            middle = (good + bad) / 2
        value = excess(middle)
        if not value <= 0:
            bad, at_bad, at_good, last = middle, value, at_good / (2 if last > 0 else 1), 1
        else:
            good, at_good, at_bad, last = middle, value, at_bad / (2 if last < 0 else 1), -1
        if value == 0:
            break
    return good
