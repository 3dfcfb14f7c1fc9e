"""Broken twins of the games about mechanisms that belong to no kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit import Game
from colonnade.audit.mechanisms import GridSampler, OpenedNumber, ResponseSampler, Shares
from colonnade.privacy.noise_laws import (
    CLOSEST_TO_GAUSSIAN,
    RepeatedRelease,
    SquaredRelease,
    drawn_laws,
    law_named,
    law_of_event,
)
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

# --- what is drawn


def _with_shares(change: Callable[[Shares], Shares]) -> Callable[[Game], Game]:
    return in_sampler(OpenedNumber, lambda sampler: replace(sampler, shares=change(sampler.shares)))


def _half_variance(sampler: OpenedNumber) -> OpenedNumber:
    return replace(sampler, shares=tuple((owner, size / 2) for owner, size in sampler.shares))


def _half_scale(game: Game) -> Game:
    event: Any = game.events[0]
    law = law_of_event(event.kind).share_sampler(replace(event, scale=event.scale / 2))
    return in_sampler(OpenedNumber, lambda sampler: replace(sampler, law=law))(game)


@dataclass(frozen=True)
class _TrueLabels(ResponseSampler):
    """Labels as they are."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return self.statistic(np.full(count, self.labels[neighbour], dtype=np.int64))


@dataclass(frozen=True)
class _IntegerNoise(GridSampler):
    """A real number with noise on the integers only."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        noise = law_named(CLOSEST_TO_GAUSSIAN).sample(Fraction(self.deviation) ** 2, count, stream)
        return self.look(np.asarray(self.values[neighbour] + noise, dtype=np.float64))


# --- what is claimed


def _single_sensitivity(event: SquaredRelease) -> SquaredRelease:
    """Replacing a person is charged like adding one."""
    return replace(event, replace_l1=event.l1, replace_l2_squared=event.l2_squared)


# --- the twins

ONCE = "sensitivity C instead of 2C for a"
CHARGED_ONCE = in_event(SquaredRelease, _single_sensitivity)
TWO_HALVES = _with_shares(lambda shares: (("bank", Fraction(1, 2)), ("shop", Fraction(1, 2))))
EXACT = _with_shares(lambda shares: ())
for _law in drawn_laws():
    if _law.norm == "l2":
        register_twin(_law.name, "analyst", HALF, in_sampler(OpenedNumber, _half_variance))
        register_twin(_law.name, "analyst", ONE_OWNER, _with_shares(lambda shares: shares[:1]))
        for _who, _shown in (("party", TO_PARTY), ("coalition", TO_COALITION)):
            register_twin(_law.name, _who, _shown, as_analyst)
            register_twin(_law.name, _who, f"{ONCE} {_who}", CHARGED_ONCE)
    else:
        register_twin(_law.name, "party", "half the scale", _half_scale)
        register_twin(_law.name, "party", "half a variable from each of two parties, one of them looking", TWO_HALVES)
        register_twin(_law.name, "party", "the exact sum shown to a party", EXACT)

TRUE_LABELS = in_sampler(ResponseSampler, lambda s: _TrueLabels(s.labels, s.categories, s.odds))
INTEGER_NOISE = in_sampler(GridSampler, lambda s: _IntegerNoise(s.values, s.grid, s.deviation, s.fraction))
register_twin("randomised-response", "party", "true labels", TRUE_LABELS)
register_twin("grid", "analyst", "noise on the integers, values between them", INTEGER_NOISE, part="fraction")
register_twin("rounds", "analyst", "one round charged for twenty", in_event(RepeatedRelease, lambda event: event.event))
register_twin("poisson-sampled", "party", COINS, in_event(RepeatedRelease, secret_coins))
