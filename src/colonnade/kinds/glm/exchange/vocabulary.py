"""Messages of an exchange, besides the noised numbers that parties tell each other."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.received import Array, Items, Message, Real, Text, Truth

FIT = Message("fit", name=Text(32, "[0-9a-f]{32}"))
"""The random name of the fit, from the active party to everybody."""
LARGEST_WEIGHT = (1 << 63) - 1
"""Of a released weight, in steps of the grid: a fit is held by a penalty, not by a ball, so nothing less is certain."""


def step(task: Exchange, number: int) -> Message:
    """Whether another step follows this one; that is known unless the study may end early, after whole epochs."""
    if number + 1 == len(task.steps):
        return Message("step", more=Truth(only=False))
    may_end = task.patience is not None and (number + 1) % task.batches == 0
    return Message("step", more=Truth(only=None if may_end else True))


def unfolded(task: Exchange) -> Message:
    """The active party's released weights, and a factor for each of the others."""
    size = len(task.block(task.active).columns) + 1
    return Message("unfolded", weights=Array(np.float64, (size,)), factors=Items(*[Real()] * len(task.passives)))
