"""The charts of a reproduction: one for each group of rows, for a page or as one picture on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.report.canvas import WIDE
from colonnade.report.curves import Line, Lines
from colonnade.report.markup import Html, join, tag
from research.reproduce.results import NONE, PUBLISHED, Row, groups

_MOST_LINES = 7
_WIDE_RANGE = 30.0  # from here on a straight axis would show one line and hide the rest
_TALL, _HEADING, _GAP = 330, 30, 30
_COLOURS = ("#0b6e6e", "#c05621", "#5b4b9a", "#2f6db3", "#9a7b12", "#a83279", "#555d66")
_STYLE = """
text { fill: #1b1f24; font: 13px sans-serif } .dim { fill: #555d66 } .tiny { font-size: 12px }
.strong { font-weight: 600 } .end { text-anchor: end } .mid { text-anchor: middle }
.grid { stroke: #e7e4de } .axis { stroke: #555d66 } .ceiling { stroke: #1b1f24; stroke-dasharray: 7 5 }
""" + "".join(f".f{k} {{ fill: {c} }} .s{k} {{ stroke: {c} }} " for k, c in enumerate(_COLOURS))


@dataclass(frozen=True)
class Chart:
    """Lines over the axis of a group, and what to say about them."""

    lines: Lines
    title: str
    spoken: str
    caption: str

    def draw(self, key: str, width: int) -> Html:
        """The chart at one width."""
        return self.lines.draw(key, width, title=self.title, description=self.spoken)


def chart(rows: Sequence[Row]) -> Chart | None:
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
    first = rows[0]
    return Chart(
        Lines(lines, ceiling, first.axis, written),
        f"{first.part}, {first.data}: {first.measure}",
        f"{len(lines)} methods over {first.axis}; every number is in the table below.",
        "Bands are one deviation." if not steep else "The upright axis is logarithmic.",
    )


def _line(method: str, rows: Sequence[Row], level: Callable[[float], float], steep: bool) -> Line:
    own = sorted((row for row in rows if row.method == method), key=lambda row: row.at)
    return Line(method, [(row.at, level(row.mean), None if steep else row.deviation) for row in own])


def write_picture(path: Path, rows: Sequence[Row]) -> Path:
    """All charts, one below the other, as one SVG file."""
    path.write_text(picture(rows), encoding="utf-8")
    return path


def write_alone(path: Path, drawn: Html) -> Path:
    """One drawing as a file of its own."""
    styled = drawn.replace(">", f">\n<style>{_STYLE}</style>", 1)
    path.write_text(styled.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + "\n", encoding="utf-8")
    return path


def picture(rows: Sequence[Row]) -> str:
    """The same as text."""
    drawn: list[Html] = []
    height = 0
    for found in groups(rows):
        one = chart(found)
        if one is None:
            continue
        title = f"{one.title} ({found[0].setting})" if found[0].setting else one.title
        drawn.append(tag("text", title, x=0, y=height + 20, class_="strong"))
        inside = one.draw(f"chart{len(drawn)}", WIDE)
        place = f'<svg x="0" y="{height + _HEADING}" width="{WIDE}" height="{_TALL}"'
        drawn.append(Html(inside.replace("<svg", place, 1)))
        height += _HEADING + _TALL + _GAP
    wide, tall = WIDE + 20, max(height, 20)
    ground = tag("rect", x=-10, y=-10, width=wide, height=tall, fill="#fff")
    whole = join(tag("style", Html(_STYLE)), ground, *drawn, between="\n")
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {wide} {tall}">\n{whole}\n</svg>\n'
