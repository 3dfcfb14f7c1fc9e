"""What a release of marginals holds: noisy residuals, and the marginals with error bars that they give.

The residual of a set of columns sums, over people, the tensor product of ``onehot - 1/n``. Residuals of different sets
are orthogonal, and the marginal of a set is the sum of the residuals of its subsets, each spread evenly
(docs/theory/fitting-marginals.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.tables.task import MarginalQuery, Marginals, axes

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


def centre(values: Floats) -> Floats:
    """The nearest array that sums to zero along every axis."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def check_residuals(sizes: Sequence[int], residuals: Sequence[Residual]) -> None:
    """Refuse residuals that do not belong to columns of these sizes."""
    if not sizes or min(sizes) < 1:
        raise StudyError("every coded column needs at least one value [ST390]")
    seen: set[tuple[int, ...]] = set()
    for each in residuals:
        known = dict(enumerate(sizes))
        for kept, otherwise in (
            (
                each.columns not in seen and list(each.columns) == sorted(set(each.columns)),
                "the residual of each set of columns is given once, with its columns in ascending order [ST391]",
            ),
            (
                known.keys() >= set(each.columns),
                f"a residual names a column beyond the {len(sizes)} coded columns [ST392]",
            ),
            (
                each.values.shape == tuple(map(known.get, each.columns)),
                "the shape of a residual must be the sizes of its columns [ST393]",
            ),
            (
                0 < each.deviation < math.inf and np.isfinite(each.values).all(),
                "a residual needs finite values and a positive deviation of its noise [ST394]",
            ),
        ):
            if not kept:
                raise StudyError(otherwise)
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
        if not subset and not known.get(subset):
            continue
        part = known[subset]
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
        implied = count * centre(marginal(each.columns)) if each.columns else np.array(count)
        squares += float(np.sum((implied - each.values) ** 2)) / each.deviation**2
    return squares, sum(each.degrees for each in residuals)


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

    def _residue(self, block: MarginalQuery) -> Residual:
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

    def _asked(self, columns: tuple[int, ...]) -> MarginalQuery:
        return next(block for block in self.task.asked if block.columns == columns)


@dataclass(frozen=True)
class Marginal:
    """How many people have each combination of values of some columns.

    ``counts`` are those of the release, in people, which noise may make negative; ``deviations`` are the standard
    deviations of their noise. Where the release does not hold this marginal, ``deviations`` is ``None`` and the counts
    are the model's guess. ``fitted`` are the counts that the model has, from which people are drawn.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    counts: Floats
    deviations: Floats | None
    fitted: Floats

    @property
    def asked(self) -> bool:
        """Whether the release holds this marginal."""
        return self.deviations is not None

    def to_pandas(self) -> Any:
        """A data frame with a row for each combination."""
        import pandas as pd

        index = pd.MultiIndex.from_product(self.labels, names=self.names)
        columns = {"count": self.counts.ravel(), "fitted": self.fitted.ravel()}
        if self.deviations is not None:
            columns["deviation"] = self.deviations.ravel()
        return pd.DataFrame(columns, index=index)


@dataclass(frozen=True)
class MarginalsRelease:
    """The published numbers, as parts that add up to marginals."""

    residuals: tuple[Residual, ...]

    @classmethod
    def of(cls, published: NoisyMarginals) -> MarginalsRelease:
        """What was opened, the count first."""
        count = Residual((), np.array(published.count), published.count_deviation)
        return cls((count, *published.residuals()))

    @property
    def count(self) -> float:
        """The noisy number of people, at least one."""
        return float(self.residuals[0].values)

    @property
    def parts(self) -> tuple[Residual, ...]:
        """All but the count."""
        return self.residuals[1:]

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {tuple(part.columns): place for place, part in enumerate(self.residuals)}

    def part(self, columns: Sequence[int]) -> Residual | None:
        """The part of a set of columns; ``None`` where it was not asked for."""
        place = self._places.get(tuple(sorted(columns)))
        return None if place is None else self.residuals[place]

    def holds(self, columns: Sequence[int]) -> bool:
        """Whether the marginal of these columns follows from what was asked for."""
        return all(subset in self._places for subset in subsets(sorted(columns)))

    def sets(self, size: int) -> list[tuple[int, ...]]:
        """The sets of so many columns that were asked for."""
        return sorted(columns for columns in self._places if len(columns) == size)

    def marginal(self, columns: Sequence[int], sizes: Sequence[int]) -> tuple[Floats, Floats]:
        """Counts and standard deviations of their noise, for columns in any order."""
        return noisy_marginal(columns, sizes, self.count, self.residuals)

    # --- in files

    def arrays(self) -> dict[str, Floats]:
        """All values one after the other, and the deviations."""
        flat = [np.asarray(part.values, dtype=np.float64).ravel() for part in self.residuals]
        return {
            "released": np.concatenate(flat),
            "deviations": np.array([part.deviation for part in self.residuals]),
        }

    @property
    def asked(self) -> list[list[int]]:
        """The sets of columns, in the order of the values."""
        return [list(part.columns) for part in self.residuals]

    @classmethod
    def from_arrays(cls, asked: Any, arrays: Any, sizes: Sequence[int]) -> MarginalsRelease:
        """A release from what a file holds; a ValueError if it does not belong together."""
        values = np.asarray(arrays["released"], dtype=np.float64)
        deviations = np.asarray(arrays["deviations"], dtype=np.float64)
        if not (np.isfinite(values).all() and np.isfinite(deviations).all() and (deviations >= 0).all()):
            raise ValueError("finite numbers are expected [VA077]")
        parts, start = [], 0
        for columns, deviation in zip(asked, deviations.tolist(), strict=True):
            if not all(isinstance(column, int) and 0 <= column < len(sizes) for column in columns):
                raise ValueError("columns that are not there [VA078]")
            shape = tuple(sizes[column] for column in columns)
            stop = start + int(np.prod(shape, dtype=np.int64))
            parts.append(Residual(tuple(columns), values[start:stop].reshape(shape), deviation))
            start = stop
        if start != len(values) or not parts or parts[0].columns or parts[0].values < 1:
            raise ValueError("the count comes first, and then as many numbers as were asked for [VA079]")
        return cls(tuple(parts))
