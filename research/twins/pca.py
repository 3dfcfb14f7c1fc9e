"""Broken twins of the games about moments and directions."""

from __future__ import annotations

from dataclasses import replace

from colonnade.kinds.pca.audit import DirectionProductSampler, MomentEntrySampler
from research.twins.broken import HALF, ONE_OWNER, TO_PARTY, as_analyst, in_sampler, one_owner, quieter
from research.twins.registry import register_twin

PCA_HALF = in_sampler(MomentEntrySampler, lambda s: quieter(s, 2))
register_twin("pca", "analyst", HALF, PCA_HALF)
register_twin("pca", "analyst", ONE_OWNER, in_sampler(MomentEntrySampler, one_owner))
GAMMA = in_sampler(MomentEntrySampler, lambda s: quieter(s, s.task.gamma**2))
register_twin("pca", "analyst", "noise for gamma instead of gamma squared", GAMMA)
register_twin("pca", "party", TO_PARTY, as_analyst)
register_twin("pca", "coalition", HALF, PCA_HALF)

POWER_HALF = in_sampler(DirectionProductSampler, lambda s: quieter(s, 2))
TWICE = in_sampler(DirectionProductSampler, lambda s: replace(s, again=True))
register_twin("pca-power", "analyst", HALF, POWER_HALF)
register_twin("pca-power", "analyst", ONE_OWNER, in_sampler(DirectionProductSampler, one_owner))
register_twin("pca-power", "analyst", "the same direction asked twice", TWICE)
register_twin("pca-power", "party", TO_PARTY, as_analyst)
register_twin("pca-power", "coalition", HALF, POWER_HALF)
