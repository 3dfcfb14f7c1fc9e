"""How well a fitted model agrees with the release it was fitted to: chi-squared, and which columns depend on which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.layout import Codes
from colonnade.kinds.tables.release import MarginalsRelease, misfit
from colonnade.randomness import Stream

Numbers = NDArray[np.float64]


class OfCodes(Protocol):
    """A distribution of codes, such as a mixture of products or a tree."""

    def marginal(self, columns: Sequence[int], /) -> Numbers:
        """The chances of all combinations of codes of some columns."""

    def log_likelihood(self, codes: Codes, /) -> Numbers:
        """The logarithm of the chance of each row."""

    def sample(self, rows: int, stream: Stream, /) -> Codes:
        """Codes of so many people."""

    def arrays(self) -> dict[str, Numbers]:
        """All numbers by name, to be kept in a file."""


@dataclass(frozen=True)
class Agreement:
    """All marginals of one order: how many, how noisy a cell is, and how far the model is from them.

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


def agreements(release: MarginalsRelease, fitted: OfCodes, sizes: Sequence[int]) -> list[Agreement]:
    """One line for each order of marginals that was asked for."""
    found = []
    for order in (1, 2, 3):
        sets = [columns for columns in release.sets(order) if release.holds(columns)]
        if not sets:
            continue
        spreads = [float(release.marginal(columns, sizes)[1].flat[0]) for columns in sets]
        parts = [part for columns in sets if (part := release.part(columns)) is not None]
        chi, degrees = misfit(fitted.marginal, release.count, parts)
        found.append(Agreement(order, len(sets), float(np.median(spreads)), max(spreads), chi, degrees))
    return found


def dependence(joint: Numbers) -> float:
    """Cramér's V of two columns, from 0 (independent) to 1, by the chances of their combinations."""
    expected = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    there = expected > 0
    squared = float(np.sum((joint - expected)[there] ** 2 / expected[there]))
    return math.sqrt(min(1.0, squared / max(1, min(joint.shape) - 1)))


def strongest(release: MarginalsRelease, fitted: OfCodes, most: int) -> list[tuple[tuple[int, ...], float]]:
    """The pairs of columns that depend on each other most, by the model."""
    pairs = [(columns, dependence(fitted.marginal(columns))) for columns in release.sets(2)]
    return sorted(pairs, key=lambda pair: -pair[1])[:most]
