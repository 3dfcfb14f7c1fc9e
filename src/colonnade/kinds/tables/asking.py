"""What is asked: the marginals of a study and how exact each is to be, from public parameters alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.tables.layout import Layout
from colonnade.kinds.tables.marginals.merging import Merge
from colonnade.kinds.tables.marginals.stages import StagedMarginals
from colonnade.kinds.tables.marginals.task import Asked, Coded, Marginals
from colonnade.kinds.tables.weights import blocks
from colonnade.models.outlook import ENOUGH_OF_A_MARGINAL, Outlook
from colonnade.models.planner import Details
from colonnade.models.roster import Roster
from colonnade.privacy.additive import NormalLaw
from colonnade.tables.coding import ColumnCoding

_FIRST = 0.1  # the price of a first stage, as a part of the second's
_ONE = {1: "1 column", 2: "1 pair", 3: "1 triple with the label"}
_MANY = {1: "columns", 2: "pairs", 3: "triples with the label"}


def draft(
    layout: Layout,
    roster: Roster,
    *,
    label: str | None,
    focus: Sequence[Sequence[str]],
    law: NormalLaw,
    rows_at_most: int,
    even: int | None = None,
) -> Marginals | StagedMarginals:
    """The task, before its noise is set.

    With ``even``, the bins of numbers that have more are counted first, and merged to so many.
    """
    place = None if label is None else layout.place(label, "label")
    fine = tuple(Coded(party, layout.columns[at].name, layout.columns[at].size) for party, at in layout.parties())
    merges = [_merge(layout.columns[at], even) for at in layout.free]
    coded = tuple(replace(column, size=merge.size) for column, merge in zip(fine, merges, strict=True))
    task = _marginals(coded, place, pairs(layout, focus), roster, law, rows_at_most)
    if all(merge.size == column.size for merge, column in zip(merges, fine, strict=True)):
        return task
    return StagedMarginals(fine, tuple(merges), _first(task, fine, merges), task, len(roster.schemas))


def _merge(column: ColumnCoding, even: int | None) -> Merge:
    """What becomes of a column's codes before everything else is asked."""
    missing = column.missing is not None
    if even is None or column.bins is None or len(column.bins) <= even:
        return Merge(column.size)
    return Merge(even + missing, column.missing)


def _first(task: Marginals, fine: Sequence[Coded], merges: Sequence[Merge]) -> tuple[int, ...]:
    """The weights of the first stage: it costs a tenth of the second, and counts what is merged alike."""
    several = 1 + sum(merge.size < column.size for merge, column in zip(merges, fine, strict=True))
    each = math.sqrt(_FIRST * task.sensitivity.l2_squared / several)
    weights = [
        each / column.size if merge.size < column.size else 1 for merge, column in zip(merges, fine, strict=True)
    ]
    return (max(1, round(each)), *(max(1, round(weight)) for weight in weights))


def _marginals(
    coded: tuple[Coded, ...],
    place: int | None,
    focus: Sequence[tuple[int, int]],
    roster: Roster,
    law: NormalLaw,
    rows_at_most: int,
) -> Marginals:
    asked = blocks([column.size for column in coded], place, focus)
    return Marginals(
        coded=coded,
        asked=tuple(Asked(tuple(columns), weight) for columns, weight in asked),
        trust=roster.trust,
        rows_at_most=rows_at_most,
        noise=len(roster.schemas),
        law=law,
        hidden=roster.hidden,
        label=place,
    )


def pairs(layout: Layout, focus: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """The pairs of columns that are to be more exact, by their numbers."""
    found = []
    for pair in focus:
        first, second = sorted(layout.place(name, "focus") for name in pair)
        if first == second:
            raise StudyError(f"focus pairs {pair[0]!r} with itself; name two columns [ST341]")
        found.append((first, second))
    if len(set(found)) < len(found):
        twice = next(a for a, b in pairwise(sorted(found)) if a == b)
        raise StudyError(f"focus lists the pair {' and '.join(layout.called(twice))} twice; delete one of them [ST342]")
    return found


def details(staged: Marginals | StagedMarginals) -> Details:
    """How many marginals are asked for."""
    task = staged.last
    sizes = Counter(len(block.columns) for block in task.asked)
    words = [_counted(size, count) for size, count in sorted(sizes.items())]
    line = f"one release of {', '.join(words[:-1])} and {words[-1]}: {task.entries:,} numbers, which share one price"
    facts: dict[str, Any] = {"marginals": {str(size): count for size, count in sorted(sizes.items())}}
    facts |= {"numbers": task.entries}
    if wide := staged.merged_columns:
        before = f"first, counts of the narrow bins of {wide} columns, by which they are merged; charged too"
        return Details("marginals", facts | {"stages": 2}, brief=(before, line))
    return Details("marginals", facts, brief=(line,))


def outlook(staged: Marginals | StagedMarginals, rows: int | None) -> Outlook:
    """How far noise moves a marginal of two columns, in total variation: half of the sum over its cells.

    It is that of what two columns tell together and neither tells alone, on average over the pairs that are asked for;
    of single columns where no pair is. Counts that are made positive, and fitted, err less.
    """
    task = staged.last
    widest = max((len(block.columns) for block in task.asked if len(block.columns) < 3), default=0)
    moved = [_moved(task, block) for block in task.asked if len(block.columns) == widest]
    what = "a marginal of two columns" if widest == 2 else "a marginal"
    scale = math.fsum(moved) / max(1, len(moved))
    return Outlook.falling(f"{what}, as a share of the people,", ENOUGH_OF_A_MARGINAL, scale, rows)


def _moved(task: Marginals, block: Asked) -> float:
    """Half of the expected sum, over the cells of a block, of what noise adds to them: it is projected as they are."""
    sizes = [task.sizes[place] for place in block.columns]
    projected = math.prod(math.sqrt(1 - 1 / size) for size in sizes)
    return math.sqrt(2 / math.pi) / 2 * math.prod(sizes) * projected * task.deviation(block)


def _counted(size: int, count: int) -> str:
    if not size:
        return "the count"
    if count == 1:
        return _ONE.get(size, f"1 marginal of {size} columns")
    return f"{count:,} {_MANY.get(size, f'marginals of {size} columns')}"
