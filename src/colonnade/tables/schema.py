"""The public description of one party's table, the bounds that follow from it, and its TOML file.

Constraints are rules such as ``marital = married and age < 16`` that no row of a made-up table may meet.

A rule is one or more comparisons of a column with a value, joined by ``and``. Numbers are compared by ``=``, ``!=``,
``<``, ``<=``, ``>`` and ``>=``, and so are days, written as 2015-01-31; categories and flags (``true``, ``false``) by
the first two. ``missing`` stands for a missing cell where the schema says ``missing = "none"``; otherwise a missing
cell meets no comparison. Names and values with other characters than letters, digits, blanks and ``_ . - + / %``, or
with the word ``and``, stand in quotes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from colonnade.disk import reading, writing
from colonnade.errors import SchemaError, StorageError
from colonnade.tables import cell_parsing
from colonnade.tables.bins import list_words
from colonnade.tables.cell_parsing import (
    AS_USUAL,
    FORMAT_KEYS as TEXT_KEYS,
    Mask,
    TextFormat,
    itemise,
    pa,
    pc,
    suggest_name,
)
from colonnade.tables.columns import Column, Field, category, flag, number
from colonnade.tables.dates import ColumnSpec, Date, Day, date

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


DRAFT_MARK = "drafted"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
COLUMN_TYPES: dict[str, Callable[..., ColumnSpec]] = {
    "number": number,
    "category": category,
    "flag": flag,
    "date": date,
}
"""What makes a column, by the word after ``type =``; the keys of its section are the parameters."""
_KEYS = {"first": "from", "last": "until", "parts": "as"}  # those of parameters that are called otherwise
_EXACT_INTEGERS = 2.0**53


def parse_schema(content: str, file: str, *, drafts: bool = False) -> dict[str, Any]:
    """What TOML text says of a schema, by the parameters of :class:`Schema`, which checks it further.

    ``file`` is named in errors, and ``drafts`` allows columns with the mark of a draft.
    """
    try:
        document = reading.parse_toml(content)
    except reading.MalformedFile as error:
        raise SchemaError(f"{file}: this is not valid TOML: {error} [SC076]") from None
    _check_keys(document, ("table", "columns"), file)
    table = _check_section(document.get("table", {}), f"{file}: [table]")
    _check_keys(table, ("description", "clip", "impossible", *TEXT_KEYS), f"{file}: [table]")
    description = table.get("description", "")
    if not isinstance(description, str):
        raise SchemaError(f"{file}: [table]: description must be a text [SC077]")
    columns = _check_section(document.get("columns", {}), f"{file}: [columns]")
    if not columns:
        raise SchemaError(f"{file}: no column is declared; add a section such as [columns.age] [SC078]")
    if not drafts:
        _refuse_drafts(columns, file)
    return {
        "columns": {name: _parse_column(entry, f"{file}: column {name!r}") for name, entry in columns.items()},
        "clip": table.get("clip"),
        "description": description,
        "impossible": table.get("impossible", []),
        **{key: table[key] for key in TEXT_KEYS if key in table},
    }


def dump_schema(
    columns: Mapping[str, Column], clip: float | None, said: Mapping[str, str], impossible: list[str]
) -> str:
    """TOML for a schema; ``said`` are further keys of its table."""
    head: dict[str, Field] = dict(said)
    if clip is not None:
        head["clip"] = clip
    if impossible:
        head["impossible"] = impossible
    sections = [dump_section("table", head)] if head else []
    sections += [dump_section(f"columns.{quote_key(name)}", column.fields()) for name, column in columns.items()]
    return "\n".join(sections)


def dump_section(title: str, fields: Mapping[str, Field], comments: Iterable[str] = ()) -> str:
    """One TOML section, comments first."""
    lines = [f"[{title}]", *(f"# {comment}" for comment in comments)]
    lines += [f"{name} = {dump_value(value)}" for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def quote_key(name: str) -> str:
    """A TOML key, quoted where it has to be."""
    return name if _BARE_KEY.fullmatch(name) else dump_value(name)


def dump_value(value: Field) -> str:
    """A TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(dump_value(entry) for entry in value) + "]"
    if isinstance(value, str):
        # TOML has the escapes of JSON, and also requires one for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    whole = float(value).is_integer() and abs(value) < _EXACT_INTEGERS
    return str(int(value)) if whole else repr(float(value))


def _parse_column(entry: object, where: str) -> ColumnSpec:
    fields = dict(_check_section(entry, where))
    fields.pop(DRAFT_MARK, None)
    kind = fields.pop("type", None)
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        hint = suggest_name(kind, COLUMN_TYPES) if isinstance(kind, str) else ""
        raise SchemaError(f"{where}: type must be one of {list_words(list(COLUMN_TYPES))}{hint} [SC079]")
    make = COLUMN_TYPES[kind]
    keys = {_KEYS.get(name, name): parameter for name, parameter in signature(make).parameters.items()}
    _check_keys(fields, keys, where)
    if lacking := [
        name for name, parameter in keys.items() if parameter.default is Parameter.empty and name not in fields
    ]:
        raise SchemaError(f"{where}: {' and '.join(lacking)} must be given for type = {kind!r} [SC080]")
    try:
        return make(**{keys[name].name: value for name, value in fields.items()})
    except SchemaError as error:
        raise SchemaError(f"{where}: {error} [SC081]") from None


def _refuse_drafts(columns: Mapping[str, Any], file: str) -> None:
    drafted = [name for name, entry in columns.items() if isinstance(entry, dict) and entry.get(DRAFT_MARK)]
    if drafted:
        raise SchemaError(
            f"{file}: {itemise(drafted)}: bounds or values were taken from the data; replace them by ones "
            f"that everybody may know, and delete the line `{DRAFT_MARK} = true` [SC084]"
        )


def _check_section(entry: object, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise SchemaError(f"{where} must be a TOML section, not a single value [SC085]")
    return entry


def _check_keys(found: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    choices = (*known, "type", DRAFT_MARK) if "missing" in known else tuple(known)
    for name in found:
        if name not in choices:
            hint = suggest_name(name, choices) or f"; the keys are {itemise(choices)}"
            raise SchemaError(f"{where}: unknown key {name!r}{hint} [SC086]")


MAX_COLUMNS = 100_000


class Schema:
    """What each column of one party's table may hold, in the order in which the columns are encoded.

    ``clip`` bounds the L2 norm of an encoded row: longer rows are scaled down to it. If it is not given, it is the
    largest norm that the columns allow. ``impossible`` are rules about the columns that no made-up row may meet
    (:mod:`~colonnade.tables.schema`). ``separator``, ``encoding``, ``decimal`` and ``thousands`` say how a
    CSV file is written, if not with commas, in UTF-8, with decimal points and no sign between thousands. A column of
    dates may become several columns (:func:`~colonnade.tables.dates.date`). A schema is a value: it never changes
    after it is made.

    Two schemas are equal if their encoded numbers mean the same and come from the same columns, even if the files are
    written otherwise. The digests of those differ: another sign or format makes another number of the same cell.
    """

    text: TextFormat
    """How the party's file is written: as the party says, and else as the schema says."""

    def __init__(
        self,
        columns: Mapping[str, ColumnSpec],
        *,
        clip: float | None = None,
        description: str = "",
        impossible: Sequence[str] = (),
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
    ) -> None:
        for name, declared in columns.items():
            if not isinstance(declared, Column | Date):
                raise SchemaError(f"column {name!r}: make it with number(), category(), flag() or date() [SC068]")
        self._columns = _expand_dates(columns)
        self.text = self._declared = TextFormat(separator, encoding, decimal, thousands)
        self._own = AS_USUAL
        self._given_clip = None if clip is None else _check_clip(clip)
        self.description = description
        if not self._columns:
            raise SchemaError("a schema needs at least one column [SC065]")
        if len(self._columns) > MAX_COLUMNS:
            raise SchemaError(f"a schema holds at most {MAX_COLUMNS} columns, not {len(self._columns)} [SC066]")
        for name in self._columns:
            if not isinstance(name, str) or not name or not name.isprintable():
                raise SchemaError(f"{name!r} cannot name a column; use a text of printable characters [SC067]")
        if len(set(self.encoded_names)) < len(self.encoded_names):
            twice = sorted(name for name in set(self.encoded_names) if self.encoded_names.count(name) > 1)
            raise SchemaError(f"two encoded columns would both be called {twice[0]!r}; rename one column [SC069]")
        self.impossible = parse_constraints(impossible, self._columns)

    @classmethod
    def load(cls, path: str | Path, *, drafts: bool = False) -> Schema:
        """Read a schema from a TOML file; the error names the file, the column and what to do.

        ``drafts``: also one with bounds that were taken from data, for a trial.
        """
        try:
            text = reading.read_text(Path(path))
        except reading.UnreadableFile as error:
            if error.missing:
                raise SchemaError(
                    f"{path}: there is no such file; `colonnade schema draft` writes one to review [SC074]"
                ) from None
            raise SchemaError(f"{path}: the schema cannot be read: {error} [SC075]") from None
        return cls.from_toml(text, name=str(path), drafts=drafts)

    @classmethod
    def from_toml(cls, text: str, *, name: str = "schema", drafts: bool = False) -> Schema:
        """A schema from TOML text; ``name`` stands for the file in errors, ``drafts`` is as for :meth:`load`."""
        try:
            return cls(**parse_schema(text, name, drafts=drafts))
        except SchemaError as error:
            said = str(error) if str(error).startswith(f"{name}: ") else f"{name}: {error} [SC070]"
            raise SchemaError(reading.shorten(said)) from None

    def save(self, path: str | Path) -> Path:
        """Write the schema as TOML, as a whole or not at all, and return the path."""
        target = Path(path)
        try:
            writing.write_files({target: self.to_toml().encode()})
        except OSError as error:
            raise StorageError(f"{target} cannot be written: {error.strerror} [SO043]") from None
        return target

    def to_toml(self) -> str:
        """The schema as TOML; reading it back gives an equal schema."""
        head = {"description": self.description} if self.description else {}
        return dump_schema(
            self._columns, self._given_clip, head | self._declared.stated, list(map(str, self.impossible))
        )

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name, in the schema's order."""
        return MappingProxyType(self._columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in the schema's order."""
        return tuple(self._columns)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The columns of a party's file that are read; several columns of the schema may come from one date."""
        return tuple(dict.fromkeys(column.source(name) for name, column in self._columns.items()))

    @cached_property
    def encoded_names(self) -> tuple[str, ...]:
        """A name for each encoded column, such as ``age`` or ``city=Utrecht``."""
        return tuple(name + part for name, column in self._columns.items() for part in column.parts)

    @property
    def encoded_width(self) -> int:
        """How many encoded columns there are."""
        return len(self.encoded_names)

    @cached_property
    def encoded_slices(self) -> Mapping[str, slice]:
        """Which encoded columns belong to which column."""
        found, start = {}, 0
        for name, column in self._columns.items():
            found[name] = slice(start, start + len(column.parts))
            start = found[name].stop
        return found

    @cached_property
    def max_norm(self) -> float:
        """An upper bound on the L2 norm of any encoded row before clipping.

        Every column adds at most 1 to the square: numbers lie in [-1, 1], flags and one-hot categories in
        {0, 1}. The square root is rounded up, so it bounds the true norm and not only the rounded one.
        """
        count = len(self._columns)
        root = math.sqrt(count)
        return root if Fraction(root) ** 2 >= count else math.nextafter(root, math.inf)

    @property
    def clip(self) -> float:
        """The bound that the encoder keeps on a row's norm: the given clip, or ``max_norm`` if that is smaller."""
        return self.max_norm if self._given_clip is None else min(self._given_clip, self.max_norm)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that the schema says of which cells are read and what becomes of them, and of its rules.

        Only what a party says of its own file is no part of it (:meth:`written`).
        """
        written = [self._declared.stated] if self._declared.stated else []
        return hashlib.sha256(self._canonical(written).encode()).hexdigest()

    @cached_property
    def _meaning(self) -> str:
        """What decides the meaning of the encoded numbers."""
        return self._canonical([], unsaid="format")

    def _canonical(self, further: list[Any], unsaid: str = "") -> str:
        columns = [[name, _fields(column, unsaid)] for name, column in self._columns.items()]
        rules = [list(map(str, self.impossible))] if self.impossible else []
        content = ["colonnade schema 1", self.clip, columns, *rules, *further]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    def select(self, columns: Iterable[str]) -> Schema:
        """The schema of some of the columns, in the order of this schema, with its clip and the rules about them.

        The name of a date that became several columns stands for all of them.
        """
        return self._of(self._named(columns), self._given_clip)

    def without(self, columns: Iterable[str]) -> Schema:
        """The schema of all columns except these."""
        dropped = self._named(columns)
        return self._of({name for name in self._columns if name not in dropped}, self._given_clip)

    def with_clip(self, clip: float | None) -> Schema:
        """The same columns under another row clip."""
        return self._of(set(self._columns), clip)

    def with_text_format(self, text: TextFormat) -> Schema:
        """The same schema, of the same digest, for a party whose file is written otherwise, where ``text`` says so."""
        if not text.stated:
            return self
        found = self.with_clip(self._given_clip)
        found._own = text.merge_over(self._own)
        found.text = found._own.merge_over(self._declared)
        return found

    def decoded_schema(self) -> Schema:
        """The schema of a table made from encoded rows or codes: each column has its own cells there."""
        plain = {name: column.decoded_column() for name, column in self._columns.items()}
        rules = list(map(str, self.impossible))
        return Schema(plain, clip=self._given_clip, description=self.description, impossible=rules)

    def require(self, columns: Iterable[str]) -> None:
        """Raise unless the schema declares all of these columns."""
        for name in columns:
            if name not in self._columns:
                raise SchemaError(f"the schema has no column {name!r}{suggest_name(name, self._columns)} [SC071]")

    def _named(self, columns: Iterable[str]) -> set[str]:
        """The columns of these names, and those that become of dates of these names; raises if there is none."""
        found: set[str] = set()
        for wanted in {columns} if isinstance(columns, str) else set(columns):
            parts = {name for name, column in self._columns.items() if column.section(name) == wanted}
            if wanted in self._columns or not parts:
                self.require([wanted])
                parts = {wanted}
            found |= parts
        return found

    def _of(self, names: set[str], clip: float | None) -> Schema:
        kept = {name: column for name, column in self._columns.items() if name in names}
        rules = [str(rule) for rule in self.impossible if rule.names <= names]
        said = self._declared.stated
        found = Schema(kept, clip=clip, description=self.description, impossible=rules, **said)
        found._own, found.text = self._own, self.text
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._meaning == other._meaning

    def __hash__(self) -> int:
        return hash(self._meaning)

    def __repr__(self) -> str:
        return f"<Schema: {len(self._columns)} columns, {self.encoded_width} encoded, clip {self.clip:g}>"


def _expand_dates(columns: Mapping[str, ColumnSpec]) -> dict[str, Column]:
    """The columns, each date as what it is encoded to."""
    found: dict[str, Column] = {}
    for name, declared in columns.items():
        for own, column in declared.columns(name).items():
            if own in found or (own != name and own in columns):
                raise SchemaError(f"two columns would both be called {own!r}; rename one of them [SC072]")
            found[own] = column
    return found


def _fields(column: Column, unsaid: str) -> dict[str, Any]:
    """What a schema says of a column, but for one key."""
    return {key: value for key, value in column.fields().items() if key != unsaid} | {"missing": column.missing}


def _check_clip(clip: float) -> float:
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip < math.inf:
        raise SchemaError(f"clip must be a positive finite number, not {clip!r} [SC073]")
    return float(clip)
