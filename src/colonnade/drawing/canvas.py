"""What every chart is made with: text that is measured and wrapped, ticks, a frame; and pictures for notebooks.

HTML is made of values: all text is escaped when it is put into an element, so it cannot become markup.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from colonnade.sanitize import replace_invisible, sanitize

_LONGEST = 4000
_VOID = frozenset({"meta", "wbr"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Markup that shows any text."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(sanitize(text, _LONGEST, keep="\n\r\t")))


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """One element; ``class_`` and ``data_label`` become class and data-label, an attribute of ``None`` is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*inside)}</{name}>")


def join(*parts: object, between: str = "") -> Html:
    """Several parts as one piece of markup; parts that are ``None`` are left out."""
    return Html(between.join(escape(part) for part in parts if part is not None))


def breakable(text: str, after: str = "/+") -> Html:
    """A long name, which a browser may break after any of these characters."""
    return join(*re.split(f"(?<=[{after}])", text), between=tag("wbr"))


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    numeric: Iterable[int] = (),
    marks: Sequence[str] = (),
    look: str | None = None,
) -> Html:
    """A table whose first column names the row; on a phone each row becomes a card (roles keep it a table).

    ``numeric`` columns are set to the right; ``marks`` are classes of the rows, in their order.
    """
    right = frozenset(numeric)
    head = [_cell("th", "columnheader", text, k in right, scope="col") for k, text in enumerate(heads)]
    body = []
    for index, row in enumerate(rows):
        first = _cell("th", "rowheader", row[0], False, scope="row")
        rest = [_cell("td", "cell", cell, k in right, data_label=str(heads[k])) for k, cell in enumerate(row) if k]
        mark = marks[index] if index < len(marks) and marks[index] else None
        body.append(tag("tr", first, *rest, role="row", class_=mark))
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        role="table",
        class_=look,
    )


def named_values(pairs: Iterable[tuple[str, object]]) -> Html | None:
    """A list of names, each with its value; one without a value is left out, and None is returned where all are."""
    listed = [join(tag("dt", name), tag("dd", value)) for name, value in pairs if value not in (None, "")]
    return tag("dl", *listed, class_="facts") if listed else None


def _cell(name: str, role: str, inside: object, right: bool, **more: object) -> Html:
    return tag(name, inside, role=role, class_="n" if right else None, **more)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{round(value, 2):g}"
    if isinstance(value, Html):
        return value
    return html.escape(replace_invisible(str(value), keep="\n\r\t"))  # not cut: it may be the path of a curve


WIDE, NARROW = 880, 330
LINE = 17
COLOURS = 8
"""Colours that colour-blind readers tell apart (after Okabe and Ito); the last one is grey, for the rest."""
_EM = 13.0
_ALONE = (720, 440, 300)  # the width of a chart of a picture, where one, two or three stand beside each other
_GAP = 28.0
_BREAKS = re.compile(r"(?<=[\s_.,:;/=+-])")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn, as plain values; ``note`` stands below, and ``spoken`` is what a screen reader says instead."""

    title: str
    note: str = ""
    description: str = ""

    def body(self, key: str, width: int) -> tuple[list[Html | None], float]:
        """The elements at one width, and how tall they are together; ids begin with ``key``."""
        raise NotImplementedError

    def describe(self) -> str:
        """What is drawn, in words."""
        return ""

    def draw(self, key: str, width: int) -> Html:
        """The svg element, with the text that a screen reader says instead of it."""
        inside, height = self.body(key, width)
        return tag(
            "svg",
            tag("title", self.title, id=f"{key}-title"),
            tag("desc", self.description or self.describe(), id=f"{key}-desc"),
            *inside,
            class_="chart",
            role="img",
            viewBox=f"0 0 {width} {math.ceil(height)}",
            aria_labelledby=f"{key}-title {key}-desc",
        )


def figure(key: str, chart: Chart, caption: object = None) -> Html:
    """A chart on a page, drawn for a wide screen and for a phone; the style sheet shows the one that fits."""
    drawn = [tag("div", chart.draw(f"{key}-{name}", width), class_=name) for name, width in _WIDTHS]
    below = caption or chart.note
    return tag("figure", *drawn, tag("figcaption", below) if below else None)


_WIDTHS = (("wide", WIDE), ("narrow", NARROW))


@dataclass(frozen=True)
class Picture:
    """Charts on their own, so many beside each other, as a notebook shows them; ``note`` stands below them all."""

    charts: Sequence[Chart]
    across: int = 1
    note: str = ""

    @property
    def svg(self) -> str:
        """One SVG document that is complete in itself."""
        wide = _ALONE[min(self.across, len(_ALONE)) - 1]
        whole = int(self.across * (wide + _GAP) - _GAP)
        parts: list[Html] = []
        y = 0.0
        for start in range(0, len(self.charts), self.across):
            row = [
                _draw_with_title(chart, f"chart{start + place}", place * (wide + _GAP), y, wide)
                for place, chart in enumerate(self.charts[start : start + self.across])
            ]
            parts += [drawn for drawn, _ in row]
            y += max(height for _, height in row) + _GAP
        for line in wrap(self.note, whole) if self.note else []:
            parts.append(write(0, y, line, "dim tiny"))
            y += LINE
        width, height = whole + 32, math.ceil(y) + 16
        ground = tag("rect", x=-16, y=-16, width=width, height=height, class_="plate")
        style = chart_style().replace(":root", "svg.colonnade")
        return tag(
            "svg",
            tag("style", Html(style)),
            ground,
            *parts,
            xmlns="http://www.w3.org/2000/svg",
            class_="colonnade chart",
            viewBox=f"-16 -16 {width} {height}",
            width=width,
            height=height,
            font_family="system-ui, sans-serif",
            font_size=13,
        )

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file and return its path."""
        Path(path).write_text(self.svg + "\n", encoding="utf-8")
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg


def _draw_with_title(chart: Chart, key: str, x: float, y: float, width: int) -> tuple[Html, float]:
    """A chart below its title and above its note, and how tall all of it is."""
    parts: list[Html | None] = [
        write(0, 12 + LINE * k, line, "strong") for k, line in enumerate(wrap(chart.title, width))
    ]
    top = LINE * len(parts) + 8.0
    inside, height = chart.body(key, width)
    parts.append(tag("g", *inside, transform=f"translate(0 {top:g})"))
    below = top + height
    for line in wrap(chart.note, width) if chart.note else []:
        below += LINE
        parts.append(write(0, below, line, "dim tiny"))
    return tag("g", *parts, transform=f"translate({x:g} {y:g})"), below


@cache
def chart_style() -> str:
    """The colours of charts on light and on dark ground, and a fill, stroke and background class for each."""
    sheet = files("colonnade.drawing").joinpath("chart.css").read_text(encoding="utf-8")
    classes = (
        f".f{k} {{ fill: var(--c{k}) }} .s{k} {{ stroke: var(--c{k}) }} .b{k} {{ background: var(--c{k}) }}"
        for k in range(COLOURS)
    )
    return sheet + "\n".join(classes) + "\n"


def write(x: float, y: float, text: object, look: str = "") -> Html:
    """Text that starts at a point, on its baseline."""
    return tag("text", text, x=float(x), y=float(y), class_=look or None)


def rect(x: float, y: float, width: float, height: float, look: str | None, **more: object) -> Html:
    """A rectangle."""
    return tag("rect", x=float(x), y=float(y), width=float(max(width, 0)), height=float(height), class_=look, **more)


def rule(x1: float, y1: float, x2: float, y2: float, look: str) -> Html:
    """A straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=look)


def path(points: Iterable[tuple[float, float]]) -> str:
    """Points as an attribute of a polygon or polyline; those that are not finite are left out."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points if math.isfinite(x + y))


def write_below(marks: Iterable[tuple[float, str]], base: float, width: float) -> list[Html]:
    """Ticks below an axis, and the text of each one that does not run into the text before it."""
    drawn, free = [], -math.inf
    for at, text in marks:
        drawn.append(rule(at, base, at, base + 5, "axis"))
        half = extent(text) / 2
        middle = min(max(at, half), width - half)
        if text and middle - half > free:
            drawn.append(write(middle, base + 19, text, "mid dim tiny"))
            free = middle + half + 5
    return drawn


def hatch(key: str) -> Html:
    """The pattern of what has no length, for ``fill="url(#key-hatch)"``."""
    pattern = tag(
        "pattern",
        tag("path", d="M0 0V7", class_="hatch"),
        id=f"{key}-hatch",
        width=7,
        height=7,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return tag("defs", pattern)


def sentences(parts: Iterable[str]) -> str:
    """Several remarks as the note of a chart."""
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)


def gutter(labels: Iterable[str], width: float) -> tuple[float, bool]:
    """The width for labels, and whether they stand beside what they name; long ones stand above and need none."""
    need = max(map(extent, labels), default=0.0) + 14
    return (need, True) if need <= 0.42 * width else (0.0, False)


def write_label(text: str, room: float, y: float, beside: bool) -> tuple[Html, float]:
    """A label, and the height at which what it names begins."""
    if beside:
        return write(room - 10, y + 15, text, "end"), y
    parts = wrap(text, room)
    return join(*(write(0, y + 13 + LINE * k, part) for k, part in enumerate(parts))), y + LINE * len(parts) + 2


def extent(text: str) -> float:
    """How wide a text is at most, in the units of a chart."""
    return _EM * sum(map(_breadth, text))


def wrap(text: str, limit: float) -> list[str]:
    """The whole text in lines no wider than ``limit``; they end between words, or inside a word that is too long."""
    lines = [""]
    for word in _BREAKS.split(text):
        if lines[-1] and extent(lines[-1] + word.rstrip()) > limit:
            lines.append("")
        for letter in word:
            if lines[-1] and extent(lines[-1] + letter) > limit and not letter.isspace():
                lines.append("")
            lines[-1] += letter
    return [line.strip() for line in lines if line.strip()] or [""]


def shorten(text: str, room: float) -> str:
    """The text, cut where it is wider than there is room."""
    while extent(text) > room and len(text) > 3:
        text = text[:-2].rstrip() + "…"
    return text


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span an interval, about ``count`` of them."""
    if not high > low:
        high = low + 1.0
    raw = (high - low) / max(1, count)
    base = 10.0 ** math.floor(math.log10(raw))
    step = base * next(k for k in (1, 2, 2.5, 5, 10) if k * base >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def apart(wanted: list[float], gaps: list[float], low: float, high: float) -> list[float]:
    """Where labels go so that none overlap: as near as possible to the wanted heights, which come in order."""
    placed: list[float] = []
    floor = low
    for place, gap in zip(wanted, gaps, strict=True):
        placed.append(max(place, floor))
        floor = placed[-1] + gap
    ceiling = high
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], ceiling - gaps[k])
        ceiling = placed[k]
    return placed


@lru_cache(maxsize=4096)
def _breadth(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    return 0.36 if letter in " .,:;'|ijlI!" else 0.74 if letter.isupper() or letter in "mw%" else 0.63
