"""Broken twins of the games about gradients and about coefficients with Laplace noise."""

from __future__ import annotations

from dataclasses import replace

from colonnade.kinds.regression.audit import CoefficientSampler, GradientSampler
from colonnade.privacy.noise_laws import RepeatedRelease
from research.twins.broken import (
    COINS,
    HALF,
    ONE_OWNER,
    TO_PARTY,
    as_analyst,
    in_event,
    in_sampler,
    one_owner,
    quieter,
    secret_coins,
)
from research.twins.registry import register_twin

SQM_HALF = in_sampler(GradientSampler, lambda s: quieter(s, 2))
EVERYBODY = in_sampler(GradientSampler, lambda s: replace(s, task=replace(s.task, batch=s.task.rows)))
register_twin("sqm", "analyst", HALF, SQM_HALF)
register_twin("sqm", "analyst", ONE_OWNER, in_sampler(GradientSampler, one_owner))
register_twin("sqm", "analyst", "everybody in every batch, charged as sampled", EVERYBODY)
register_twin("sqm", "party", TO_PARTY, as_analyst)
register_twin("sqm", "party", COINS, in_event(RepeatedRelease, secret_coins))
register_twin("sqm", "coalition", HALF, SQM_HALF)

FM_EXACT = in_sampler(CoefficientSampler, lambda s: replace(s, noisy=()))
FM_TO_ONE = "shares of a whole variable that one of the owners can subtract from"
FM_KNOWN = in_sampler(CoefficientSampler, lambda s: replace(s, task=replace(s.task, known=0)))
register_twin("functional", "analyst", "a third of the scale", in_sampler(CoefficientSampler, lambda s: quieter(s, 3)))
register_twin("functional", "party", "the exact coefficients shown to a party", FM_EXACT)
register_twin("functional", "coalition", "half the scale", in_sampler(CoefficientSampler, lambda s: quieter(s, 2)))
register_twin("functional", "coalition", FM_TO_ONE, FM_KNOWN)
