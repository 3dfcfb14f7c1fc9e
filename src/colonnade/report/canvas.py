"""What every chart uses: a frame with a title, text that is measured and wrapped, ticks, and two widths."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from colonnade.report.markup import Html, tag

WIDE, NARROW = 880, 330
LINE = 17
_EM = 13.0
_BREAKS = re.compile(r"(?<=[\s_.,:;/=+-])")


def figure(key: str, draw: Callable[[str, int], Html], caption: object = None) -> Html:
    """One chart drawn twice, for a wide screen and for a phone; the style sheet shows the one that fits."""
    drawn = [
        tag("div", draw(f"{key}-{name}", width), class_=name) for name, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    return tag("figure", *drawn, tag("figcaption", caption) if caption else None)


def frame(key: str, title: str, description: str, width: int, height: float, *inside: object) -> Html:
    """The svg element, with the text that a screen reader says instead of it."""
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *inside,
        class_="chart",
        role="img",
        viewBox=f"0 0 {width} {math.ceil(height)}",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def write(x: float, y: float, text: object, look: str = "") -> Html:
    """Text that starts at a point, on its baseline."""
    return tag("text", text, x=float(x), y=float(y), class_=look or None)


def rect(x: float, y: float, width: float, height: float, look: str | None, **more: object) -> Html:
    """A rectangle."""
    return tag("rect", x=float(x), y=float(y), width=float(max(width, 0)), height=float(height), class_=look, **more)


def rule(x1: float, y1: float, x2: float, y2: float, look: str) -> Html:
    """A straight line."""
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=look)


def extent(text: str) -> float:
    """How wide a text is at most, in the units of a chart."""
    return _EM * sum(map(_breadth, text))


def wrap(text: str, limit: float) -> list[str]:
    """The whole text in lines no wider than ``limit``; they end between words, or inside a word that is too long."""
    lines = [""]
    for word in _BREAKS.split(text):
        if lines[-1] and extent(lines[-1] + word.rstrip()) > limit:
            lines.append("")
        for letter in word:
            if lines[-1] and extent(lines[-1] + letter) > limit and not letter.isspace():
                lines.append("")
            lines[-1] += letter
    return [line.strip() for line in lines if line.strip()] or [""]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span an interval, about ``count`` of them."""
    if not high > low:
        high = low + 1.0
    raw = (high - low) / max(1, count)
    base = 10.0 ** math.floor(math.log10(raw))
    step = base * next(k for k in (1, 2, 2.5, 5, 10) if k * base >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def apart(wanted: list[float], gaps: list[float], low: float, high: float) -> list[float]:
    """Where labels go so that none overlap: as near as possible to the wanted heights, which come in order."""
    placed: list[float] = []
    floor = low
    for place, gap in zip(wanted, gaps, strict=True):
        placed.append(max(place, floor))
        floor = placed[-1] + gap
    ceiling = high
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], ceiling - gaps[k])
        ceiling = placed[k]
    return placed


@lru_cache(maxsize=4096)
def _breadth(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    return 0.36 if letter in " .,:;'|ijlI!" else 0.74 if letter.isupper() or letter in "mw%" else 0.63
