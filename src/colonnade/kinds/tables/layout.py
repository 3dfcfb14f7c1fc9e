"""Which columns a synthetic table has, by which codes they are counted, and what was asked about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError, StudyError
from colonnade.kinds.tables.stages import merge_edges
from colonnade.models.design import columns_of, owner_of
from colonnade.tables import Schema, Table, read_table
from colonnade.tables.bins import Bins
from colonnade.tables.cell_parsing import itemise, suggest_full_name, suggest_name
from colonnade.tables.coding import Coding, ColumnCoding, ForbiddenCodes, build_coding, forbidden_codes, joint_names
from colonnade.tables.constraints import Constraint

Binning = int | Mapping[str, int | Sequence[float] | Sequence[str]]
"""How many bins a number has, or their edges: one number for all, or by ``party.column``."""
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
