"""Quantities between public bounds, the bins of their range, and densities within the bins.

A bin holds its lower edge and not its upper one; the last holds both. Bins of whole numbers have their edges halfway
between two whole numbers, so none of them is ever at an edge. An edge that is given twice is a bin of this one value.

A density is continuous and piecewise linear, with a knot at each edge and one in the middle of each bin. At an edge its
height lies between the mean heights of the two bins, but is at most twice the smaller one; then the height in the
middle that keeps the mass of the bin is never negative. Where a bin has no neighbour to borrow from (at the ends,
beside a bin of one value) the density is linear across it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Density:
    """Heights at the left edge, in the middle and at the right edge of each bin, where all edges span a length of 1."""

    edges: Matrix
    left: Matrix
    middle: Matrix
    right: Matrix

    @classmethod
    def uniform(cls, edges: Matrix) -> Density:
        """The same height everywhere within a bin."""
        flat = np.ones(len(edges) - 1)
        return cls(edges, flat, flat, flat)

    @classmethod
    def from_masses(cls, edges: Matrix, masses: Matrix, apart: NDArray[np.bool_]) -> Density:
        """The density of bins with these masses; bins marked ``apart`` are no neighbours to any other."""
        widths = _relative_widths(edges)
        apart = apart | (widths <= 0)
        heights = np.divide(masses, widths, out=np.zeros(len(widths)), where=~apart)
        joined = ~apart[:-1] & ~apart[1:]
        reach = np.where(joined, widths[:-1] + widths[1:], 1.0)
        between = (heights[:-1] * widths[1:] + heights[1:] * widths[:-1]) / reach
        between = np.minimum(between, 2 * np.minimum(heights[:-1], heights[1:]))
        left = np.concatenate([[np.nan], np.where(joined, between, np.nan)])
        right = np.concatenate([np.where(joined, between, np.nan), [np.nan]])
        # Without a neighbour on one side the bin is linear; without any it is flat.
        alone = np.isnan(left) & np.isnan(right)
        left, right = np.where(alone, heights, left), np.where(alone, heights, right)
        left, right = (
            np.where(np.isnan(left), 2 * heights - right, left),
            np.where(np.isnan(right), 2 * heights - left, right),
        )
        middle = np.maximum(2 * heights - (left + right) / 2, 0.0)
        empty = left + 2 * middle + right <= 0
        return cls(edges, *(np.where(empty, 1.0, part) for part in (left, middle, right)))

    @property
    def masses(self) -> Matrix:
        """The mass of each bin."""
        return np.asarray(_relative_widths(self.edges) * (self.left + 2 * self.middle + self.right) / 4)

    def draw(self, bins: NDArray[np.int64], uniform: Matrix) -> Matrix:
        """For each of these bins the place within it below which lies the given share of its mass."""
        peak = np.maximum(np.maximum(self.left, self.right), self.middle)
        left, middle, right = ((heights / peak)[bins] for heights in (self.left, self.middle, self.right))
        first, second = left + middle, middle + right
        mark = uniform * (first + second)
        later = mark >= first
        start, end = np.where(later, middle, left), np.where(later, right, middle)
        half = np.where(later, second, first)
        share = np.clip(
            np.divide(np.where(later, mark - first, mark), half, out=np.zeros_like(half), where=half > 0), 0, 1
        )
        # The inverse of the integral of a linear function, in a form that does not cancel.
        below = start + np.sqrt((1 - share) * start**2 + share * end**2)
        within = np.divide(share * half, below, out=share.copy(), where=below > 0)
        place = (np.minimum(within, 1.0) + later) / 2
        low, high = self.edges[bins], self.edges[bins + 1]
        found: Matrix = np.clip(low + place * (high - low), low, high)
        return found


def _relative_widths(edges: Matrix) -> Matrix:
    return np.asarray(np.diff(edges) / (edges[-1] - edges[0]))


Scale = Literal["signed", "unit"]
Transform = Literal["none", "log1p"]
MAX_WHOLE = 10**12  # so that whole numbers and their halves stay apart when they are encoded


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number between two public bounds, encoded to [-1, 1] or [0, 1], by its logarithm if the transform says so."""

    low: float
    high: float
    unit: str = ""
    scale: Scale = "signed"
    transform: Transform = "none"
    whole: bool = False

    def __post_init__(self) -> None:
        low, high = check_real("low", self.low), check_real("high", self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not low < high:
            raise SchemaError(f"low ({low:g}) must be below high ({high:g}); correct the two bounds [SC017]")
        check_text("unit", self.unit)
        _check_choice("scale", self.scale, ("signed", "unit"))
        _check_choice("transform", self.transform, ("none", "log1p"))
        if self.transform == "log1p" and low < 0:
            raise SchemaError(
                f'transform = "log1p" needs low >= 0, not {low:g}; raise low or drop the transform [SC018]'
            )
        start, end = self.ends
        if not 0 < end - start < math.inf:
            raise SchemaError("low and high are too close or too far apart for 64-bit numbers; change them [SC019]")

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds after the transform."""
        if self.transform == "log1p":
            return math.log1p(self.low), math.log1p(self.high)
        return self.low, self.high

    @property
    def signed(self) -> bool:
        """Whether it is encoded to [-1, 1], and not to [0, 1]."""
        return self.scale == "signed"

    def apply_transform(self, values: Matrix) -> Matrix:
        """Values in their own units on the scale on which they are encoded evenly."""
        return np.log1p(values) if self.transform == "log1p" else values

    def invert_transform(self, values: Matrix) -> Matrix:
        """Values of that scale in their own units."""
        return np.expm1(values) if self.transform == "log1p" else values

    def share_of(self, values: Matrix) -> Matrix:
        """How far values lie from the lower to the upper bound on that scale: from 0 to 1, also beyond the bounds."""
        start, end = self.ends
        return np.clip((self.apply_transform(values) - start) / (end - start), 0.0, 1.0)

    def from_share(self, share: Matrix) -> Matrix:
        """The encoded numbers of shares of the range."""
        return 2 * share - 1 if self.signed else share

    def to_share(self, encoded: Matrix) -> Matrix:
        """The shares of the range of encoded numbers."""
        return (encoded + 1) / 2 if self.signed else encoded

    def encode_values(self, values: Matrix) -> Matrix:
        """Values within the bounds as they are encoded; those beyond get the nearest bound's."""
        return self.from_share(self.share_of(values))

    def decode_values(self, encoded: Matrix) -> Matrix:
        """Encoded values back in their units; values beyond the encoded range lie beyond the bounds."""
        start, end = self.ends
        return self.invert_transform(start + self.to_share(encoded) * (end - start))

    def value_of(self, given: object) -> float:
        """A value as a person writes it, as the number that is encoded; a day, for example, is written as one."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise SchemaError(f"an edge of a bin must be a finite number, not {given!r} [SC011]")
        return float(given)

    def text_of(self, value: float, digits: int = 6) -> str:
        """A value as a person reads it."""
        return f"{value:.{digits}g}"

    def short_text_of(self, value: float) -> str:
        """A value as it stands below a picture."""
        return f"{round(value):,}" if abs(value) >= 100 else f"{value:.3g}"


def real_array(given: Any) -> NDArray[np.float64]:
    """Numbers as floats; complex ones, whose imaginary parts would be lost, are refused."""
    found = np.asarray(given)
    if found.dtype.kind == "c":
        raise DataError("the array holds complex numbers; give real ones [DA742]")
    return np.asarray(found, dtype=np.float64)


def check_real(what: str, value: object) -> float:
    """A finite number that somebody stated; ``what`` names it in errors."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{what} must be a number, not {value!r} [SC032]")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise SchemaError(
            f"{what} must be a finite number, not {value!r}; state a bound that everybody may know [SC033]"
        )
    return found + 0.0  # minus zero would change the digest, not the meaning


def check_text(what: str, value: object) -> str:
    """A text of valid Unicode that somebody stated."""
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a text, not {value!r} [SC034]")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} holds characters that are not valid Unicode [SC035]") from None
    return value


def list_words(words: Sequence[str]) -> str:
    """Words in quotes, as errors list what may be chosen."""
    return ", ".join(f'"{word}"' for word in words)


def _check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SchemaError(f"{what} must be one of {list_words(choices)}, not {value!r} [SC037]")


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
        return Density.from_masses(edges, masses, apart=self._widths <= (1 if self.column.whole else 0))

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


def make_bins(column: Quantity, asked: int | Sequence[float] | Sequence[str]) -> Bins:
    """So many bins, or those between these edges."""
    return Bins(column, _equal_edges(column, asked) if isinstance(asked, int) else _given_edges(column, asked))


def _equal_edges(column: Quantity, bins: int) -> Edges:
    """Edges of bins that are equally wide on the encoded scale; whole numbers get at most one bin each."""
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MAX_BINS:
        raise SchemaError(f"the number of bins must be a whole number from 1 to {MAX_BINS}, not {bins!r} [SC010]")
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
    return _snap_to_whole(column, within) if column.whole else tuple(within)


def _snap_to_whole(column: Quantity, edges: Sequence[float]) -> Edges:
    """For each bin the place halfway below its lowest whole number, and at last the one above all."""
    lowest = [math.ceil(edge) + (place > 0 and edges[place - 1] == edge) for place, edge in enumerate(edges)]
    lowest[-1] = int(column.high) + 1
    if edges[-2] == column.high:  # the last bin is this value alone
        lowest[-2] = int(column.high)
    return tuple(float(edge) - 0.5 for edge in dict.fromkeys(lowest))
