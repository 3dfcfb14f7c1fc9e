"""Reads drawings: the lengths and intervals of bars as values, and texts and shapes as they are in the SVG."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from colonnade.drawing.canvas import Chart
from colonnade.drawing.charts import BarChart

SVG = "{http://www.w3.org/2000/svg}"


def read(drawn: str) -> ElementTree.Element:
    """A drawing as a tree."""
    return ElementTree.fromstring(drawn)  # noqa: S314 - our own


def shapes(drawn: str, name: str) -> list[dict[str, str]]:
    """The attributes of all elements with a name."""
    return [found.attrib for found in read(drawn).iter() if found.tag.removeprefix(SVG) == name]


def written(chart: Chart, width: int = 880) -> list[str]:
    """The texts in a chart."""
    root = read(chart.draw("k", width))
    return ["".join(found.itertext()) for found in root.iter() if found.tag.removeprefix(SVG) == "text"]


def lengths(chart: Any) -> dict[str, float | None]:
    """How long each bar is."""
    assert isinstance(chart, BarChart)
    return {bar.label: bar.value for bar in chart.bars}


def intervals(chart: Any) -> dict[str, tuple[float | None, float | None]]:
    """The ends of the intervals of bars that have one."""
    assert isinstance(chart, BarChart)
    return {bar.label: (bar.low, bar.high) for bar in chart.bars if bar.low is not None}
