"""Messages of fitting a mixture, besides shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.integers import LARGEST_OFFSET, LARGEST_SLOPE, Slopes
from colonnade.kinds.synthesis.mixture.task import Mixture, Part
from colonnade.message_schema import ArrayForm, FixedBytes, MessageSchema
from colonnade.randomness import KEY_BYTES


def draw(task: Mixture, rows: int) -> MessageSchema:
    """The secret of all batches, for owners and seats: a seed, or the batch of everyone in four bytes."""
    return MessageSchema("draw", secret=FixedBytes(4 * rows if task.sampling == "disjoint" else KEY_BYTES))


def slopes(task: Mixture, part: Part) -> MessageSchema:
    """By what an owner's statistics are multiplied in one piece of a batch: public, and the same at all seats."""
    shape, width = (task.components, part.width), (part.width,)
    return MessageSchema(
        "slopes",
        slope=ArrayForm(np.int32, shape, -LARGEST_SLOPE, LARGEST_SLOPE),
        offset=ArrayForm(np.int32, shape, -LARGEST_OFFSET, LARGEST_OFFSET),
        against=ArrayForm(np.int32, width, part.width, part.statistics - 1),
    )


def start(components: int, parameters: int) -> MessageSchema:
    """The parameters that the rounds begin with, where they follow from marginals."""
    return MessageSchema("start", parameters=ArrayForm(np.float64, (components, parameters), -LIMIT, LIMIT))


def told(slopes: Slopes) -> dict[str, NDArray[np.int32]]:
    """The fields of that message: all numbers have less than 32 bits."""
    return {name: getattr(slopes, name).astype(np.int32) for name in ("slope", "offset", "against")}


def fitted(size: int) -> MessageSchema:
    """The final parameters, from the owner that opened the sums."""
    return MessageSchema("fitted", state=ArrayForm(np.float64, (size,)))
