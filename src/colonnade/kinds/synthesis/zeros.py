"""Codes that nobody can have, in the fit: their mass in a mixture of products is a price that drives it to zero.

A rule of the schemas makes boxes of codes impossible. In one component the mass of a box is a product over its columns,
so price and derivatives take a few sums over codes (docs/theory/fitting-marginals.md, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.targets import Singles
from colonnade.tables.joint import Box

_PRICE = 3.0
"""The price of a person in a box, where half of chi-squared is the price of the misfit."""


class Zeros:
    """Boxes of impossible codes, arranged for their mass in a mixture of equal weights and its derivatives."""

    def __init__(self, sizes: Sequence[int], count: float, boxes: Sequence[Box]) -> None:
        starts = np.cumsum([0, *sizes])
        self.count = count
        self.boxes: list[list[NDArray[np.intp]]] = [
            [starts[column] + np.flatnonzero(marked) for column, marked in zip(box.columns, box.marked, strict=True)]
            for box in boxes
        ]

    def add(self, chances: Singles, slopes: Singles) -> None:
        """Add the derivatives of the price of all boxes by the chances; ``chances`` is as in a misfit."""
        each = np.float32(_PRICE * self.count / len(chances))
        for box in self.boxes:
            held = [chances[:, places].sum(axis=1, dtype=np.float32) for places in box]
            for at, places in enumerate(box):
                others = prod((part for other, part in enumerate(held) if other != at), start=each)
                slopes[:, places] += np.broadcast_to(others, (len(chances),))[:, None]
