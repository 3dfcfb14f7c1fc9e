"""How much noise each line of a figure gets: by the paper's own accounting, or by ours.

The paper's accounting is Renyi divergences only, with the paper's sensitivities; neither is a claim of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from colonnade.privacy import (
    Budget,
    DiscreteGaussianRelease,
    Observer,
    PoissonSampled,
    RepeatedRelease,
    SkellamRelease,
    Trust,
    least_noise,
    view,
)
from colonnade.privacy.accounting.mixtures import RenyiProfile, view_rdp
from colonnade.privacy.noise import TAIL
from colonnade.privacy.noise.local_mechanisms import Grid
from research.formulas import paper_logistic_gradient_norm, paper_rounded_norm

TWO = Trust(("first", "second"), ("first", "second", "coordinator"), 1)
"""A stand-in for any arrangement: only the analyst's view is looked at here, and it is the same in all of them."""

_Release = SkellamRelease | DiscreteGaussianRelease


def rounds_of(event: _Release, rate: float, rounds: int) -> RepeatedRelease:
    """A release repeated on Poisson batches that the analyst does not see."""
    inner = PoissonSampled(event, Fraction(rate)) if rate < 1 else event
    return RepeatedRelease(inner, rounds)


def skellam_release(mu: Fraction, l2_squared: int, l1: int, dimension: int) -> SkellamRelease:
    """One release with Skellam noise, of these sensitivities for a person more or less."""
    shares = tuple((owner, mu / 2) for owner in TWO.owners)
    return SkellamRelease("sum", shares, dimension, l1, l2_squared, 2 * l1, 4 * l2_squared, tail=float(TAIL))


def renyi_noise(make: Callable[[Fraction], RepeatedRelease], epsilon: float, delta: float, start: float) -> float:
    """The least noise by Renyi divergences alone, to nine digits: what the paper's own accounting gives."""

    def costs(log_noise: float) -> float:
        event = make(Fraction(math.exp(log_noise)))
        return RenyiProfile(view_rdp(view(event, Observer.analyst(), TWO))).epsilon(delta)

    low, high = math.log(start), math.log(start)
    while costs(high) > epsilon:
        high += 2
    while costs(low) <= epsilon:
        low -= 2
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if costs(middle) <= epsilon else (middle, high)
    return math.exp(high)


@lru_cache(maxsize=256)
def paper_moments_noise(gamma: int, columns: int, epsilon: float, delta: float) -> float:
    """SQM's Lemma 7 turned round: mu for the second moments of rows of norm at most 1."""
    square = round(paper_rounded_norm(gamma, 1.0, columns) ** 2)
    l1 = min(square**2, columns * square)
    return renyi_noise(
        lambda mu: RepeatedRelease(skellam_release(mu, square**2, l1, columns**2), 1),
        epsilon,
        delta,
        float(square) ** 2,
    )


@lru_cache(maxsize=256)
def paper_gradient_noise(gamma: int, columns: int, epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """SQM's Lemma 9 turned round: mu for gradients at weights of norm at most 1, by Eq. 22."""
    norm = paper_logistic_gradient_norm(gamma, columns)
    square = math.ceil(norm**2)
    l1 = math.ceil(min(norm**2, math.sqrt(columns) * norm))
    return renyi_noise(
        lambda mu: rounds_of(skellam_release(mu, square, l1, columns), rate, rounds), epsilon, delta, norm**2
    )


@lru_cache(maxsize=256)
def gradient_deviation(
    norm: float, numbers: int, epsilon: float, delta: float, rate: float, rounds: int, bits: int = 30
) -> float:
    """Deviation of Gaussian noise on a grid for sums whose summands have norm at most ``norm``, by our accountant."""
    grid = Grid(bits)
    square = grid.sensitivity_squared(norm, numbers)
    l1 = math.isqrt(numbers * square) + 1
    unit = max(1, square >> 30)  # the search looks at whole numbers: in units fine enough for six digits

    def event(noise: int) -> RepeatedRelease:
        shares = (("first", Fraction(noise * unit)),)
        release = DiscreteGaussianRelease(
            "gradients", shares, numbers, l1, square, 2 * l1, 4 * square, tail=float(TAIL)
        )
        return rounds_of(release, rate, rounds)

    found = least_noise(event, TWO, [Budget("analyst", epsilon, delta)], owners=1)
    return math.sqrt(found * unit) * float(grid.step)


@lru_cache(maxsize=256)
def skellam_noise(
    l2_squared: int, l1: int, numbers: int, epsilon: float, delta: float, rate: float, rounds: int
) -> int:
    """The least mu by our accountant, for the analyst."""
    return least_noise(
        lambda mu: rounds_of(skellam_release(Fraction(mu), l2_squared, l1, numbers), rate, rounds),
        TWO,
        [Budget("analyst", epsilon, delta)],
        owners=1,
    )
