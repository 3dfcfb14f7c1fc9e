"""Broken twins of the games about predicted levels and scores."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.mechanisms import WeightedSumSampler
from colonnade.kinds.prediction.audit import LevelSampler
from colonnade.kinds.prediction.task import Respondent
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.randomness import Stream
from research.twins.broken import ONE_OWNER, in_sampler, one_owner
from research.twins.registry import register_twin


@dataclass(frozen=True)
class _LikelierLevels(LevelSampler):
    """The true level is answered as if its odds were 5 % larger."""

    def told(self, asked: Respondent, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        level = np.full(count, asked.levels - 1 if neighbour else 0)
        return randomised_response(level, asked.levels, self.task.odds * Fraction(105, 100), stream)


@dataclass(frozen=True)
class _CutsFromThePeople(LevelSampler):
    """There are two people, and parts are cut at the mean of both: so the answer about the other one changes, too."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return super().__call__(neighbour, count, stream) - super().__call__(1 - neighbour, count, stream)


LIKELIER = in_sampler(LevelSampler, lambda sampler: _LikelierLevels(sampler.task, sampler.observer))
FROM_PEOPLE = in_sampler(LevelSampler, lambda sampler: _CutsFromThePeople(sampler.task, sampler.observer))
register_twin("prediction-levels", "party", "odds that are 5 % too large", LIKELIER)
register_twin("prediction-levels", "party", "cuts that depend on the people asked about", FROM_PEOPLE)
register_twin("prediction", "party", ONE_OWNER, in_sampler(WeightedSumSampler, one_owner))
