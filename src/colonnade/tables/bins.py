"""The bins of a number column, from public rules: where their edges lie, in the column's own units.

A bin holds its lower edge and not its upper one; the last holds both. Bins of whole numbers have their edges halfway
between two whole numbers, so none of them is ever at an edge. An edge that is given twice is a bin of this one value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError
from colonnade.tables.densities import Density
from colonnade.tables.quantities import Matrix, Quantity

MAX_BINS = 10_000
_ROUNDING = 1e-13

Edges = tuple[float, ...]


@dataclass(frozen=True)
class Bins:
    """The bins of a number column between these edges."""

    column: Quantity
    edges: Edges

    def __post_init__(self) -> None:
        if not np.array_equal(self.of(self.column.encode_values(self._least)), np.arange(len(self))):
            raise SchemaError("the edges are too close to each other for 64-bit numbers; use fewer bins [SC004]")

    def __len__(self) -> int:
        return len(self.edges) - 1

    def of(self, encoded: Matrix) -> NDArray[np.int64]:
        """The bin of each encoded number."""
        return np.searchsorted(self._cuts, encoded, side="right").astype(np.int64)

    def density(self, masses: NDArray[np.float64] | None) -> Density:
        """How numbers lie within bins of these masses, on the scale on which the column is encoded evenly."""
        edges = self.column.apply_transform(self._own)
        if masses is None:
            return Density.uniform(edges)
        return Density.of(edges, masses, apart=self._widths <= (1 if self.column.whole else 0))

    def draw(self, places: NDArray[np.int64], density: Density, uniform: Matrix) -> Matrix:
        """A number in each of these bins, in the column's own units: the density's, at a uniform number."""
        drawn = self.column.invert_transform(density.draw(places, uniform))
        values = np.clip(drawn, self.column.low, self.column.high)
        if self.column.whole:
            values = np.rint(values)
        # Rounding may carry a number that was drawn next to an edge across it.
        strayed = (self.of(self.column.encode_values(values)) != places) | (self._widths[places] == 0)
        return np.where(strayed, self._least[places], values)

    @property
    def extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each bin the least and the largest number that it can hold."""
        low, high = self._own[:-1], self._own[1:]
        if self.column.whole:
            return low + 0.5, high - 0.5
        beside_single = np.concatenate([[False], self._widths[:-1] == 0])
        holds_its_end = (self._widths == 0) | (np.arange(len(self)) == len(self) - 1)
        return np.where(beside_single, np.nextafter(low, np.inf), low), np.where(
            holds_its_end, high, np.nextafter(high, -np.inf)
        )

    def labels(self) -> tuple[str, ...]:
        """Each bin in words."""
        pairs = list(pairwise(self.edges))
        if self.column.whole:
            ends = [(self.column.text_of(low + 0.5, 15), self.column.text_of(high - 0.5, 15)) for low, high in pairs]
            return tuple(low if low == high else f"{low} to {high}" for low, high in ends)
        said = [f"{low:.6g}" if low == high else f"{low:.6g} to below {high:.6g}" for low, high in pairs]
        low, high = pairs[-1]
        return (*said[:-1], f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")

    @property
    def _own(self) -> NDArray[np.float64]:
        return np.array(self.edges)

    @cached_property
    def _widths(self) -> NDArray[np.float64]:
        return np.diff(self._own)

    @cached_property
    def _cuts(self) -> NDArray[np.float64]:
        """The least encoded number of each bin but the first."""
        found = self.column.encode_values(self._own[1:-1])
        return np.where(self._widths[:-1] == 0, np.nextafter(found, np.inf), found)

    @cached_property
    def _least(self) -> NDArray[np.float64]:
        """The least number of each bin, or one in its middle where a bin of a single value comes before it."""
        if self.column.whole:
            return self._own[:-1] + 0.5
        ends = self.column.apply_transform(self._own)
        middle = self.column.invert_transform((ends[:-1] + ends[1:]) / 2)
        after_single = np.concatenate([[False], self._widths[:-1] == 0])
        return np.where(after_single, middle, self._own[:-1])


def bins_of(column: Quantity, asked: int | Sequence[float] | Sequence[str]) -> Bins:
    """So many bins, or those between these edges."""
    return Bins(column, _equal_edges(column, asked) if isinstance(asked, int) else _given_edges(column, asked))


def _equal_edges(column: Quantity, bins: int) -> Edges:
    """Edges of bins that are equally wide on the encoded scale; whole numbers get at most one bin each."""
    _check_count(bins)
    if not column.whole:
        between = column.invert_transform(np.linspace(*column.ends, bins + 1)[1:-1])
        return (column.low, *np.clip(between, column.low, column.high).tolist(), column.high)
    first, beyond = column.low, column.high + 1
    if beyond - first <= bins:
        return tuple((np.arange(first, beyond + 1) - 0.5).tolist())
    start, end = (math.log1p(first), math.log1p(beyond)) if column.transform == "log1p" else (first, beyond)
    between = column.invert_transform(np.linspace(start, end, bins + 1)[1:-1])
    # Logarithms are rounded differently on different machines; a cut that is meant to be a whole number stays it.
    between -= _ROUNDING * np.maximum(np.abs(between), 1.0)
    lowest = np.unique(np.clip(np.ceil(between), first + 1, column.high))
    return tuple((np.array([first, *lowest.tolist(), beyond]) - 0.5).tolist())


def _given_edges(column: Quantity, edges: Sequence[float] | Sequence[str]) -> Edges:
    """The edges that somebody chose, as they cut the column's range; its bounds are edges without being named."""
    if isinstance(edges, str) or not isinstance(edges, Sequence) or not edges:
        raise SchemaError(f"bins must be a number of bins or a list of edges, not {edges!r} [SC005]")
    numbers = [column.value_of(edge) for edge in edges]
    for left, right in pairwise(numbers):
        if right < left:
            raise SchemaError(f"the edge {right:g} comes after {left:g}; list the edges in ascending order [SC006]")
    if any(numbers[place] == numbers[place + 2] for place in range(len(numbers) - 2)):
        raise SchemaError("an edge is listed three times; twice makes a bin of this value alone [SC007]")
    for outside in ([edge for edge in numbers if edge < column.low], [edge for edge in numbers if edge > column.high]):
        if len(outside) > 1:
            raise SchemaError(
                f"the edges {outside[0]:g} and {outside[1]:g} are both beyond the bounds {column.low:g} and "
                f"{column.high:g}; delete all but one of those [SC008]"
            )
    within = [min(max(edge, column.low), column.high) for edge in numbers]
    within = [*([] if within[0] == column.low else [column.low]), *within]
    within += [] if within[-1] == column.high else [column.high]
    if len(within) > MAX_BINS + 1:
        raise SchemaError(f"{len(within) - 1} bins are more than {MAX_BINS}; give fewer edges [SC009]")
    return _between_whole(column, within) if column.whole else tuple(within)


def _between_whole(column: Quantity, edges: Sequence[float]) -> Edges:
    """For each bin the place halfway below its lowest whole number, and at last the one above all."""
    lowest = [math.ceil(edge) + (place > 0 and edges[place - 1] == edge) for place, edge in enumerate(edges)]
    lowest[-1] = int(column.high) + 1
    if edges[-2] == column.high:  # the last bin is this value alone
        lowest[-2] = int(column.high)
    return tuple(float(edge) - 0.5 for edge in dict.fromkeys(lowest))


def _check_count(bins: object) -> None:
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MAX_BINS:
        raise SchemaError(f"the number of bins must be a whole number from 1 to {MAX_BINS}, not {bins!r} [SC010]")
