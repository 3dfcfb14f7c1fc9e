"""Messages of iterative logistic regression, besides shares."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.regression.gradients.task import Gradients
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets


def draw(task: Gradients, rows: int) -> Message:
    """The secret of all batches, for the seats: a seed, or the batch of everyone in four bytes."""
    return Message("draw", secret=Octets(KEY_BYTES if task.sampling == "poisson" else 4 * rows))


def weights(task: Gradients) -> Message:
    """The learned weights, for whoever has no seat."""
    most = 2 * task.weight_bound  # they are an average of weights within the ball, and averages are rounded
    return Message("weights", weights=Array(np.float64, (task.classes, task.width), -most, most))
