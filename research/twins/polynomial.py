"""Broken twins of the games about polynomial sums."""

from __future__ import annotations

from colonnade.audit.mechanisms import WeightedSumSampler
from research.twins.broken import ONE_OWNER, TO_PARTY, as_analyst, in_sampler, one_owner
from research.twins.registry import register_twin

register_twin("polynomial", "analyst", ONE_OWNER, in_sampler(WeightedSumSampler, one_owner))
register_twin("polynomial", "party", TO_PARTY, as_analyst)
