"""Small histograms side by side: bars, and what was measured with its error beside each bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.report.canvas import LINE, extent, frame, rect, rule, wrap, write
from colonnade.report.markup import Html, join

_PANEL, _TALL, _GAP = 270, 84, 26
_FEW, _ROOM = 7, 4


@dataclass(frozen=True)
class Panel:
    """One histogram: a label and a bar for each of its values, and a measured value with its error where there is one.

    ``ends`` are the edges of a scale, where the values lie on one: they are written below instead of the labels. Or
    ``borders`` are what begins with each bar of a scale, and where the last one ends: of these as many are written as
    have room.
    """

    title: str
    labels: Sequence[str]
    bars: Sequence[float]
    measured: Sequence[float]
    errors: Sequence[float]
    ends: tuple[str, str] | None = None
    borders: Sequence[str] = ()


def histograms(key: str, width: int, panels: Sequence[Panel], *, title: str, description: str) -> Html:
    """As many beside each other as there is room for, each on a scale of its own."""
    across = max(1, min(3, width // _PANEL))
    wide = (width - _GAP * (across - 1)) / across
    y, body = 0.0, []
    for start in range(0, len(panels), across):
        drawn = [
            _panel(panel, place * (wide + _GAP), y, wide) for place, panel in enumerate(panels[start : start + across])
        ]
        body += [part for part, _ in drawn]
        y = max(end for _, end in drawn) + 16
    return frame(key, title, description, width, y, *body)


def _panel(panel: Panel, x: float, y: float, width: float) -> tuple[Html, float]:
    """One histogram whose upper left corner is at a point, and where it ends below."""
    parts = []
    for text in wrap(panel.title, width):
        y += LINE
        parts.append(write(x, y, text, "strong"))
    base = y + 8 + _TALL
    measured = list(zip(panel.measured, panel.errors, strict=True))
    most = max([*panel.bars, *(value + error for value, error in measured)], default=0.0)
    scale = _TALL / most if most > 0 and math.isfinite(most) else 0.0
    step = width / max(1, len(panel.bars))
    for place, bar in enumerate(panel.bars):
        left = x + (place + 0.1) * step
        parts.append(rect(left, base - scale * bar, 0.8 * step, scale * bar, "f0", fill_opacity=0.55))
    for place, (value, error) in enumerate(measured):
        middle, tick = x + (place + 0.5) * step, min(4.0, 0.3 * step)
        low, high = (base - scale * max(0.0, min(most, value + sign * error)) for sign in (-1, 1))
        at = base - scale * max(0.0, value)
        parts += [rule(middle, low, middle, high, "s1"), rule(middle - tick, at, middle + tick, at, "s1")]
    parts.append(rule(x, base, x + width, base, "axis"))
    return join(*parts, *_below(panel, x, base, width, step)), base + 2 + LINE * _lines(panel, step)


def _scaled(panel: Panel) -> bool:
    return panel.ends is not None or bool(panel.borders)


def _beside(panel: Panel, step: float) -> bool:
    """Whether every label has room below its bar."""
    return not _scaled(panel) and all(extent(label) <= step - 2 for label in panel.labels)


def _lines(panel: Panel, step: float) -> int:
    return 1 if _scaled(panel) or _beside(panel, step) else len(_listed(panel, step * len(panel.bars)))


def _listed(panel: Panel, width: float) -> list[str]:
    """The labels one after the other, where they have no room below their bars."""
    shown = [f"{place + 1} {label}" for place, label in enumerate(panel.labels[:_FEW])]
    more = [f"and {len(panel.labels) - _FEW} more"] if len(panel.labels) > _FEW else []
    return wrap(", ".join([*shown, *more]), width)


def _below(panel: Panel, x: float, base: float, width: float, step: float) -> list[Html]:
    if panel.ends is not None:
        low, high = panel.ends
        return [write(x, base + 14, low, "dim tiny"), write(x + width, base + 14, high, "dim tiny end")]
    if panel.borders:
        return _ticks(panel.borders, x, base, step)
    if _beside(panel, step):
        places = enumerate(panel.labels)
        return [write(x + (place + 0.5) * step, base + 14, label, "dim tiny mid") for place, label in places]
    lines = _listed(panel, width)
    return [write(x, base + 14 + LINE * number, line, "dim tiny") for number, line in enumerate(lines)]


def _ticks(borders: Sequence[str], x: float, base: float, step: float) -> list[Html]:
    """The first and the last border, and between them those that leave some room around each."""
    last = len(borders) - 1
    end = x + last * step
    drawn = [write(x, base + 14, borders[0], "dim tiny"), write(end, base + 14, borders[last], "dim tiny end")]
    drawn += [rule(at, base, at, base + 3, "axis") for at in (x + place * step for place in range(last + 1))]
    taken, limit = x + extent(borders[0]), end - extent(borders[last])
    for place in range(1, last):
        at, half = x + place * step, extent(borders[place]) / 2
        if at - half >= taken + _ROOM and at + half <= limit - _ROOM and borders[place] != borders[place - 1]:
            drawn.append(write(at, base + 14, borders[place], "dim tiny mid"))
            taken = at + half
    return drawn
