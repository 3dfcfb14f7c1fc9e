"""Which marginals are asked for and how exactly: a public choice, from sizes and from what the user names.

All opened numbers get the same noise, so a block is more exact the larger the whole number that its coordinates are
multiplied by. Noise of deviation s_A on block A costs r_A / s_A^2 of the budget. The least weighted sum of squared
errors for a budget has precisions 1 / s_A^2 in proportion to the square root of what an error there matters, over what
exactness there costs (docs/theory/fitting-marginals.md, section 6). No table is looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.tables.layout import TableLayout
from colonnade.kinds.tables.stages import CodeMerge, StagedMarginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.models.planner import ENOUGH_OF_A_MARGINAL, PlanDetails, Roster, SampleSizeForecast
from colonnade.privacy.noise_laws import NormalLawName
from colonnade.tables.coding import ColumnCoding

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


def weigh_blocks(
    sizes: Sequence[int],
    label: int | None = None,
    focus: Sequence[tuple[int, int]] = (),
    resolution: int = RESOLUTION,
) -> list[tuple[tuple[int, ...], int]]:
    """The sets of columns to ask for, each with its whole weight, the count first.

    Asked for are the count, all columns, all pairs and, where there is a label, all triples with it. ``focus`` names
    pairs that matter more. All columns have two values or more.
    """
    asked = list(_queried_sets(len(sizes), label))
    ideal = [
        math.sqrt(_precision(columns, sizes, label, columns in focus)) / _scale(columns, sizes) for columns in asked
    ]
    most = max(each * _largest(columns, sizes) for columns, each in zip(asked, ideal, strict=True))
    unit = min(resolution / min(ideal), LARGEST / most)
    if unit * min(ideal) < 1:
        raise StudyError(
            "the columns have too many values for marginals of this order; use fewer bins or a lower order [ST399]"
        )
    return [(columns, round(unit * each)) for columns, each in zip(asked, ideal, strict=True)]


def _queried_sets(columns: int, label: int | None) -> Iterator[tuple[int, ...]]:
    for length in range(3):
        yield from combinations(range(columns), length)
    yield from (triple for triple in combinations(range(columns), 3) if label in triple)


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


_FIRST = 0.1  # the price of a first stage, as a part of the second's
_ONE = {1: "1 column", 2: "1 pair", 3: "1 triple with the label"}
_MANY = {1: "columns", 2: "pairs", 3: "triples with the label"}


def draft(
    layout: TableLayout,
    roster: Roster,
    *,
    label: str | None,
    focus: Sequence[Sequence[str]],
    law: NormalLawName,
    rows_at_most: int,
    even: int | None = None,
) -> Marginals | StagedMarginals:
    """The task, before its noise is set.

    With ``even``, the bins of numbers that have more are counted first, and merged to so many.
    """
    place = None if label is None else layout.place(label, "label")
    fine = tuple(CodedColumn(party, layout.columns[at].name, layout.columns[at].size) for party, at in layout.parties())
    merges = [_merge(layout.columns[at], even) for at in layout.free]
    coded = tuple(replace(column, size=merge.size) for column, merge in zip(fine, merges, strict=True))
    asked = weigh_blocks([column.size for column in coded], place, pairs(layout, focus))
    task = Marginals(
        coded=coded,
        asked=tuple(MarginalQuery(columns, weight) for columns, weight in asked),
        trust=roster.trust,
        rows_at_most=rows_at_most,
        noise=len(roster.schemas),
        law=law,
        hidden=roster.hidden,
        label=place,
    )
    if all(merge.size == column.size for merge, column in zip(merges, fine, strict=True)):
        return task
    return StagedMarginals(fine, tuple(merges), _first(task, fine, merges), task, len(roster.schemas))


def _merge(column: ColumnCoding, even: int | None) -> CodeMerge:
    """What becomes of a column's codes before everything else is asked."""
    missing = column.missing is not None
    if even is None or column.bins is None or len(column.bins) <= even:
        return CodeMerge(column.size)
    return CodeMerge(even + missing, column.missing)


def _first(task: Marginals, fine: Sequence[CodedColumn], merges: Sequence[CodeMerge]) -> tuple[int, ...]:
    """The weights of the first stage: it costs a tenth of the second, and counts what is merged alike."""
    several = 1 + sum(merge.size < column.size for merge, column in zip(merges, fine, strict=True))
    each = math.sqrt(_FIRST * task.sensitivity.l2_squared / several)
    weights = [
        each / column.size if merge.size < column.size else 1 for merge, column in zip(merges, fine, strict=True)
    ]
    return (max(1, round(each)), *(max(1, round(weight)) for weight in weights))


def pairs(layout: TableLayout, focus: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """The pairs of columns that are to be more exact, by their numbers."""
    found = []
    for pair in focus:
        first, second = sorted(layout.place(name, "focus") for name in pair)
        if first == second:
            raise StudyError(f"focus pairs {pair[0]!r} with itself; name two columns [ST341]")
        found.append((first, second))
    if len(set(found)) < len(found):
        twice = next(a for a, b in pairwise(sorted(found)) if a == b)
        raise StudyError(
            f"focus lists the pair {' and '.join(layout.column_names(twice))} twice; delete one of them [ST342]"
        )
    return found


def details(staged: Marginals | StagedMarginals) -> PlanDetails:
    """How many marginals are asked for."""
    task = staged.stages[-1]
    sizes = Counter(len(block.columns) for block in task.asked)
    words = [_count_in_words(size, count) for size, count in sorted(sizes.items())]
    line = f"one release of {', '.join(words[:-1])} and {words[-1]}: {task.entries:,} numbers, which share one price"
    facts: dict[str, Any] = {"marginals": {str(size): count for size, count in sorted(sizes.items())}}
    facts |= {"numbers": task.entries}
    if wide := staged.merged_columns:
        before = f"first, counts of the narrow bins of {wide} columns, by which they are merged; charged too"
        return PlanDetails("marginals", facts | {"stages": 2}, brief=(before, line))
    return PlanDetails("marginals", facts, brief=(line,))


def outlook(staged: Marginals | StagedMarginals, rows: int | None) -> SampleSizeForecast:
    """How far noise moves a marginal of two columns, in total variation: half of the sum over its cells.

    It is that of what two columns tell together and neither tells alone, on average over the pairs that are asked for;
    of single columns where no pair is. Counts that are made positive, and fitted, err less.
    """
    task = staged.stages[-1]
    widest = max((len(block.columns) for block in task.asked if len(block.columns) < 3), default=0)
    moved = [_noise_of_block(task, block) for block in task.asked if len(block.columns) == widest]
    what = "a marginal of two columns" if widest == 2 else "a marginal"
    scale = math.fsum(moved) / max(1, len(moved))
    return SampleSizeForecast.falling(f"{what}, as a share of the people,", ENOUGH_OF_A_MARGINAL, scale, rows)


def _noise_of_block(task: Marginals, block: MarginalQuery) -> float:
    """Half of the expected sum, over the cells of a block, of what noise adds to them: it is projected as they are."""
    sizes = [task.sizes[place] for place in block.columns]
    projected = math.prod(math.sqrt(1 - 1 / size) for size in sizes)
    return math.sqrt(2 / math.pi) / 2 * math.prod(sizes) * projected * task.deviation(block)


def _count_in_words(size: int, count: int) -> str:
    if not size:
        return "the count"
    if count == 1:
        return _ONE.get(size, f"1 marginal of {size} columns")
    return f"{count:,} {_MANY.get(size, f'marginals of {size} columns')}"
