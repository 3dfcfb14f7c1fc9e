"""How far the marginals and the associations of a synthetic table are from those of the real one.

A distance of marginals is the total variation: the share of people who would have to change their values. Two samples
of the same people differ too, so the distance of people held out from the real table is the measure of small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.synthesis.comparable import Codes, Comparable, Matrix, Side

MOST_SETS = 3000
"""Sets of columns that are compared at most; of more, a fixed sample."""
LARGEST_TABLE = 1 << 22


@dataclass(frozen=True)
class Distance:
    """Total variation over sets of ``order`` columns: its mean, and the set where it is largest."""

    order: int
    with_label: bool
    sets: int
    mean: float
    worst: float
    worst_set: tuple[str, ...]
    held_out: float | None = None
    """The mean distance of people held out, where there are any."""


@dataclass(frozen=True)
class Associations:
    """Matrices of how strongly columns go together: correlation of two numbers, else Cramer's V."""

    names: tuple[str, ...]
    real: Matrix
    synthetic: Matrix

    @property
    def difference(self) -> Matrix:
        """Synthetic minus real."""
        return self.synthetic - self.real

    @property
    def mean_difference(self) -> float:
        """The mean absolute difference over pairs."""
        return float(np.abs(self.difference[_pairs(len(self.names))]).mean()) if len(self.names) > 1 else 0.0

    @property
    def worst_difference(self) -> float:
        """The largest absolute difference over pairs."""
        return float(np.abs(self.difference[_pairs(len(self.names))]).max()) if len(self.names) > 1 else 0.0


def column_sets(columns: int, order: int, label: int | None = None) -> list[tuple[int, ...]]:
    """All sets of that many columns, or all that hold the label; of too many, a sample that is always the same."""
    extra = () if label is None else (label,)
    others = [column for column in range(columns) if column != label]
    size = order - len(extra)
    count = math.comb(len(others), size)
    if count <= MOST_SETS:
        return [tuple(sorted((*chosen, *extra))) for chosen in combinations(others, size)]
    draw = np.random.default_rng(0)  # which sets are looked at, not a source of privacy
    found: set[tuple[int, ...]] = set()
    while len(found) < MOST_SETS:
        chosen = draw.choice(others, size, replace=False).tolist()
        found.add(tuple(sorted((*chosen, *extra))))
    return sorted(found)


def shares(codes: Codes, columns: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float64]:
    """The share of people in each cell of a marginal."""
    cells = math.prod(sizes[column] for column in columns)
    if cells > LARGEST_TABLE:
        raise DataError("a marginal that is compared has too many cells; leave out columns of many values [DA098]")
    place = np.zeros(len(codes), dtype=np.int64)
    for column in columns:
        place = place * sizes[column] + codes[:, column]
    return np.bincount(place, minlength=cells) / len(codes)


def total_variation(real: Codes, synthetic: Codes, columns: Sequence[int], sizes: Sequence[int]) -> float:
    """Half the sum of absolute differences of the shares of people."""
    return 0.5 * float(np.abs(shares(real, columns, sizes) - shares(synthetic, columns, sizes)).sum())


def distance(
    common: Comparable,
    real: Side,
    synthetic: Side,
    order: int,
    *,
    label: int | None = None,
    held_out: Side | None = None,
) -> Distance:
    """Distances of all marginals of that many columns, or of those with the label."""
    chosen = [
        columns
        for columns in column_sets(len(common.names), order, label)
        if math.prod(common.sizes[column] for column in columns) <= LARGEST_TABLE
    ]
    if not chosen:
        raise DataError(f"no marginal of {order} columns can be compared; give fewer values or more columns [DA099]")
    found = [total_variation(real.codes, synthetic.codes, columns, common.sizes) for columns in chosen]
    worst = int(np.argmax(found))
    aside = None
    if held_out is not None:
        aside = float(np.mean([total_variation(real.codes, held_out.codes, each, common.sizes) for each in chosen]))
    return Distance(
        order,
        label is not None,
        len(chosen),
        float(np.mean(found)),
        found[worst],
        tuple(common.names[column] for column in chosen[worst]),
        aside,
    )


def associations(common: Comparable, real: Side, synthetic: Side) -> Associations:
    """How strongly every two columns go together, in both tables."""
    return Associations(common.names, _associations(common, real), _associations(common, synthetic))


def _associations(common: Comparable, side: Side) -> Matrix:
    found = np.eye(len(common.names))
    for first, second in combinations(range(len(common.names)), 2):
        if common.numeric[first] and common.numeric[second]:
            strength = _correlation(side.values[:, first], side.values[:, second])
        else:
            strength = cramers_v(side.codes[:, [first, second]], (common.sizes[first], common.sizes[second]))
        found[first, second] = found[second, first] = strength
    return found


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 2:
        return 0.0
    x, y = first[both] - first[both].mean(), second[both] - second[both].mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else 0.0


def cramers_v(codes: Codes, sizes: tuple[int, int]) -> float:
    """Cramer's V of two columns of codes, with the bias of independent columns removed (Bergsma 2013)."""
    counts = shares(codes, (0, 1), sizes).reshape(sizes) * len(codes)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    (rows, columns), people = counts.shape, len(codes)
    if min(rows, columns) < 2 or people < 3:
        return 0.0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / people
    phi = float(((counts - expected) ** 2 / expected).sum()) / people
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (people - 1))
    least = min(rows - (rows - 1) ** 2 / (people - 1), columns - (columns - 1) ** 2 / (people - 1)) - 1
    return min(1.0, math.sqrt(phi / least)) if least > 0 else 0.0


def _pairs(columns: int) -> Any:
    return np.triu_indices(columns, 1)
