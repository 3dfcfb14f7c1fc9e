"""Messages about levels."""

from __future__ import annotations

import numpy as np

from colonnade.kinds.prediction.levels.task import Respondent
from colonnade.received import Array, Message


def levels(asked: Respondent, rows: int) -> Message:
    """One party's answers: a level for each person."""
    return Message("levels", values=Array(np.int64, (rows,), 0, asked.levels - 1))
