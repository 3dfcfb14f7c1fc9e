"""Which marginals to ask for, and how exactly: a public choice, from sizes and from what the user names.

All opened numbers get the same noise, so a block is more exact the larger the whole number that its coordinates are
multiplied by. Noise of deviation s_A on block A costs r_A / s_A^2 of the budget. The least weighted sum of squared
errors for a budget has precisions 1 / s_A^2 in proportion to the square root of what an error there matters, over what
exactness there costs (docs/theory/fitting-marginals.md, section 6). No table is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from colonnade.errors import StudyError

RESOLUTION = 16
"""The least weight, where sums have room: none is further from its intended value than one part in twice this."""
LARGEST = 2**31
"""The largest number that one person may add to a sum, so that sums over 2^30 people fit 62 bits with their noise."""
LOW = 16.0
"""How much more an error in the count, a single column or a pair with the label matters than in another block."""
FOCUS = 16.0
"""How much more an error in a set that the user names matters."""
CELLS = 0.5
"""By what power of its degrees of freedom a block matters: less than one by one, for what a fit keeps of a large block
are few patterns over many cells."""


def blocks(
    sizes: Sequence[int],
    label: int | None = None,
    focus: Sequence[Sequence[int]] = (),
    order: int | None = None,
    resolution: int = RESOLUTION,
) -> list[tuple[tuple[int, ...], int]]:
    """The sets of columns to ask for, each with its whole weight, the count first.

    Asked for are the count, all columns, all pairs (from ``order`` 2) and all triples with the label (from order 3, the
    default where there is a label). ``focus`` names sets among them that matter more. Columns of one value tell nothing
    and are left out.
    """
    order = order if order is not None else (2 if label is None else 3)
    named = _named(sizes, label, focus, order)
    asked = list(_asked(sizes, label, order))
    ideal = [
        math.sqrt(_precision(columns, sizes, label, columns in named)) / _scale(columns, sizes) for columns in asked
    ]
    most = max(each * _largest(columns, sizes) for columns, each in zip(asked, ideal, strict=True))
    unit = min(resolution / min(ideal), LARGEST / most)
    if unit * min(ideal) < 1:
        raise StudyError(
            "the columns have too many values for marginals of this order; use fewer bins or a lower order [ST399]"
        )
    return [(columns, round(unit * each)) for columns, each in zip(asked, ideal, strict=True)]


def _asked(sizes: Sequence[int], label: int | None, order: int) -> Iterator[tuple[int, ...]]:
    telling = [column for column, size in enumerate(sizes) if size > 1]
    for length in range(min(order, 2) + 1):
        yield from combinations(telling, length)
    if order == 3:
        yield from (triple for triple in combinations(telling, 3) if label in triple)


def _precision(columns: tuple[int, ...], sizes: Sequence[int], label: int | None, named: bool) -> float:
    """One over the variance of the noise on a cell in people, up to a factor that all blocks share."""
    degrees = math.prod(sizes[column] - 1 for column in columns)
    cost = math.prod(1 - 1 / sizes[column] for column in columns)
    low = len(columns) < 2 or (len(columns) == 2 and label in columns)
    matters = degrees**CELLS * (LOW if low else 1.0) * (FOCUS if named else 1.0)
    return math.sqrt(matters / cost)


def _scale(columns: tuple[int, ...], sizes: Sequence[int]) -> float:
    """The deviation of an opened number over that of a cell in people: n for each column, the root of 2 for n = 2."""
    return math.prod(math.sqrt(2) if sizes[column] == 2 else sizes[column] for column in columns)


def _largest(columns: tuple[int, ...], sizes: Sequence[int]) -> int:
    """The largest whole coordinate of a person in a block, before its weight."""
    return math.prod(sizes[column] - 1 for column in columns)


def _named(
    sizes: Sequence[int], label: int | None, focus: Sequence[Sequence[int]], order: int
) -> frozenset[tuple[int, ...]]:
    if order not in (1, 2, 3) or (order == 3 and label is None):
        raise StudyError("marginals are asked for up to order 1 or 2, and with a label up to order 3 [ST400]")
    if any(size < 1 for size in sizes) or not any(size > 1 for size in sizes):
        raise StudyError("marginals need a column of two values or more [ST401]")
    if label is not None and not (0 <= label < len(sizes) and sizes[label] > 1):
        raise StudyError("the label must be a coded column of two values or more [ST402]")
    named = frozenset(tuple(sorted(set(each))) for each in focus)
    beyond = named - frozenset(_asked(sizes, label, order))
    if beyond:
        raise StudyError(
            f"the columns {list(min(beyond))} are named as of interest but are not asked for together; "
            "name pairs, or triples with the label, of columns of two values or more [ST403]"
        )
    return named
