"""What cannot be: rules such as ``marital = married and age < 16`` that no row of a made-up table may meet.

A rule is one or more comparisons of a column with a value, joined by ``and``. Numbers are compared by ``=``, ``!=``,
``<``, ``<=``, ``>`` and ``>=``, and so are days, written as 2015-01-31; categories and flags (``true``, ``false``) by
the first two. ``missing`` stands for a missing cell where the schema says ``missing = "none"``; otherwise a missing
cell meets no comparison. Names and values with other characters than letters, digits, blanks and ``_ . - + / %``, or
with the word ``and``, stand in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.errors import SchemaError
from colonnade.tables import cell_parsing
from colonnade.tables.cell_parsing import Mask, pa, pc, suggest_name
from colonnade.tables.columns import Column
from colonnade.tables.dates import Day

MAX_CONSTRAINTS = 1000
_LONGEST = 2000
_MISSING = "missing"
_OPERATORS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_QUOTED = r""""[^"]*"|'[^']*'"""
_COMPARISON = re.compile(
    rf"""\s*(?P<name>{_QUOTED}|[^\s"'=!<>][^"'=!<>]*?)\s*(?P<operator><=|>=|!=|=|<|>)
    \s*(?P<value>{_QUOTED}|[^\s"'=!<>][^"'=!<>]*?)\s*(?:(?<=[\s"'])(?P<more>and)(?=[\s"'])|$)""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"(?!.*\band\b)[\w.+/%-]+( [\w.+/%-]+)*")

Value = float | str | bool | Day | None


@dataclass(frozen=True)
class ColumnComparison:
    """One column against one value; the value ``None`` stands for a missing cell."""

    name: str
    operator: str
    value: Value

    def evaluate(self, column: Any) -> Mask:
        """Which cells of an Arrow column meet it."""
        cells = cell_parsing.flatten_column(column)
        if self.value is None:
            found = pc.is_null(cells) if self.operator == "=" else pc.is_valid(cells)
        else:
            value = pa.scalar(self.value, cells.type) if isinstance(self.value, str) else pa.scalar(self.value)
            found = pc.fill_null(getattr(pc, _OPERATORS[self.operator])(cells, value), False)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)

    def __str__(self) -> str:
        return f"{_quote(self.name)} {self.operator} {_quote_value(self.value)}"


@dataclass(frozen=True)
class Constraint:
    """Comparisons that no row meets all together."""

    comparisons: tuple[ColumnComparison, ...]

    @property
    def names(self) -> frozenset[str]:
        """The columns that it is about."""
        return frozenset(comparison.name for comparison in self.comparisons)

    def find_violations(self, table: pa.Table) -> Mask:
        """Which rows of a table break the rule, because they meet all comparisons."""
        found = np.ones(table.num_rows, dtype=np.bool_)
        for comparison in self.comparisons:
            found &= comparison.evaluate(table[comparison.name])
        return found

    def is_satisfiable(self, name: str, column: Column) -> bool:
        """Whether some cell of a column meets all that the rule says about it."""
        said = [(one.operator, one.value) for one in self.comparisons if one.name == name]
        if ("=", None) in said:
            return all(each == ("=", None) for each in said)
        return column.can_satisfy((operator, value) for operator, value in said if value is not None)

    def rename(self, names: Mapping[str, str]) -> Constraint:
        """The same rule where columns have other names."""
        return Constraint(tuple(replace(one, name=names[one.name]) for one in self.comparisons))

    def __str__(self) -> str:
        return " and ".join(map(str, self.comparisons))


def find_violations(rules: Iterable[Constraint], table: pa.Table) -> Mask:
    """Which rows of a table break at least one of the rules."""
    found = np.zeros(table.num_rows, dtype=np.bool_)
    for rule in rules:
        found |= rule.find_violations(table)
    return found


def parse_constraints(texts: object, columns: Mapping[str, Column]) -> tuple[Constraint, ...]:
    """Rules from their texts, checked against the columns that they may name; an error shows the rule."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise SchemaError(
            f'impossible must be a list of texts such as "age < 16 and married = true", not {texts!r} [SC051]'
        )
    if len(texts) > MAX_CONSTRAINTS:
        raise SchemaError(f"impossible lists {len(texts)} rules of at most {MAX_CONSTRAINTS}; delete some [SC052]")
    return tuple(dict.fromkeys(_parse_constraint(text, columns) for text in texts))


def _parse_constraint(text: object, columns: Mapping[str, Column]) -> Constraint:
    if not isinstance(text, str) or len(text) > _LONGEST:
        said = f"{text!r}" if not isinstance(text, str) else f"one of {len(text)} characters"
        raise SchemaError(f"impossible: a rule is a text of at most {_LONGEST} characters, not {said} [SC053]")
    found, start, more = [], 0, True
    while more:
        match = _COMPARISON.match(text, start)
        if match is None:
            raise SchemaError(
                f"impossible: {text!r} cannot be read from {text[start:].strip()[:40]!r} on; write comparisons such as "
                "age < 16, joined by and, and put names and values with unusual characters in quotes [SC054]"
            )
        start, more = match.end(), match["more"] is not None
        try:
            found.append(_parse_comparison(match["name"], match["operator"], match["value"], columns))
        except SchemaError as error:
            raise SchemaError(f"impossible: {text!r}: {error} [SC055]") from None
    return Constraint(tuple(found))


def _parse_comparison(name: str, operator: str, value: str, columns: Mapping[str, Column]) -> ColumnComparison:
    name, said = _unquote(name), _unquote(value)
    if name not in columns:
        raise SchemaError(f"there is no column {name!r}{suggest_name(name, columns)} [SC056]")
    column = columns[name]
    if column.quantity is None and operator not in ("=", "!="):
        raise SchemaError(
            f"{name!r} is a {column.kind}, which can only be compared by = and !=, not by {operator} [SC057]"
        )
    if value == _MISSING and said not in column.labels:
        if not column.may_be_missing or operator not in ("=", "!="):
            raise SchemaError(
                'only a column with missing = "none" can be compared with missing, by = or !=; '
                f"{name!r} cannot here [SC058]"
            )
        return ColumnComparison(name, operator, None)
    return ColumnComparison(name, operator, column.constant(name, said))


def _unquote(text: str) -> str:
    return text[1:-1] if text[0] in "\"'" else text


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


def _quote_value(value: Value) -> str:
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Day):
        return value.isoformat()
    if isinstance(value, str):
        return f'"{value}"' if value == _MISSING else _quote(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2.0**53 else repr(value)
