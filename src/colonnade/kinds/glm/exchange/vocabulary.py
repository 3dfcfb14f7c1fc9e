"""Messages of an exchange, besides the noised numbers that parties tell each other."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.received import Array, Items, Message, Real, Text

FIT = Message("fit", name=Text(32, "[0-9a-f]{32}"))
"""The random name of the fit, from the active party to everybody."""
STEP = Message("step")
"""The active party has sent the slopes of one more step; it shows the coordinator how far the exchange is."""
LARGEST_WEIGHT = (1 << 63) - 1
"""Of a released weight, in steps of the grid: a fit is held by a penalty, not by a ball, so nothing less is certain."""


def unfolded(task: Exchange) -> Message:
    """The active party's released weights, and a factor for each of the others."""
    size = len(task.block(task.active).columns) + 1
    return Message("unfolded", weights=Array(np.float64, (size,)), factors=Items(*[Real()] * len(task.passives)))
