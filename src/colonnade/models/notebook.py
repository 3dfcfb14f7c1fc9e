"""Models, parties and federations as small pieces of HTML for notebooks; nothing in them is fetched from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from colonnade.drawing.canvas import Html, join, tag
from colonnade.privacy import Statement, Trust
from colonnade.privacy.statement import format_rounded_up
from colonnade.tables import Schema

_LONGEST = 80
_MOST = 24
_BOX = "display:inline-block;border:1px solid;border-radius:4px;padding:0.3em 0.8em"


def model_html(
    name: str,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    learned: tuple[Sequence[str], Statement] | None,
) -> str:
    """A model: the parameters that differ from their defaults; of a fitted one what it learned, and who learns what."""
    texts = [(key, _short(value)) for key, value in given.items() if repr(value) != repr(defaults[key])]
    if learned is None:
        return _box(name, "not fitted", _table((), texts))
    lines, found = learned
    rows = ((row.who, _epsilon(row.epsilon), repr(float(row.delta)), row.status) for row in found.rows)
    costs = _table(("observer", "epsilon", "delta", "status"), rows)
    return _box(name, "fitted", _table((), texts), *(tag("p", line) for line in lines), costs)


def party_html(name: str, schema: Schema) -> str:
    """A party: the columns that its public schema declares."""
    columns = [(column, declared.kind) for column, declared in schema.columns.items()]
    state = f"{len(columns)} column" + ("s" if len(columns) > 1 else "")
    return _box(f"Party {name}", state, _table(("column", "kind"), _few(columns)))


def federation_html(schemas: Mapping[str, Schema], trust: Trust, alignment: str) -> str:
    """A federation: the parties, how many columns each has, and who holds the shares; no data."""
    held = [(name, str(len(schema.names))) for name, schema in schemas.items()]
    shares = f"committee {', '.join(trust.committee)}; threshold {trust.threshold}"
    return _box("Federation", alignment, _table(("party", "columns"), _few(held)), tag("p", shares))


def _epsilon(value: float) -> str:
    return "no promise" if math.isinf(value) else format_rounded_up(value)


def _short(value: object) -> str:
    """A value as Python writes it; for a model its class, and for a long value its beginning."""
    text = type(value).__name__ if hasattr(value, "get_params") else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _few(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*rows[:_MOST], *([(f"and {len(rows) - _MOST} more", "")] if len(rows) > _MOST else [])]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    lines = [tag("tr", *(tag("td", text) for text in row)) for row in rows]
    head = tag("thead", tag("tr", *(tag("th", text) for text in heads))) if heads else None
    return tag("table", head, tag("tbody", *lines)) if lines else join()


def _box(title: str, state: str, *parts: Html) -> str:
    summary = tag("summary", tag("strong", title), " ", tag("em", state))
    return tag("div", tag("details", summary, *parts, open=""), style=_BOX)
