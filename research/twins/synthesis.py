"""Broken twins of the games about mixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.audit import CountFractionSampler, MixtureSumSampler
from colonnade.privacy.noise_laws import RepeatedRelease
from colonnade.randomness import Stream
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


@dataclass(frozen=True)
class _WholePeople(CountFractionSampler):
    """Noise of whole people on sums that have fractions."""

    def noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        task = self.task
        coarse = replace(task.additive, scale=max(1, task.noise // task.gamma**2))
        drawn = [coarse.draw((count, task.entries), stream) for _ in self.noisy]
        return np.asarray(sum(drawn) * float(task.gamma))


MIXTURE_HALF = in_sampler(MixtureSumSampler, lambda s: quieter(s, 2))
WHOLE_PEOPLE = in_sampler(CountFractionSampler, lambda s: _WholePeople(s.task, s.people, s.noisy, s.coins_known))
register_twin("mixture", "analyst", HALF, MIXTURE_HALF)
register_twin("mixture", "analyst", ONE_OWNER, in_sampler(MixtureSumSampler, one_owner))
register_twin("mixture", "analyst", "noise of whole people, sums with fractions", WHOLE_PEOPLE, part="fraction")
register_twin("mixture", "party", TO_PARTY, as_analyst)
register_twin("mixture", "party", COINS, in_event(RepeatedRelease, secret_coins))
register_twin("mixture", "coalition", HALF, MIXTURE_HALF)
