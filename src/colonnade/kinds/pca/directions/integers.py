"""Products with directions as integers: rounded rows, exact products in one place, and the noise of an owner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.pca.directions.search import IntegerDirections
from colonnade.kinds.pca.directions.task import Directions
from colonnade.privacy.noise.rounding import bounded_round
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream


def quantise(values: NDArray[np.float64], block: Block, task: Directions, stream: Stream) -> NDArray[np.float64]:
    """Algorithm 2: scale and round at random, and enforce the bound on the integers themselves."""
    return bounded_round(values * float(task.gamma), task.block_norm_squared(block), stream)


def exact_products(joint: NDArray[np.float64], directions: IntegerDirections, task: Directions) -> NDArray[np.int64]:
    """Z'(Z Q) of integer rows, exact because it is computed in blocks whose sums stay below 2^53, or in integers."""
    step = 2**53 // (task.norm_squared * task.reach)
    if not step:
        # The product of one row may be above 2^53. Z Q is not: if sums fit 63 bits, it stays below 2^31 sqrt(reach).
        inner = joint @ directions.astype(np.float64)
        return joint.T.astype(np.int64) @ inner.astype(np.int64)
    total = np.zeros(directions.shape, dtype=np.int64)
    for start in range(0, len(joint), step):
        part = joint[start : start + step]
        total += (part.T @ (part @ directions.astype(np.float64))).astype(np.int64)
    return total


def noise_shares(task: Directions, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for ``rounds`` rounds."""
    return entry_noise(task, (rounds, task.entries), stream)


def entry_noise(task: Directions, shape: tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for opened numbers of this shape; audits attack this function."""
    return task.additive.draw(shape, stream)
