"""The Gaussian mechanism's exact privacy profile, evaluated without cancellation (docs/theory/gaussian-transfer.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from colonnade.errors import PrivacyError
from colonnade.privacy.observers import check_delta

HAIR = 1e-12
"""Results are pushed to the safe side by this much, which is far more than the rounding error."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def _mills(t: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))


def _mills_drop(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus the derivative of the Mills ratio, ``1 - t M(t)``, without cancellation for large ``t``."""
    near = np.minimum(t, 25.0)
    plain = 1 - near * math.sqrt(math.pi / 2) * erfcx(near / math.sqrt(2))
    far = np.maximum(t, 25.0) ** -2.0
    series = np.zeros_like(t)
    for odd in range(19, 1, -2):
        series = far * odd * (1 - series)
    return np.asarray(np.where(t < 25.0, plain, far * (1 - series)))


def log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Logarithm of :func:`gaussian_delta`, for values that a float cannot hold."""
    if mu <= 0:
        return -math.inf
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if math.isinf(high):
        return 0.0 if math.isinf(mu) else -math.inf
    # With phi the normal density and M its Mills ratio, delta = phi(low) (M(low) - M(high)), because
    # e^epsilon phi(high) = phi(low). Close arguments are not subtracted but integrated.
    log_density = -low * low / 2 - math.log(2 * math.pi) / 2
    if low > 1e6:
        return log_density
    if mu < 0.5:
        points = (low + high) / 2 + mu / 2 * _NODES
        return log_density + math.log(mu / 2 * float(_WEIGHTS @ _mills_drop(points)))
    if low > 0:
        return log_density + math.log(_mills(low) - _mills(high))
    return math.log(float(ndtr(-low)) - math.exp(log_density) * _mills(high))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Exact delta at ``epsilon`` of the Gaussian mechanism of sensitivity ``mu`` standard deviations."""
    return math.exp(log_gaussian_delta(mu, epsilon))


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
    return _last_good(excess, 0.0, high) * (1 + HAIR)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity, in standard deviations, that is (epsilon, delta)-private; rounded down."""
    check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise PrivacyError(f"epsilon must be a finite number, not negative: {epsilon}")
    target = math.log(delta) - HAIR

    def excess(mu: float) -> float:
        return log_gaussian_delta(mu, epsilon) - target

    low, high = 1.0, 1.0
    while excess(low) > 0:
        low /= 2
    while excess(high) <= 0:
        high *= 2
    return _last_good(excess, high, low) * (1 - HAIR)


def _last_good(excess: Callable[[float], float], bad: float, good: float) -> float:
    """Next to where a monotone excess changes sign, a point where it is not positive (Illinois rule)."""
    at_bad, at_good, last = excess(bad), excess(good), 0
    for _ in range(300):
        if abs(good - bad) <= 1e-13 * abs(good):
            break
        middle = good - at_good * (good - bad) / (at_good - at_bad)
        if not min(good, bad) < middle < max(good, bad):
            middle = (good + bad) / 2
        value = excess(middle)
        if value > 0:
            bad, at_bad, at_good, last = middle, value, at_good / (2 if last > 0 else 1), 1
        else:
            good, at_good, at_bad, last = middle, value, at_bad / (2 if last < 0 else 1), -1
        if value == 0:
            break
    return good
