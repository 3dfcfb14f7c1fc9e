"""Messages of the search for components, besides shares."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.pca.directions.task import Directions
from colonnade.received import Array, Message


def directions(task: Directions) -> Message:
    """The directions of the next round, from the participant that chooses them to all others."""
    return Message("directions", values=Array(np.int32, (task.width, task.directions), -task.reach, task.reach))
