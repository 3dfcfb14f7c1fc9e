"""Models, parties and federations as small pieces of HTML for notebooks; nothing in them is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from colonnade.privacy.statement import Statement, rounded_up

if TYPE_CHECKING:
    from colonnade.models.conventions import Conventions
    from colonnade.models.federation import Federation, Party

_LONGEST = 80
_MOST = 24
_BOX = "display:inline-block;border:1px solid;border-radius:4px;padding:0.3em 0.8em"


def model(found: Conventions) -> str:
    """A model: the parameters that differ from their defaults; for a fitted model also what it learned and its cost."""
    statement: Statement | None = getattr(found, "privacy_", None)
    parts = [_table((), _changed(found.get_params(), found.defaults()))]
    if statement is not None:
        rows = ((row.who, rounded_up(row.epsilon), repr(float(row.delta))) for row in statement.rows)
        parts += [f"<p>{escape(found.in_short)}</p>", _table(("observer", "epsilon", "delta"), rows)]
    return _box(type(found).__name__, "not fitted" if statement is None else "fitted", parts)


def party(found: Party) -> str:
    """A party: the columns that its public schema declares."""
    columns = [(name, column.kind) for name, column in found.schema.columns.items()]
    return _box(f"Party {found.name}", _columns(len(columns)), [_table(("column", "kind"), _few(columns))])


def federation(found: Federation) -> str:
    """A federation: the parties, how many columns each has, and who holds the shares; no data."""
    held = [(name, _columns(len(each.schema.names))) for name, each in found.parties.items()]
    trust, aligned = found.roster.trust, found.alignment is not None
    how = ("aligned, hidden" if found.roster.hidden else "aligned") if aligned else "not aligned"
    shares = f"committee {', '.join(trust.committee)}; threshold {trust.threshold}"
    return _box("Federation", how, [_table(("party", "columns"), _few(held)), f"<p>{escape(shares)}</p>"])


def _changed(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = ((name, _short(value)) for name, value in given.items() if repr(value) != repr(defaults[name]))
    return list(texts)


def _short(value: object) -> str:
    """A value as Python writes it; for a model its class, and for a long value its beginning."""
    text = type(value).__name__ if hasattr(value, "get_params") else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _few(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [*rows[:_MOST], *([(f"and {len(rows) - _MOST} more", "")] if len(rows) > _MOST else [])]


def _columns(count: int) -> str:
    return f"{count} column" + ("s" if count > 1 else "")


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>" if lines else ""


def _box(title: str, state: str, parts: Iterable[str]) -> str:
    summary = f"<summary><strong>{escape(title)}</strong> <em>{escape(state)}</em></summary>"
    return f'<div style="{_BOX}"><details open>{summary}{"".join(parts)}</details></div>'
