"""Broken twins of the games about marginals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.audit import Codes, MarginalCellSampler
from research.twins.broken import HALF, ONE_OWNER, TO_PARTY, as_analyst, in_sampler, one_owner, quieter
from research.twins.registry import register_twin


@dataclass(frozen=True)
class _OneBlockTwice(MarginalCellSampler):
    """The block that moves most is opened twice, with fresh noise."""

    def times(self, index: int) -> int:
        task, change = self.task, (self.sums[1] - self.sums[0]).astype(float)
        parts = [slice(*ends) for ends in pairwise(task.starts)]
        most = max(parts, key=lambda part: float(change[part] @ change[part]))
        return 2 if most.start <= index < most.stop else 1


@dataclass(frozen=True)
class _NotCentred(MarginalCellSampler):
    """Coordinates that are n times one-hot, and not one less."""

    def contribution(self, person: Codes) -> NDArray[np.int64]:
        found = []
        for block in self.task.asked:
            cells = np.array(block.weight)
            for column in block.columns:
                size = self.task.sizes[column]
                raw = size * np.eye(size, dtype=np.int64)[person[column]]
                cells = np.multiply.outer(cells, raw[:1] if size == 2 else raw)
            found.append(cells.reshape(-1))
        return np.concatenate(found)


MARGINALS_HALF = in_sampler(MarginalCellSampler, lambda s: quieter(s, 2))
BLOCK_TWICE = in_sampler(MarginalCellSampler, lambda s: _OneBlockTwice(s.task, s.people, s.noisy))
NOT_CENTRED = in_sampler(MarginalCellSampler, lambda s: _NotCentred(s.task, s.people, s.noisy))
register_twin("marginals", "analyst", HALF, MARGINALS_HALF)
register_twin("marginals", "analyst", ONE_OWNER, in_sampler(MarginalCellSampler, one_owner))
register_twin("marginals", "analyst", "a block charged once and released twice", BLOCK_TWICE)
register_twin("marginals", "analyst", "centred coordinates charged, one-hot ones released", NOT_CENTRED)
register_twin("marginals", "party", TO_PARTY, as_analyst)
register_twin("marginals", "party", "a block charged once and released twice", BLOCK_TWICE)
register_twin("marginals", "coalition", HALF, MARGINALS_HALF)
