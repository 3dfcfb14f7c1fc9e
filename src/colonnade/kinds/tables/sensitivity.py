"""Sensitivity of sums of centred cells, all marginals of which are released at once (docs/theory/marginals.md).

A column with n values is written as n times its one-hot vector minus one; with two values, as +1 or -1. A block is the
tensor product over some columns, times an integer weight. All numbers are integers, so nothing is rounded here: what is
computed is attained, unless there are more columns than can be enumerated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import Sensitivity, checked_whole

WeightedBlock = tuple[tuple[int, ...], int]
"""The columns of a block, by their places, and its weight."""
MOST_ENUMERATED = 16
_NARROW = 1 << 62


def marginals_sensitivity(sizes: Sequence[int], blocks: Sequence[WeightedBlock]) -> Sensitivity:
    """How far one person moves all blocks; ``sizes`` are the numbers of values of the columns.

    Adding somebody moves them equally far whoever it is. Replacing somebody depends on where the two people agree.
    """
    _check(sizes, blocks)
    l1 = sum(weight * prod(_l1(sizes[column]) for column in columns) for columns, weight in blocks)
    l2_squared = sum(weight**2 * prod(_square(sizes[column]) for column in columns) for columns, weight in blocks)
    return Sensitivity(l1, l2_squared, *changed_cells_sensitivity(sizes, blocks, range(len(sizes))))


def changed_cells_sensitivity(
    sizes: Sequence[int], blocks: Sequence[WeightedBlock], changing: Collection[int]
) -> tuple[int, int]:
    """L1 and squared L2 of the change of all blocks when one person's cells in these columns are replaced."""
    _check(sizes, blocks)
    columns = _enumerate_columns(sizes, blocks, changing)
    l1, square = (int(_totals(sizes, blocks, columns, changing, norm).max()) for norm in (_moved_l1, _moved_square))
    return l1, square


def furthest_change(sizes: Sequence[int], blocks: Sequence[WeightedBlock], changing: Collection[int]) -> set[int]:
    """The columns in which two people differ who are furthest apart, of those that are enumerated."""
    columns = _enumerate_columns(sizes, blocks, changing)
    totals = _totals(sizes, blocks, columns, columns, _moved_square)
    pattern = np.unravel_index(int(totals.argmax()), totals.shape)
    return {column for column, differs in zip(columns, pattern, strict=True) if differs}


Pattern = tuple[int, ...]
"""For each column of a block, 1 where two people differ and 0 where they agree."""
Moved = Callable[[tuple[int, ...], Pattern], int]
"""How far a block of columns with these sizes moves, for weight one."""


def _enumerate_columns(sizes: Sequence[int], blocks: Sequence[WeightedBlock], changing: Collection[int]) -> list[int]:
    """The columns whose patterns are enumerated: all that may change, or of too many those that weigh most."""
    columns = sorted(set(changing) & {column for within, _ in blocks for column in within})
    if len(columns) <= MOST_ENUMERATED:
        return columns
    weighs = dict.fromkeys(columns, 0)
    for within, weight in blocks:
        for column in within:
            if column in weighs:
                weighs[column] += weight**2 * prod(_square(sizes[other]) for other in within)
    return sorted(sorted(columns, key=lambda column: (-weighs[column], column))[:MOST_ENUMERATED])


def _totals(
    sizes: Sequence[int],
    blocks: Sequence[WeightedBlock],
    enumerated: Sequence[int],
    changing: Collection[int],
    moved: Moved,
) -> NDArray[Any]:
    """How far all blocks move together, for every pattern of the enumerated columns.

    A block takes the largest value over its other columns that may change; columns that do not change agree.
    """
    place, free = {column: axis for axis, column in enumerate(enumerated)}, set(changing)
    power = 2 if moved is _moved_square else 1
    found: dict[tuple[int, ...], list[int]] = {}
    for columns, weight in blocks:
        ordered = sorted(columns)
        states = tuple(_KEPT if column in place else _FREE if column in free else _SAME for column in ordered)
        values = _by_pattern(moved, tuple(sizes[column] for column in ordered), states)
        axes = tuple(place[column] for column in ordered if column in place)
        total = found.setdefault(axes, [0] * len(values))
        for index, value in enumerate(values):
            total[index] += weight**power * value
    narrow = sum(map(max, found.values())) < _NARROW
    totals = np.zeros((2,) * len(enumerated), dtype=np.int64 if narrow else object)
    for axes, total in found.items():
        shape = [2 if axis in axes else 1 for axis in range(len(enumerated))]
        totals += np.array(total, dtype=totals.dtype).reshape(shape)
    return totals


_KEPT, _FREE, _SAME = range(3)
"""A column of a block whose pattern is enumerated, that may differ as it likes, or in which people agree."""


@lru_cache(maxsize=1 << 12)
def _by_pattern(moved: Moved, sizes: tuple[int, ...], states: tuple[int, ...]) -> list[int]:
    """How far a block moves, for every pattern of those of its columns that are enumerated."""
    choices = [(0,) if state == _SAME else (0, 1) for state in states]
    found: dict[Pattern, int] = {}
    for pattern in product(*choices):
        kept = tuple(differs for differs, state in zip(pattern, states, strict=True) if state == _KEPT)
        found[kept] = max(found.get(kept, 0), moved(sizes, pattern))
    return [found[kept] for kept in sorted(found)]


def _square(size: int) -> int:
    """The squared length of a column's coordinates."""
    return 1 if size == 2 else size * (size - 1)


def _l1(size: int) -> int:
    """The sum of the magnitudes of a column's coordinates."""
    return 1 if size == 2 else 2 * (size - 1)


def _moved_square(sizes: tuple[int, ...], pattern: Pattern) -> int:
    """Twice the squared length of a block, minus twice the inner product of the two people's blocks."""
    inner = [
        (-1 if size == 2 else -size) if differs else _square(size) for size, differs in zip(sizes, pattern, strict=True)
    ]
    return 2 * (prod(map(_square, sizes)) - prod(inner))


def _moved_l1(sizes: tuple[int, ...], pattern: Pattern) -> int:
    """The L1 norm of the difference, cell by cell: where people differ, cells of one, of the other and of neither."""
    agreed = prod(_l1(size) for size, differs in zip(sizes, pattern, strict=True) if not differs)
    differing = [_cells(size) for size, differs in zip(sizes, pattern, strict=True) if differs]
    apart = sum(
        prod(count for count, _, _ in cell) * abs(prod(one for _, one, _ in cell) - prod(two for _, _, two in cell))
        for cell in product(*differing)
    )
    return agreed * apart


def _cells(size: int) -> list[tuple[int, int, int]]:
    """How many cells there are of each kind, and the coordinates of two people there who differ in this column."""
    if size == 2:
        return [(1, 1, -1)]
    return [(1, size - 1, -1), (1, -1, size - 1), (size - 2, -1, -1)]


def _check(sizes: Sequence[int], blocks: Sequence[WeightedBlock]) -> None:
    for size in sizes:
        checked_whole(size, "the number of values of a column", 2)
    for columns, weight in blocks:
        checked_whole(weight, "the weight of a block", 1)
        if len(set(columns)) != len(columns) or not set(columns) <= set(range(len(sizes))):
            raise PrivacyError("a block names each of its columns once, by its place among the columns [PR092]")
    if len({tuple(sorted(columns)) for columns, _ in blocks}) != len(blocks):
        raise PrivacyError("a block is released once: give each set of columns one weight [PR093]")
