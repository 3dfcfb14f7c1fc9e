"""Square charts as inline SVG: matrices of signed numbers by colour, and curves of two rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.report.canvas import LINE, extent, frame, rect, rule, wrap, write
from colonnade.report.markup import Html, join, tag

_GAP, _SIDE = 24.0, 300.0
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_DECADES = 3


@dataclass(frozen=True)
class Matrix:
    """Signed numbers by pair of names, from -1 to 1; the strongest colour is that of ``most``."""

    title: str
    values: Sequence[Sequence[float]]
    most: float


@dataclass(frozen=True)
class Curve:
    """A named curve of points in the unit square; ``marked`` puts a dot on each of them."""

    name: str
    points: Sequence[tuple[float, float]]
    marked: bool = False


def matrices(
    key: str, width: int, items: Sequence[Matrix], names: Sequence[str], *, title: str, description: str
) -> Html:
    """Matrices beside each other, or below where there is no room; rows have names, columns their numbers."""
    labels = [f"{place + 1} {name}" for place, name in enumerate(names)]
    gutter = min(max((extent(label) for label in labels), default=0.0) + 8, 0.4 * width)
    beside = width > 600
    across = len(items) if beside else 1
    side = (width - gutter - _GAP * (across - 1)) / max(1, across)
    cell = side / max(1, len(names))
    high = min(cell, 22.0)
    y, body = 0.0, []
    for begin in range(0, len(items), across):
        top = y + LINE + 6
        for row, label in enumerate(labels):
            body.append(write(gutter - 6, top + (row + 0.5) * high + 4, _short(label, gutter - 8), "end tiny"))
        for place, item in enumerate(items[begin : begin + across]):
            left = gutter + place * (side + _GAP)
            body.append(write(left, y + 13, item.title, "strong"))
            body += _cells(item, left, top, cell, high)
        bottom = top + len(names) * high
        for place in range(min(across, len(items) - begin)):
            left = gutter + place * (side + _GAP)
            body += [
                write(left + (column + 0.5) * cell, bottom + 14, str(column + 1), "mid dim tiny")
                for column in range(len(names))
                if cell >= 20 or column % 5 == 4 or not column
            ]
        y = bottom + 30
    return frame(key, title, description, width, y, *body)


def curves(
    key: str,
    width: int,
    items: Sequence[Curve],
    *,
    x: str,
    y: str,
    title: str,
    description: str,
    diagonal: str = "guessing",
) -> Html:
    """Curves in a unit square, and its diagonal."""
    marks = [(mark, f"{mark:g}") for mark in _MARKS]
    return _square(key, width, items, marks, x, y, title, description, diagonal)


def rare_curves(key: str, width: int, items: Sequence[Curve], *, x: str, y: str, title: str, description: str) -> Html:
    """The same on logarithmic scales of three decades, where rare false alarms can be seen."""
    marks = [(1 + power / _DECADES, f"{10.0**power:g}") for power in range(-_DECADES, 1)]
    lines = [Curve(item.name, [(_logarithmic(a), _logarithmic(b)) for a, b in _seen(item.points)]) for item in items]
    return _square(key, width, lines, marks, x, y, title, description)


def _seen(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """The curve from the last point at or before the first decade: all before it would be drawn as one upright line."""
    before = sum(1 for across, _ in points if across <= 10.0**-_DECADES)
    return points[max(0, before - 1) :]


def _logarithmic(rate: float) -> float:
    return max(0.0, 1 + math.log10(rate) / _DECADES) if rate > 0 else 0.0


def _square(
    key: str,
    width: int,
    lines: Sequence[Curve],
    marks: Sequence[tuple[float, str]],
    x: str,
    y: str,
    title: str,
    description: str,
    diagonal: str = "guessing",
) -> Html:
    side = min(_SIDE, width - 60)
    left, top = 44.0, 10.0

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return left + side * point[0], top + side * (1 - point[1])

    body = []
    for mark, said in marks:
        across, up = at((mark, mark))
        body += [rule(left, up, left + side, up, "grid"), write(left - 6, up + 4, said, "end dim tiny")]
        body += [write(across, top + side + 16, said, "mid dim tiny")]
    body.append(rule(*at((0, 0)), *at((1, 1)), "ceiling"))
    for place, line in enumerate(lines):
        spots = list(map(at, line.points))
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
        body.append(tag("polyline", points=path, class_=f"s{place}", fill="none", stroke_width=2.5))
        body += [tag("circle", cx=a, cy=b, r=4.0, class_=f"f{place}") for a, b in spots if line.marked]
    body.append(write(left, top + side + 36, f"across: {x}", "dim tiny"))
    body.append(write(left, top + side + 54, f"upwards: {y}", "dim tiny"))
    beside = width > 600
    start = (left + side + 24, top + 16.0) if beside else (left, top + side + 78)
    below = 0.0
    for place, text in enumerate([*(line.name for line in lines), diagonal]):
        look = "ceiling" if place == len(lines) else f"s{place}"
        parts = wrap(text, width - start[0] - 30)
        body.append(rule(start[0], start[1] + below - 4, start[0] + 20, start[1] + below - 4, look))
        body += [write(start[0] + 28, start[1] + below + LINE * k, part, "tiny") for k, part in enumerate(parts)]
        below += LINE * len(parts) + 4
    tall = top + side + 64 if beside else start[1] + below
    return frame(key, title, description, width, max(tall, start[1] + below), *body)


def _cells(item: Matrix, left: float, top: float, cell: float, high: float) -> list[Html]:
    drawn = []
    for row, values in enumerate(item.values):
        for column, value in enumerate(values):
            x, y = left + column * cell, top + row * high
            strength = min(1.0, abs(value) / item.most) if item.most else 0.0
            drawn.append(rect(x, y, cell - 1, high - 1, "cell", fill_opacity=0.35))
            if strength > 0.01:
                look = "pos" if value > 0 else "neg"
                drawn.append(rect(x, y, cell - 1, high - 1, look, fill_opacity=0.05 + 0.9 * strength))
    return [join(*drawn)]


def _short(text: str, room: float) -> str:
    while extent(text) > room and len(text) > 3:
        text = text[:-2].rstrip() + "…"
    return text
