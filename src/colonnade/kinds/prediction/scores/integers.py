"""Scores as integers: what an owner rounds alone, and the noise that it draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.randomness import Stream


def quantise(values: NDArray[np.float64], task: Scores, name: str) -> NDArray[np.int64]:
    """Round to the grid, and enforce the bounds on the integers themselves."""
    part = task.part(name)
    if not np.isfinite(values).all():
        raise DataError(
            f"the scores of {name} are not all finite numbers: look at its table and the model's weights [DA131]"
        )
    low, high = (np.array(ends, dtype=np.float64) for ends in (part.low, part.high))
    clipped = np.clip(np.rint(values * float(task.gamma)), low, high).astype(np.int64)
    # Bounds above 2^53 may be no floats, so they are enforced on integers too.
    return np.clip(clipped, np.array(part.low, dtype=np.int64), np.array(part.high, dtype=np.int64))


def noise_share(task: Scores, rows: int, stream: Stream) -> NDArray[np.int64]:
    """One dealer's noise: Sk(noise / dealers) on every score."""
    return task.additive.draw((rows, task.classes), stream)
