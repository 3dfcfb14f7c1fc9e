"""Schemas on disk: reading TOML with helpful errors, and writing it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import SchemaError
from colonnade.tables.columns import Column, Field, category, flag, number
from colonnade.tables.dates import Declared, date
from colonnade.tables.formats import KEYS as TEXT_KEYS, TextFormat
from colonnade.tables.quantities import list_words
from colonnade.tables.wording import listed, suggestion


@dataclass(frozen=True)
class Parsed:
    """What a file says of a schema."""

    columns: dict[str, Declared]
    clip: float | None
    description: str
    impossible: object
    text: dict[str, str]


DRAFTED = "drafted"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
COLUMN_TYPES: dict[str, Callable[..., Declared]] = {"number": number, "category": category, "flag": flag, "date": date}
"""What makes a column, by the word after ``type =``; the keys of its section are the parameters."""
_KEYS = {"first": "from", "last": "until", "parts": "as"}  # those of parameters that are called otherwise
_EXACT_INTEGERS = 2.0**53


def read(path: Path) -> str:
    """The text of a file with a schema."""
    try:
        return reading.read_text(path)
    except reading.Unreadable as error:
        if error.missing:
            raise SchemaError(
                f"{path}: there is no such file; `colonnade schema draft` writes one to review [SC074]"
            ) from None
        raise SchemaError(f"{path}: the schema cannot be read: {error} [SC075]") from None


def parse(content: str, file: str, *, drafts: bool = False) -> Parsed:
    """What TOML text says of a schema; ``file`` is named in errors, and ``drafts`` allows columns with that mark."""
    try:
        document = reading.toml_of(content)
    except reading.Malformed as error:
        raise SchemaError(f"{file}: this is not valid TOML: {error} [SC076]") from None
    _check_keys(document, ("table", "columns"), file)
    table = _section(document.get("table", {}), f"{file}: [table]")
    _check_keys(table, ("description", "clip", "impossible", *TEXT_KEYS), f"{file}: [table]")
    description = table.get("description", "")
    if not isinstance(description, str):
        raise SchemaError(f"{file}: [table]: description must be a text [SC077]")
    columns = _section(document.get("columns", {}), f"{file}: [columns]")
    if not columns:
        raise SchemaError(f"{file}: no column is declared; add a section such as [columns.age] [SC078]")
    if not drafts:
        _refuse_drafts(columns, file)
    return Parsed(
        {name: _column(entry, f"{file}: column {name!r}") for name, entry in columns.items()},
        _clip(table.get("clip"), file),
        description,
        table.get("impossible", []),
        _text_format(table, file),
    )


def text(columns: Mapping[str, Column], clip: float | None, said: Mapping[str, str], impossible: list[str]) -> str:
    """TOML for a schema; ``said`` are further keys of its table."""
    head: dict[str, Field] = dict(said)
    if clip is not None:
        head["clip"] = clip
    if impossible:
        head["impossible"] = impossible
    sections = [section("table", head)] if head else []
    sections += [section(f"columns.{key(name)}", column.fields()) for name, column in columns.items()]
    return "\n".join(sections)


def section(title: str, fields: Mapping[str, Field], comments: Iterable[str] = ()) -> str:
    """One TOML section, comments first."""
    lines = [f"[{title}]", *(f"# {comment}" for comment in comments)]
    lines += [f"{name} = {literal(value)}" for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def key(name: str) -> str:
    """A TOML key, quoted where it has to be."""
    return name if _BARE_KEY.fullmatch(name) else literal(name)


def literal(value: Field) -> str:
    """A TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(literal(entry) for entry in value) + "]"
    if isinstance(value, str):
        # TOML has the escapes of JSON, and also requires one for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    whole = float(value).is_integer() and abs(value) < _EXACT_INTEGERS
    return str(int(value)) if whole else repr(float(value))


def _column(entry: object, where: str) -> Declared:
    fields = dict(_section(entry, where))
    fields.pop(DRAFTED, None)
    kind = fields.pop("type", None)
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        hint = suggestion(kind, COLUMN_TYPES) if isinstance(kind, str) else ""
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


def _clip(value: object, file: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{file}: [table]: clip must be a number, not {value!r} [SC082]")
    return float(value)


def _text_format(table: Mapping[str, Any], file: str) -> dict[str, str]:
    try:
        return TextFormat(**{key: table[key] for key in TEXT_KEYS if key in table}).stated
    except SchemaError as error:
        raise SchemaError(f"{file}: [table]: {error} [SC083]") from None


def _refuse_drafts(columns: Mapping[str, Any], file: str) -> None:
    drafted = [name for name, entry in columns.items() if isinstance(entry, dict) and entry.get(DRAFTED)]
    if drafted:
        raise SchemaError(
            f"{file}: {listed(drafted)}: bounds or values were taken from the data; replace them by ones "
            f"that everybody may know, and delete the line `{DRAFTED} = true` [SC084]"
        )


def _section(entry: object, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise SchemaError(f"{where} must be a TOML section, not a single value [SC085]")
    return entry


def _check_keys(found: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    choices = (*known, "type", DRAFTED) if "missing" in known else tuple(known)
    for name in found:
        if name not in choices:
            hint = suggestion(name, choices) or f"; the keys are {listed(choices)}"
            raise SchemaError(f"{where}: unknown key {name!r}{hint} [SC086]")
