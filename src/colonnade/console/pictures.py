"""Charts of the console, drawn as those of reports are: beliefs before and after, spending over time, cells of a table.

Each is an SVG with a title and a description, which says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from colonnade.privacy.beliefs import PRIORS, afterwards
from colonnade.privacy.rows import rounded_up
from colonnade.report import words
from colonnade.report.canvas import apart, extent, figure, frame, rule, ticks, wrap, write
from colonnade.report.histograms import Panel, histograms
from colonnade.report.markup import Html, tag
from colonnade.tables.survey import Surveyed

_TOP, _BOTTOM, _ROW = 12.0, 44.0, 15.0
_MOST_PANELS = 60
_DAY = 86400.0


@dataclass(frozen=True)
class _Axes:
    """A rectangle with linear axes."""

    width: float
    tall: float
    left: float
    right: float
    xs: tuple[float, float]
    ys: tuple[float, float]

    def at(self, x: float) -> float:
        low, high = self.xs
        return self.left + (self.right - self.left) * ((x - low) / (high - low) if high > low else 0.5)

    def up(self, y: float) -> float:
        low, high = self.ys
        return _TOP + (self.tall - _BOTTOM - _TOP) * (high - y) / (high - low)

    def drawn(
        self, x_marks: Iterable[tuple[float, str]], y_marks: Iterable[tuple[float, str]], name: str
    ) -> list[Html]:
        base = self.tall - _BOTTOM
        found = []
        for y, text in y_marks:
            found += [rule(self.left, self.up(y), self.right, self.up(y), "grid")]
            found += [write(self.left - 6, self.up(y) + 4, text, "end dim tiny")]
        free = -math.inf
        for x, text in x_marks:
            half = extent(text) / 2
            found.append(rule(self.at(x), base, self.at(x), base + 5, "axis"))
            if self.at(x) - half > free:
                found.append(write(self.at(x), base + 18, text, "mid dim tiny"))
                free = self.at(x) + half + 5
        found.append(rule(self.left, base, self.right, base, "axis"))
        found.append(write((self.left + self.right) / 2, self.tall - 6, name, "mid dim tiny"))
        return found

    def line(self, points: Iterable[tuple[float, float]], look: str, dashes: str | None = None) -> Html:
        path = " ".join(f"{self.at(x):.1f},{self.up(y):.1f}" for x, y in points)
        return tag("polyline", points=path, class_=look, fill="none", stroke_width=3, stroke_dasharray=dashes)


def surer(rise: float, who: str) -> Markup:
    """The belief that somebody may have afterwards, for every belief beforehand."""
    told = "; ".join(f"{words.percent(p, 0)} before, at most {_up(afterwards(p, rise))} after" for p in PRIORS)

    def draw(key: str, width: int) -> Html:
        wide = min(width, 520)
        axes = _Axes(width, 300, 46, wide - 10, (0, 1), (0, 1))
        marks = [(k / 4, f"{25 * k} %") for k in range(5)]
        places = [k / 200 for k in range(201)]
        body = [
            *axes.drawn(marks, marks, "how likely it seemed before"),
            axes.line([(0, 0), (1, 1)], "s7", "5 4"),
            axes.line([(p, afterwards(p, rise)) for p in places], "s1"),
            *(tag("circle", cx=axes.at(p), cy=axes.up(afterwards(p, rise)), r=4.5, class_="f1") for p in PRIORS),
            write(axes.at(0.56), axes.up(0.40), "nothing learned", "tiny dim"),
            write(axes.at(0.40), axes.up(min(0.97, afterwards(0.40, rise))) - 9, "at most", "end tiny strong"),
        ]
        return frame(key, "Beliefs before and after", f"For {who}: {told}.", width, 300, *body)

    return _figure("surer", draw, f"Upright: how likely it may seem afterwards to {who}, at most. In words: {told}.")


def spending(when: Sequence[datetime], found: Mapping[str, Sequence[float]], now: datetime) -> Markup | None:
    """What each observer had learned over time, until now; those who were told things exactly are left out."""
    shown = {who: line for who, line in found.items() if line and all(math.isfinite(epsilon) for epsilon in line)}
    if not when or not shown:
        return None
    most = max(epsilon for line in shown.values() for epsilon in line) or 1.0
    told = "; ".join(f"{who}: {rounded_up(line[-1])}" for who, line in shown.items())
    begin, end = when[0].timestamp(), max(now, when[-1]).timestamp()
    day = "%Y-%m-%d" if end - begin > _DAY else "%m-%d %H:%M"

    def draw(key: str, width: int) -> Html:
        names = list(shown)
        room = min(max(extent(name) for name in names) + 22, 0.33 * width)
        y_marks = ticks(0, most)
        axes = _Axes(width, 300, 52, width - room, (begin - 0.05 * (end - begin), end), (0, y_marks[-1]))
        body = axes.drawn(
            [(moment.timestamp(), f"{moment:{day}}") for moment in (when[0], now)],
            [(mark, f"{mark:g}") for mark in y_marks],
            "when studies were reserved (UTC)",
        )
        for colour, line in enumerate(shown.values()):
            body.append(
                axes.line(
                    [*_stairs(when, line), (end, line[-1])],
                    f"s{colour % 7}",
                    (None, "6 3", "2 3", "8 3 2 3")[colour % 4],
                )
            )
        ends = sorted(((axes.up(line[-1]), name, k) for k, (name, line) in enumerate(shown.items())))
        parts = [wrap(name, room - 22) for _, name, _ in ends]
        heights = apart([y - 8 for y, _, _ in ends], [_ROW * len(part) + 3 for part in parts], 0, 300)
        for y, part, (_, _, k) in zip(heights, parts, ends, strict=True):
            body.append(rule(axes.right + 4, y + 8, axes.right + 16, y + 8, f"s{k % 7}"))
            body += [write(axes.right + 20, y + 12 + _ROW * n, text, "tiny") for n, text in enumerate(part)]
        return frame(key, "Epsilon over time", f"In all, by now: {told}.", width, 300, *body)

    return _figure("spending", draw, "What each observer has learned in all, as epsilon, study after study.")


def cells(columns: Sequence[Surveyed]) -> Markup | None:
    """A histogram of each column."""
    panels = [
        Panel(each.name, each.labels, [float(bar) for bar in each.bars], (), (), each.ends)
        for each in columns[:_MOST_PANELS]
    ]
    if not panels:
        return None
    said = "; ".join(f"{each.name}: {_peak(each)}" for each in columns[:_MOST_PANELS])
    rest = len(columns) - len(panels)
    more = f" The first {len(panels)} columns; {rest} more are in the table above." if rest > 0 else ""
    return _figure(
        "cells",
        lambda key, width: histograms(key, width, panels, title="Cells of each column", description=said),
        f"How the cells lie, as a study would read them.{more}",
    )


def share(part: float, whole: float) -> int:
    """Percent of a bar that is full, for a ``progress`` or ``meter`` element."""
    return 100 if not math.isfinite(part) or part >= whole else max(0, round(100 * part / whole))


def _peak(each: Surveyed) -> str:
    if not any(each.bars):
        return "no cells"
    most = max(range(len(each.bars)), key=each.bars.__getitem__)
    if each.labels:
        return f"most often {each.labels[most]}, {each.bars[most]:,} times"
    low, high = each.ends or ("", "")
    return f"between {low} and {high}, most in part {most + 1} of {len(each.bars)}"


def _stairs(when: Sequence[datetime], line: Sequence[float]) -> list[tuple[float, float]]:
    found = [(when[0].timestamp(), 0.0)]
    for moment, epsilon in zip(when, line, strict=True):
        found += [(moment.timestamp(), found[-1][1]), (moment.timestamp(), epsilon)]
    return found


def _up(belief: float) -> str:
    """A belief in percent, rounded up."""
    return f"{math.ceil(belief * 1000 - 1e-9) / 10:g} %"


def _figure(key: str, draw: Callable[[str, int], Html], caption: str) -> Markup:
    return Markup(figure(key, draw, caption))  # noqa: S704 - made of escaped parts
