"""Pictures as inline SVG: the true ones above, what was recovered of them below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.report.canvas import LINE, frame, write
from colonnade.report.markup import Html, tag

Pictures = NDArray[np.float64]
_GAP = 8.0
_LEVELS = 16  # shades that are told apart; neighbours of one shade are drawn as one
_TALL = 84.0


def pairs(
    key: str, width: int, rows: Sequence[tuple[str, Pictures]], *, low: float, high: float, title: str, description: str
) -> Html:
    """Named rows of pictures, (n, height, width) or (n, height, width, 3), whose columns belong together."""
    number = max(len(pictures) for _, pictures in rows)
    high_count, wide_count = rows[0][1].shape[1:3]
    unit = _TALL / high_count
    across = max(1, int((width + _GAP) // (unit * wide_count + _GAP)))
    body, y = [], 0.0
    for begin in range(0, number, across):
        for name, pictures in rows:
            body.append(write(0, y + 12, name, "dim tiny"))
            y += LINE + 2
            for place, each in enumerate(pictures[begin : begin + across]):
                body.append(_picture(each, place * (unit * wide_count + _GAP), y, unit, low, high))
            y += _TALL + _GAP
        y += _GAP
    return frame(key, title, description, width, y, *body)


def _picture(pixels: Pictures, left: float, top: float, unit: float, low: float, high: float) -> Html:
    high_count, wide_count = pixels.shape[:2]
    shades = np.clip(np.nan_to_num((pixels - low) / ((high - low) or 1.0)), 0, 1)
    colours = np.broadcast_to(
        np.rint(shades * (_LEVELS - 1)).astype(int).reshape(high_count, wide_count, -1), (high_count, wide_count, 3)
    )
    drawn = []
    for row in range(high_count):
        start = 0
        for column in range(1, wide_count + 1):
            if column < wide_count and (colours[row, column] == colours[row, start]).all():
                continue
            drawn.append(
                tag(
                    "rect",
                    x=f"{left + start * unit:.2f}",
                    y=f"{top + row * unit:.2f}",
                    width=f"{(column - start) * unit:.2f}",
                    height=f"{unit:.2f}",
                    fill="#" + "".join(f"{shade:x}" for shade in colours[row, start]),
                )
            )
            start = column
    return tag("g", *drawn, shape_rendering="crispEdges")
