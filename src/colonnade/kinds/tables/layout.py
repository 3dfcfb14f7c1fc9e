"""Which columns a synthetic table has, by which codes they are counted, and what was asked about them.

Which marginals are asked for and how exactly: a public choice, from sizes and from what the user names.

All opened numbers get the same noise, so a block is more exact the larger the whole number that its coordinates are
multiplied by. Noise of deviation s_A on block A costs r_A / s_A^2 of the budget. The least weighted sum of squared
errors for a budget has precisions 1 / s_A^2 in proportion to the square root of what an error there matters, over what
exactness there costs (docs/theory/fitting-marginals.md, section 6). No table is looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError, StudyError
from colonnade.kinds.tables.stages import CodeMerge, StagedMarginals, merge_edges
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.models.design import columns_of, owner_of
from colonnade.models.planner import ENOUGH_OF_A_MARGINAL, PlanDetails, Roster, SampleSizeForecast
from colonnade.privacy.noise_laws import NormalLawName
from colonnade.tables import Schema, Table, read_table
from colonnade.tables.bins import Bins
from colonnade.tables.cell_parsing import itemise, suggest_full_name, suggest_name
from colonnade.tables.coding import (
    Binning as Binning,
    Coding,
    ColumnCoding,
    ForbiddenCodes,
    build_coding,
    forbidden_codes,
    joint_names,
)
from colonnade.tables.schema import Constraint

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


Codes = NDArray[np.int64]


@dataclass(frozen=True)
class TableLayout:
    """The columns of all parties in their order, each with its codes.

    A column with a single code says nothing about anybody, so nothing is asked about it. ``free`` are the places of
    the others, and the columns of a task, a fit and a release are numbered among these.
    """

    codings: Mapping[str, Coding]

    @classmethod
    def of(cls, schemas: Mapping[str, Schema], bins: Binning | None) -> TableLayout:
        """The columns of these schemas, by public rules alone."""
        _check_bins(schemas, bins)
        _check_dates(schemas)
        layout = cls({party: code_columns(party, schema, bins) for party, schema in schemas.items()})
        if len(layout.free) < 2:
            raise StudyError("a synthetic table needs at least two columns with two values or bins each [ST361]")
        return layout

    @cached_property
    def columns(self) -> tuple[ColumnCoding, ...]:
        """All columns, party by party."""
        return tuple(column for coding in self.codings.values() for column in coding.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Their names, written ``party.column``."""
        return tuple(f"{party}.{column.name}" for party, coding in self.codings.items() for column in coding.columns)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Their names in a published table: as in the schema, or ``party.column`` where two parties use one name."""
        return joint_names({party: coding.schema for party, coding in self.codings.items()})

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The places of the columns that have more than one code."""
        return tuple(place for place, column in enumerate(self.columns) if column.size > 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each of these has."""
        return tuple(self.columns[place].size for place in self.free)

    def parties(self) -> Iterator[tuple[str, int]]:
        """For each of these columns its party, and its place among all columns."""
        owners = [party for party, coding in self.codings.items() for _ in coding.columns]
        return ((owners[place], place) for place in self.free)

    def column_names(self, columns: Sequence[int]) -> tuple[str, ...]:
        """The names of columns that are numbered among the free ones."""
        return tuple(self.names[self.free[column]] for column in columns)

    def place(self, name: str, what: str) -> int:
        """The number of a column among the free ones, by its name; ``what`` begins the error if there is none."""
        owner, column = owner_of(name, self.codings) if isinstance(name, str) else (None, name)
        if owner is None:
            hint = suggest_full_name(str(name), self.names)
            raise StudyError(
                f"{what} names {name!r}, which is not party.column for any of {itemise(self.codings)}{hint} [ST362]"
            )
        if name not in self.names:
            known = [each.name for each in self.codings[owner].columns]
            raise StudyError(
                f"{what} names {name!r}, and {owner} has no such column{suggest_name(column, known)} [ST363]"
            )
        place = self.names.index(name)
        if place not in self.free:
            raise StudyError(
                f"{what} names {name!r}, which has only one value, so there is nothing to ask about it [ST364]"
            )
        return self.free.index(place)

    def merge_bins(self, new: Sequence[Sequence[int]]) -> TableLayout:
        """The same columns with wider bins: ``new`` has, for each free column, the new code of each code."""
        of_place = dict(zip(self.free, new, strict=True))
        codings, place = {}, 0
        for party, coding in self.codings.items():
            columns = []
            for column in coding.columns:
                columns.append(_widen_bins(column, of_place[place]) if place in of_place else column)
                place += 1
            codings[party] = replace(coding, columns=tuple(columns))
        return TableLayout(codings)

    def boxes(self, rules: Sequence[Constraint]) -> tuple[ForbiddenCodes, ...]:
        """Codes that rules make impossible as a whole, in columns that are numbered among the free ones."""
        found = []
        for box in forbidden_codes(rules, self.codings):
            kept = [at for at, place in enumerate(box.columns) if place in self.free]  # others have their code for sure
            columns = tuple(self.free.index(box.columns[at]) for at in kept)
            found.append(ForbiddenCodes(columns, tuple(box.marked[at] for at in kept)))
        return tuple(found)

    def whole(self, codes: Codes) -> Codes:
        """Codes of all columns, from those of the free ones."""
        full = np.zeros((len(codes), len(self.columns)), dtype=np.int64)
        full[:, list(self.free)] = codes
        return full

    def codes(self, party: str, table: Table) -> Codes:
        """The codes of one party's rows, of its columns that have more than one."""
        rows = MarginalRows(table, self.codings[party])
        return np.vstack([np.zeros((0, rows.width)), *rows.blocks(1 << 16)]).astype(np.int64)

    def codes_of(self, table: Any) -> Codes:
        """The codes of a published table, of all columns that have more than one."""
        found, heads = [], iter(self.heads)
        for party, coding in self.codings.items():
            own = table.select([next(heads) for _ in coding.columns]).rename_columns([c.name for c in coding.columns])
            made = replace(coding, schema=coding.schema.decoded_schema())
            found.append(TableLayout({party: made}).codes(party, read_table(own, made.schema, id=None)))
        return np.asfortranarray(np.hstack(found))  # marginals are counted column by column


class MarginalRows:
    """A party's table as a protocol takes it: the codes of its columns that have more than one."""

    def __init__(self, table: Table, coding: Coding) -> None:
        self._rows = coding.code_rows(table)
        self._free = [place for place, column in enumerate(coding.columns) if column.size > 1]
        self.ids = table.ids
        self.places = table.places

    @property
    def width(self) -> int:
        """How many columns these are."""
        return len(self._free)

    def blocks(self, rows: int, /) -> Iterator[NDArray[np.float64]]:
        """The codes, some rows at a time."""
        for block in self._rows.blocks(rows):
            yield block[:, self._free]


def code_columns(party: str, schema: Schema, bins: Binning | None) -> Coding:
    """The codes of one party's columns."""
    bins = plain_bins(bins)
    given: Any = bins
    if isinstance(bins, Mapping):
        own = {name: f"{party}.{name}" for name in schema.names}
        given = {name: bins[full] for name, full in own.items() if full in bins}
    try:
        return build_coding(schema) if given is None else build_coding(schema, given)
    except SchemaError as error:
        raise StudyError(f"{party}: {error} [ST365]") from None


def plain_bins(bins: Any) -> Any:
    """Bins as a file holds them: numpy's whole numbers and arrays become Python's."""
    if isinstance(bins, Mapping):
        return {name: plain_bins(held) for name, held in bins.items()}
    if isinstance(bins, np.integer | np.ndarray):
        return bins.tolist()
    return list(bins) if isinstance(bins, Sequence) and not isinstance(bins, str) else bins


def _widen_bins(column: ColumnCoding, new: Sequence[int]) -> ColumnCoding:
    """A column whose neighbouring bins were merged."""
    if column.bins is None or len(set(new)) == column.size:
        return column
    edges = merge_edges(column.bins.edges, new[: len(column.bins)])
    return replace(column, bins=Bins(column.bins.column, edges))


def _check_bins(schemas: Mapping[str, Schema], bins: Any) -> None:
    """Refuse bins that are neither a number nor a mapping from columns of these schemas."""
    if bins is None or (isinstance(bins, int | np.integer) and not isinstance(bins, bool)):
        return
    if not isinstance(bins, Mapping):
        raise StudyError(f'bins must be a number, or a mapping such as {{"bank.age": 20}}, not {bins!r} [ST366]')
    known = columns_of(schemas)
    for name in bins:
        if name not in known:
            hint = suggest_full_name(str(name), known)
            raise StudyError(f"bins names {name!r}, which is no column of this study{hint} [ST367]")


def _check_dates(schemas: Mapping[str, Schema]) -> None:
    """Refuse the month or weekday of a date whose days are there too: in a made-up table they would contradict it."""
    for party, schema in schemas.items():
        columns = schema.columns.items()
        dated = {column.source(name) for name, column in columns if column.part and column.quantity}
        parts = [(name, column.source(name)) for name, column in columns if column.part and not column.quantity]
        if twice := [name for name, source in parts if source in dated]:
            raise StudyError(
                f"a made-up table has the date itself, from which {itemise(twice)} of {party} would follow; leave them "
                "out of the columns of this study [ST368]"
            )
