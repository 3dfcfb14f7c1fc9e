"""How well a model or a table agrees with a release: chi-squared; and which columns depend on which.

Nobody looks at data for it. Chi-squared weighs each difference by its noise, whose level is public: about one for each
degree of freedom means that the model says what the release says, as far as the noise can tell. What was fitted to the
same release may be closer: then it repeats some of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.layout import Codes
from colonnade.kinds.tables.release import MarginalsRelease, misfit

Numbers = NDArray[np.float64]


Chances = Callable[[Sequence[int]], Numbers]
"""From some columns to the chances of all combinations of their codes."""


def counted(codes: Codes, sizes: Sequence[int]) -> Chances:
    """The shares of the rows of a table that have each combination of codes."""

    def chances(columns: Sequence[int]) -> Numbers:
        shape = tuple(sizes[column] for column in columns)
        cells = np.ravel_multi_index(tuple(codes[:, column] for column in columns), shape)
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape) / len(codes)

    return chances


@dataclass(frozen=True)
class Agreement:
    """All marginals of one order: how many, how noisy a cell is, and how far a model or a table is from them.

    ``deviation`` is the standard deviation of the noise of a cell of a marginal, in people, the median over the
    marginals and the largest of them. Where the model is as close to the release as the truth is, ``chi_squared`` is
    about ``degrees``.
    """

    order: int
    sets: int
    deviation: float
    largest: float
    chi_squared: float
    degrees: int

    @property
    def ratio(self) -> float:
        """Chi-squared by its degrees of freedom."""
        return self.chi_squared / max(1, self.degrees)


def agreements(release: MarginalsRelease, chances: Chances, sizes: Sequence[int]) -> list[Agreement]:
    """One line for each order of marginals that was asked for."""
    found = []
    for order in (1, 2, 3):
        sets = [columns for columns in release.sets(order) if release.holds(columns)]
        if not sets:
            continue
        spreads = [float(release.marginal(columns, sizes)[1].flat[0]) for columns in sets]
        parts = [part for columns in sets if (part := release.part(columns)) is not None]
        chi, degrees = misfit(chances, release.count, parts)
        found.append(Agreement(order, len(sets), float(np.median(spreads)), max(spreads), chi, degrees))
    return found


def dependence(joint: Numbers) -> float:
    """Cramér's V of two columns, from 0 (independent) to 1, by the chances of their combinations."""
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    there = expected > 0
    squared = float(np.sum((joint - expected)[there] ** 2 / expected[there]))
    return math.sqrt(min(1.0, squared / max(1, min(joint.shape) - 1)))


def strongest(pairs: Iterable[tuple[int, ...]], chances: Chances) -> list[tuple[tuple[int, ...], float]]:
    """Pairs of columns with how much they depend on each other by the model, the strongest first."""
    found = [(columns, dependence(chances(columns))) for columns in pairs]
    return sorted(found, key=lambda pair: -pair[1])
