"""The columns of all parties side by side: their names, what cannot be, and a dictionary that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError, StudyError
from colonnade.tables.coding import Coding, ColumnCoding, joint_names
from colonnade.tables.columns import Codes, Column
from colonnade.tables.impossible import Comparison, Rule, read_rules
from colonnade.tables.schema import Schema

Mask = NDArray[np.bool_]
_NONE = "does not occur"


def joint_rules(schemas: Mapping[str, Schema], texts: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules of all schemas, and further ones across parties, which name columns ``party.column``.

    The rules name columns as a table of all parties does (:func:`joint_names`).
    """
    called = dict(zip(_full_names(schemas), joint_names(schemas), strict=True))
    own = [
        rule.renamed({name: called[f"{party}.{name}"] for name in rule.names})
        for party, schema in schemas.items()
        for rule in schema.impossible
    ]
    try:
        across = read_rules(texts, dict(zip(called, _columns(schemas), strict=True)))
    except SchemaError as error:
        raise StudyError(str(error)) from None
    return tuple(dict.fromkeys([*own, *(rule.renamed(called) for rule in across)]))


@dataclass(frozen=True)
class Box:
    """Codes that a rule makes impossible: of each of some columns, by its place among all, any that is marked."""

    columns: tuple[int, ...]
    marked: tuple[Mask, ...]

    def holds(self, codes: Codes) -> Mask:
        """Which rows of codes of all columns lie in the box."""
        found = np.ones(len(codes), dtype=np.bool_)
        for column, marked in zip(self.columns, self.marked, strict=True):
            found &= marked[codes[:, column]]
        return found


def impossible_codes(rules: Sequence[Rule], codings: Mapping[str, Coding]) -> tuple[Box, ...]:
    """For each rule the codes all of whose cells break it, where there are any.

    A bin of numbers that only partly meets a comparison is not marked; rows with such codes may break the rule or not,
    and are looked at as cells (:func:`~colonnade.tables.impossible.violations`).
    """
    schemas = {party: coding.schema for party, coding in codings.items()}
    coded = [column for coding in codings.values() for column in coding.columns]
    places = {name: place for place, name in enumerate(joint_names(schemas))}
    found = []
    for rule in rules:
        marks: dict[int, Mask] = {}
        for comparison in rule.comparisons:
            place = places[comparison.name]
            marked = _certain(comparison, coded[place])
            marks[place] = marks[place] & marked if place in marks else marked
        if all(marked.any() for marked in marks.values()):
            order = sorted(marks)
            found.append(Box(tuple(order), tuple(marks[place] for place in order)))
    return tuple(found)


def check_rules(rules: Sequence[Rule], codings: Mapping[str, Coding]) -> None:
    """Refuse a rule that nobody can meet, which says nothing, and rules that leave nobody."""
    schemas = {party: coding.schema for party, coding in codings.items()}
    columns = dict(zip(joint_names(schemas), _columns(schemas), strict=True))
    for rule in rules:
        if any(not rule.can_be_met(name, columns[name]) for name in rule.names):
            raise StudyError(f"impossible: '{rule}' can be met by nobody; correct it or delete it [ST603]")
    excluded: dict[int, Mask] = {}
    for box in impossible_codes(rules, codings):
        narrow = [(place, marked) for place, marked in zip(box.columns, box.marked, strict=True) if not marked.all()]
        if len(narrow) > 1:
            continue
        for place, marked in narrow:
            excluded[place] = excluded.get(place, np.zeros_like(marked)) | marked
        if not narrow or any(marked.all() for marked in excluded.values()):
            raise StudyError(
                "impossible: the rules leave nobody, so there would be no table; correct or delete some [ST604]"
            )


def dictionary(codings: Mapping[str, Coding], *, counted: bool = True) -> list[dict[str, Any]]:
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
            **(_counted(column) if counted else {"missing": _NONE}),
        }
        for party, coding in codings.items()
        for column in coding.columns
    ]


def _counted(coded: ColumnCoding) -> dict[str, Any]:
    missing = coded.missing is not None
    bins = {} if coded.bins is None else {"bins": list(coded.labels[:-1] if missing else coded.labels)}
    return {**bins, "codes": coded.size, "missing": "an empty cell" if missing else _NONE}


def _certain(comparison: Comparison, coded: ColumnCoding) -> Mask:
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
