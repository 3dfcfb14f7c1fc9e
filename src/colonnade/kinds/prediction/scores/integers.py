"""Scores as integers: what an owner rounds alone, and the noise that it draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.protocols.sums import OwnPart
from colonnade.randomness import Stream


class OwnScores(OwnPart):
    """What a dealer computes alone: its parts, rounded before anything leaves it."""

    deals = False

    def __init__(self, task: Scores, name: str) -> None:
        self.task, self.name = task, name
        self.whole = np.zeros((0, task.classes), dtype=np.int64)

    def check(self, table: Any) -> None:
        """Round all parts, and refuse what is no number."""
        self.whole = quantise(table.values, self.task, self.name)

    def blocks(self, table: Any, stream: Stream) -> Iterator[NDArray[np.int64]]:
        """The rounded parts, some people at a time."""
        step = self.task.rows_per_block
        return (self.whole[start : start + step] for start in range(0, len(self.whole), step))

    def add(self, whole: NDArray[np.int64]) -> None:
        """Nothing: parts of different people are not added."""

    def entries(self) -> NDArray[np.int64]:
        """All parts, one person after the other."""
        return self.whole.reshape(-1)


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
