"""The cost of a list of views: epsilon at a delta by every proven route, of which the smallest is reported.

* ``pure``: releases without a delta, whose epsilons add up (``docs/theory/pure-epsilon.md``);
* ``renyi``: Renyi divergences, summed over releases (``skellam-renyi.md``, ``poisson-sampling.md``);
* ``gaussian transfer``: at our scales the noise is a Gaussian up to a factor e^kappa, so exact Gaussian
  accounting applies (``gaussian-transfer.md``), averaged over the coins where they are known
  (``known-coins.md``);
* ``privacy loss distribution``: the same Gaussians, in secret batches or beside pure releases
  (``privacy-loss-distributions.md``);
* for an observer who is held to the replace relation and does not know the batches, twice the cost of adding
  or removing a person (``replacing-and-groups.md``).

A printed figure may be very slightly too large, never too small: ratios are formed exactly and evaluated in float64,
and results are increased by far more than the rounding error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting.loss_distributions import HAIR, Array, LossDistribution, RoundGroup
from colonnade.privacy.accounting.mixtures import (
    EXACTLY_GAUSSIAN,
    GaussianCloseness,
    GaussianMixture,
    RenyiMixture,
    RenyiProfile,
    closeness,
    gaussian_square,
    view_rdp,
)
from colonnade.privacy.noise_laws import LAWS_BY_EVENT_KIND, NOTHING, PURE, NonPrivate, View
from colonnade.privacy.observers import Adjacency, check_delta

_KNOWN = (PURE, NOTHING, NonPrivate.kind)
_LARGEST_EXPONENT = 700.0
_NOTHING_TO_WIN = 1e-9


@dataclass(frozen=True)
class ProvenBound:
    """A proven figure: its route, the theorem of that route, and the reason where it is infinite."""

    epsilon: float
    delta: float
    route: str
    theorem: str
    reason: str = ""
    ceiling: float = math.inf
    """No epsilon above this can be certified for such noise at this delta; see :func:`ceiling`."""


class PrivacyProfile(Protocol):
    """A curve of epsilon against delta."""

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        ...

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        ...


@dataclass(frozen=True)
class AccountingRoute:
    """One proven way to account for the views, with the theorem that it uses."""

    name: str
    theorem: str
    profile: PrivacyProfile
    quick: bool = True


# --- the routes


def routes(views: Sequence[View]) -> Iterator[AccountingRoute]:
    """Every route that holds for these views, which must all be of one observer and one relation."""
    seen = [view for view in views if not view.empty]
    if any(view.secret_batch for view in seen):
        if seen[0].adjacency is Adjacency.ADD_REMOVE:
            yield from _direct(seen)
        else:
            for route in _direct([add_remove_view(view) for view in seen]):
                theorem = f"{route.theorem}, replacing-and-groups"
                yield AccountingRoute(f"{route.name}, twice", theorem, DoubledProfile(route.profile), route.quick)
        # Whoever knows the coins knows more, so what holds against them holds against this observer.
        seen = [replace(view, coins_known=True) for view in seen]
    yield from _direct(seen)


def _direct(views: Sequence[View]) -> Iterator[AccountingRoute]:
    pure = [view for view in views if view.kind == PURE and view.rate == 1]
    noisy = [view for view in views if view.kind != PURE]
    sampler, lost = _sampler_distance(views), _lost(views)
    secret = any(view.secret_batch for view in views)
    if all(view.kind == PURE for view in views):  # being in fewer batches only costs less
        added = math.fsum(view.pure * view.times for view in views)
        yield AccountingRoute(
            "pure", "pure-epsilon", ShiftedProfile(PureProfile(added), 0.0, sampler=sampler, lost=lost)
        )
    yield from _renyi(views, sampler, lost, secret)
    near = closeness(noisy)
    if not near or any(view.kind == PURE and view.rate < 1 for view in views):
        return
    squares = [(gaussian_square(view), view.times, float(view.rate)) for view in noisy]
    if not secret and noisy:
        added = math.fsum(view.pure * view.times for view in pure)
        coins = any(rate < 1 for _, _, rate in squares)
        name = "gaussian transfer" + (", averaged over known coins" if coins else "")
        theorem = "gaussian-transfer" + (", known-coins" if coins else "") + (", pure-epsilon" if pure else "")
        yield AccountingRoute(name, theorem, ShiftedProfile(GaussianMixture(squares), added, near, sampler, lost))
    if secret or len(pure) > 1 or sum(view.times for view in pure) > 1 or (pure and noisy):
        rounds = _rounds(views)
        theorem = "gaussian-transfer, privacy-loss-distributions" if noisy else "privacy-loss-distributions"
        profile = ShiftedProfile(LossDistribution(rounds), 0.0, near, sampler, lost)
        yield AccountingRoute(LossDistribution.name, theorem, profile, quick=False)


def _renyi(views: Sequence[View], sampler: float, lost: float, secret: bool) -> Iterator[AccountingRoute]:
    there = {view.kind for view in views}
    cited = list(dict.fromkeys(law.renyi_theorem for kind, law in LAWS_BY_EVENT_KIND.items() if kind in there))
    cited += ["pure-epsilon"] if PURE in there else []
    cited += ["poisson-sampling"] if secret else []
    known = [view for view in views if view.rate < 1 and view.coins_known]
    cited += ["known-coins"] if known else []
    plain = RenyiProfile(np.sum([view_rdp(view) for view in views], axis=0))
    yield AccountingRoute(RenyiProfile.name, ", ".join(cited), ShiftedProfile(plain, 0.0, sampler=sampler, lost=lost))
    if len(known) == 1 and not secret:
        others = [view for view in views if view is not known[0]]
        mixed = RenyiMixture(known[0], others)
        yield AccountingRoute(
            RenyiMixture.name, ", ".join(cited), ShiftedProfile(mixed, 0.0, sampler=sampler, lost=lost)
        )


def _rounds(views: Sequence[View]) -> list[RoundGroup]:
    """The rounds of all views, equal ones together: Gaussian releases over all people count as one round."""
    full = math.fsum(gaussian_square(view) * view.times for view in views if view.kind != PURE and view.rate == 1)
    counted = Counter([RoundGroup(1, mu=math.sqrt(full) * (1 + HAIR))] if full else [])
    for view in views:
        if view.kind == PURE:
            counted[RoundGroup(1, pure=view.pure)] += view.times
        elif view.rate < 1:
            mu = math.sqrt(gaussian_square(view)) * (1 + HAIR)
            counted[RoundGroup(1, mu, rate=float(view.rate), known=view.coins_known)] += view.times
    return [replace(each, times=times) for each, times in counted.items()]


def add_remove_view(view: View) -> View:
    """The same view when a person is added or removed instead of replaced."""
    return replace(
        view,
        adjacency=Adjacency.ADD_REMOVE,
        l1=view.single_l1,
        l2_squared=view.single_l2_squared,
        pure=view.single_pure,
    )


# --- what is added to a profile


@dataclass(frozen=True)
class PureProfile:
    """The profile of binary randomised response of epsilon ``total``, which no pure mechanism exceeds."""

    total: float

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        left = delta * (1 + math.exp(-self.total)) * (1 - HAIR)
        return max(0.0, self.total * (1 + HAIR) + math.log1p(-left)) if left < 1 else 0.0

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        above = -np.expm1(np.minimum(epsilons - self.total * (1 + HAIR), 0.0))
        return np.asarray(above / (1 + math.exp(-self.total)) * (1 + HAIR))


@dataclass(frozen=True)
class ShiftedProfile:
    """A profile plus a pure epsilon, corrected by Theorem T and by the sampler's distance from its law.

    If each law changes by a distance t, then P(E) <= e^eps Q(E) + delta + t (1 + e^eps). Theorem T adds
    outside (1 + e^(close + eps')) with eps' = eps - 2 close; ``near`` are the ways to apply it. ``lost`` is added to
    delta as it is.
    """

    inner: PrivacyProfile
    pure: float
    near: tuple[GaussianCloseness, ...] = EXACTLY_GAUSSIAN
    sampler: float = 0.0
    lost: float = 0.0

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        found = math.inf
        for near in self.near:
            found = min(found, self._epsilon(delta, near))
            # A farther reach is less close; it can only gain the part of delta that this one loses outside.
            if near.outside * (1 + math.exp(min(found, _LARGEST_EXPONENT))) <= _NOTHING_TO_WIN * delta:
                break
        return found

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        return np.asarray(np.min([self._deltas(epsilons, near) for near in self.near], axis=0))

    def _epsilon(self, delta: float, near: GaussianCloseness) -> float:
        close, outside = near.close, near.outside

        def solve(left: float) -> float:
            return max(0.0, self.inner.epsilon(left) + self.pure * (1 + HAIR) + 2 * close)

        def left(guess: float) -> float:
            grown = (self.sampler + outside * math.exp(-close)) * math.exp(min(guess, _LARGEST_EXPONENT))
            return (delta - self.sampler - self.lost - outside - grown) * math.exp(-close)

        return _least(solve, left)

    def _deltas(self, epsilons: Array, near: GaussianCloseness) -> Array:
        rest = epsilons - 2 * near.close - self.pure * (1 + HAIR)
        spill = near.outside * (1 + np.exp(np.minimum(epsilons - near.close, _LARGEST_EXPONENT)))
        moved = self.sampler * (1 + np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)))
        # Below zero P(E) - e^rest Q(E) <= P(E) - Q(E) + (1 - e^rest).
        inner = self.inner.deltas(np.maximum(rest, 0.0)) - np.expm1(np.minimum(rest, 0.0))
        return np.minimum((math.exp(near.close) * inner + spill + moved + self.lost) * (1 + HAIR), 1.0)


@dataclass(frozen=True)
class DoubledProfile:
    """Replacing one person by removing it and adding another: delta_R(2 eps) <= (1 + e^eps) delta(eps)."""

    inner: PrivacyProfile

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""

        def left(guess: float) -> float:
            return delta / (1 + math.exp(guess)) if guess < _LARGEST_EXPONENT else 0.0

        return 2 * _least(self.inner.epsilon, left)

    def deltas(self, epsilons: Array) -> Array:
        """Delta at each epsilon."""
        half = np.minimum(epsilons / 2, _LARGEST_EXPONENT)
        found = (1 + np.exp(half)) * self.inner.deltas(half) * (1 + HAIR)
        return np.where(epsilons / 2 < _LARGEST_EXPONENT, np.minimum(found, 1.0), 1.0)


def _least(solve: Callable[[float], float], left: Callable[[float], float]) -> float:
    """The least epsilon with ``solve(left(epsilon)) <= epsilon``; infinite if none.

    ``left`` depends on epsilon, so a guess is raised from 0 until it satisfies this.
    """
    guess = 0.0
    for _ in range(60):
        remaining = left(guess)
        if remaining <= 0 or math.isinf(guess):
            return math.inf
        found = solve(remaining)
        if found <= guess or remaining == left(found):
            return found
        guess = found * (1 + 1e-10) + 1e-12
    return math.inf


def _sampler_distance(views: Sequence[View]) -> float:
    return math.fsum(view.draws * view.tail for view in views) * (1 + HAIR)


def _lost(views: Sequence[View]) -> float:
    return math.fsum(view.lost * view.times for view in views) * (1 + HAIR)


# --- the answers


def epsilon(views: Sequence[View], delta: float, *, quick: bool = False) -> ProvenBound:
    """What all of one observer's views cost together, by the route that proves the smallest epsilon.

    ``quick`` leaves out the routes that take more than a few milliseconds; the figure is then larger.
    """
    check_delta(delta)
    return _epsilon(tuple(views), float(delta), quick)


@lru_cache(maxsize=4096)
def _epsilon(views: tuple[View, ...], delta: float, quick: bool) -> ProvenBound:
    refused = _refusal(views)
    if refused is not None:
        return ProvenBound(math.inf, delta, "none", "", refused)
    if all(view.empty for view in views):
        return ProvenBound(0.0, delta, "nothing depends on the data", "")
    best = None if quick else _epsilon(views, delta, True)
    for route in routes(views):
        if route.quick != quick:
            continue
        # One delta shows whether a route proves a smaller epsilon, and is much faster to compute than an epsilon.
        if (
            best is not None
            and quick
            and math.isfinite(best.epsilon)
            and not route.profile.deltas(np.array([best.epsilon]))[0] <= delta
        ):
            continue
        found = ProvenBound(
            route.profile.epsilon(delta), delta, route.name, route.theorem, ceiling=ceiling(views, delta)
        )
        best = found if best is None or found.epsilon < best.epsilon else best
    if best is None or math.isinf(best.epsilon):
        reason = _above_ceiling(views, delta, quick)
        if (lost := _lost(views)) >= delta:
            reason = (
                f"{lost:.2g} of delta is lost to masks and full batches in all rounds together, whatever the noise: "
                "fewer rounds or components, or a larger delta"
            )
        return ProvenBound(math.inf, delta, "none", "", reason, ceiling(views, delta))
    return best


def ceiling(views: Sequence[View], delta: float) -> float:
    """About the largest epsilon that can be certified for noise as it is drawn: within a range, and not beyond.

    What lies beyond has a chance of 2^-128 for each number, which counts e^epsilon times (exact-samplers.md).
    """
    beyond, left = _sampler_distance(views), delta - _lost(views)
    if beyond == 0:
        return math.inf
    return math.log(left / beyond - 1) if left > 2 * beyond else 0.0


def _above_ceiling(views: tuple[View, ...], delta: float, quick: bool) -> str:
    """Why no epsilon is finite: the noise is too small, or only too small for the range in which it is drawn."""
    unlimited = tuple(replace(view, tail=0.0) for view in views)
    if unlimited == views or math.isinf(found := _epsilon(unlimited, delta, quick).epsilon):
        return "too little noise for any finite epsilon at this delta"
    return (
        f"no epsilon above {ceiling(views, delta):.1f} can be certified at this delta, because noise is drawn within a "
        f"range that leaves out 2^-128 of its law; this release would need {found:.1f}: more noise, or a larger delta"
    )


def delta(views: Sequence[View], epsilon: float) -> float:
    """The delta that all of one observer's views cost at ``epsilon``; 1 where nothing is proven."""
    return float(profile(views, np.array([epsilon]))[0])


def profile(views: Sequence[View], epsilons: Array | Sequence[float]) -> Array:
    """The whole curve: the least proven delta at each epsilon."""
    wanted = np.asarray(epsilons, dtype=np.float64)
    if wanted.ndim != 1 or not np.all(wanted >= 0):
        raise PrivacyError("a profile is asked for at a list of epsilons that are not negative [PR014]")
    seen = tuple(views)
    if _refusal(seen) is not None:
        return np.ones_like(wanted)
    if all(view.empty for view in seen):
        return np.zeros_like(wanted)
    found = np.ones_like(wanted)
    for route in routes(seen):
        found = np.fmin(found, route.profile.deltas(wanted))  # what is not a number proves nothing
    # What holds at an epsilon holds at every larger one.
    order = np.argsort(wanted)
    found[order] = np.minimum.accumulate(found[order])
    return found


def _refusal(views: Sequence[View]) -> str | None:
    for seen in views:
        if not isinstance(seen, View):
            raise PrivacyError(f"the accountant reads views, not {type(seen).__name__} [PR015]")
        if seen.kind not in (*_KNOWN, *LAWS_BY_EVENT_KIND):
            raise PrivacyError(f"unknown mechanism {seen.kind!r}: its cost cannot be accounted for [PR016]")
    if len({seen.adjacency for seen in views}) > 1:
        raise PrivacyError("views under different neighbouring relations cannot be added up [PR017]")
    return next((seen.reason or "not private" for seen in views if seen.kind == NonPrivate.kind), None)
