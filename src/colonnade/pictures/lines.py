"""Lines: what is spent over time, how sure scores are, how well chances are calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from colonnade.pictures.look import SMALL, Look, finish, said, wrapped

_LEGEND = 26
_STROKES = ("-", (0, (5, 2)), (0, (2, 2)), (0, (6, 2, 2, 2)))


@dataclass(frozen=True)
class Line:
    """Points from left to right; with ``steps`` a height holds until the next point."""

    label: str
    xs: Sequence[Any]
    ys: Sequence[float]
    steps: bool = False
    points: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Lines:
    """Lines over one scale; ``limits`` are heights not to be exceeded, ``diagonal`` names the one from 0 to 1."""

    title: str
    lines: Sequence[Line]
    axis: str
    upright: str
    limits: Mapping[str, float] = field(default_factory=dict)
    diagonal: str = ""
    note: str = ""
    width: float = 6.8

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return self.width, 3.8

    def draw(self, ax: Any, look: Look) -> None:
        """Draw them."""
        for place, line in enumerate(self.lines):
            colour, stroke = look.series[place % 7], _STROKES[place % len(_STROKES)]
            style = {"color": colour, "linestyle": stroke, "linewidth": 1.8, "label": wrapped(line.label, _LEGEND)}
            ax.plot(
                line.xs, line.ys, drawstyle="steps-post" if line.steps else "default",
                marker="o" if line.points else None, markersize=4, **style,
            )  # fmt: skip
            if line.filled:
                ax.fill_between(line.xs, line.ys, step="post" if line.steps else None, color=colour, alpha=0.25, lw=0)
        for name, height in self.limits.items():
            ax.axhline(height, color=look.warn, linewidth=1.1, linestyle=(0, (3, 3)))
            ax.annotate(
                said(name), (0, height), (3, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
                va="bottom", fontsize=SMALL, color=look.warn,
            )  # fmt: skip
        if self.diagonal:
            ax.plot([0, 1], [0, 1], color=look.soft, linewidth=1, linestyle=(0, (4, 3)), label=said(self.diagonal))
        heights = [*(y for line in self.lines for y in line.ys), *self.limits.values(), *[1.0] * bool(self.diagonal)]
        ax.set_ylim(0, 1.08 * max(heights, default=0.0) or 1.0)
        ax.grid(axis="y", color=look.grid, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_ylabel(said(self.upright), fontsize=SMALL, color=look.soft)
        finish(ax, look, self.title, self.axis, self.note, width=self.width)
        if any(isinstance(x, datetime) for line in self.lines for x in line.xs[:1]):
            _dates(ax)
        if len(self.lines) > 1 or self.diagonal:
            beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if self.limits else {}
            ax.legend(frameon=False, fontsize=SMALL, labelcolor=look.ink, **beside)


def _dates(ax: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
