"""A table of signed numbers on colours: loadings of components, weights of several classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.pictures.look import SMALL, Look, finish, label, said

_ROW, _REST, _LABELS, _CELL = 0.3, 1.35, 2.0, 1.15
_STRONGEST = 0.75


@dataclass(frozen=True)
class Cell:
    """One number: what is written, and whether it is grey because it cannot be told from zero."""

    value: float
    text: str
    grey: bool = False


@dataclass(frozen=True)
class Cells:
    """Rows of cells under the names of columns; the larger a number, the stronger its colour."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str = ""

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return max(4.4, _LABELS + _CELL * len(self.columns)), _REST + _ROW * len(self.rows)

    def draw(self, ax: Any, look: Look) -> None:
        """Draw them."""
        most = max((_strength(cell) for _, row in self.rows for cell in row), default=0.0) or 1.0
        height, width = len(self.rows), len(self.columns)
        for place, (_, row) in enumerate(self.rows):
            for k, cell in enumerate(row):
                sign = look.positive if cell.value > 0 else look.negative
                colour = (look.grey, 0.45) if cell.grey else (sign, _STRONGEST * _strength(cell) / most)
                ax.bar(k, 0.92, 0.96, bottom=place - 0.46, color=[colour])
                ink = look.soft if cell.grey else look.ink
                ax.text(k, place, said(cell.text), ha="center", va="center", fontsize=SMALL, color=ink)
        ax.set_xlim(-0.5, max(width, 1) - 0.5)
        ax.set_ylim(max(height, 1) - 0.5, -0.5)
        finish(ax, look, self.title, "", self.note, width=self.size[0])
        ax.set_yticks(range(height), [label(name) for name, _ in self.rows])
        ax.set_xticks(range(width), [label(name) for name in self.columns])
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)


def _strength(cell: Cell) -> float:
    """How large a number is; 0 where noise left none that is finite."""
    return abs(cell.value) if math.isfinite(cell.value) else 0.0
