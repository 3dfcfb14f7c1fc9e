"""Broken twins of the games about mechanisms that belong to no kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.audit import Game
from colonnade.audit.samplers import Labels, LaplaceShares, OnGrid, Opening, Shares
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.releases import DiscreteGaussianRelease, Repeated, SkellamRelease
from colonnade.randomness import Stream
from research.twins.broken import (
    COINS,
    HALF,
    ONE_OWNER,
    TO_COALITION,
    TO_PARTY,
    as_analyst,
    in_event,
    in_sampler,
    secret_coins,
)
from research.twins.registry import register_twin

Additive = TypeVar("Additive", SkellamRelease, DiscreteGaussianRelease)


# --- what is drawn


def _with_shares(change: Callable[[Shares], Shares]) -> Callable[[Game], Game]:
    return in_sampler(Opening, lambda sampler: replace(sampler, shares=change(sampler.shares)))


def _half_variance(sampler: Opening) -> Opening:
    return replace(sampler, shares=tuple((owner, size / 2) for owner, size in sampler.shares))


def _half_scale(sampler: Opening) -> Opening:
    if not isinstance(sampler.law, LaplaceShares):
        raise TypeError("half a scale is for Laplace noise [VA257]")
    return replace(sampler, law=LaplaceShares(sampler.law.scale / 2))


@dataclass(frozen=True)
class _TrueLabels(Labels):
    """Labels as they are."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return self.compare(np.full(count, self.labels[neighbour], dtype=np.int64))


@dataclass(frozen=True)
class _IntegerNoise(OnGrid):
    """A real number with noise on the integers only."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        noise = discrete_gaussian(Fraction(self.deviation) ** 2, count, stream)
        return self.look(np.asarray(self.values[neighbour] + noise, dtype=np.float64))


# --- what is claimed


def _single_sensitivity(event: Additive) -> Additive:
    """Replacing a person is charged like adding one."""
    return replace(event, replace_l1=event.l1, replace_l2_squared=event.l2_squared)


# --- the twins

ONCE = "sensitivity C instead of 2C for a"
register_twin("skellam", "analyst", HALF, in_sampler(Opening, _half_variance))
register_twin("skellam", "analyst", ONE_OWNER, _with_shares(lambda shares: shares[:1]))
register_twin("skellam", "party", TO_PARTY, as_analyst)
register_twin("skellam", "party", f"{ONCE} party", in_event(SkellamRelease, _single_sensitivity))

register_twin("discrete-gaussian", "analyst", HALF, in_sampler(Opening, _half_variance))
register_twin("discrete-gaussian", "coalition", TO_COALITION, as_analyst)
GAUSSIAN_ONCE = in_event(DiscreteGaussianRelease, _single_sensitivity)
register_twin("discrete-gaussian", "coalition", f"{ONCE} coalition", GAUSSIAN_ONCE)

TWO_HALVES = _with_shares(lambda shares: (("bank", Fraction(1, 2)), ("shop", Fraction(1, 2))))
EXACT = _with_shares(lambda shares: ())
register_twin("discrete-laplace", "party", "half the scale", in_sampler(Opening, _half_scale))
register_twin("discrete-laplace", "party", "half a variable from each of two parties, one of them looking", TWO_HALVES)
register_twin("discrete-laplace", "party", "the exact sum shown to a party", EXACT)

TRUE_LABELS = in_sampler(Labels, lambda s: _TrueLabels(s.labels, s.categories, s.odds))
INTEGER_NOISE = in_sampler(OnGrid, lambda s: _IntegerNoise(s.values, s.grid, s.deviation, s.fraction))
register_twin("randomised-response", "party", "true labels", TRUE_LABELS)
register_twin("grid", "analyst", "noise on the integers, values between them", INTEGER_NOISE, part="fraction")
register_twin("rounds", "analyst", "one round charged for twenty", in_event(Repeated, lambda event: event.event))
register_twin("poisson-sampled", "party", COINS, in_event(Repeated, secret_coins))
