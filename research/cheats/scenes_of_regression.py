"""The scenes of gradients: the protocol in a small run of two rounds, with the weights that it should end with."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.least_squares import GradientDescent
from colonnade.kinds.regression.task import GradientTask
from colonnade.privacy.observers import Inputs
from research.cheats.deviation import Array
from research.cheats.plays import GAMMA, ROWS, act_of, blocks_of, held_by, last_dealt, rows_dealt, trust_of, whole
from research.cheats.scenes import Act, Deals, Scene


def _rounds(expansion: int, inputs: Inputs = "unproven") -> Callable[[int, int, bool], Act]:
    @lru_cache
    def act(size: int, threshold: int, active: bool) -> Act:
        trust = trust_of(size, threshold, active, inputs)
        task = GradientTask(
            blocks_of(trust), label_owner="o0", classes=1, trust=trust, gamma=GAMMA, scale=1.0,
            expansion=1 if expansion == 1 else 3, weight_bound=4.0, learning_rate=2.0, sampling="disjoint",
            rows=ROWS, batch=ROWS, rounds=2, noise=3 * size, rows_at_most=100, block_rows=rows_dealt(trust),
        )  # fmt: skip
        held, labels = held_by(trust), np.array([[0.0], [1.0], [1.0], [0.0]])
        parts = [whole(held)[owner] for owner in task.owners]
        joint = np.hstack([*parts, np.full((ROWS, 1), task.constant)])

        def expected(deals: Deals, _: Any) -> Array:
            descent, noise = GradientDescent(task), last_dealt(deals, task.owners)
            for number in range(task.rounds):
                exact = gradients.reference(joint, labels.astype(np.int64), descent.integer_weights, task)
                descent.step(exact + noise[number])
            return descent.learned.weights

        return act_of(gradients, task, held, expected, lambda result: result.weights, labels)

    return act


_CHECKED = GradientTask.why_not_active is None
SCENES = (
    Scene("gradients", 1, _rounds(1), checked=_CHECKED, place=3),
    Scene("cubic gradients", 3, _rounds(3), checked=_CHECKED, place=3),
    Scene("proven gradients", 1, _rounds(1, "proven"), proven=True, place=3),
)
"""By their names; ``depth`` counts products that stand one after the other."""
