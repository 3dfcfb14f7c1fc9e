"""What a mixture of products is fitted to: all residuals as few matrix products, and how far it is from them.

In one component the columns are independent, so the residual of two columns is the weighted sum over components of
outer products: for all pairs at once one Gram matrix of the components' centred probabilities. A set of three columns
or more is a pair, weighted by what the component says of the others: its *hinge*, such as the label.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.release import Residual

Singles = NDArray[np.float32]
"""Single precision: noise is far coarser than what it rounds off, and products take half the time."""


def contrasts(size: int) -> NDArray[np.float64]:
    """Orthonormal coordinates of what sums to zero over the values of a column, one in each row."""
    rows = np.arange(1, size)[:, None]
    places = np.arange(size)[None, :]
    found = (places < rows) - rows * (places == rows).astype(np.float64)
    return np.asarray(found / np.sqrt(rows * (rows + 1.0)))


@dataclass(frozen=True)
class Group:
    """All sets of columns that share a hinge, as pairs of the columns beside it.

    ``wanted[c]`` is the residual in coordinate c of the hinge, over all pairs of places; ``precision`` holds one over
    the noise's variance, and zero where nothing was asked for.
    """

    hinge: tuple[int, ...]
    coordinates: tuple[tuple[int, ...], ...]
    places: NDArray[np.intp]
    wanted: Singles
    precision: Singles


class Targets:
    """The residuals of one release, arranged for the misfit of a mixture of equal weights and its derivatives."""

    def __init__(self, sizes: Sequence[int], count: float, residuals: Sequence[Residual]) -> None:
        self.sizes, self.count = tuple(sizes), np.float32(count)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.width = int(self.starts[-1])
        self.degrees = sum(each.degrees for each in residuals if each.columns)
        self.even = np.repeat(1 / np.array(sizes), sizes).astype(np.float32)
        self.contrasts = [contrasts(size).astype(np.float32) for size in sizes]
        self.single = np.zeros(self.width, dtype=np.float32)
        self.single_precision = np.zeros(self.width, dtype=np.float32)
        for each in residuals:
            if len(each.columns) == 1:
                self.single[self.codes(each.columns[0])] = each.values
                self.single_precision[self.codes(each.columns[0])] = each.deviation**-2
        self.groups = [self._group(*found) for found in _hinged([r for r in residuals if len(r.columns) > 1], sizes)]

    def codes(self, column: int) -> slice:
        """The places of a column's codes among all codes."""
        return slice(int(self.starts[column]), int(self.starts[column + 1]))

    def misfit(self, chances: Singles) -> tuple[float, Singles]:
        """Chi-squared of the noise that a mixture implies, and half its derivatives by the chances.

        ``chances`` has a row for each component, all of one weight, and a column for each code of each column.
        """
        scale = self.count / np.float32(len(chances))
        centred = chances - self.even
        apart = scale * centred.sum(axis=0) - self.single
        weighed = apart * self.single_precision
        squares = float(weighed @ apart)
        slopes = np.tile(scale * weighed, (len(chances), 1))
        for group in self.groups:
            squares += self._add(group, chances, centred, scale, slopes)
        return squares, slopes

    def _add(self, group: Group, chances: Singles, centred: Singles, scale: np.float32, slopes: Singles) -> float:
        """Add a group's derivatives to the slopes; gives its part of chi-squared."""
        here = centred if len(group.places) == self.width else np.ascontiguousarray(centred[:, group.places])
        turned = {column: chances[:, self.codes(column)] @ self.contrasts[column].T for column in group.hinge}
        back = {column: np.zeros_like(each) for column, each in turned.items()}
        found, squares = np.zeros_like(here), 0.0
        for wanted, coordinate in zip(group.wanted, group.coordinates, strict=True):
            factors = [turned[column][:, at] for column, at in zip(group.hinge, coordinate, strict=True)]
            weight = (scale * np.prod(factors, axis=0, dtype=np.float32))[:, None] if factors else scale
            apart = (here * weight).T @ here
            apart -= wanted
            weighed = apart * group.precision
            squares += float(np.vdot(apart, weighed)) / 2  # each pair stands there twice
            pulled = here @ weighed
            if factors:
                along = scale / 2 * np.einsum("ij,ij->i", pulled, here)
                for at, (column, place) in enumerate(zip(group.hinge, coordinate, strict=True)):
                    others = [factor for other, factor in enumerate(factors) if other != at]
                    back[column][:, place] += along * np.prod(others, axis=0, dtype=np.float32) if others else along
            pulled *= weight
            found += pulled
        slopes[:, group.places] += found
        for column, each in back.items():
            slopes[:, self.codes(column)] += each @ self.contrasts[column]
        return squares

    def _group(self, hinge: tuple[int, ...], members: Sequence[Residual]) -> Group:
        beside = sorted({column for each in members for column in each.columns} - set(hinge))
        places = np.concatenate([np.arange(self.codes(c).start, self.codes(c).stop) for c in beside])
        local = dict(zip(beside, np.cumsum([0, *(self.sizes[c] for c in beside)]), strict=False))
        coordinates = tuple(product(*(range(self.sizes[column] - 1) for column in hinge)))
        wanted = np.zeros((len(coordinates), len(places), len(places)), dtype=np.float32)
        precision = np.zeros((len(places), len(places)), dtype=np.float32)
        for each in members:
            left, right = (column for column in each.columns if column not in hinge)
            values = each.values
            for column in hinge:  # the hinge's axes go last, in order, in coordinates
                values = np.tensordot(values, contrasts(self.sizes[column]), axes=(_axis(each, column, hinge), 1))
            rows, cols = (slice(local[c], local[c] + self.sizes[c]) for c in (left, right))
            stacked = values.reshape(self.sizes[left], self.sizes[right], len(coordinates))
            wanted[:, rows, cols] = stacked.transpose(2, 0, 1)
            wanted[:, cols, rows] = stacked.transpose(2, 1, 0)
            precision[rows, cols] = precision[cols, rows] = each.deviation**-2
        return Group(hinge, coordinates, places, wanted, precision)


def _axis(residual: Residual, column: int, hinge: tuple[int, ...]) -> int:
    """Where a column's axis is, after those of the hinge's columns before it were moved to the end."""
    return residual.columns.index(column) - sum(before < column for before in hinge)


def _hinged(residuals: Sequence[Residual], sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Residual]]]:
    """The residuals of two columns or more by hinges that many of them share and that have few coordinates."""
    left = list(residuals)
    while left:
        shared: Counter[tuple[int, ...]] = Counter()
        for each in left:
            shared.update(combinations(each.columns, len(each.columns) - 2))

        def worth(hinge: tuple[int, ...], shared: Counter[tuple[int, ...]] = shared) -> float:
            return shared[hinge] / max(1, math.prod(sizes[column] - 1 for column in hinge))

        best = max(sorted(shared), key=worth)
        taken = [each for each in left if len(each.columns) == len(best) + 2 and set(best) <= set(each.columns)]
        yield best, taken
        left = [each for each in left if each not in taken]
