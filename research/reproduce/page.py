"""One HTML file about a reproduction: a chart and a table for each part of a paper, side by side with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.drawing.canvas import Html, figure, table, tag
from colonnade.report.page import style
from research.reproduce.charts import chart
from research.reproduce.results import NONE, PUBLISHED, Row, groups

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

Cells = tuple[str, str, str]
"""A requirement, what was found, and whether that is enough."""


def write_reproduction(
    path: Path, title: str, notes: Sequence[str], rows: Sequence[Row], required: Sequence[Cells] = ()
) -> Path:
    """Write the page and return its path."""
    partial = path.with_suffix(".partial")
    partial.write_text(render_reproduction(title, notes, rows, required), encoding="utf-8")
    partial.replace(path)
    return path


def render_reproduction(title: str, notes: Sequence[str], rows: Sequence[Row], required: Sequence[Cells] = ()) -> str:
    """The reproduction as one HTML document."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style())),
    )
    said = tag("ul", *(tag("li", note) for note in notes))
    sections = [_section(f"part{index}", found) for index, found in enumerate(groups(rows))]
    body = tag(
        "body",
        tag("header", tag("div", "Colonnade · reproduction", class_="brand"), tag("h1", title)),
        tag("main", tag("section", tag("h2", "How to read this"), said), _required(required), *sections),
        tag("footer", tag("p", "Written by Colonnade. This file is complete in itself and asks nothing of a network.")),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _required(cells: Sequence[Cells]) -> Html | None:
    if not cells:
        return None
    numbers = table(("Requirement", "Found", "Kept"), cells, caption="Means over the runs.", numeric=(1,))
    return tag("section", tag("h2", "What is asked of it"), numbers, id="required")


def _section(key: str, rows: Sequence[Row]) -> Html:
    first = rows[0]
    heading = ", ".join(text for text in (first.part, first.data, first.setting) if text)
    drawn = chart(rows)
    shown = figure(key, drawn) if drawn else None
    return tag("section", tag("h2", f"{heading}: {first.measure}"), shown, _numbers(rows), id=key)


def _numbers(rows: Sequence[Row]) -> Html:
    first = rows[0]
    places = sorted({row.at for row in rows})
    cells = {(row.method, row.promise, row.at): row.text for row in rows}
    lines = [
        (method, promise, *(cells.get((method, promise, place), "") for place in places))
        for method, promise in dict.fromkeys((row.method, row.promise) for row in rows)
    ]
    runs = sorted({row.runs for row in rows if row.promise not in (PUBLISHED, NONE)})
    heads = ("Method", "Promise", *(f"{place:g}" for place in places))
    often = " or ".join(map(str, runs)) or "the printed"
    caption = f"{first.measure} at each {first.axis}; mean and deviation of {often} runs."
    return table(heads, lines, caption=caption, numeric=range(2, len(heads)))
