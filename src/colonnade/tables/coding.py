"""Columns as codes from 0 on, by public rules, and codes as a table of made-up people.

A category has a code for each of its values, a flag 0 for false and 1 for true, a number one for each of its bins
(:mod:`~colonnade.tables.bins`). Where the schema says ``missing = "none"``, the last code stands for a missing cell.
Codes are computed from encoded rows that are not shortened to the schema's clip; :class:`CodedRows` sees to that. A
category whose encoding is all zeros though no cell may be missing (an invalid value that was mapped) has the first
code. The columns of all parties side by side have names, constraints and a dictionary that describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.tables.bins import Bins, Matrix
from colonnade.tables.cell_parsing import Mask, pa
from colonnade.tables.columns import Codes, Column, uniform
from colonnade.tables.schema import ColumnComparison, Constraint, Schema, parse_constraints
from colonnade.tables.slots import DerivedRows
from colonnade.tables.table import Table

if TYPE_CHECKING:
    from colonnade.randomness import Stream

DEFAULT_BINS = 32
MISSING_LABEL = "(missing)"
_BLOCK_ROWS = 1 << 15

Binning = int | Mapping[str, int | Sequence[float] | Sequence[str]]


@dataclass(frozen=True)
class ColumnCoding:
    """The codes of one column: how many there are, and the bins of a number."""

    name: str
    column: Column
    bins: Bins | None = None

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.labels)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A text for each code."""
        found = self.column.labels if self.bins is None else self.bins.labels()
        return (*found, MISSING_LABEL) if self.column.may_be_missing else found

    @property
    def edges(self) -> tuple[float, ...] | None:
        """The edges of a number's bins in its own units, one more than there are bins."""
        return None if self.bins is None else self.bins.edges

    @property
    def missing(self) -> int | None:
        """The code of a missing cell, where there is one: the last."""
        return self.size - 1 if self.column.may_be_missing else None

    def codes(self, encoded: Matrix) -> Codes:
        """The code of each cell, from what the column is encoded to: an array (rows, parts)."""
        if self.bins is None:
            return self.column.codes(encoded)
        found = self.bins.of(encoded[:, 0])
        return found if self.missing is None else np.where(encoded[:, 1] > 0.5, self.missing, found)

    def cells(self, codes: Codes, stream: Stream, masses: NDArray[np.float64] | None = None) -> Any:
        """An Arrow column of cells with these codes; numbers are drawn within their bins.

        ``masses`` are the probabilities of all codes. With them the numbers of neighbouring bins have one continuous
        density; without them they are uniform within each bin, on the scale on which the column is encoded evenly.
        """
        if self.bins is None:
            return self.column.cells(codes)
        absent = None if self.missing is None else codes == self.missing
        places = codes if absent is None else np.where(absent, 0, codes)
        density = self.bins.density(None if masses is None else self._checked(masses)[: len(self.bins)])
        return self.column.cells(self.bins.draw(places, density, uniform(stream, len(codes))), absent)

    def _checked(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.asarray(masses, dtype=np.float64)
        if found.shape != (self.size,) or not np.isfinite(found).all():
            raise DataError(
                f"column {self.name!r} needs a finite probability for each of its {self.size} codes [DA136]"
            )
        return np.maximum(found, 0.0)


@dataclass(frozen=True)
class Coding:
    """The codes of all columns of one party, in the order of its schema."""

    schema: Schema
    columns: tuple[ColumnCoding, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has."""
        return tuple(column.size for column in self.columns)

    def codes(self, encoded: Matrix) -> Codes:
        """The codes of encoded rows that were not shortened to a clip: one column for each of the schema's."""
        found = np.empty((len(encoded), len(self.columns)), dtype=np.int64)
        for place, column in enumerate(self.columns):
            found[:, place] = column.codes(encoded[:, self.schema.encoded_slices[column.name]])
        return found

    def code_rows(self, table: Table) -> CodedRows:
        """The coded rows of a table that was read under this schema, in the table's order."""
        return CodedRows(self, table)


@dataclass(frozen=True)
class CodedRows(DerivedRows):
    """The codes of a table's rows, as a protocol reads them: block by block, as floats."""

    coding: Coding
    rows: Table

    def __post_init__(self) -> None:
        if self.rows.schema.with_clip(None) != self.coding.schema.with_clip(None):
            raise DataError(f"{self.rows.source} was read under another schema than the one that is coded [DA137]")

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, rows: int = _BLOCK_ROWS) -> Iterator[Matrix]:
        """Codes, some rows at a time."""
        for block in self.rows.unclipped().blocks(rows):
            yield self.coding.codes(block).astype(np.float64)

    def matrix(self) -> Codes:
        """The codes of all rows at once, as whole numbers."""
        return np.vstack([self.coding.codes(block) for block in self.rows.unclipped().blocks(_BLOCK_ROWS)])


def build_coding(schema: Schema, bins: Binning = DEFAULT_BINS) -> Coding:
    """How the columns of a schema are coded; nothing but the schema and ``bins`` decides it.

    ``bins`` is the number of bins of every number column, or for some columns their number of bins or a list of edges
    in the column's own units, which are days such as ``"2016-01-31"`` for dates; columns that are not named have
    ``DEFAULT_BINS``.
    """
    chosen = bins if isinstance(bins, Mapping) else {}
    schema.require(chosen)
    default = DEFAULT_BINS if isinstance(bins, Mapping) else bins
    return Coding(schema, tuple(_code_column(name, column, chosen, default) for name, column in schema.columns.items()))


def joint_names(schemas: Mapping[str, Schema]) -> tuple[str, ...]:
    """Names of all parties' columns side by side: their own, or ``party.column`` where two parties use one name."""
    names = [name for schema in schemas.values() for name in schema.names]
    full = _full_names(schemas)
    while True:  # a name with its party may be the own name of another column, which then needs its party too
        times = Counter(names)
        longer = [whole if times[name] > 1 else name for name, whole in zip(names, full, strict=True)]
        if longer == names:
            break
        names = longer
    if twice := [name for name, often in times.items() if often > 1]:
        raise SchemaError(
            f"two columns are both called {twice[0]!r} with their party's name; rename a column or a party [SC014]"
        )
    return tuple(names)


def decode_codes(
    codings: Mapping[str, Coding],
    codes: Codes,
    stream: Stream,
    densities: Sequence[NDArray[np.float64] | None] | None = None,
) -> pa.Table:
    """An Arrow table of all parties' columns from their codes, which stand in the order of the parties.

    Categories are dictionary-encoded texts, flags booleans, numbers float64 or, if they are whole, int64; a missing
    cell is null. ``densities`` has for each column the probabilities of its codes, which make the numbers drawn within
    neighbouring bins fit together (:meth:`ColumnCoding.cells`), or ``None``.
    """
    columns = [column for coding in codings.values() for column in coding.columns]
    given = np.asarray(codes)
    if given.ndim != 2 or given.shape[1] != len(columns) or not np.issubdtype(given.dtype, np.integer):
        raise DataError(
            f"codes must be whole numbers in rows of {len(columns)}, but their shape is {given.shape} [DA138]"
        )
    masses = [None] * len(columns) if densities is None else list(densities)
    if len(masses) != len(columns):
        raise DataError(
            f"there are densities for {len(masses)} of {len(columns)} columns; give one for each, or None [DA139]"
        )
    cells = []
    for column, own, mass in zip(columns, given.T, masses, strict=True):
        if own.size and not (own.min() >= 0 and own.max() < column.size):
            raise DataError(
                f"column {column.name!r} has codes from 0 to {column.size - 1}, and others were given [DA140]"
            )
        cells.append(column.cells(own.astype(np.int64), stream, mass))
    names = joint_names({party: coding.schema for party, coding in codings.items()})
    return pa.table(cells, names=list(names))


def _code_column(name: str, column: Column, chosen: Mapping[str, Any], default: int) -> ColumnCoding:
    try:
        return ColumnCoding(name, column, column.bins(chosen.get(name), default))
    except SchemaError as error:
        raise SchemaError(f"bins of column {name!r}: {error} [SC016]") from None


_NONE = "does not occur"


def joint_constraints(schemas: Mapping[str, Schema], texts: Sequence[str] = ()) -> tuple[Constraint, ...]:
    """The rules of all schemas, and further ones across parties, which name columns ``party.column``.

    The rules name columns as a table of all parties does (:func:`joint_names`).
    """
    called = dict(zip(_full_names(schemas), joint_names(schemas), strict=True))
    own = [
        rule.rename({name: called[f"{party}.{name}"] for name in rule.names})
        for party, schema in schemas.items()
        for rule in schema.impossible
    ]
    try:
        across = parse_constraints(texts, dict(zip(called, _columns(schemas), strict=True)))
    except SchemaError as error:
        raise StudyError(str(error)) from None
    return tuple(dict.fromkeys([*own, *(rule.rename(called) for rule in across)]))


@dataclass(frozen=True)
class ForbiddenCodes:
    """Codes that a rule makes impossible: of each of some columns, by its place among all, any that is marked."""

    columns: tuple[int, ...]
    marked: tuple[Mask, ...]


def forbidden_codes(rules: Sequence[Constraint], codings: Mapping[str, Coding]) -> tuple[ForbiddenCodes, ...]:
    """For each rule the codes all of whose cells break it, where there are any.

    A bin of numbers that only partly meets a comparison is not marked; rows with such codes may break the rule or not,
    and are looked at as cells (:func:`~colonnade.tables.schema.find_violations`).
    """
    schemas = {party: coding.schema for party, coding in codings.items()}
    coded = [column for coding in codings.values() for column in coding.columns]
    places = {name: place for place, name in enumerate(joint_names(schemas))}
    found = []
    for rule in rules:
        marks: dict[int, Mask] = {}
        for comparison in rule.comparisons:
            place = places[comparison.name]
            marked = _certain_codes(comparison, coded[place])
            marks[place] = marks[place] & marked if place in marks else marked
        if all(marked.any() for marked in marks.values()):
            order = sorted(marks)
            found.append(ForbiddenCodes(tuple(order), tuple(marks[place] for place in order)))
    return tuple(found)


def check_constraints(rules: Sequence[Constraint], codings: Mapping[str, Coding]) -> None:
    """Refuse a rule that nobody can meet, which says nothing, and rules that leave nobody."""
    schemas = {party: coding.schema for party, coding in codings.items()}
    columns = dict(zip(joint_names(schemas), _columns(schemas), strict=True))
    for rule in rules:
        if any(not rule.is_satisfiable(name, columns[name]) for name in rule.names):
            raise StudyError(f"impossible: '{rule}' can be met by nobody; correct it or delete it [ST603]")
    excluded: dict[int, Mask] = {}
    for box in forbidden_codes(rules, codings):
        narrow = [(place, marked) for place, marked in zip(box.columns, box.marked, strict=True) if not marked.all()]
        if len(narrow) > 1:
            continue
        for place, marked in narrow:
            excluded[place] = excluded.get(place, np.zeros_like(marked)) | marked
        if not narrow or any(marked.all() for marked in excluded.values()):
            raise StudyError(
                "impossible: the rules leave nobody, so there would be no table; correct or delete some [ST604]"
            )


def data_dictionary(codings: Mapping[str, Coding], *, counted: bool = True) -> list[dict[str, Any]]:
    """What each column of a table of all parties holds, as plain values: one entry a column, in the table's order.

    Where nothing was ``counted`` there is no word of bins and codes, and no cell of the table is missing.
    """
    names = iter(joint_names({party: coding.schema for party, coding in codings.items()}))
    return [
        {
            "name": next(names),
            "party": party,
            "column": column.name,
            **column.column.describe(),
            **(_code_counts(column) if counted else {"missing": _NONE}),
        }
        for party, coding in codings.items()
        for column in coding.columns
    ]


def _code_counts(coded: ColumnCoding) -> dict[str, Any]:
    missing = coded.missing is not None
    bins = {} if coded.bins is None else {"bins": list(coded.labels[:-1] if missing else coded.labels)}
    return {**bins, "codes": coded.size, "missing": "an empty cell" if missing else _NONE}


def _certain_codes(comparison: ColumnComparison, coded: ColumnCoding) -> Mask:
    """The codes all of whose cells meet a comparison."""
    found = np.zeros(coded.size, dtype=np.bool_)
    if comparison.value is None:
        found[coded.missing] = True
        return found if comparison.operator == "=" else ~found
    if coded.bins is None:
        same = np.array([each == comparison.value for each in coded.column.classes])
        found[: len(same)] = same if comparison.operator == "=" else ~same
        return found
    least, most = coded.bins.extremes
    value = coded.bins.column.value_of(comparison.value)
    met = {
        "=": (least == value) & (most == value),
        "!=": (least > value) | (most < value),
        "<": most < value,
        "<=": most <= value,
        ">": least > value,
        ">=": least >= value,
    }
    found[: len(coded.bins)] = met[comparison.operator]
    return found


def _full_names(schemas: Mapping[str, Schema]) -> list[str]:
    return [f"{party}.{name}" for party, schema in schemas.items() for name in schema.names]


def _columns(schemas: Mapping[str, Schema]) -> list[Column]:
    return [column for schema in schemas.values() for column in schema.columns.values()]
