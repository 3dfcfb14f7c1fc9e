"""Made-up people from a fitted model: drawn, given values, and mended or drawn again where they cannot be.

People who cannot be are mended so that single columns stay as they are: other values in the same bins, or exchanges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.randomness import Stream
from colonnade.tables.cell_parsing import pa
from colonnade.tables.constraints import Constraint, find_violations

Codes = NDArray[np.int64]
Places = NDArray[np.intp]

_VALUES, _EXCHANGES = 10, 5
"""How often values are drawn again within their bins, and how often exchanges are looked for."""
_PARTNERS = 16
"""Among how many others the best exchange is looked for."""


@dataclass(frozen=True)
class SampledPeople:
    """People as a table and, where they were made from codes, these, a column for each of the table's."""

    table: Any
    codes: Codes | None = None


@dataclass(frozen=True)
class PeopleSampler:
    """How people are made: so many new ones; new values for given codes; and how likely codes are."""

    people: Callable[[int, Stream], SampledPeople]
    values: Callable[[Codes, Stream], Any] | None = None
    likelihood: Callable[[Codes], NDArray[np.float64]] | None = None


def mend_people(
    made: SampledPeople, source: PeopleSampler, rules: Sequence[Constraint], stream: Stream
) -> SampledPeople:
    """The same people, of whom as many as possible can be; no code of a single column is more or less frequent."""
    table, codes = made.table, made.codes
    if source.values is not None and codes is not None:
        table = _redraw_values(table, codes, source.values, rules, stream)
    wrong = find_violations(rules, table)
    for _ in range(_EXCHANGES):
        if not wrong.any():
            break
        table, codes = _exchange_cells(SampledPeople(table, codes), source, rules, wrong, stream)
        wrong = find_violations(rules, table)
    return SampledPeople(table, codes)


def _redraw_values(
    table: Any, codes: Codes, values: Callable[[Codes, Stream], Any], rules: Sequence[Constraint], stream: Stream
) -> Any:
    """Whoever is wrong with other values of the same codes."""
    left = np.flatnonzero(find_violations(rules, table))
    found, where = [], []
    for _ in range(_VALUES):
        if not len(left):
            break
        again = values(codes[left], stream)
        right = ~find_violations(rules, again)
        found.append(again.filter(pa.array(right)))
        where.append(left[right])
        left = left[~right]
    return replace_rows(table, np.concatenate(where), pa.concat_tables(found)) if found else table


def replace_rows(table: Any, places: Places, new: Any) -> Any:
    """The table with other rows at some places."""
    order = np.arange(table.num_rows)
    order[places] = table.num_rows + np.arange(len(places))
    return pa.concat_tables([table, new]).unify_dictionaries().combine_chunks().take(pa.array(order))


def _exchange_cells(
    made: SampledPeople, source: PeopleSampler, rules: Sequence[Constraint], wrong: NDArray[np.bool_], stream: Stream
) -> tuple[Any, Codes | None]:
    """Whoever is wrong exchanges one cell with somebody, after which both can be and are as likely as possible."""
    good = np.flatnonzero(~wrong)
    good = good[np.argsort(stream.uint64(len(good)))] if len(good) else good
    many = int(wrong.sum())
    each = min(_PARTNERS, len(good) // many) or 1
    places = np.flatnonzero(wrong)[: len(good) // each]
    # Nobody is a partner twice, so that exchanges do not get in each other's way.
    partners = good[: len(places) * each].reshape(len(places), each)
    columns = _choose_columns(made.table.take(pa.array(places)), rules, stream)
    table, codes = made.table, None if made.codes is None else made.codes.copy()
    for column in np.unique(columns):
        own, others = places[columns == column], partners[columns == column]
        first, second = np.repeat(own, each), others.ravel()
        possible = _possible_exchanges(made.table, first, second, int(column), rules)
        score = _score_exchanges(made.codes, source, first, second, int(column))
        best = np.where(possible, score, -np.inf).reshape(others.shape)
        chosen = best.argmax(axis=1)
        found = possible.reshape(others.shape).any(axis=1)
        mine, theirs = own[found], others[np.arange(len(own)), chosen][found]
        order = np.arange(table.num_rows)
        order[mine], order[theirs] = theirs, mine
        name = table.column_names[column]
        table = table.set_column(int(column), name, table.column(int(column)).take(pa.array(order)))
        if codes is not None:
            codes[:, column] = codes[order, column]
    return table, codes


def _choose_columns(people: Any, rules: Sequence[Constraint], stream: Stream) -> NDArray[np.int64]:
    """For each of some people a column of a rule that they break, by its place."""
    found = np.zeros(people.num_rows, dtype=np.int64)
    drawn = stream.uint64(people.num_rows)
    for rule in rules:
        named = np.array([people.column_names.index(name) for name in sorted(rule.names)])
        broken = rule.find_violations(people)
        found[broken] = named[(drawn[broken] % np.uint64(len(named))).astype(np.int64)]
    return found


def _possible_exchanges(
    table: Any, first: Places, second: Places, column: int, rules: Sequence[Constraint]
) -> NDArray[np.bool_]:
    """Whether both of each pair of people can be after they exchanged a cell."""
    one, other = table.take(pa.array(first)), table.take(pa.array(second))
    name, cells = table.column_names[column], (one.column(column), other.column(column))
    changed = one.set_column(column, name, cells[1]), other.set_column(column, name, cells[0])
    return np.asarray(~(find_violations(rules, changed[0]) | find_violations(rules, changed[1])))


def _score_exchanges(
    codes: Codes | None, source: PeopleSampler, first: Places, second: Places, column: int
) -> NDArray[np.float64]:
    """How likely both of each pair of people are after they exchanged a cell; all alike where nobody knows."""
    if codes is None or source.likelihood is None:
        return np.zeros(len(first))
    one, other = codes[first], codes[second]
    one[:, column], other[:, column] = codes[second, column], codes[first, column]
    return np.maximum(source.likelihood(one) + source.likelihood(other), -1e300)


MAX_REDRAWS = 30
"""How often a person who cannot be is drawn again; whoever still cannot be is left out."""


@dataclass(frozen=True)
class SyntheticTable:
    """A table of made-up people.

    ``redrawn`` is how many could not be when they were first drawn, and ``dropped`` how many were left out for it.
    """

    table: Any
    redrawn: int = 0
    dropped: int = 0


def public_stream(released: Mapping[str, NDArray[Any]], *also: object) -> Stream:
    """A stream that follows from what was published: whoever has the release draws the same people.

    This is public randomness, and need not be secret: the release has its noise already, and whatever is computed from
    it, by any rule, tells no more than it does.
    """
    state = hashlib.sha256(b"colonnade synthetic people 1")
    for name in sorted(released):
        state.update(f"{name}:{released[name].dtype.str}:{released[name].shape}:".encode())
        state.update(np.ascontiguousarray(released[name]).tobytes())
    state.update(repr(also).encode())
    return Stream(state.digest())


def sample_table(source: PeopleSampler, rows: int, stream: Stream, rules: Sequence[Constraint]) -> SyntheticTable:
    """A table of so many people of whom each is possible; fewer, where the model makes possible ones too rarely.

    People who cannot be are mended so that single columns stay as they are. Only whoever cannot be mended is drawn
    again from the whole model.
    """
    made = source.people(rows, stream)
    wrong = find_violations(rules, made.table)
    first = int(wrong.sum())
    if not first:
        return SyntheticTable(made.table)
    table = mend_people(made, source, rules, stream).table
    wrong = find_violations(rules, table)
    for _ in range(MAX_REDRAWS):
        places = np.flatnonzero(wrong)
        if not len(places):
            break
        # The new ones take the places of the wrong ones, so that the order tells nothing about who was drawn again.
        again = source.people(len(places), stream).table
        table = replace_rows(table, places, again)
        wrong[places] = find_violations(rules, again)
    dropped = int(wrong.sum())
    return SyntheticTable(table.filter(pa.array(~wrong)) if dropped else table, first, dropped)
