"""Messages of fitting a mixture, besides shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.integers import LARGEST_OFFSET, LARGEST_SLOPE, Slopes
from colonnade.kinds.synthesis.mixture.task import Mixture, Part
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets


def draw(task: Mixture, rows: int) -> Message:
    """The secret of all batches, for owners and seats: a seed, or the batch of everyone in four bytes."""
    return Message("draw", secret=Octets(4 * rows if task.sampling == "disjoint" else KEY_BYTES))


def slopes(task: Mixture, part: Part) -> Message:
    """By what an owner's statistics are multiplied in one piece of a batch: public, and the same at all seats."""
    shape, width = (task.components, part.width), (part.width,)
    return Message(
        "slopes",
        slope=Array(np.int32, shape, -LARGEST_SLOPE, LARGEST_SLOPE),
        offset=Array(np.int32, shape, -LARGEST_OFFSET, LARGEST_OFFSET),
        against=Array(np.int32, width, part.width, part.statistics - 1),
    )


def start(components: int, parameters: int) -> Message:
    """The parameters that the rounds begin with, where they follow from marginals."""
    return Message("start", parameters=Array(np.float64, (components, parameters), -LIMIT, LIMIT))


def told(slopes: Slopes) -> dict[str, NDArray[np.int32]]:
    """The fields of that message: all numbers have less than 32 bits."""
    return {name: getattr(slopes, name).astype(np.int32) for name in ("slope", "offset", "against")}


def fitted(size: int) -> Message:
    """The final parameters, from the owner that opened the sums."""
    return Message("fitted", state=Array(np.float64, (size,)))
