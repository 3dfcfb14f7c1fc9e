"""Coded columns and the blocks that are asked for: what of them can be computed, and how far one person moves it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity, marginals_sensitivity
from colonnade.privacy import Sensitivity

MOST_CELLS = 1 << 25
MOST_CELLS_OF_BLOCK = 1 << 22
_MOST_REFINED = 16  # owners


@dataclass(frozen=True)
class Coded:
    """A column of one owner, coded by whole numbers from 0 to ``size - 1``."""

    owner: str
    name: str
    size: int


@dataclass(frozen=True)
class Asked:
    """A block: the columns, by their places in ascending order, and the weight that makes it more exact than others.

    No columns at all are the number of people.
    """

    columns: tuple[int, ...]
    weight: int


def axes(columns: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """How many numbers are opened along each column of a block: one for a column with two values."""
    return tuple(1 if sizes[column] == 2 else sizes[column] for column in columns)


def cells_of(columns: Sequence[int], sizes: Sequence[int]) -> int:
    """How many numbers are opened of a block."""
    return math.prod(axes(columns, sizes))


def check_columns(coded: Sequence[Coded], owners: Sequence[str], label: int | None) -> None:
    """Refuse columns out of order, columns of one value, and a label that is none of them."""
    order = [owners.index(column.owner) if column.owner in owners else -1 for column in coded]
    if -1 in order or order != sorted(order):
        raise StudyError("coded columns stand owner by owner, in the order of the parties of the study [ST473]")
    if small := next((column for column in coded if column.size < 2), None):
        raise StudyError(
            f"column {small.name!r} of {small.owner} has a single value, so there is nothing to "
            "learn: leave it out [ST474]"
        )
    if label is not None and not 0 <= label < len(coded):
        raise StudyError(f"the label is one of {len(coded)} coded columns, not number {label} [ST475]")


def check_blocks(asked: Sequence[Asked], sizes: Sequence[int], label: int | None) -> None:
    """Refuse blocks that are none, that are asked for twice, or that are too large."""
    if not asked:
        raise StudyError("no marginal is asked for: name at least one block of columns [ST476]")
    if len({block.columns for block in asked}) != len(asked):
        raise StudyError("a block of columns is asked for twice: a larger weight makes it more exact instead [ST477]")
    for block in asked:
        _check_block(block, sizes, label)
    if (cells := sum(cells_of(block.columns, sizes) for block in asked)) > MOST_CELLS:
        raise CapacityError(
            f"all blocks together have {cells} cells and at most {MOST_CELLS} can be opened: ask for fewer blocks or "
            "use fewer bins [CA021]"
        )


def _check_block(block: Asked, sizes: Sequence[int], label: int | None) -> None:
    columns = block.columns
    if list(columns) != sorted(set(columns)) or not set(columns) <= set(range(len(sizes))):
        raise StudyError(f"a block names its columns once and in ascending order, by places below {len(sizes)} [ST478]")
    if isinstance(block.weight, bool) or not isinstance(block.weight, int) or block.weight < 1:
        raise StudyError(f"the weight of a block is a whole number above zero, not {block.weight!r} [ST479]")
    if len(columns) > 3 or (len(columns) == 3 and label not in columns):
        raise StudyError(
            "a block has at most two columns, or two and the label: ask for the pairs of its columns instead [ST480]"
        )
    if (cells := cells_of(columns, sizes)) > MOST_CELLS_OF_BLOCK:
        raise CapacityError(
            f"a block has {cells} cells and at most {MOST_CELLS_OF_BLOCK} can be asked for: use fewer bins [CA022]"
        )


@lru_cache(maxsize=8)
def sensitivity_of(sizes: Any, blocks: Any, holder: Any, hidden: bool) -> Sensitivity:
    """How far one person can move what is opened."""
    moved = marginals_sensitivity(sizes, blocks)
    if not hidden:
        return moved
    # A record of one owner decides whether a whole row counts, so for everybody a row can come, go or be another.
    return replace(
        moved,
        replace_l1=max(moved.l1, moved.replace_l1),
        replace_l2_squared=max(moved.l2_squared, moved.replace_l2_squared),
    )


@lru_cache(maxsize=8)
def moved_by_others(
    sizes: Any, blocks: Any, holder: Any, hidden: bool, owners: tuple[str, ...]
) -> tuple[tuple[str, int, int], ...]:
    """For each owner, how far a change of columns that it does not hold can move what is opened."""
    if hidden or len(owners) > _MOST_REFINED:
        return ()
    whole = sensitivity_of(sizes, blocks, holder, hidden)
    found = []
    for index, owner in enumerate(owners):
        elsewhere = [column for column, held in enumerate(holder) if held != index]
        l1, square = changed_cells_sensitivity(sizes, blocks, elsewhere)
        if square < whole.replace_l2_squared:
            found.append((owner, min(l1, whole.replace_l1), square))
    return tuple(found)
