"""Gradients as integers: rounded rows, the scores that multiply them, an owner's noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.privacy.noise.rounding import bounded_round
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream


def quantise(values: NDArray[np.float64], block: Block, task: Gradients, stream: Stream) -> NDArray[np.float64]:
    """Algorithm 2: scale and round at random, and enforce the bound on the integers; labels are not changed."""
    width = len(block.columns)
    scaled = values[:, :width] * (float(task.gamma) * task.scale)
    return np.hstack([bounded_round(scaled, task.block_norm_squared(block), stream), values[:, width:]])


def scores(u: NDArray[Any], signs: NDArray[Any], task: Gradients) -> NDArray[Any]:
    """The factors of rows in a gradient, from their products ``u`` with the weights and ``signs`` = 1 - 2 y."""
    g = task.gamma
    if task.expansion == 1:
        return np.asarray(2 * g**2 * signs + u)
    return np.asarray(24 * g**6 * signs + 12 * g**4 * u - u**3)


def noise_shares(task: Gradients, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for ``rounds`` rounds; audits attack this function."""
    return task.additive.draw((rounds, task.entries), stream)
