"""Messages about embeddings, besides the noised numbers that parties tell each other."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.split.embeddings.sides import LARGEST_SLOPE
from colonnade.kinds.split.embeddings.task import Embeddings
from colonnade.message_schema import ArrayForm, MessageSchema


def labels(task: Embeddings) -> MessageSchema:
    """The labels that the active party tells: the class of each person."""
    return MessageSchema("labels", values=ArrayForm(np.int64, (task.rows,), 0, task.classes - 1))


def slopes(task: Embeddings, owner: str, rows: int) -> MessageSchema:
    """How the teacher's loss changes with each embedding that a party told."""
    shape = (rows, task.sender(owner).width)
    return MessageSchema("slopes", values=ArrayForm(np.float64, shape, -LARGEST_SLOPE, LARGEST_SLOPE))
