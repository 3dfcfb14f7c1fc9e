"""What is asked: the marginals of a study and how exact each is to be, from public parameters alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from colonnade.errors import StudyError
from colonnade.models.federation import Roster
from colonnade.models.planner import Details
from colonnade.models.synthesis.layout import Layout
from colonnade.models.synthesis.weights import blocks
from colonnade.privacy.additive import NormalLaw
from colonnade.protocols.marginals.task import Asked, Coded, Marginals

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
) -> Marginals:
    """The task, before its noise is set."""
    place = None if label is None else layout.place(label, "label")
    asked = blocks(layout.sizes, place, pairs(layout, focus))
    coded = tuple(Coded(party, layout.columns[at].name, layout.columns[at].size) for party, at in layout.parties())
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
    if isinstance(focus, str) or not isinstance(focus, Sequence):
        raise StudyError(f'focus must be a list of pairs such as [["bank.income", "clinic.bmi"]], not {focus!r}')
    found = []
    for pair in focus:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise StudyError(f'focus lists pairs of columns such as ["bank.income", "clinic.bmi"], not {pair!r}')
        first, second = sorted(layout.place(name, "focus") for name in pair)
        if first == second:
            raise StudyError(f"focus pairs {pair[0]!r} with itself; name two columns")
        found.append((first, second))
    if len(set(found)) < len(found):
        twice = next(a for a, b in pairwise(sorted(found)) if a == b)
        raise StudyError(f"focus lists the pair {' and '.join(layout.called(twice))} twice; delete one of them")
    return found


def details(task: Marginals) -> Details:
    """How many marginals are asked for, and how exactly the first and the last of each size are known."""
    sizes = Counter(len(block.columns) for block in task.asked)
    words = [_counted(size, count) for size, count in sorted(sizes.items())]
    line = f"one release of {', '.join(words[:-1])} and {words[-1]}: {task.entries:,} numbers, which share one price"
    facts: dict[str, Any] = {"marginals": {str(size): count for size, count in sorted(sizes.items())}}
    facts |= {"numbers": task.entries}
    return Details("marginals", facts, brief=(line,))


def _counted(size: int, count: int) -> str:
    if not size:
        return "the count"
    if count == 1:
        return _ONE.get(size, f"1 marginal of {size} columns")
    return f"{count:,} {_MANY.get(size, f'marginals of {size} columns')}"
