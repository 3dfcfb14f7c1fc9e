"""What a release of marginals holds: the residual parts of all that was asked for, and what is known about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.marginals.published import NoisyMarginals
from colonnade.kinds.tables.residuals import Residual, noisy_marginal

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Marginal:
    """How many people have each combination of values of some columns.

    ``counts`` are those of the release, in people, which noise may make negative; ``deviations`` are the standard
    deviations of their noise. Where the release does not hold this marginal, ``deviations`` is ``None`` and the counts
    are the model's guess. ``fitted`` are the counts that the model has, from which people are drawn.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    counts: Numbers
    deviations: Numbers | None
    fitted: Numbers

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
class Release:
    """The published numbers, as parts that add up to marginals."""

    residuals: tuple[Residual, ...]

    @classmethod
    def of(cls, published: NoisyMarginals) -> Release:
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
        return all(
            subset in self._places for size in range(len(columns) + 1) for subset in combinations(sorted(columns), size)
        )

    def sets(self, size: int) -> list[tuple[int, ...]]:
        """The sets of so many columns that were asked for."""
        return sorted(columns for columns in self._places if len(columns) == size)

    def marginal(self, columns: Sequence[int], sizes: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Counts and standard deviations of their noise, for columns in any order."""
        return noisy_marginal(columns, sizes, self.count, self.residuals)

    # --- in files

    def arrays(self) -> dict[str, Numbers]:
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
    def restored(cls, asked: Any, arrays: Any, sizes: Sequence[int]) -> Release:
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
