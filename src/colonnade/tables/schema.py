"""The public description of one party's table, the bounds that follow from it, and its TOML file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

from colonnade.disk import reading, writing
from colonnade.errors import SchemaError, StorageError
from colonnade.tables.bins import list_words
from colonnade.tables.cell_parsing import AS_USUAL, FORMAT_KEYS as TEXT_KEYS, TextFormat, itemise, suggest_name
from colonnade.tables.columns import Column, Field, category, flag, number
from colonnade.tables.constraints import parse_constraints
from colonnade.tables.dates import ColumnSpec, Date, date

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
    (:mod:`~colonnade.tables.constraints`). ``separator``, ``encoding``, ``decimal`` and ``thousands`` say how a
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
