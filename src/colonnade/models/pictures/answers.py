"""Sums with their intervals, and the scores that one party received, as a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.models.estimates import Estimate
from colonnade.models.pictures.estimated import bar, unclear
from colonnade.pictures.bars import Bars
from colonnade.pictures.lines import Line, Lines
from colonnade.pictures.look import Sheet

_MOST_SUMS, _BINS = 24, 20


def sums(found: Mapping[str, Estimate]) -> Sheet:
    """A bar for each sum."""
    shown = list(found.items())[:_MOST_SUMS]
    bars = [bar(text, value, _plain(value)) for text, value in shown]
    notes = ["thin line: 95 % interval for the exact sum"]
    if any(unclear(value) for _, value in shown):
        notes.append("grey: cannot be told from zero")
    if len(shown) < len(found):
        notes.append(f"the first {len(shown)} of {len(found)} sums")
    return Sheet([Bars("Sums over all people", bars, "sum, in encoded units", "; ".join(notes))])


def scores(received: NDArray[Any], own: NDArray[Any] | None, what: str) -> Sheet:
    """How received numbers are spread over people, beside those by the receiver's columns alone."""
    held = [("all parties' columns", received)] + ([] if own is None else [("own columns alone", own)])
    both = np.concatenate([np.asarray(values, dtype=np.float64) for _, values in held])
    low, high = float(both.min()), float(both.max())
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    lines = [_spread(name, values, edges) for name, values in held]
    axis = f"{what}, of {len(received):,} people"
    return Sheet([Lines("Received scores", lines, axis, "share of the people")])


def _spread(name: str, values: NDArray[Any], edges: NDArray[np.float64]) -> Line:
    counts, _ = np.histogram(np.asarray(values, dtype=np.float64), edges)
    heights = (counts / max(1, len(values))).tolist()
    return Line(name, edges.tolist(), [*heights, heights[-1]], steps=True, filled=True)


def _plain(value: Estimate) -> str:
    shown = f"{float(value):,.4g}" + ("" if value.deviation is None else f" ± {value.deviation:,.2g}")
    return shown.replace("-", "\N{MINUS SIGN}")
