"""Upright bars beside each other, with what was measured and its interval at each: shares of the people, by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.harmless import harmless
from colonnade.pictures.look import SMALL, Look, finish, said

_WIDE, _TALL = 3.3, 2.3
_MOST_LABELS, _LONGEST, _UPRIGHT, _TICKS = 12, 14, 26, 5


@dataclass(frozen=True)
class Columns:
    """One bar a value; ``measured`` are value, low and high of what was published about it, where it was.

    ``borders`` are where bars of a number begin, and where the last one ends; they are written instead of the labels.
    """

    title: str
    labels: Sequence[str]
    bars: Sequence[float]
    measured: Sequence[tuple[float, float, float]] = ()
    borders: Sequence[str] = ()
    note: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return _WIDE, _TALL

    def draw(self, ax: Any, look: Look) -> None:
        """Draw them."""
        places = range(len(self.bars))
        if self.bars:
            ax.bar(places, self.bars, 0.84, color=look.series[0], alpha=0.55)
        for place, (value, low, high) in zip(places, self.measured, strict=False):
            ax.plot([place, place], [low, high], color=look.series[1], linewidth=1.2)
            ax.plot([place], [value], color=look.series[1], marker="_", markersize=6)
        ax.set_xlim(-0.6, max(1, len(self.labels)) - 0.4)
        ends = [*self.bars, *(high for _, _, high in self.measured), *(value for value, _, _ in self.measured)]
        ax.set_ylim(min(0.0, *(value for value, _, _ in self.measured), 0.0), 1.06 * max(ends, default=0.0) or 1.0)
        finish(ax, look, self.title, "", self.note, width=_WIDE)
        ax.title.set_fontsize(9.5)
        self._name(ax)
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g} %")
        ax.tick_params(labelsize=SMALL - 1)

    def _name(self, ax: Any) -> None:
        """Ticks below: borders of a scale, or labels as far as they have room."""
        if self.borders:
            step = max(1, -(-(len(self.borders) - 1) // _TICKS))
            shown = range(0, len(self.borders), step)
            ax.set_xticks([place - 0.5 for place in shown], [said(self.borders[place]) for place in shown])
            return
        step = max(1, -(-len(self.labels) // _MOST_LABELS))
        shown = range(0, len(self.labels), step)
        texts = [said(harmless(self.labels[place], _LONGEST + 6), _LONGEST) for place in shown]
        ax.set_xticks(list(shown), texts)
        if sum(map(len, texts)) > _UPRIGHT:
            ax.tick_params(axis="x", labelrotation=35)
            for tick in ax.get_xticklabels():
                tick.set_horizontalalignment("right")
