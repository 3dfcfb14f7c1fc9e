"""What the programs need of a mixture model: its present public parameters, and what an owner computes from its rows.

Every participant holds an equal one and gives it the same opened numbers. Floats may still differ a little between
machines. That is harmless to privacy: an owner's integers are within their bounds for any parameters, and the
parameters of a machine are a function of what was opened before. In the end everybody gets the speaker's parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """How the derivatives of one owner's log densities follow from statistics t of a row, for every component.

    Number j is ``slope[k, j] t[j] - offset[k, j] t[against[j]]``. The statistics from number ``len(against)`` on are
    zeros and ones: whether a cell is there, or a constant.
    """

    slope: Array
    offset: Array
    against: NDArray[np.int64]


class Learner(Protocol):
    """A mixture model while it is fitted."""

    @property
    def log_weights(self) -> Array:
        """Logarithms of the weights of the components, (K,)."""

    def log_densities(self, owner: str, rows: Array, /) -> Array:
        """For encoded rows of one owner, (n, width), the logarithm of each component's density, (n, K)."""

    def vectors(self, owner: str, rows: Array, /) -> Array:
        """What is summed with the responsibilities as weights.

        Statistics of the rows, (n, q), which do not depend on parameters; or derivatives of the log densities of each
        component, (n, K, q). Where these are linear in statistics, the statistics.
        """

    def linear(self, owner: str, /) -> Linear:
        """The derivatives of one owner's log densities at the present parameters; only if they are linear."""

    def step(self, sums: Array, /) -> None:
        """The next parameters, from noisy sums of one round: (K, 1 + q of all owners), with the counts first."""

    @property
    def state(self) -> Array:
        """All that is published, as one array with a fixed number of entries."""

    def restore(self, state: Array, /) -> None:
        """Take over a state."""
