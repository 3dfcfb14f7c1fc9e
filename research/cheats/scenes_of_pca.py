"""The scene of directions: the protocol in a small run of two rounds, with the products that it should open."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from colonnade.kinds.pca import programs as directions
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.privacy.observers import Inputs
from research.cheats.deviation import Array
from research.cheats.plays import GAMMA, ROWS, act_of, blocks_of, held_by, last_dealt, rows_dealt, trust_of, whole
from research.cheats.scenes import Act, Deals, Scene


@lru_cache
def _directions(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = trust_of(size, threshold, active, inputs)
    task = SubspaceIteration(
        blocks_of(trust), trust, gamma=GAMMA, constant=GAMMA // 2, rows_at_most=100, directions=2, rounds=2,
        noise=3 * size, reach=256, block_rows=rows_dealt(trust),
    )  # fmt: skip
    held = held_by(trust)

    def expected(deals: Deals, result: Any) -> Array:
        exact = np.array(directions.reference(whole(held), result.directions, task))
        if active:  # owners deal the squared norms of their own columns together with noise
            exact[0, -1] = task.total_weight * task.constant**2 * ROWS
        return np.asarray(exact + last_dealt(deals, task.owners))

    return act_of(directions, task, held, expected, lambda result: np.array(result.opened))


SCENES = (
    Scene("directions", 1, _directions, checked=SubspaceIteration.why_not_active is None, place=4),
    Scene("proven directions", 1, partial(_directions, inputs="proven"), proven=True, place=4),
)
"""By their names; ``depth`` counts products that stand one after the other."""
