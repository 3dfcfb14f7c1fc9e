"""Lines over a logarithmic axis as inline SVG, with their names at their ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from colonnade.report.canvas import apart, extent, frame, rect, rule, ticks, wrap, write
from colonnade.report.markup import Html, join, tag

_DASHES = (None, None, "6 3", "2 3", "8 3 2 3")
_TOP, _BOTTOM, _ROW, _KEY = 10.0, 46.0, 15.0, 22.0


@dataclass(frozen=True)
class Line:
    """A named line; its points are x, y and, where known, the deviation of y."""

    name: str
    points: Sequence[tuple[float, float, float | None]]


@dataclass(frozen=True)
class Lines:
    """A chart of lines: one level may be marked across it, and the axes have names."""

    items: Sequence[Line]
    ceiling: tuple[float, str] | None
    x_name: str
    y_text: Callable[[float], str]

    def draw(self, key: str, width: int, *, title: str, description: str) -> Html:
        """The chart at one width."""
        plot = _Plot(self, width)
        body = [*plot.axes(), *plot.level(), *plot.curves(), *plot.names()]
        return frame(key, title, description, width, plot.tall, *body)


class _Plot:
    """Where things go in one drawing."""

    def __init__(self, chart: Lines, width: int) -> None:
        self.chart = chart
        self.tall = 330.0 if width > 600 else 290.0
        self.xs = sorted({x for item in chart.items for x, _, _ in item.points})
        names = [item.name for item in chart.items] + ([chart.ceiling[1]] if chart.ceiling else [])
        self.room = min(max(extent(name) for name in names) + _KEY, 0.33 * width)
        self.left = max(extent(chart.y_text(mark)) for mark in self.marks) + 8
        self.right = width - self.room
        self.base = self.tall - _BOTTOM

    @cached_property
    def marks(self) -> list[float]:
        """The ticks of the vertical axis."""
        low, high = self.range
        return [mark for mark in ticks(low, high) if mark <= high]

    @cached_property
    def range(self) -> tuple[float, float]:
        """The ends of the vertical axis: zero, unless all lines are far above it, and a little above all lines."""
        ys = [y + side * (d or 0) for item in self.chart.items for _, y, d in item.points for side in (-1, 1)]
        ys += [self.chart.ceiling[0]] if self.chart.ceiling else []
        low = ticks(min(0.0, *ys) if min(ys) < 0.5 * max(ys) else min(ys), max(ys))[0]
        return low, max(ys) + 0.06 * ((max(ys) - low) or 1.0)

    def at(self, x: float) -> float:
        """The horizontal place of an x."""
        spread = math.log(self.xs[-1] / self.xs[0])
        part = 0.04 + 0.92 * math.log(x / self.xs[0]) / spread if spread else 0.5
        return self.left + (self.right - self.left) * part

    def up(self, y: float) -> float:
        """The vertical place of a y."""
        low, high = self.range
        return _TOP + (self.base - _TOP) * (high - y) / (high - low)

    def axes(self) -> list[Html]:
        """The grid, the ticks and the name of the horizontal axis."""
        drawn = [rule(self.left, self.up(mark), self.right, self.up(mark), "grid") for mark in self.marks]
        drawn += [
            write(self.left - 6, self.up(mark) + 4, self.chart.y_text(mark), "end dim tiny") for mark in self.marks
        ]
        free = -math.inf
        for x in self.xs:
            half = extent(f"{x:g}") / 2
            drawn.append(rule(self.at(x), self.base, self.at(x), self.base + 5, "axis"))
            if self.at(x) - half > free:
                drawn.append(write(self.at(x), self.base + 20, f"{x:g}", "mid dim tiny"))
                free = self.at(x) + half + 5
        drawn.append(rule(self.left, self.base, self.right, self.base, "axis"))
        drawn.append(write((self.left + self.right) / 2, self.tall - 6, self.chart.x_name, "mid dim tiny"))
        return drawn

    def level(self) -> list[Html]:
        """The marked level."""
        if not self.chart.ceiling:
            return []
        y = self.up(self.chart.ceiling[0])
        return [rule(self.left, y, self.right, y, "ceiling")]

    def curves(self) -> list[Html]:
        """Each line, with a band of one standard deviation around it and markers of its own shape."""
        return [self._curve(item, colour % 7) for colour, item in reversed([*enumerate(self.chart.items)])]

    def names(self) -> list[Html]:
        """The name of each line at its end; names that would overlap are moved apart."""
        ends = [(self.up(item.points[-1][1]), item.name, k) for k, item in enumerate(self.chart.items)]
        if self.chart.ceiling:
            ends.append((self.up(self.chart.ceiling[0]), self.chart.ceiling[1], -1))
        ends.sort(key=lambda end: end[0])
        parts = [wrap(name, self.room - _KEY) for _, name, _ in ends]
        gaps = [_ROW * len(part) + 4 for part in parts]
        wanted = [end[0] - _ROW * len(part) / 2 for end, part in zip(ends, parts, strict=True)]
        drawn = []
        for y, part, end in zip(apart(wanted, gaps, 0, self.tall), parts, ends, strict=True):
            x, look = self.right + 11, "tiny strong" if end[2] == 0 else "tiny"
            drawn.append(_marker(x, y + 8, end[2] % 7) if end[2] >= 0 else rule(x - 6, y + 8, x + 6, y + 8, "ceiling"))
            drawn += [write(x + 9, y + 12 + _ROW * k, text, look) for k, text in enumerate(part)]
        return drawn

    def _curve(self, item: Line, colour: int) -> Html:
        spots = [(self.at(x), self.up(y)) for x, y, _ in item.points]
        spread = [(self.at(x), self.up(y + d), self.up(y - d)) for x, y, d in item.points if d]
        drawn = []
        if len(spread) > 1:
            ring = [(x, high) for x, high, _ in spread] + [(x, low) for x, _, low in reversed(spread)]
            drawn.append(tag("polygon", points=_path(ring), class_=f"f{colour}", fill_opacity=0.15))
        drawn += [rule(x, high, x, low, f"s{colour}") for x, high, low in spread]
        drawn.append(
            tag(
                "polyline",
                points=_path(spots),
                class_=f"s{colour}",
                fill="none",
                stroke_width=3 if colour == 0 else 2,
                stroke_dasharray=_DASHES[colour % len(_DASHES)],
            )
        )
        return join(*drawn, *(_marker(x, y, colour) for x, y in spots))


def _marker(x: float, y: float, shape: int) -> Html:
    look, reach = f"f{shape}", 5.5
    if shape % 4 == 0:
        return tag("circle", cx=x, cy=y, r=4.5, class_=look)
    if shape % 4 == 1:
        return rect(x - 4, y - 4, 8, 8, look)
    if shape % 4 == 2:
        corners = [(x, y - reach), (x + reach, y + 4), (x - reach, y + 4)]
    else:
        corners = [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)]
    return tag("polygon", points=_path(corners), class_=look)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
