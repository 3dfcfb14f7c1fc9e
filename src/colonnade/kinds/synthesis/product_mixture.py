"""A mixture of products of categoricals: exact marginals, likelihoods, and tables of codes drawn from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.randomness import Stream

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

MAX_MARGINAL_CELLS = 2**24
"""Cells of a marginal that is computed as one array."""
_BLOCK = 4096


@dataclass(frozen=True)
class ProductMixture:
    """Components with public weights, in each of which the columns are independent.

    ``tables[i][k]`` holds the probabilities of the codes of column i in component k.
    """

    weights: Floats
    tables: tuple[Floats, ...]

    def __post_init__(self) -> None:
        parts = self.weights.shape
        if len(parts) != 1 or not parts[0] or any(t.ndim != 2 or t.shape[0] != parts[0] for t in self.tables):
            raise StudyError("a mixture needs one weight and one row of every table for each component [ST382]")
        for each in (self.weights[None, :], *self.tables):
            if not (
                np.isfinite(each).all() and (each >= 0).all() and np.allclose(each.sum(axis=1), 1, rtol=0, atol=1e-9)
            ):
                raise StudyError("the weights and the rows of every table of a mixture must be probabilities [ST383]")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return tuple(table.shape[1] for table in self.tables)

    def marginal(self, columns: Sequence[int]) -> Floats:
        """The joint probabilities of some columns, an axis for each."""
        shape = tuple(self.sizes[column] for column in columns)
        if math.prod(shape) > MAX_MARGINAL_CELLS:
            raise StudyError(f"a marginal of {math.prod(shape)} cells is too large; ask for fewer columns [ST387]")
        if not columns:
            return np.array(self.weights.sum())
        joint = self.weights[:, None]
        for column in columns[:-1]:
            joint = (joint[:, :, None] * self.tables[column][:, None, :]).reshape(len(joint), -1)
        return np.asarray((joint.T @ self.tables[columns[-1]]).reshape(shape))

    def log_likelihood(self, codes: Codes) -> Floats:
        """The natural logarithm of each row's probability."""
        with np.errstate(divide="ignore"):
            logs = [np.log(table.T) for table in self.tables]
            weights = np.log(self.weights)
        found = np.empty(len(codes))
        for begin in range(0, len(codes), _BLOCK):
            block = codes[begin : begin + _BLOCK]
            total = np.broadcast_to(weights, (len(block), len(weights))).copy()
            for column, log in enumerate(logs):
                total += log[block[:, column]]
            highest = total.max(axis=1)
            shift = np.where(np.isfinite(highest), highest, 0.0)
            with np.errstate(divide="ignore"):
                found[begin : begin + _BLOCK] = shift + np.log(np.exp(total - shift[:, None]).sum(axis=1))
        return found

    def sample(self, rows: int, stream: Stream) -> Codes:
        """A table of codes by systematic rounding (docs/theory/fitting-marginals.md, section 5)."""
        people = round_systematically(rows * self.weights, stream)
        component = np.repeat(np.arange(len(people), dtype=np.uint64), people) << np.uint64(32)
        codes = np.empty((rows, len(self.tables)), dtype=np.int64)
        for column, table in enumerate(self.tables):
            counts = apportion(people, table, rows * (self.weights @ table), stream)
            drawn = np.repeat(np.tile(np.arange(table.shape[1]), len(people)), counts.ravel())
            codes[:, column] = drawn[np.argsort(component | stream.uint32(rows).astype(np.uint64))]
        return codes[np.argsort(stream.uint64(rows))]

    def arrays(self) -> dict[str, Floats]:
        """All numbers by name, to be kept in a file."""
        return {"weights": self.weights, **{f"table_{i}": table for i, table in enumerate(self.tables)}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> ProductMixture:
        """The mixture of these numbers, exactly."""
        columns = sum(name.startswith("table_") for name in arrays)
        try:
            return cls(arrays["weights"], tuple(arrays[f"table_{i}"] for i in range(columns)))
        except KeyError:
            raise StudyError("the numbers of a mixture are incomplete; fit or save it again [ST385]") from None


def round_systematically(expected: Floats, stream: Stream) -> Codes:
    """Whole numbers of the same sum: all cumulated sums are rounded with one random offset.

    Each number is its expectation rounded up or down, and on average the expectation itself.
    """
    ends = np.cumsum(expected)
    total = round(float(ends[-1]))
    ends *= total / ends[-1]
    offset = _uniform(stream, 1)[0]
    reached = np.clip(np.floor(ends + offset), 0, total).astype(np.int64)
    reached[-1] = total
    return np.asarray(np.diff(reached, prepend=0))


def apportion(people: Codes, table: Floats, totals: Floats, stream: Stream) -> Codes:
    """How many people of each component get each code of one column.

    Each number is its expectation rounded up or down, and a component's numbers sum to its people. What is owed
    to a code, so that ``totals`` of it come out over all components, is carried from one to the next, in random order.
    """
    expected = people[:, None] * table
    counts = np.floor(expected + 1e-9).astype(np.int64)
    left = people - counts.sum(axis=1)
    fraction = np.maximum(expected - counts, 0.0)
    owed = totals - expected.sum(axis=0) + _uniform(stream, table.shape[1]) - 0.5
    for part in np.argsort(stream.uint64(len(people))):
        owed += fraction[part]
        if left[part]:
            # A code without a fraction left is never rounded up.
            wanted = np.where(fraction[part] > 1e-9, owed, owed - 1e6)
            chosen = np.argpartition(-wanted, left[part] - 1)[: left[part]]
            counts[part, chosen] += 1
            owed[chosen] -= 1
    return counts


def _uniform(stream: Stream, count: int) -> Floats:
    return np.asarray((stream.uint64(count) >> np.uint64(11)) * 2.0**-53)
