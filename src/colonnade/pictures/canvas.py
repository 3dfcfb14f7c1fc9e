"""Where pictures are drawn: a figure of matplotlib, which belongs to nobody but the caller.

Pyplot is never asked for one, so no list of open figures grows, and there is nothing to close.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from colonnade.errors import StudyError
from colonnade.pictures.look import DARK, LIGHT, SMALL, Look, Panel, Sheet

try:
    from matplotlib import rcParams
    from matplotlib.axes import Axes
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
except ImportError:
    raise StudyError(
        "pictures are drawn by matplotlib, which is not installed: pip install 'colonnade[plots]' [ST404]"
    ) from None

_LIGHT_TEXT = 0.5
_MARGIN = 0.1  # inches


class Picture(Figure):  # type: ignore[misc, unused-ignore]  # the type checker may lack matplotlib
    """A figure that a notebook shows, also where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        kept = io.BytesIO()
        self.savefig(kept, format="png", dpi=rcParams["figure.dpi"])
        return kept.getvalue()


def drawn(sheet: Sheet, ax: Any = None) -> Any:
    """A figure with these panels; on given axes, the figure to which they belong."""
    panels, across = sheet.panels, sheet.across
    rows = math.ceil(len(panels) / across)
    figure, places = _new(panels, rows, across) if ax is None else _within(ax, rows, across)
    if sheet.note and ax is None:
        figure.supxlabel(sheet.note, x=0.01, ha="left", fontsize=SMALL, color=_look().soft)
    for panel, place in zip(panels, places, strict=False):
        panel.draw(place, _look())
    for place in places[len(panels) :]:
        place.set_axis_off()
    return figure


def _new(panels: Sequence[Panel], rows: int, across: int) -> tuple[Any, list[Any]]:
    sizes = [panel.size for panel in panels]
    grid = [sizes[start : start + across] for start in range(0, len(sizes), across)]
    wide = [max(row[k][0] for row in grid if k < len(row)) for k in range(across)]
    tall = [max(height for _, height in row) for row in grid]
    figure = Picture(figsize=(sum(wide), sum(tall)), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=_MARGIN, h_pad=_MARGIN)
    ratios = {"width_ratios": wide, "height_ratios": tall}
    return figure, list(figure.subplots(rows, across, squeeze=False, gridspec_kw=ratios).flat)


def _within(ax: Any, rows: int, across: int) -> tuple[Any, list[Any]]:
    """The places within given axes; where there are several, the given ones are their frame and show nothing."""
    if not isinstance(ax, Axes):
        raise StudyError(
            f"ax= takes one Axes of matplotlib, not {type(ax).__name__}: pass one of plt.subplots() [ST405]"
        )
    if rows * across == 1:
        return ax.figure, [ax]
    frame = ax.get_subplotspec()
    if frame is None:
        raise StudyError(
            "these axes are in no grid, so several panels have no place in them: use plt.subplots() [ST406]"
        )
    ax.set_axis_off()
    grid = frame.subgridspec(rows, across)
    return ax.figure, [ax.figure.add_subplot(grid[row, k]) for row in range(rows) for k in range(across)]


def _look() -> Look:
    """Dark where the caller's style writes in light letters."""
    red, green, blue = to_rgb(rcParams["text.color"])
    return DARK if 0.3 * red + 0.6 * green + 0.1 * blue > _LIGHT_TEXT else LIGHT
