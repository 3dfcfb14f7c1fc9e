"""The charts: bars, tables of coloured numbers, lines, histograms, matrices and small pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from colonnade.drawing.canvas import (
    LINE,
    Chart,
    Html,
    apart,
    extent,
    gutter,
    hatch,
    join,
    path,
    rect,
    rule,
    shorten,
    tag,
    ticks,
    wrap,
    write,
    write_below,
    write_label,
)

Parts = tuple[list[Html | None], float]

# --- bars

Kind = Literal["plain", "signed", "grey", "doubtful"]


@dataclass(frozen=True)
class Bar:
    """One bar: how long it is, the ends of its interval where one is known, and what is written beside it.

    A ``signed`` bar has the colour of its sign, a ``grey`` one cannot be told from zero, a ``doubtful`` one is hatched.
    One without a value is hatched from end to end. ``limit`` is the most that it may become. ``pieces`` are the colour,
    name and length of the parts of which a bar is made.
    """

    label: str
    value: float | None
    text: str
    kind: Kind = "plain"
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    group: str = ""
    pieces: Sequence[tuple[int, str, float]] = ()

    @property
    def ends(self) -> tuple[float, ...]:
        """All finite places to which it reaches."""
        found = (self.value, self.low, self.high, self.limit)
        return tuple(each for each in found if each is not None and math.isfinite(each))


@dataclass(frozen=True)
class BarChart(Chart):
    """Bars from zero, below each other; those of one group stand under its name.

    ``axis`` says what their length is, over a scale. ``band`` is a level below which all is shaded, and why.
    """

    bars: Sequence[Bar]
    axis: str = ""
    band: tuple[float, str] | None = None

    def describe(self) -> str:
        """Every bar with its text."""
        return "; ".join(": ".join(filter(None, (bar.group, bar.label, bar.text))) for bar in self.bars)

    def body(self, key: str, width: int) -> Parts:
        """Labels to the left of the bars, or above them where they are long, and texts to the right."""
        side, beside = gutter((bar.label for bar in self.bars), width)
        room = max((extent(bar.text) for bar in self.bars if bar.value is not None), default=0.0) + 14
        ends = [0.0, *(end for bar in self.bars for end in bar.ends)]
        least, most = min(ends), max(*ends, min(self.band[0], 1.2 * max(ends)) if self.band else 0.0)
        scale = max(width - side - room, 40.0) / ((most - least) or 1.0)
        row = _BarScale(key, side - least * scale, side, side + (most - least) * scale, scale)
        body: list[Html | None] = []
        y, group = 2.0, ""
        for bar in self.bars:
            if bar.group != group:
                group = bar.group
                for line in wrap(group, width):
                    y += LINE
                    body.append(write(0, y - 3, line, "strong"))
                y += 5
            label, y = write_label(bar.label, side if beside else width, y, beside)
            body += [label, *row.draw_bar(bar, y)]
            y += 26 if beside else 30
        behind: list[Html | None] = [hatch(key)] if any(bar.value is None for bar in self.bars) else []
        behind += [hatch(key)] if not behind and any(bar.kind == "doubtful" for bar in self.bars) else []
        marks = [mark for mark in ticks(least, most) if least <= mark <= most] if self.axis and self.bars else []
        behind += [rule(row.at(mark), 0, row.at(mark), y - 2, "grid") for mark in marks]
        if self.band and self.bars:
            edge = row.at(min(self.band[0], most))
            behind += [rect(row.zero, 0, edge - row.zero, y - 2, "band"), rule(edge, 0, edge, y - 2, "edge")]
        behind.append(rule(row.zero, 0, row.zero, y - 2, "axis"))
        if marks:
            body += write_below([(row.at(mark), f"{mark:g}") for mark in marks], y - 2, width)
            y += 22
        for text in filter(None, (self.axis, self.band[1] if self.band else "")):
            for line in wrap(text, width - (side if beside else 0)):
                y += LINE
                body.append(write(side if beside else 0, y - 4, line, "dim tiny"))
        return behind + body, y


@dataclass(frozen=True)
class _BarScale:
    """Where bars of one chart begin and end."""

    key: str
    zero: float
    left: float
    right: float
    scale: float

    def at(self, value: float) -> float:
        """The place of a value, inside of the chart."""
        return min(max(self.zero + value * self.scale, self.left), self.right)

    def draw_bar(self, bar: Bar, y: float) -> list[Html | None]:
        """One bar with its limit, its interval and its text."""
        if bar.pieces:
            return self._pieces(bar, y)
        if bar.value is None:
            plate = rect(self.left + 8, y + 1, extent(bar.text) + 12, 16, "plate", rx=3)
            open_ = rect(self.left, y, self.right - self.left, 18, None, fill=f"url(#{self.key}-hatch)")
            return [open_, plate, write(self.left + 14, y + 14, bar.text, "tiny strong")]
        value = bar.value if math.isfinite(bar.value) else 0.0
        found: list[Html | None] = []
        if bar.limit is not None:
            limit = self.at(bar.limit)
            found += [rect(self.zero, y, limit - self.zero, 18, "cell", fill_opacity=0.6)]
            found += [rule(limit, y - 2, limit, y + 20, "edge")]
        ends = sorted((self.zero, self.at(value)))
        sign = "pos" if value > 0 else "neg" if value < 0 else "f7"
        look = {"signed": sign, "grey": "f7", "doubtful": None}.get(bar.kind, "f0")
        more = {"fill": f"url(#{self.key}-hatch)", "stroke": "currentColor"} if bar.kind == "doubtful" else {}
        found.append(rect(ends[0], y, max(ends[1] - ends[0], 1.5), 18, look, rx=2, **more))
        last = max(self.zero, self.at(value))
        if bar.low is not None and bar.high is not None and bar.low <= bar.high:
            low, high = self.at(bar.low), self.at(bar.high)
            found.append(rule(low, y + 9, high, y + 9, "error"))
            found += [rule(end, y + 5, end, y + 13, "error") for end in (low, high)]
            last = max(last, high)
        last = max(last, self.at(bar.limit) if bar.limit is not None else last)
        return [*found, write(last + 6, y + 14, bar.text, "tiny unclear" if bar.kind == "grey" else "strong tiny")]

    def _pieces(self, bar: Bar, y: float) -> list[Html | None]:
        x, found = self.zero, list[Html | None]()
        for colour, name, length in bar.pieces:
            wide = length * self.scale
            found.append(rect(x, y, wide - (1 if wide > 3 else 0), 20, f"f{colour}"))
            if extent(name) + 8 < wide:
                found.append(write(x + 5, y + 14.5, name, f"on on{colour}"))
            x += wide
        return [*found, write(x + 6, y + 15, bar.text, "strong tiny")]


# --- tables of numbers on colours


@dataclass(frozen=True)
class HeatMapCell:
    """One number: what is written, and whether it is grey because it cannot be told from zero."""

    value: float
    text: str
    grey: bool = False


@dataclass(frozen=True)
class HeatMapRow:
    """A named row of cells; rows of one group stand under its name."""

    label: str
    cells: Sequence[HeatMapCell]
    group: str = ""


@dataclass(frozen=True)
class HeatMap(Chart):
    """Rows of cells under the names of columns; the larger a number, the stronger its colour."""

    columns: Sequence[str]
    rows: Sequence[HeatMapRow]

    def describe(self) -> str:
        """Every row with its numbers."""
        return "; ".join(
            f"{', '.join(filter(None, (row.group, row.label)))}: {', '.join(map(_cell_in_words, row.cells))}"
            for row in self.rows
        )

    def body(self, key: str, width: int) -> Parts:
        """Heads above, labels to the left or above each row."""
        side, beside = gutter((row.label for row in self.rows), width)
        step = min((width - side) / max(1, len(self.columns)), 220)
        most = max((_strength(cell) for row in self.rows for cell in row.cells), default=0.0) or 1.0
        texts = [cell.text for row in self.rows for cell in row.cells]
        whole = all(extent(text) * 12 / 13 < step for text in texts)
        heads = [wrap(column, step - 4) for column in self.columns]
        body: list[Html | None] = [
            write(side + (k + 0.5) * step, 14 + LINE * j, part, "mid strong")
            for k, parts in enumerate(heads)
            for j, part in enumerate(parts)
        ]
        y, group = 6.0 + LINE * max(map(len, heads), default=0), ""
        for row in self.rows:
            if row.group != group:
                group = row.group
                for line in wrap(group, width):
                    y += LINE
                    body.append(write(0, y, line, "strong"))
                y += 7
            label, y = write_label(row.label, side if beside else width, y, beside)
            body.append(label)
            for k, cell in enumerate(row.cells):
                body += _cell(cell, side + k * step, y, step, most, whole)
            y += 23 if beside else 27
        return body, y + 2


def _cell(cell: HeatMapCell, x: float, y: float, step: float, most: float, whole: bool) -> list[Html]:
    found = [rect(x + 1, y, step - 2, 21, "cell", fill_opacity=0.35)]
    if not cell.grey:
        look = "pos" if cell.value > 0 else "neg"
        found.append(rect(x + 1, y, step - 2, 21, look, fill_opacity=0.6 * _strength(cell) / most))
    text = cell.text if whole else cell.text.partition(" ")[0]  # on a phone without the deviation
    return [*found, write(x + step / 2, y + 15, text, "mid tiny unclear" if cell.grey else "mid tiny")]


def _cell_in_words(cell: HeatMapCell) -> str:
    return cell.text + (" (not told from zero)" if cell.grey else "")


def _strength(cell: HeatMapCell) -> float:
    """How large a number is; 0 where noise left none that is finite."""
    return abs(cell.value) if math.isfinite(cell.value) else 0.0


# --- lines


@dataclass(frozen=True)
class Curve:
    """Points from left to right, with the deviation of each where it is known.

    With ``steps`` a height holds until the next point; ``marked`` puts a mark on each point; what is below a ``filled``
    line is shaded.
    """

    label: str
    points: Sequence[tuple[float, float]]
    deviations: Sequence[float | None] = ()
    steps: bool = False
    marked: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Axis:
    """What one direction shows: its name, its scale, how numbers are written, and its ends where they are known.

    Moments are given as seconds since 1970, and written as days, or as hours where all is on one day.
    """

    name: str
    scale: Literal["linear", "log", "time"] = "linear"
    text: Callable[[float], str] = "{:g}".format
    ends: tuple[float, float] | None = None

    def place(self, value: float) -> float:
        """A value on a straight scale."""
        if self.scale != "log":
            return value
        floor = self.ends[0] if self.ends else 1e-300
        return math.log10(max(value, floor))

    def marks(self, low: float, high: float) -> list[tuple[float, str]]:
        """Round values between two places, and how they are written."""
        if self.scale == "time":
            day = "%Y-%m-%d" if high - low > 86400 else "%m-%d %H:%M"
            moments = [low + k * (high - low) / 4 for k in range(5)]
            texts = [f"{datetime.fromtimestamp(moment, UTC):{day}}" for moment in moments]
            return [(m, text) for k, (m, text) in enumerate(zip(moments, texts, strict=True)) if text not in texts[:k]]
        if self.scale == "linear":
            return [(mark, self.text(mark)) for mark in ticks(low, high) if low <= mark <= high]
        powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
        return [(float(power), self.text(10.0**power)) for power in powers]


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines over two axes, whose names stand beside them; ``levels`` are heights that are marked all across.

    ``diagonal`` names the line from one corner to the other; with ``square`` both directions are equally long.
    """

    lines: Sequence[Curve]
    x: Axis
    y: Axis
    levels: Mapping[str, float] = field(default_factory=dict)
    diagonal: str = ""
    square: bool = False

    def describe(self) -> str:
        """The names of the lines, each with where it ends."""
        ends = [(line.label, line.points[-1]) for line in self.lines if line.points]
        return "; ".join(f"{label}: {self.y.text(y)}" for label, (_, y) in ends)

    def body(self, key: str, width: int) -> Parts:
        """The plot, and the names of lines to the right of it or below."""
        if not any(line.points for line in self.lines):
            return [write(0, 14, "nothing to draw", "dim tiny")], 20.0
        plot = _Plot(self, width)
        names, below = plot.names()
        return [*plot.axes(), *plot.levels(), *plot.curves(), *names], below


_DASHES = (None, "6 3", "2 3", "8 3 2 3")
_KEY, _ROW = 30.0, 15.0


class _Plot:
    """Where things go in one drawing of lines."""

    def __init__(self, chart: LineChart, width: int) -> None:
        self.chart, self.width = chart, width
        self.beside = width > 600
        names = [line.label for line in chart.lines] + [*chart.levels] + [chart.diagonal] * bool(chart.diagonal)
        self.named = len(names) > 1
        room = min(max(map(extent, names)) + _KEY + 2, 0.33 * width) if self.beside and self.named else 14.0
        self.heading = wrap(chart.y.name, width) if chart.y.name else []
        self.left = max((extent(text) for _, text in self.y_marks), default=0.0) * 12 / 13 + 8
        self.right = width - room
        self.top = 8.0 + LINE * len(self.heading)
        tall = 274.0 if self.beside else 220.0
        if chart.square:
            tall = min(300.0, self.right - self.left)
            self.right = self.left + tall
        self.base = self.top + tall

    @cached_property
    def points(self) -> list[list[tuple[float, float]]]:
        """The points of each line on straight scales; of equal heights that are off the scale only the last is kept."""
        x, y = self.chart.x, self.chart.y
        return [[(x.place(a), y.place(b)) for a, b in _stairs(line)] for line in self.chart.lines]

    @cached_property
    def xs(self) -> tuple[float, float]:
        """The ends of the horizontal axis."""
        if self.chart.x.ends:
            low, high = map(self.chart.x.place, self.chart.x.ends)
            return low, high
        found = [x for points in self.points for x, _ in points]
        spread = (max(found) - min(found)) or 1.0
        pad = 0.04 * spread if any(line.marked for line in self.chart.lines) else 0.0
        return min(found) - pad, max(found) + pad if max(found) > min(found) else max(found) + spread

    @cached_property
    def ys(self) -> tuple[float, float]:
        """The ends of the upright axis: zero, unless all lines are far above it, and a little above all lines."""
        axis = self.chart.y
        if axis.ends:
            return axis.place(axis.ends[0]), axis.place(axis.ends[1])
        found = [y for points in self.points for _, y in points if math.isfinite(y)]
        found += [axis.place(level) for level in self.chart.levels.values()]
        for line in self.chart.lines:
            spread = zip(line.points, line.deviations, strict=False)
            found += [axis.place(y + side * (d or 0.0)) for (_, y), d in spread for side in (-1, 1)]
        low, high = min(found), max(found)
        if axis.scale != "log":
            low = ticks(min(0.0, low) if low < 0.5 * high else low, high)[0]
        return low, high + 0.06 * ((high - low) or 1.0)

    @cached_property
    def y_marks(self) -> list[tuple[float, str]]:
        """The ticks of the upright axis."""
        found = self.chart.y.marks(*self.ys)
        if len(found) > 1 or self.chart.y.scale != "log":
            return found
        return [(place, self.chart.y.text(10.0**place)) for place in ticks(*self.ys) if place <= self.ys[1]]

    def at(self, place: float) -> float:
        """The horizontal place."""
        low, high = self.xs
        return self.left + (self.right - self.left) * (min(max(place, low), high) - low) / ((high - low) or 1.0)

    def up(self, place: float) -> float:
        """The vertical place."""
        low, high = self.ys
        return self.base - (self.base - self.top) * (min(max(place, low), high) - low) / ((high - low) or 1.0)

    def axes(self) -> list[Html | None]:
        """The grid, the ticks and the names of both axes."""
        found: list[Html | None] = [write(0, 11 + LINE * k, line, "dim tiny") for k, line in enumerate(self.heading)]
        for place, text in self.y_marks:
            found += [rule(self.left, self.up(place), self.right, self.up(place), "grid")]
            found += [write(self.left - 6, self.up(place) + 4, text, "end dim tiny")]
        axis = self.chart.x
        given = sorted({x for line in self.chart.lines for x, _ in line.points})
        marks = axis.marks(*self.xs)
        if axis.scale == "log" and not axis.ends and len(given) <= 12:
            marks = [(axis.place(x), axis.text(x)) for x in given]
        found += write_below([(self.at(place), text) for place, text in marks], self.base, self.width)
        found.append(rule(self.left, self.base, self.right, self.base, "axis"))
        for k, line in enumerate(wrap(axis.name, self.width - self.left) if axis.name else []):
            found.append(write(self.left, self.base + 38 + _ROW * k, line, "dim tiny"))
        return found

    def levels(self) -> list[Html | None]:
        """What is marked all across, and the diagonal."""
        places = [self.up(self.chart.y.place(level)) for level in self.chart.levels.values()]
        found: list[Html | None] = [rule(self.left, y, self.right, y, "ceiling") for y in places]
        if self.chart.diagonal:
            found.append(rule(self.left, self.base, self.right, self.top, "ceiling"))
        return found

    def curves(self) -> list[Html | None]:
        """Each line, with a band of one standard deviation and marks of its own shape; the first is on top."""
        lines = [*zip(self.chart.lines, self.points, strict=True)]
        return [self._curve(*lines[k], k % 7) for k in reversed(range(len(lines)))]

    def _curve(self, line: Curve, points: Sequence[tuple[float, float]], colour: int) -> Html:
        spots = [(self.at(x), self.up(y)) for x, y in points if math.isfinite(y)]
        found = []
        if line.filled and spots:
            under = [(spots[0][0], self.base), *spots, (spots[-1][0], self.base)]
            found.append(tag("polygon", points=path(under), class_=f"f{colour}", fill_opacity=0.15))
        place = self.chart.y.place
        spread = [
            (self.at(self.chart.x.place(x)), self.up(place(y + d)), self.up(place(y - d)))
            for (x, y), d in zip(line.points, line.deviations, strict=False)
            if d
        ]
        if len(spread) > 1:
            ring = [(x, high) for x, high, _ in spread] + [(x, low) for x, _, low in reversed(spread)]
            found.append(tag("polygon", points=path(ring), class_=f"f{colour}", fill_opacity=0.15))
        found += [rule(x, high, x, low, f"s{colour}") for x, high, low in spread]
        drawn = tag(
            "polyline",
            points=path(spots),
            class_=f"s{colour}",
            fill="none",
            stroke_width=2.5 if colour == 0 else 2,
            stroke_dasharray=_DASHES[colour % len(_DASHES)],
        )
        return join(*found, drawn, *(_mark(x, y, colour) for x, y in spots) if line.marked else ())

    def names(self) -> tuple[list[Html | None], float]:
        """The name of each line, at its end or below the plot, and where all of it ends."""
        tall = self.base + 26 + _ROW * len(wrap(self.chart.x.name, self.width - self.left)) * bool(self.chart.x.name)
        if not self.named:
            return [], tall
        ends = [
            (self.up(points[-1][1]), self.chart.lines[k].label, k) for k, points in enumerate(self.points) if points
        ]
        ends += [(self.up(self.chart.y.place(level)), name, -1) for name, level in self.chart.levels.items()]
        ends += [(self.top, self.chart.diagonal, -1)] if self.chart.diagonal else []
        start, room = (self.right + 8, self.width - self.right - _KEY) if self.beside else (0.0, self.width - _KEY)
        if self.beside:
            ends.sort(key=lambda end: end[0])
        parts = [wrap(name, room) for _, name, _ in ends]
        gaps = [_ROW * len(part) + 4 for part in parts]
        if self.beside:
            wanted = [end[0] - _ROW * len(part) / 2 for end, part in zip(ends, parts, strict=True)]
            heights = apart(wanted, gaps, 0, max(tall, sum(gaps)))
        else:
            heights = [tall + 4 + sum(gaps[:k]) for k in range(len(gaps))]
            tall = heights[-1] + gaps[-1]
        found: list[Html | None] = []
        for y, part, (_, _, colour) in zip(heights, parts, ends, strict=True):
            found.append(self._sample(start, y + 8, colour))
            found += [write(start + 22, y + 12 + _ROW * k, text, "tiny") for k, text in enumerate(part)]
        return found, max(tall, heights[-1] + gaps[-1] if self.beside else 0.0)

    def _sample(self, x: float, y: float, place: int) -> Html:
        if place < 0:
            return rule(x, y, x + 16, y, "ceiling")
        line = tag(
            "polyline", points=path([(x, y), (x + 16, y)]), class_=f"s{place % 7}", fill="none", stroke_width=2.5,
            stroke_dasharray=_DASHES[place % 7 % len(_DASHES)],
        )  # fmt: skip
        return join(line, _mark(x + 8, y, place % 7) if self.chart.lines[place].marked else None)


def _stairs(line: Curve) -> list[tuple[float, float]]:
    """The points of a line, and of one in steps the corners."""
    if not line.steps:
        return list(line.points)
    corners = [(later[0], before[1]) for before, later in pairwise(line.points)]
    found = [point for pair in zip(line.points, corners, strict=False) for point in pair]
    return [*found, *line.points[-1:]]


def _mark(x: float, y: float, shape: int) -> Html:
    look, reach = f"f{shape}", 5.5
    if shape % 4 == 0:
        return tag("circle", cx=x, cy=y, r=4.5, class_=look)
    if shape % 4 == 1:
        return rect(x - 4, y - 4, 8, 8, look)
    if shape % 4 == 2:
        corners = [(x, y - reach), (x + reach, y + 4), (x - reach, y + 4)]
    else:
        corners = [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)]
    return tag("polygon", points=path(corners), class_=look)


# --- histograms

_PANEL, _TALL, _BESIDE = 270, 84, 26
_FEW, _ROOM = 7, 4


@dataclass(frozen=True)
class Histogram:
    """A label and a bar for each value; ``measured`` are what was measured of each, and the ends of its interval.

    ``borders`` are the values between which the bars lie, or only the first and the last of them: as many as have room
    are written below instead of the labels.
    """

    title: str
    labels: Sequence[str]
    bars: Sequence[float]
    measured: Sequence[tuple[float, float, float]] = ()
    borders: Sequence[str] = ()


@dataclass(frozen=True)
class HistogramChart(Chart):
    """As many histograms beside each other as there is room for, each on a scale of its own.

    ``unit`` writes the height of the highest bar above each.
    """

    panels: Sequence[Histogram]
    unit: Callable[[float], str] | None = None

    def describe(self) -> str:
        """The first values of each histogram."""
        said = self.unit or "{:g}".format
        return "; ".join(
            f"{panel.title}: "
            + ", ".join(f"{label} {said(bar)}" for label, bar in list(zip(panel.labels, panel.bars, strict=False))[:8])
            for panel in self.panels
        )

    def body(self, key: str, width: int) -> Parts:
        """Rows of histograms."""
        across = max(1, min(3, width // _PANEL))
        wide = (width - _BESIDE * (across - 1)) / across
        y, found = 0.0, list[Html | None]()
        for start in range(0, len(self.panels), across):
            drawn = [
                self._panel(panel, place * (wide + _BESIDE), y, wide)
                for place, panel in enumerate(self.panels[start : start + across])
            ]
            found += [part for part, _ in drawn]
            y = max(end for _, end in drawn) + 16
        return found, y

    def _panel(self, panel: Histogram, x: float, y: float, width: float) -> tuple[Html, float]:
        """One histogram whose upper left corner is at a point, and where it ends below."""
        parts = []
        for text in wrap(panel.title, width):
            y += LINE
            parts.append(write(x, y, text, "strong"))
        heights = [*panel.bars, *(end for each in panel.measured for end in each)]
        most = max((height for height in heights if math.isfinite(height)), default=0.0)
        if self.unit and most > 0:
            y += LINE
            parts.append(write(x, y, f"up to {self.unit(most)}", "dim tiny"))
        base = y + 8 + _TALL
        scale = _TALL / most if most > 0 else 0.0
        step = width / max(1, len(panel.bars))
        for place, bar in enumerate(panel.bars):
            left = x + (place + 0.1) * step
            parts.append(rect(left, base - scale * bar, 0.8 * step, scale * max(bar, 0.0), "f0", fill_opacity=0.55))
        for place, (value, low, high) in enumerate(panel.measured):
            middle, tick = x + (place + 0.5) * step, min(4.0, 0.3 * step)
            top, bottom, at = (base - scale * max(0.0, min(most, end)) for end in (high, low, value))
            parts += [rule(middle, bottom, middle, top, "s1"), rule(middle - tick, at, middle + tick, at, "s1")]
        parts.append(rule(x, base, x + width, base, "axis"))
        below, lines = _write_values(panel, x, base, width, step)
        return join(*parts, *below), base + 4 + LINE * lines


def _write_values(panel: Histogram, x: float, base: float, width: float, step: float) -> tuple[list[Html], int]:
    """What stands below a histogram, and in how many lines."""
    if panel.borders:
        spread = width / (len(panel.borders) - 1) if len(panel.borders) == 2 else step
        return _write_borders(panel.borders, x, base, spread), 1
    if all(extent(label) <= step - 2 for label in panel.labels):
        places = enumerate(panel.labels)
        return [write(x + (place + 0.5) * step, base + 14, label, "dim tiny mid") for place, label in places], 1
    shown = [f"{place + 1} {label}" for place, label in enumerate(panel.labels[:_FEW])]
    more = [f"and {len(panel.labels) - _FEW} more"] if len(panel.labels) > _FEW else []
    lines = wrap(", ".join([*shown, *more]), width)
    return [write(x, base + 14 + LINE * number, line, "dim tiny") for number, line in enumerate(lines)], len(lines)


def _write_borders(borders: Sequence[str], x: float, base: float, step: float) -> list[Html]:
    """The first and the last border, and between them those that leave some room around each."""
    places = [x + step * place for place in range(len(borders))]
    last, end = len(borders) - 1, places[-1]
    found = [write(x, base + 14, borders[0], "dim tiny"), write(end, base + 14, borders[last], "dim tiny end")]
    found += [rule(at, base, at, base + 3, "axis") for at in places]
    taken, limit = x + extent(borders[0]), end - extent(borders[last])
    for place in range(1, last):
        at, half = places[place], extent(borders[place]) / 2
        if at - half >= taken + _ROOM and at + half <= limit - _ROOM and borders[place] != borders[place - 1]:
            found.append(write(at, base + 14, borders[place], "dim tiny mid"))
            taken = at + half
    return found


# --- matrices and pictures


@dataclass(frozen=True)
class Matrix:
    """Signed numbers by pair of names, from -1 to 1; the strongest colour is that of ``most``."""

    title: str
    values: Sequence[Sequence[float]]
    most: float


@dataclass(frozen=True)
class MatrixChart(Chart):
    """Matrices beside each other, or below where there is no room; rows have names, columns their numbers."""

    items: Sequence[Matrix]
    names: Sequence[str]

    def body(self, key: str, width: int) -> Parts:
        """The matrices."""
        labels = [f"{place + 1} {name}" for place, name in enumerate(self.names)]
        side = min(max(map(extent, labels), default=0.0) + 8, 0.4 * width)
        across = len(self.items) if width > 600 else 1
        wide = (width - side - 24.0 * (across - 1)) / max(1, across)
        cell = wide / max(1, len(labels))
        high = min(cell, 22.0)
        y, found = 0.0, list[Html | None]()
        for begin in range(0, len(self.items), across):
            top = y + LINE + 6
            bottom = top + len(labels) * high
            for row, label in enumerate(labels):
                found.append(write(side - 6, top + (row + 0.5) * high + 4, shorten(label, side - 8), "end tiny"))
            for place, item in enumerate(self.items[begin : begin + across]):
                left = side + place * (wide + 24.0)
                found += [write(left, y + 13, item.title, "strong"), _squares(item, left, top, cell, high)]
                found += [
                    write(left + (column + 0.5) * cell, bottom + 14, str(column + 1), "mid dim tiny")
                    for column in range(len(labels))
                    if cell >= 20 or column % 5 == 4 or not column
                ]
            y = bottom + 30
        return found, y


def _squares(item: Matrix, left: float, top: float, cell: float, high: float) -> Html:
    found = []
    for row, values in enumerate(item.values):
        for column, value in enumerate(values):
            x, y = left + column * cell, top + row * high
            strength = min(1.0, abs(value) / item.most) if item.most else 0.0
            found.append(rect(x, y, cell - 1, high - 1, "cell", fill_opacity=0.35))
            if strength > 0.01:
                look = "pos" if value > 0 else "neg"
                found.append(rect(x, y, cell - 1, high - 1, look, fill_opacity=0.05 + 0.9 * strength))
    return join(*found)


_LEVELS, _PICTURE = 16, 84.0  # shades that are told apart; neighbours of one shade are drawn as one


@dataclass(frozen=True)
class PixelChart(Chart):
    """Named rows of small pictures whose columns belong together: the true ones above, what was recovered below.

    A picture is rows of pixels, nested or as an array; each is one shade, or red, green and blue. A shade of ``low`` is
    black and one of ``high`` is white.
    """

    rows: Sequence[tuple[str, Any]]
    low: float
    high: float

    def body(self, key: str, width: int) -> Parts:
        """The pictures, as many beside each other as there is room for."""
        first = self.rows[0][1][0]
        unit = _PICTURE / len(first)
        step = unit * len(first[0]) + 8.0
        across = max(1, int((width + 8.0) // step))
        y, found = 0.0, list[Html | None]()
        for begin in range(0, max(len(pictures) for _, pictures in self.rows), across):
            for name, pictures in self.rows:
                found.append(write(0, y + 12, name, "dim tiny"))
                y += LINE + 2
                for place, each in enumerate(pictures[begin : begin + across]):
                    found.append(self._pixels(each, place * step, y, unit))
                y += _PICTURE + 8.0
            y += 8.0
        return found, y

    def _pixels(self, pixels: Any, left: float, top: float, unit: float) -> Html:
        found = []
        for row, line in enumerate(pixels):
            colours = [self._colour(pixel) for pixel in line]
            start = 0
            for column in range(1, len(colours) + 1):
                if column < len(colours) and colours[column] == colours[start]:
                    continue
                found.append(
                    tag(
                        "rect",
                        x=f"{left + start * unit:.2f}",
                        y=f"{top + row * unit:.2f}",
                        width=f"{(column - start) * unit:.2f}",
                        height=f"{unit:.2f}",
                        fill=colours[start],
                    )
                )
                start = column
        return tag("g", *found, shape_rendering="crispEdges")

    def _colour(self, pixel: Any) -> str:
        shades = [(value - self.low) / ((self.high - self.low) or 1.0) for value in getattr(pixel, "flat", [pixel])]
        levels = [round(min(max(shade, 0.0), 1.0) * (_LEVELS - 1)) if math.isfinite(shade) else 0 for shade in shades]
        return "#" + "".join(f"{level:x}" for level in (levels * 3 if len(levels) == 1 else levels))
