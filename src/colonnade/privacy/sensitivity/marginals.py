"""Sensitivity of sums of centred cells, all marginals of which are released at once (docs/theory/marginals.md).

A column with n values is written as n times its one-hot vector minus one; with two values, as +1 or -1. A block is the
tensor product over some columns, times an integer weight. All numbers are integers, so nothing is rounded here: what is
computed is attained, unless there are more columns than can be enumerated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import Sensitivity, checked_whole

WeightedBlock = tuple[tuple[int, ...], int]
"""The columns of a block, by their places, and its weight."""
MOST_ENUMERATED = 16
_AT_ONCE = 1 << 27
"""Patterns times blocks; of more than ``MOST_ENUMERATED`` columns, only so many are enumerated."""
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
    columns = _enumerated(sizes, blocks, changing)
    where = [within for within, _ in blocks]
    l1, square = (
        int(_totals(where, [table(sizes, *block) for block in blocks], columns, set(changing)).max())
        for table in (_moved_l1, _moved_squares)
    )
    return l1, square


def furthest_change(sizes: Sequence[int], blocks: Sequence[WeightedBlock], changing: Collection[int]) -> set[int]:
    """The columns in which two people differ who are furthest apart, of those that are enumerated."""
    columns = _enumerated(sizes, blocks, changing)
    tables = [_moved_squares(sizes, *block) for block in blocks]
    totals = _totals([within for within, _ in blocks], tables, columns, set(columns))
    pattern = np.unravel_index(int(totals.argmax()), totals.shape)
    return {column for column, differs in zip(columns, pattern, strict=True) if differs}


def _enumerated(sizes: Sequence[int], blocks: Sequence[WeightedBlock], changing: Collection[int]) -> list[int]:
    """The columns whose patterns are enumerated: all that may change, or of too many those that weigh most."""
    columns = sorted(set(changing) & {column for within, _ in blocks for column in within})
    most = _most_enumerated(len(blocks))
    if len(columns) <= most:
        return columns
    weighs = dict.fromkeys(columns, 0)
    for within, weight in blocks:
        for column in set(within) & set(columns):
            weighs[column] += int(_moved_squares(sizes, within, weight).max())
    return sorted(columns, key=lambda column: (-weighs[column], column))[:most]


def _most_enumerated(blocks: int) -> int:
    """How many columns can be enumerated beside so many blocks; always 16 if there are no more columns than that."""
    return max(8, min(MOST_ENUMERATED, (_AT_ONCE // max(1, blocks)).bit_length() - 1))


Table = NDArray[Any]
"""For one block, how far it moves by the pattern: an axis of two for each of its columns, 0 where people agree."""


def _totals(
    where: Sequence[tuple[int, ...]], tables: Sequence[Table], enumerated: Sequence[int], changing: set[int]
) -> Table:
    """The sum of all tables, for every pattern of the enumerated columns.

    A block takes the largest value over its other columns that may change; columns that do not change agree.
    """
    narrow = sum(int(table.max()) for table in tables) < _NARROW
    total = np.zeros((2,) * len(enumerated), dtype=np.int64 if narrow else object)
    place = {column: axis for axis, column in enumerate(enumerated)}
    for columns, table in zip(where, tables, strict=True):
        kept = table if narrow else table.astype(object)
        for axis in reversed(range(len(columns))):
            if columns[axis] not in changing:
                kept = kept.take(0, axis=axis)
            elif columns[axis] not in place:
                kept = kept.max(axis=axis)
        left = [place[column] for column in columns if column in place and column in changing]
        shape = [1] * len(enumerated)
        for axis in left:
            shape[axis] = 2
        order = sorted(range(len(left)), key=left.__getitem__)
        total += np.asarray(kept, dtype=total.dtype).transpose(order).reshape(shape)
    return total


def _square(size: int) -> int:
    """The squared length of a column's coordinates."""
    return 1 if size == 2 else size * (size - 1)


def _l1(size: int) -> int:
    """The sum of the magnitudes of a column's coordinates."""
    return 1 if size == 2 else 2 * (size - 1)


def _moved_squares(sizes: Sequence[int], columns: tuple[int, ...], weight: int) -> Table:
    """Twice the squared length of the block minus twice the inner product of the two people's blocks."""
    squares = [_square(sizes[column]) for column in columns]
    inner = [
        (square, -1 if sizes[column] == 2 else -sizes[column]) for column, square in zip(columns, squares, strict=True)
    ]
    values = [2 * weight**2 * (prod(squares) - prod(found)) for found in product(*inner)]
    return _table(values, len(columns))


def _moved_l1(sizes: Sequence[int], columns: tuple[int, ...], weight: int) -> Table:
    """The L1 norm of the difference, cell by cell: where people differ, cells of one, of the other and of neither."""
    values = []
    for pattern in product((0, 1), repeat=len(columns)):
        agreed = prod(_l1(sizes[column]) for column, differs in zip(columns, pattern, strict=True) if not differs)
        differing = [_cells(sizes[column]) for column, differs in zip(columns, pattern, strict=True) if differs]
        apart = sum(
            prod(count for count, _, _ in cell) * abs(prod(one for _, one, _ in cell) - prod(two for _, _, two in cell))
            for cell in product(*differing)
        )
        values.append(weight * agreed * apart)
    return _table(values, len(columns))


def _cells(size: int) -> list[tuple[int, int, int]]:
    """How many cells there are of each kind, and the coordinates of two people there who differ in this column."""
    if size == 2:
        return [(1, 1, -1)]
    return [(1, size - 1, -1), (1, -1, size - 1), (size - 2, -1, -1)]


def _table(values: Sequence[int], axes: int) -> Table:
    narrow = max(values) < _NARROW
    return np.array(values, dtype=np.int64 if narrow else object).reshape((2,) * axes)


def _check(sizes: Sequence[int], blocks: Sequence[WeightedBlock]) -> None:
    for size in sizes:
        checked_whole(size, "the number of values of a column", 2)
    for columns, weight in blocks:
        checked_whole(weight, "the weight of a block", 1)
        if len(set(columns)) != len(columns) or not set(columns) <= set(range(len(sizes))):
            raise PrivacyError("a block names each of its columns once, by its place among the columns")
    if len({tuple(sorted(columns)) for columns, _ in blocks}) != len(blocks):
        raise PrivacyError("a block is released once: give each set of columns one weight")
