"""Noisy residuals of marginals, and the marginals with error bars that they give (docs/theory/fitting-marginals.md).

The residual of a set of columns sums, over people, the tensor product of ``onehot - 1/n``. Residuals of different sets
are orthogonal, and the marginal of a set is the sum of the residuals of its subsets, each spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Residual:
    """The noisy residual of one set of columns, in people.

    ``values`` sums to zero along every axis. ``deviation`` is that of the noise of one cell before it was projected so.
    """

    columns: tuple[int, ...]
    values: Floats
    deviation: float

    @property
    def degrees(self) -> int:
        """The degrees of freedom of the noise, after its projection."""
        return math.prod(size - 1 for size in self.values.shape)


def centred(values: Floats) -> Floats:
    """The nearest array that sums to zero along every axis."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def check(sizes: Sequence[int], residuals: Sequence[Residual]) -> None:
    """Refuse residuals that do not belong to columns of these sizes."""
    if not sizes or min(sizes) < 1:
        raise StudyError("every coded column needs at least one value [ST390]")
    seen: set[tuple[int, ...]] = set()
    for each in residuals:
        if each.columns in seen or list(each.columns) != sorted(set(each.columns)):
            raise StudyError(
                "the residual of each set of columns is given once, with its columns in ascending order [ST391]"
            )
        if any(not 0 <= column < len(sizes) for column in each.columns):
            raise StudyError(f"a residual names a column beyond the {len(sizes)} coded columns [ST392]")
        if each.values.shape != tuple(sizes[column] for column in each.columns):
            raise StudyError("the shape of a residual must be the sizes of its columns [ST393]")
        if not (each.deviation > 0 and math.isfinite(each.deviation) and np.isfinite(each.values).all()):
            raise StudyError("a residual needs finite values and a positive deviation of its noise [ST394]")
        seen.add(each.columns)


def subsets(columns: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All subsets of some columns, the smaller first."""
    for order in range(len(columns) + 1):
        yield from combinations(columns, order)


def noisy_marginal(
    columns: Sequence[int], sizes: Sequence[int], count: float, residuals: Sequence[Residual]
) -> tuple[Floats, Floats]:
    """Counts of people by these columns, and the standard deviation of the noise in each.

    Both follow from the release alone. Noise of different blocks is independent, so the deviations are exact. All
    subsets of the columns must have been asked for. Without a residual of the empty set the count is taken as exact.
    """
    asked = tuple(sorted(columns))
    shape = tuple(sizes[column] for column in asked)
    known = {each.columns: each for each in residuals}
    counts, variance = np.full(shape, count / math.prod(shape)), 0.0
    for subset in subsets(asked):
        part = known.get(subset)
        if part is None:
            if subset:
                raise StudyError(
                    f"the marginal of columns {list(asked)} was not asked for; name marginals of the "
                    "release instead [ST395]"
                )
            continue
        spread = math.prod(sizes[column] for column in asked if column not in subset)
        kept = math.prod(1 - 1 / sizes[column] for column in subset)
        variance += kept * (part.deviation / spread) ** 2
        if subset:
            axes = tuple(sizes[column] if column in subset else 1 for column in asked)
            counts += part.values.reshape(axes) / spread
    order = [asked.index(column) for column in columns]
    return counts.transpose(order), np.full(shape, math.sqrt(variance)).transpose(order)


def misfit(
    marginal: Callable[[tuple[int, ...]], Floats], count: float, residuals: Sequence[Residual]
) -> tuple[float, int]:
    """Chi-squared of the noise that a model implies, and its degrees of freedom, which it is expected to have."""
    squares = 0.0
    for each in residuals:
        implied = count * centred(marginal(each.columns)) if each.columns else np.array(count)
        squares += float(np.sum((implied - each.values) ** 2)) / each.deviation**2
    return squares, sum(each.degrees for each in residuals)
