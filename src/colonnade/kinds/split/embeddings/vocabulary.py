"""Messages about embeddings, besides the noised numbers that parties tell each other."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.split.embeddings.sides import LARGEST_SLOPE
from colonnade.kinds.split.embeddings.task import Embeddings
from colonnade.received import Array, Message


def labels(task: Embeddings) -> Message:
    """The labels that the active party tells: the class of each person."""
    return Message("labels", values=Array(np.int64, (task.rows,), 0, task.classes - 1))


def slopes(task: Embeddings, owner: str, rows: int) -> Message:
    """How the teacher's loss changes with each embedding that a party told."""
    shape = (rows, task.sender(owner).width)
    return Message("slopes", values=Array(np.float64, shape, -LARGEST_SLOPE, LARGEST_SLOPE))
