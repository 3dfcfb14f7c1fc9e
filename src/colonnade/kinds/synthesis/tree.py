"""A tree of columns (Chow and Liu) from noisy pairs: each column depends on one other, and nothing else is kept.

It is quicker and coarser than a mixture, and has the same methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fit import nearest_chances
from colonnade.kinds.synthesis.products import Codes, apportioned, check_marginal, checked_codes, systematic
from colonnade.kinds.tables.release import Floats, Residual, check_residuals, noisy_marginal
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import Stream

_LEAST = 1e-4
"""What part of all chances is spread evenly, so that no code is impossible."""


@dataclass(frozen=True)
class Tree:
    """Columns in the order of ``order``, each given its parent.

    ``tables[i]`` has a row of probabilities of column i for each code of ``parents[i]``; the root, which is its own
    parent, has a single row.
    """

    order: tuple[int, ...]
    parents: tuple[int, ...]
    tables: tuple[Floats, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return tuple(table.shape[1] for table in self.tables)

    def marginal(self, columns: Sequence[int]) -> Floats:
        """The joint probabilities of some columns, an axis for each."""
        check_marginal(columns, self.sizes)
        # From the leaves to the root: what is kept of a column and all below it, by the code of its parent.
        kept: dict[int, list[int]] = {column: [] for column in self.order}
        below: dict[int, Floats] = {column: np.ones((size, 1)) for column, size in enumerate(self.sizes)}
        for column in reversed(self.order):
            joint, size = below[column], self.sizes[column]
            if column in columns:
                kept[column].append(column)
                joint = (joint[:, :, None] * np.eye(size)[:, None, :]).reshape(size, -1)
            above = self.tables[column] @ joint
            if column != self.order[0]:
                parent = self.parents[column]
                kept[parent] += kept[column]
                below[parent] = (below[parent][:, :, None] * above[:, None, :]).reshape(len(above), -1)
        found = kept[self.order[0]]
        cells = above.reshape([self.sizes[column] for column in found])
        return np.asarray(cells.transpose([found.index(column) for column in columns]))

    def log_likelihood(self, codes: Codes) -> Floats:
        """The natural logarithm of each row's probability."""
        codes = checked_codes(codes, self.sizes)
        total = np.zeros(len(codes))
        for column in self.order:
            above = 0 if column == self.order[0] else codes[:, self.parents[column]]
            with np.errstate(divide="ignore"):
                total += np.log(self.tables[column][above, codes[:, column]])
        return total

    def sample(self, rows: int, stream: Stream) -> Codes:
        """A table of codes by systematic rounding, column by column given its parent's codes."""
        if rows < 1:
            raise StudyError("a synthetic table needs at least one row [ST396]")
        codes = np.empty((rows, len(self.tables)), dtype=np.int64)
        for column in self.order:
            table = self.tables[column]
            if column == self.order[0]:
                counts = systematic(rows * table[0], stream)[None, :]
                sorted_by = np.zeros(rows, dtype=np.uint64)
            else:
                above = codes[:, self.parents[column]]
                people = np.bincount(above, minlength=len(table))
                counts = apportioned(people, table, rows * self.marginal((column,)), stream)
                sorted_by = above.astype(np.uint64)
            places = np.argsort((sorted_by << np.uint64(32)) | stream.uint32(rows).astype(np.uint64))
            codes[places, column] = np.repeat(np.tile(np.arange(table.shape[1]), len(counts)), counts.ravel())
        return codes

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """All numbers by name, to be kept in a file."""
        shape = {"order": np.array(self.order, dtype=np.float64), "parents": np.array(self.parents, dtype=np.float64)}
        return shape | {f"table_{place}": table for place, table in enumerate(self.tables)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> Tree:
        """The tree of these numbers, exactly."""
        columns = sum(name.startswith("table_") for name in arrays)
        try:
            order, parents = (tuple(int(each) for each in arrays[name]) for name in ("order", "parents"))
            found = cls(order, parents, tuple(arrays[f"table_{place}"] for place in range(columns)))
        except KeyError:
            raise StudyError("the numbers of a tree are incomplete; fit or save it again [ST397]") from None
        found.check()
        return found

    def check(self) -> None:
        """Refuse what is no tree of probabilities."""
        sizes, seen = self.sizes, set[int]()
        right = sorted(self.order) == list(range(len(sizes))) and len(self.parents) == len(sizes)
        for column in self.order if right else ():
            root = column == self.order[0]
            parent, table = self.parents[column], self.tables[column]
            right &= (parent == column) if root else parent in seen
            right &= right and len(table) == (1 if root else sizes[parent])
            right &= bool((table >= 0).all() and np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-9))
            seen.add(column)
        if not right:
            raise StudyError(
                "a tree needs one root and, for every other column, probabilities given its parent [ST398]"
            )


def fit_tree(sizes: Sequence[int], count: float, residuals: Sequence[Residual], *, progress: Progress = silent) -> Tree:
    """The tree of the pairs that tell most, by their noisy marginals; the same for the same numbers."""
    check_residuals(sizes, residuals)
    singles = [_single(column, sizes, count, residuals) for column in range(len(sizes))]
    pairs = told_by_pairs(sizes, count, residuals)
    joints = {pair: joint for pair, (joint, _) in pairs.items()}
    told = np.zeros((len(sizes), len(sizes)))
    for pair, (_, information) in pairs.items():
        told[pair] = max(information, 1e-12)  # zero would mean that there is no edge
    spanning = minimum_spanning_tree(-told)
    order: list[int] = []
    parents = list(range(len(sizes)))
    tables: list[Floats] = [np.empty((0, 0))] * len(sizes)
    for first in range(len(sizes)):  # columns that no pair reaches hang under the first, independent of it
        if first in order:
            continue
        reached, above = breadth_first_order(spanning, first, directed=False)
        for column in (int(each) for each in reached):
            parents[column] = int(above[column]) if column != first else (order[0] if order else column)
            if column == first:
                tables[column] = np.tile(singles[column], (sizes[parents[column]] if order else 1, 1))
            else:
                tables[column] = _given(joints, parents[column], column, singles)
            order.append(column)
            progress("fit", len(order), len(sizes))
    return Tree(tuple(order), tuple(parents), tuple(tables))


def told_by_pairs(
    sizes: Sequence[int], count: float, residuals: Sequence[Residual]
) -> dict[tuple[int, int], tuple[Floats, float]]:
    """Probabilities of every pair that was asked for, and its information beyond what noise alone makes."""
    found = {}
    for each in residuals:
        if len(each.columns) == 2:
            left, right = each.columns
            joint = _joint((left, right), sizes, count, residuals)
            found[left, right] = joint, _information(joint) - _of_noise(joint, each.deviation / count)
    return found


def _single(column: int, sizes: Sequence[int], count: float, residuals: Sequence[Residual]) -> Floats:
    asked = any(each.columns == (column,) for each in residuals)
    even = np.full(sizes[column], 1 / sizes[column])
    noisy = noisy_marginal((column,), sizes, count, residuals)[0] / count if asked else even
    return (1 - _LEAST) * nearest_chances(noisy) + _LEAST * even


def _joint(pair: tuple[int, int], sizes: Sequence[int], count: float, residuals: Sequence[Residual]) -> Floats:
    noisy = noisy_marginal(pair, sizes, count, residuals)[0] / count
    chances = nearest_chances(noisy.ravel()).reshape(noisy.shape)
    return np.asarray((1 - _LEAST) * chances + _LEAST / chances.size)


def _given(joints: Mapping[tuple[int, int], Floats], parent: int, column: int, singles: Sequence[Floats]) -> Floats:
    joint = joints[parent, column] if parent < column else joints[column, parent].T
    # Where the parent's code is rare, noise decides the pair; the column's own chances weigh in there.
    mixed = joint + _LEAST * singles[column]
    return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def _information(joint: Floats) -> float:
    """The mutual information of two columns."""
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(np.sum(joint * np.log(joint / independent)))


def _of_noise(joint: Floats, deviation: float) -> float:
    """About how much mutual information noise alone makes: half its variance over the chances, which it hides."""
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    kept = math.prod(1 - 1 / size for size in joint.shape)
    return float(np.sum(kept * deviation**2 / np.maximum(independent, deviation)) / 2)
