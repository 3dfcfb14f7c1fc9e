"""A row of a privacy statement: what one observer can learn, and rows printed as a table.

Epsilon is rounded up, the neighbouring relation is always named, and an observer against whom nothing protects has its
own row, with the reason.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from colonnade.privacy.observers import Adjacency, Observer

PROVEN = "proven"
PUBLISHED = "as published, not proven"
NO_GUARANTEE = "no guarantee"
MISSING = "missing-noise"
_WIDTH = 108


@dataclass(frozen=True)
class Row:
    """What one observer can learn; ``others`` more observers are in exactly the same position.

    With ``missing`` it is what holds if so many owners besides the observer draw no noise. Of the parties, that row has
    the one that then learns most.
    """

    observer: Observer
    adjacency: Adjacency
    epsilon: float
    delta: float
    route: str
    theorem: str
    status: str
    reason: str = ""
    others: int = 0
    missing: int | None = None

    @property
    def who(self) -> str:
        """The observer as it is printed."""
        if self.missing is not None and self.observer.rank > Observer.coordinator().rank:
            return "any other party" if self.missing else "any party"
        return self.observer.short + (f" and {self.others} alike" if self.others else "")

    @property
    def condition(self) -> str:
        """Under what this row holds, beside what all rows assume; mostly empty."""
        if not self.missing:
            return "" if self.missing is None else "if every owner draws its noise"
        return "if 1 owner draws no noise" if self.missing == 1 else f"if {self.missing} owners draw no noise"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        content = {name: value for name, value in vars(self).items() if name != "missing" or value is not None}
        learned = None if math.isinf(self.epsilon) else self.epsilon
        return content | {
            "observer": self.observer.label,
            "adjacency": self.adjacency.value,
            "epsilon": learned,
        }


def as_text(rows: Sequence[Row], assumptions: Sequence[str]) -> str:
    """Rows as a table, what they rest on, and what they assume."""
    lines = []
    heads = ("observer", "cannot tell", "epsilon", "delta", "status")
    cells = [_cells(row) for row in rows]
    wide = [max(len(line[k]) for line in [heads, *cells]) for k in range(5)]
    wide[0] = min(wide[0], _WIDTH - sum(wide[1:]) - 8)
    conditions = ["", *(row.condition for row in rows)]
    for line, condition, before in zip([heads, *cells], conditions, ["", *conditions], strict=False):
        lines += [condition] * (condition != before)
        who = textwrap.shorten(line[0], wide[0], placeholder="...") if len(line[0]) > wide[0] else line[0]
        texts = (
            who.ljust(wide[0]),
            line[1].ljust(wide[1]),
            line[2].rjust(wide[2]),
            line[3].rjust(wide[3]),
        )
        lines.append("  ".join((*texts, line[4])).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    for text in _notes(rows):
        lines.extend(textwrap.wrap(text, _WIDTH, subsequent_indent="  "))
    lines.append("assumes")
    for text in assumptions:
        lines.extend(textwrap.wrap(f"- {text}", _WIDTH, subsequent_indent="  "))
    return "\n".join(lines)


def as_html(rows: Sequence[Row], assumptions: Sequence[str]) -> str:
    """The same for notebooks."""
    heads = ("observer", "cannot tell", "epsilon", "delta", "status", "rests on")
    texts = [(f"{row.who}, {row.condition}".removesuffix(", "), *_cells(row)[1:], _basis(row)) for row in rows]
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in texts)
    head = "".join(f"<th>{text}</th>" for text in heads)
    items = "".join(f"<li>{html.escape(text)}</li>" for text in assumptions)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>assumes</p><ul>{items}</ul>"


def rounded_up(epsilon: float, digits: int = 4) -> str:
    """Epsilon as text, never below the number it stands for."""
    if math.isinf(epsilon):
        return "inf"
    exact = Context(prec=400)  # enough for every float
    return str(Decimal(epsilon).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING, context=exact))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row.who, row.adjacency.value, rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _basis(row: Row) -> str:
    return row.reason or f"{row.theorem} ({row.route})"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Each reason and each basis once, with the observers it belongs to."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.missing is not None:
            if row.reason:
                groups.setdefault(row.reason, []).append(f"{row.who} {row.condition}")
            continue
        text = f"rests on {row.theorem} ({row.route})" if row.theorem else row.route
        text = _basis(row) if math.isinf(row.epsilon) else text
        groups.setdefault(text, []).append(row.who)
        if row.reason and not math.isinf(row.epsilon):
            groups.setdefault(row.reason, []).append(row.who)
    found = [f"{', '.join(who)}: {text}" for text, who in groups.items()]
    return [*found, *([f"rows with an if: rest on {MISSING} as well"] if any(row.missing for row in rows) else [])]
