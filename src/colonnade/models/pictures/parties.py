"""What is public about models of which each party keeps its part: noise of what was told, and a committee's head."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from colonnade.pictures.bars import Bar, Bars
from colonnade.pictures.look import Sheet


def noise(deviations: Mapping[str, float], of: str) -> Sheet:
    """The noise on each number that a party told."""
    bars = [Bar(party, float(value), f"{value:.3g}") for party, value in deviations.items()]
    axis = f"standard deviation of the noise on {of}"
    kept = "what each party learned stays with it, and is not drawn"
    return Sheet([Bars("What the parties told, and with how much noise", bars, axis, kept)])


def reach(weights: NDArray[np.float64], widths: Mapping[str, int], length: float) -> Sheet:
    """How far the embedding of each party, which has a public length, can move the scores of a public head."""
    parts, start = {}, 0
    for party, width in widths.items():
        if width:
            parts[party] = length * _widest(weights[:, start : start + width])
        start += width
    bars = [Bar(party, value, f"{value:.3g}") for party, value in parts.items()]
    what = "the score" if len(weights) == 1 else "the lead of one class over another"
    note = "the longer a bar, the more of the prediction can come from this party"
    return Sheet([Bars("Whose embeddings the head listens to", bars, f"largest change of {what}", note)])


def _widest(rows: NDArray[np.float64]) -> float:
    """The largest distance between two rows; of one row, its length."""
    if len(rows) == 1:
        return float(np.linalg.norm(rows[0]))
    return float(np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2).max())
