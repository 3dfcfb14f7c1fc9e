"""Models, parties and federations as small pieces of HTML for notebooks; nothing in them is fetched from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escaped
from typing import Any

from colonnade.privacy import Statement, Trust
from colonnade.privacy.statement import format_rounded_up
from colonnade.sanitize import sanitize
from colonnade.tables import Schema

_LONGEST = 80
_MOST = 24
_BOX = "display:inline-block;border:1px solid;border-radius:4px;padding:0.3em 0.8em"


def model_html(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """A model that is not fitted: the parameters that differ from their defaults."""
    return _box(name, "not fitted", [_table((), _changed(given, defaults))])


def fitted_html(
    name: str, given: Mapping[str, Any], defaults: Mapping[str, Any], learned: Sequence[str], found: Statement
) -> str:
    """A fitted model: its parameters, what it learned in some lines, and what each observer can learn."""
    rows = ((row.who, _epsilon(row.epsilon), repr(float(row.delta)), row.status) for row in found.rows)
    costs = _table(("observer", "epsilon", "delta", "status"), rows)
    lines = [f"<p>{escape(line)}</p>" for line in learned]
    return _box(name, "fitted", [_table((), _changed(given, defaults)), *lines, costs])


def party_html(name: str, schema: Schema) -> str:
    """A party: the columns that its public schema declares."""
    columns = [(column, declared.kind) for column, declared in schema.columns.items()]
    return _box(f"Party {name}", _counted(len(columns)), [_table(("column", "kind"), _few(columns))])


def federation_html(schemas: Mapping[str, Schema], trust: Trust, alignment: str) -> str:
    """A federation: the parties, how many columns each has, and who holds the shares; no data."""
    held = [(name, str(len(schema.names))) for name, schema in schemas.items()]
    shares = f"committee {', '.join(trust.committee)}; threshold {trust.threshold}"
    return _box("Federation", alignment, [_table(("party", "columns"), _few(held)), f"<p>{escape(shares)}</p>"])


def _epsilon(value: float) -> str:
    return "no promise" if math.isinf(value) else format_rounded_up(value)


def _changed(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = ((name, _short(value)) for name, value in given.items() if repr(value) != repr(defaults[name]))
    return list(texts)


def _short(value: object) -> str:
    """A value as Python writes it; for a model its class, and for a long value its beginning."""
    text = type(value).__name__ if hasattr(value, "get_params") else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _few(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*rows[:_MOST], *([(f"and {len(rows) - _MOST} more", "")] if len(rows) > _MOST else [])]


def _counted(count: int) -> str:
    return f"{count} column" + ("s" if count > 1 else "")


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>" if lines else ""


def _box(title: str, state: str, parts: Iterable[str]) -> str:
    summary = f"<summary><strong>{escape(title)}</strong> <em>{escape(state)}</em></summary>"
    return f'<div style="{_BOX}"><details open>{summary}{"".join(parts)}</details></div>'


def escape(text: str) -> str:
    """Markup that shows any text, also one that another wrote."""
    return escaped(sanitize(text))
