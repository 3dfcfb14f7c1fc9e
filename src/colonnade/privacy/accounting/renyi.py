"""Renyi privacy of our mechanisms, order by order, and its conversion to epsilon and delta.

``docs/theory/skellam-renyi.md``, ``poisson-sampling.md``, ``known-coins.md`` and ``pure-epsilon.md`` have the
formulas and where they come from. Orders are whole numbers, as the Skellam and the sampling bounds demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.accounting import special
from colonnade.privacy.accounting.gaussian import HAIR
from colonnade.privacy.noise_laws import law_of_event
from colonnade.privacy.releases import PURE, View

Array = NDArray[np.float64]

_EVERY = 256
ORDERS: Array = np.array(
    [*range(2, _EVERY + 1), *range(272, 513, 16), *range(576, 1025, 64), *range(1280, 4097, 256)], dtype=np.float64
)
"""Whole orders; up to 256 without a gap, because the bound for a sample of order a uses all orders below a."""


# --- one release


def pure_rdp(epsilon: float, orders: Array = ORDERS) -> Array:
    """The largest Renyi divergence of a mechanism of pure ``epsilon``: that of binary randomised response."""
    # cosh((2a-1)e/2) / cosh(e/2) is 1 + 2 sinh(ae/2) sinh((a-1)e/2) / cosh(e/2): exact where it is near 1.
    small = np.minimum(orders * epsilon, 1.0) / orders
    near = np.log1p(2 * np.sinh(orders * small / 2) * np.sinh((orders - 1) * small / 2) / np.cosh(small / 2))
    far = (orders - 1) * epsilon + np.log1p(np.exp(-(2 * orders - 1) * epsilon)) - math.log1p(math.exp(-epsilon))
    return np.asarray(np.where(orders * epsilon <= 1, near, far) / (orders - 1) * (1 + 100 * HAIR))


def release_rdp(view: View) -> Array:
    """One release to everybody, at every order of :data:`ORDERS`."""
    if view.kind == PURE:
        return pure_rdp(view.pure)
    return law_of_event(view.kind).renyi(view, ORDERS)


# --- batches


@lru_cache(maxsize=1)
def _binomials() -> Array:
    """Logarithms of C(a, l) at [a - 2, l - 2] for a, l from 2 to 256; -inf above the diagonal."""
    a, each = np.arange(2, _EVERY + 1)[:, None], np.arange(2, _EVERY + 1)[None, :]
    logs = special.gammaln(a + 1) - special.gammaln(each + 1) - special.gammaln(np.maximum(a - each, 0) + 1)
    return np.asarray(np.where(each <= a, logs, -np.inf))


def secret_batch_rdp(tau: Array, rate: float) -> Array:
    """A Poisson sample whose coins the observer does not know; adding or removing one person."""
    known = tau[: _EVERY - 1]
    a, each = np.arange(2.0, _EVERY + 1)[:, None], np.arange(2.0, _EVERY + 1)[None, :]
    grown = (each - 1) * known
    with np.errstate(divide="ignore", over="ignore"):
        # The weights of l = 0 and l = 1 make up for the rest, so the sum is 1 plus these terms.
        excess = grown + np.log(-np.expm1(-grown))
        stay = (a - each) * math.log1p(-rate) if rate < 1 else np.where(a == each, 0.0, -np.inf)
        terms = _binomials() + np.where(each <= a, stay, -np.inf) + each * math.log(rate) + excess
    top = np.max(terms, axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        total = np.log(np.sum(np.exp(terms - top), axis=1)) + top[:, 0]
    found = np.logaddexp(0.0, total) / (a[:, 0] - 1)
    found = np.where(np.isinf(np.maximum.accumulate(known)), math.inf, found)
    rest = np.full(len(ORDERS) - len(found), math.inf)
    return np.concatenate([found * (1 + 100 * HAIR) + 1e-15, rest])


def known_batch_rdp(tau: Array, rate: float) -> Array:
    """A Poisson sample whose coins the observer knows."""
    if rate == 1:
        return tau
    grown = (ORDERS - 1) * tau
    found = np.logaddexp(math.log1p(-rate), math.log(rate) + grown) / (ORDERS - 1)
    # log(1 - q + q e^x) of a small x is found without cancellation.
    small = grown < 1e-3
    found[small] = np.log1p(rate * np.expm1(grown[small])) / (ORDERS[small] - 1)
    return np.asarray(found * (1 + 100 * HAIR))


def view_rdp(view: View) -> Array:
    """All releases of a view together."""
    tau = release_rdp(view)
    if view.rate < 1:
        sampled = secret_batch_rdp if view.secret_batch else known_batch_rdp
        tau = sampled(tau, float(view.rate))
    return view.times * tau


# --- conversion


_FIXED = np.log1p(-1 / ORDERS) - np.log(ORDERS) / (ORDERS - 1)


def log_deltas(tau: Array, epsilon: float) -> Array:
    """Logarithm of the least delta over all orders; the last axis of ``tau`` runs over the orders."""
    exponents = (ORDERS - 1) * (tau - epsilon) + ORDERS * np.log1p(-1 / ORDERS) - np.log(ORDERS - 1)
    return np.asarray(np.minimum(np.min(exponents, axis=-1), 0.0))


class RenyiProfile:
    """The route that adds up Renyi divergences."""

    name = "renyi"

    def __init__(self, views: Sequence[View]) -> None:
        self.tau = np.sum([view_rdp(view) for view in views], axis=0)

    @classmethod
    def of(cls, tau: Array) -> RenyiProfile:
        """The route for divergences that were added up before; an infinite one proves nothing at its order."""
        route = cls(())
        route.tau = tau
        return route

    def epsilon(self, delta: float) -> float:
        """The least epsilon over all orders."""
        best = float(np.min(self.tau + _FIXED - math.log(delta) / (ORDERS - 1)))
        return max(0.0, best + HAIR * abs(best))

    def deltas(self, epsilons: Array) -> Array:
        """The least delta over all orders, at each epsilon."""
        return np.asarray([math.exp(float(log_deltas(self.tau, epsilon))) * (1 + HAIR) for epsilon in epsilons])
