"""The published marginals: what follows from the opened integers without another look at data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.tables.marginals.blocks import Asked, axes
from colonnade.kinds.tables.marginals.task import Marginals
from colonnade.kinds.tables.residuals import Residual


@dataclass(frozen=True)
class NoisyMarginals:
    """The published result: the opened integers, and the numbers they stand for."""

    task: Marginals
    opened: NDArray[np.int64]

    merged: ClassVar[None] = None
    """No codes were merged between two stages."""

    @property
    def second(self) -> NoisyMarginals:
        """The last published result: this one."""
        return self

    @property
    def count(self) -> float:
        """The noisy number of people, never below one."""
        return max(1.0, float(self.cells(())[0]) / self._asked(()).weight)

    @property
    def count_deviation(self) -> float:
        """The standard deviation of its noise."""
        return self.task.deviation(self._asked(()))

    def residuals(self) -> tuple[Residual, ...]:
        """Every block that was asked for, without the count: sums over people of the products of one-hot - 1/n."""
        return tuple(self._residue(block) for block in self.task.asked if block.columns)

    def _residue(self, block: Asked) -> Residual:
        sizes = [self.task.sizes[column] for column in block.columns]
        values = self.cells(block.columns).reshape(axes(block.columns, self.task.sizes)) / float(block.weight)
        for axis, size in enumerate(sizes):
            values = values / size
            if size == 2:
                values = np.concatenate([values, -values], axis=axis)
            else:
                values = values - values.mean(axis=axis, keepdims=True)
        return Residual(block.columns, values, self.task.deviation(block))

    def cells(self, columns: tuple[int, ...]) -> NDArray[np.int64]:
        """The opened integers of one block."""
        place = self.task.asked.index(self._asked(columns))
        return self.opened[self.task.starts[place] : self.task.starts[place + 1]]

    def _asked(self, columns: tuple[int, ...]) -> Asked:
        found = next((block for block in self.task.asked if block.columns == columns), None)
        if found is None:
            raise StudyError(
                "the number of people was not among the marginals that were asked for: ask for it too [ST484]"
            )
        return found
