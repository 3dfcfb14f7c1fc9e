"""One HTML file about a reproduction: a chart and a table for each part of a paper, side by side with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from colonnade.report.canvas import figure
from colonnade.report.curves import Line, Lines
from colonnade.report.markup import Html, table, tag
from colonnade.report.style import style
from colonnade.reproduce.results import NONE, PUBLISHED, Row, groups

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MOST_LINES = 7
_WIDE_RANGE = 30.0  # from here on a straight axis would show one line and hide the rest


def write_reproduction(path: Path, title: str, notes: Sequence[str], rows: Sequence[Row]) -> Path:
    """Write the page and return its path."""
    partial = path.with_suffix(".partial")
    partial.write_text(render_reproduction(title, notes, rows), encoding="utf-8")
    partial.replace(path)
    return path


def render_reproduction(title: str, notes: Sequence[str], rows: Sequence[Row]) -> str:
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
        tag("main", tag("section", tag("h2", "How to read this"), said), *sections),
        tag("footer", tag("p", "Written by Colonnade. This file is complete in itself and asks nothing of a network.")),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _section(key: str, rows: Sequence[Row]) -> Html:
    first = rows[0]
    heading = ", ".join(text for text in (first.part, first.data, first.setting) if text)
    return tag("section", tag("h2", f"{heading}: {first.measure}"), _chart(key, rows), _numbers(rows), id=key)


def _chart(key: str, rows: Sequence[Row]) -> Html | None:
    """Lines over the axis; what the paper prints about others than its own method stays in the table."""
    shown = [row for row in rows if row.promise != NONE and (row.promise != PUBLISHED or "functional" in row.method)]
    # Ours first: the first line is the bold one.
    methods = sorted(dict.fromkeys(row.method for row in shown), key=lambda name: not name.startswith("Colonnade"))
    places = {row.at for row in shown}
    if len(methods) < 2 or len(places) < 2 or min(places) <= 0:
        return None
    values = [row.mean for row in rows if row.mean > 0]
    steep = max(values, default=1.0) > _WIDE_RANGE * min(values, default=1.0)
    level: Callable[[float], float] = (lambda y: math.log10(max(y, 1e-300))) if steep else (lambda y: y)
    lines = [_line(method, shown, level, steep) for method in methods[:_MOST_LINES]]
    best = next((row for row in rows if row.promise == NONE), None)
    ceiling = (level(best.mean), best.method) if best else None
    written: Callable[[float], str] = (lambda y: f"{10**y:.2g}") if steep else (lambda y: f"{y:.4g}")
    chart = Lines(lines, ceiling, rows[0].axis, written)
    title = f"{rows[0].part}, {rows[0].data}: {rows[0].measure}"
    spoken = f"{len(lines)} methods over {rows[0].axis}; every number is in the table below."
    caption = "Bands are one deviation." if not steep else "The upright axis is logarithmic."
    return figure(key, lambda name, width: chart.draw(name, width, title=title, description=spoken), caption)


def _line(method: str, rows: Sequence[Row], level: Callable[[float], float], steep: bool) -> Line:
    own = sorted((row for row in rows if row.method == method), key=lambda row: row.at)
    return Line(method, [(row.at, level(row.mean), None if steep else row.deviation) for row in own])


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
