"""Bars from zero to the right or to the left, with intervals: weights, sums, variances, epsilons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from colonnade.pictures.look import SMALL, Look, finish, label, said

Kind = Literal["plain", "signed", "grey", "doubtful", "open"]
_ROW, _REST, _WIDTH = 0.3, 1.35, 6.4


@dataclass(frozen=True)
class Bar:
    """One bar: how long it is, the ends of its interval where one is known, and what is written beside it.

    A ``signed`` bar has the colour of its sign. A ``grey`` one cannot be told from zero. A ``doubtful`` one is hatched.
    An ``open`` one has no length: it is hatched from end to end. ``limit`` is the most that it may become.
    """

    label: str
    value: float
    text: str
    kind: Kind = "plain"
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    group: str = ""

    @property
    def ends(self) -> tuple[float, ...]:
        """All finite places to which it reaches."""
        found = (self.value, self.low, self.high, self.limit)
        return tuple(each for each in found if each is not None and math.isfinite(each))


@dataclass(frozen=True)
class Bars:
    """Bars below each other, the first one on top; those of one group stand under its name."""

    title: str
    bars: Sequence[Bar]
    axis: str
    note: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return _WIDTH, _REST + _ROW * len(self._rows) + 0.14 * (len(self.note) // 80)

    @property
    def _rows(self) -> list[Bar | str]:
        """The bars, and before each group its name."""
        found: list[Bar | str] = []
        group = ""
        for bar in self.bars:
            if bar.group != group:
                found.append(group := bar.group)
            found.append(bar)
        return found

    def draw(self, ax: Any, look: Look) -> None:
        """Draw them."""
        rows = self._rows
        ends = [0.0, *(end for bar in self.bars for end in bar.ends)]
        least, most = min(ends), max(ends)
        if least == most:
            most = 1.0
        ax.set_xlim(least * 1.02, most * 1.02)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.axvline(0, color=look.soft, linewidth=0.8)
        for place, row in enumerate(rows):
            if isinstance(row, str):
                ax.annotate(
                    said(row), (0, place), (2, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                    va="center", fontsize=SMALL, fontweight="bold", color=look.soft,
                )  # fmt: skip
            else:
                _draw(ax, look, row, place, least, most)
        named = [(place, row) for place, row in enumerate(rows) if isinstance(row, Bar)]
        ax.set_yticks([place for place, _ in named], [label(row.label) for _, row in named])
        finish(ax, look, self.title, self.axis, self.note)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)


def _draw(ax: Any, look: Look, bar: Bar, place: int, least: float, most: float) -> None:
    if bar.kind == "open":
        ax.barh(place, most, 0.62, facecolor="none", edgecolor=look.grey, hatch="////", linewidth=0)
        _write(ax, look, bar, place, 0.0, boxed=True)
        return
    colour = {
        "signed": look.positive if bar.value > 0 else look.negative,
        "grey": look.grey,
        "doubtful": look.warn,
    }.get(bar.kind, look.series[0])
    if bar.limit is not None:
        ax.barh(place, bar.limit, 0.62, color=look.grid)
        ax.plot([bar.limit] * 2, [place - 0.36, place + 0.36], color=look.warn, linewidth=1.4, linestyle=(0, (3, 2)))
    if bar.kind == "doubtful":
        ax.barh(place, bar.value, 0.62, facecolor="none", edgecolor=colour, hatch="////", linewidth=1)
    else:
        ax.barh(place, bar.value, 0.62, color=colour)
    if bar.low is not None and bar.high is not None:
        ends = [min(max(end, least * 1.02), most * 1.02) for end in (bar.low, bar.high)]
        ax.plot(ends, [place, place], color=look.ink, linewidth=1.1, marker="|", markersize=6)
    _write(ax, look, bar, place, max([0.0, *bar.ends]))


def _write(ax: Any, look: Look, bar: Bar, place: int, at: float, *, boxed: bool = False) -> None:
    """What is to the right of a bar, where no label can be; inside an open one it stands on a ground of its own."""
    box = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.5} if boxed else None
    ax.annotate(
        said(bar.text), (at, place), (6, 0), textcoords="offset points", va="center",
        fontsize=SMALL, color=look.soft if bar.kind == "grey" else look.ink, bbox=box,
    )  # fmt: skip
