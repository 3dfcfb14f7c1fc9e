"""Labels as heads learn them: the place of each person's class, or the encoded number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables import Table
from colonnade.tables.centring import ColumnCentring


def targets(centred: ColumnCentring, table: Table, classes: int) -> NDArray[Any]:
    """The labels in a table of the party that holds them: classes as 0, 1, 2, ..., or encoded numbers."""
    encoded = centred.labels(table)
    if not classes:
        return np.asarray(encoded[:, 0], dtype=np.float64)
    if encoded.shape[1] == 1:
        return np.asarray(encoded[:, 0] > 0.5, dtype=np.int64)
    return np.asarray(encoded.argmax(axis=1), dtype=np.int64)
