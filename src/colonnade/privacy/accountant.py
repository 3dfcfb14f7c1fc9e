"""What a list of views costs: epsilon at a delta, by two routes, the smaller of which is reported.

* Renyi: the Skellam bound of Agarwal, Kairouz and Liu, summed over releases
  (``docs/theory/skellam-renyi.md``);
* transfer: at our scales the noise is a Gaussian up to a factor e^kappa, so exact Gaussian accounting applies
  (``docs/theory/gaussian-transfer.md``).

A figure that is printed may be too large by a hair, never too small: ratios are formed exactly, evaluated in
float64, and results are pushed up by far more than the rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.events import DiscreteGaussianRelease, NonPrivate, SkellamRelease, View
from colonnade.privacy.gaussian import HAIR, gaussian_delta, gaussian_epsilon
from colonnade.privacy.observers import check_delta

# Lemma T (docs/theory/skellam-close-to-gaussian.md): within z standard deviations the logarithms of the
# Skellam and the rounded Gaussian probabilities differ by at most (a z^4 + b z^2 + c) / (2 mu).
LEMMA_T = (1 / 12, 5 / 4, 2.0)
LEMMA_T_DISCRETE_GAUSSIAN = (0.0, 1 / 4, 1 / 2)
Z = 12.0
MOST_CLOSENESS = 0.01
ORDERS: NDArray[np.float64] = np.array(
    [*range(2, 257), *range(272, 513, 16), *range(576, 1025, 64), *range(1280, 4097, 256)], dtype=np.float64
)


@dataclass(frozen=True)
class Bound:
    """A proven figure: its route, the theorem of that route, and the reason where it is infinite."""

    epsilon: float
    delta: float
    route: str
    theorem: str
    reason: str = ""


# --- Renyi


def skellam_rdp(alpha: int, mu: float | Fraction, d1: float, d2: float) -> float:
    """Renyi divergence of order ``alpha`` of Sk(mu), variance 2 mu, for integer shifts of norms d1, d2."""
    if isinstance(alpha, bool) or alpha != int(alpha) or alpha < 2:
        raise PrivacyError(f"the Skellam bound holds for whole orders from 2 on, not {alpha}")
    first, low, extra, flat = _skellam_terms(Fraction(mu), Fraction(d1), Fraction(d2) ** 2)
    return alpha * first + min((2 * alpha - 1) * low + extra, flat)


def _skellam_terms(mu: Fraction, d1: Fraction, d2_squared: Fraction) -> tuple[float, float, float, float]:
    return (
        _ratio(d2_squared, 4 * mu),
        _ratio(d2_squared, 16 * mu * mu),
        _ratio(6 * d1, 16 * mu * mu),
        _ratio(3 * d1, 4 * mu),
    )


def shared_gaussian_gap(smallest: float, parts: int) -> float:
    """How far log-probabilities of summed discrete Gaussians stray from one of the total variance."""
    if parts > 1 and smallest < 0.25:
        return math.inf
    exponent = -2 * math.pi**2 * smallest
    # The summands fall with k; from the 65th on each is counted as large as the 65th.
    head = sum(math.exp(exponent * k / (k + 1)) for k in range(1, min(parts, 65)))
    return 10 * (head + max(0, parts - 65) * math.exp(exponent * 65 / 66))


def discrete_gaussian_rdp(alpha: float, sigma2: float, d1: float, d2: float, dim: int, gap: float = 0.0) -> float:
    """Renyi divergence of summed discrete Gaussian shares of total variance ``sigma2`` (KLS21)."""
    if math.isinf(gap):
        return math.inf
    first, sigma = d2 * d2 / sigma2, math.sqrt(sigma2)
    return min(
        alpha * first / 2 + gap * dim,
        alpha / 2 * (first + 2 * d1 * gap / sigma + gap * gap * dim),
        alpha / 2 * (d2 / sigma + math.sqrt(dim) * gap) ** 2,
    )


def rdp_to_epsilon(alpha: float, tau: float, delta: float) -> float:
    """Epsilon at ``delta`` from one order of Renyi privacy (CKS20, Proposition 12)."""
    return tau + (math.log(1 / delta) + (alpha - 1) * math.log1p(-1 / alpha) - math.log(alpha)) / (alpha - 1)


def rdp_to_delta(alpha: float, tau: float, epsilon: float) -> float:
    """Delta at ``epsilon`` from one order of Renyi privacy; the inverse of :func:`rdp_to_epsilon`."""
    exponent = (alpha - 1) * (tau - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)
    return math.exp(min(exponent, 0.0))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` of a mechanism with Renyi divergence ``rho alpha`` at every real order above 1."""
    check_delta(delta)
    # Golden section over log(alpha - 1); wherever it ends, that order is a valid bound.
    low, high = math.log(1e-6), math.log(1e9)
    shrink = (math.sqrt(5) - 1) / 2

    def cost(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        return rdp_to_epsilon(alpha, rho * alpha, delta)

    for _ in range(100):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if cost(left) < cost(right) else (left, high)
    return max(0.0, cost((low + high) / 2) * (1 + HAIR))


def _rdp_orders(view: View) -> NDArray[np.float64]:
    if view.kind == SkellamRelease.kind:
        first, low, extra, flat = _skellam_terms(view.noise, Fraction(view.l1), Fraction(view.l2_squared))
        total = ORDERS * first + np.minimum((2 * ORDERS - 1) * low + extra, flat)
        return np.asarray(total, dtype=np.float64)
    try:
        sigma2, gap = float(view.noise), shared_gaussian_gap(float(view.smallest), view.parts)
        d2 = math.sqrt(view.l2_squared)
    except OverflowError:
        return np.full_like(ORDERS, math.inf)
    return np.array([discrete_gaussian_rdp(alpha, sigma2, float(view.l1), d2, view.dimension, gap) for alpha in ORDERS])


def _rdp_route(views: Sequence[View]) -> Callable[[float], float]:
    total = np.sum([_rdp_orders(view) for view in views], axis=0)
    fixed = total + np.log1p(-1 / ORDERS) - np.log(ORDERS) / (ORDERS - 1)

    def solve(delta: float) -> float:
        best = float(np.min(fixed - math.log(delta) / (ORDERS - 1)))
        return max(0.0, best + HAIR * abs(best))

    return solve


# --- transfer


def kappa(mu: float | Fraction, z: float = Z) -> float:
    """Lemma T: how far log-probabilities of Sk(mu) stray from the rounded Gaussian's within z deviations."""
    a, b, c = LEMMA_T
    return (a * z**4 + b * z**2 + c) * _ratio(Fraction(1), 2 * Fraction(mu))


def discrete_gaussian_kappa(sigma2: float | Fraction, z: float = Z) -> float:
    """The same for one discrete Gaussian of variance parameter ``sigma2``."""
    a, b, c = LEMMA_T_DISCRETE_GAUSSIAN
    return (a * z**4 + b * z**2 + c) * _ratio(Fraction(1), Fraction(sigma2))


def _closeness(view: View) -> tuple[float, float, float]:
    """Squared Gaussian sensitivity, N kappa and N tail of one view; infinite where Lemma T does not speak."""
    if view.kind == SkellamRelease.kind:
        variance, gap = 2 * view.noise, kappa(view.noise)
        excess = Z**4 * _ratio(Fraction(1), 48 * view.noise)
    else:
        variance = view.noise
        smallest = float(min(view.smallest, Fraction(10**6)))  # the gap only shrinks with larger shares
        gap = discrete_gaussian_kappa(variance) + shared_gaussian_gap(smallest, view.parts)
        excess = 0.0
    if variance < Z * Z:
        return math.inf, math.inf, math.inf
    outside = 2 * math.exp(-Z * Z / 2 + excess)
    return _ratio(Fraction(view.l2_squared), variance), view.dimension * gap, view.dimension * outside


def _transfer_route(views: Sequence[View]) -> tuple[Callable[[float], float], float, float] | None:
    parts = [_closeness(view) for view in views]
    mu = math.sqrt(math.fsum(square for square, _, _ in parts)) * (1 + HAIR)
    close, outside = math.fsum(gap for _, gap, _ in parts), math.fsum(tail for _, _, tail in parts)
    if not close <= MOST_CLOSENESS:
        return None

    def solve(delta: float) -> float:
        return gaussian_epsilon(mu, delta * math.exp(-close)) + 2 * close

    return solve, close, outside


# --- both


def _least(solve: Callable[[float], float], delta: float, plain: float, grown: float) -> float:
    """The least epsilon with ``solve(delta - plain - grown e^epsilon) <= epsilon``; infinite if none.

    Terms that grow with epsilon make this an equation; the guess climbs from below until it bears itself out.
    """
    guess = 0.0
    for _ in range(200):
        left = delta - plain - grown * math.exp(min(guess, 700.0))
        if left <= 0 or math.isinf(guess):
            return math.inf
        found = solve(left)
        if found <= guess or grown == 0:
            return found
        guess = found * (1 + 1e-10) + 1e-12
    return math.inf


def epsilon(views: Sequence[View], delta: float) -> Bound:
    """What all of one observer's views cost together, by whichever route proves less."""
    check_delta(delta)
    return _epsilon(tuple(views), float(delta))


@lru_cache(maxsize=4096)
def _epsilon(views: tuple[View, ...], delta: float) -> Bound:
    refused = _refusal(views)
    if refused is not None:
        return Bound(math.inf, delta, "none", "", refused)
    if not any(view.l1 or view.l2_squared for view in views):
        return Bound(0.0, delta, "nothing depends on the data", "")
    only_skellam = all(view.kind == SkellamRelease.kind for view in views)
    cited = "skellam-renyi" if only_skellam else "discrete Gaussian (CKS20, KLS21)"
    bounds = [Bound(rdp_epsilon(views, delta), delta, "renyi", cited)]
    bounds.append(Bound(transfer_epsilon(views, delta), delta, "gaussian transfer", "gaussian-transfer"))
    best = min(bounds, key=lambda bound: bound.epsilon)
    if math.isinf(best.epsilon):
        reason = "too little noise, or a sampler too far from its law, for any finite epsilon at this delta"
        return Bound(math.inf, delta, "none", "", reason)
    return best


def _sampler_distance(views: Sequence[View]) -> float:
    # Laws moved by a distance t each: P(E) <= e^eps Q(E) + delta + t (1 + e^eps); distances of draws add up.
    return math.fsum(view.draws * view.tail for view in views) * (1 + HAIR)


def rdp_epsilon(views: Sequence[View], delta: float) -> float:
    """Epsilon by the Renyi route alone."""
    distance = _sampler_distance(views)
    return _least(_rdp_route(views), delta, distance, distance)


def transfer_epsilon(views: Sequence[View], delta: float) -> float:
    """Epsilon by the transfer route alone; infinite where Theorem T has nothing to say."""
    route = _transfer_route(views)
    if route is None:
        return math.inf
    solve, close, outside = route
    distance = _sampler_distance(views)
    # Theorem T adds outside (1 + e^(close + eps')) with eps' = eps - 2 close.
    return _least(solve, delta, distance + outside, distance + outside * math.exp(-close))


def delta(views: Sequence[View], epsilon: float) -> float:
    """The delta that all of one observer's views cost at ``epsilon``; 1 where nothing is proven."""
    seen = tuple(views)
    if _refusal(seen) is not None:
        return 1.0
    if not any(view.l1 or view.l2_squared for view in seen):
        return 0.0
    sampler = _sampler_distance(seen) * (1 + math.exp(min(epsilon, 700.0)))
    total = np.sum([_rdp_orders(view) for view in seen], axis=0)
    found = min(rdp_to_delta(float(a), float(t), epsilon) for a, t in zip(ORDERS, total, strict=True))
    parts = [_closeness(view) for view in seen]
    close, outside = math.fsum(part[1] for part in parts), math.fsum(part[2] for part in parts)
    inner = epsilon - 2 * close
    if close <= MOST_CLOSENESS and inner >= 0:
        mu = math.sqrt(math.fsum(part[0] for part in parts)) * (1 + HAIR)
        spill = outside * (1 + math.exp(min(close + inner, 700.0)))
        found = min(found, math.exp(close) * gaussian_delta(mu, inner) + spill)
    return min(1.0, (found + sampler) * (1 + HAIR))


def _refusal(views: Sequence[View]) -> str | None:
    for seen in views:
        if not isinstance(seen, View):
            raise PrivacyError(f"the accountant reads views, not {type(seen).__name__}")
        if seen.kind not in (SkellamRelease.kind, DiscreteGaussianRelease.kind, NonPrivate.kind):
            raise PrivacyError(f"unknown mechanism {seen.kind!r}: its cost cannot be accounted for")
    if len({seen.adjacency for seen in views}) > 1:
        raise PrivacyError("views under different neighbouring relations cannot be added up")
    return next((seen.reason or "not private" for seen in views if seen.kind == NonPrivate.kind), None)


def _ratio(numerator: Fraction, denominator: Fraction) -> float:
    if numerator == 0:
        return 0.0
    if denominator == 0:
        return math.inf
    try:
        return float(numerator / denominator)
    except OverflowError:
        return math.inf
