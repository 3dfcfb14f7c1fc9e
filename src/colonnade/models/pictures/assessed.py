"""How good probabilities are: a curve of all thresholds, and what happened beside what was said."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.pictures.lines import Line, Lines
from colonnade.pictures.look import Sheet

_WIDTH = 4.6


def assessed(roc: Sequence[tuple[float, float]], auc: float | None, bins: Sequence[tuple[float, float]]) -> Sheet:
    """Ranking, where somebody has the label and somebody lacks it, and calibration."""
    happened = Line("these people", [said for said, _ in bins], [share for _, share in bins], points=True)
    axis, upright = "mean probability of a tenth of the people", "share who have the label"
    calibration = Lines("Calibration", [happened], axis, upright, diagonal="as it should be", width=_WIDTH)
    if auc is None:
        return Sheet([calibration])
    found = Line(f"AUC {auc:.3f}", [across for across, _ in roc], [up for _, up in roc])
    axis, upright = "share found among those without the label", "share found of those with the label"
    return Sheet([Lines("Ranking", [found], axis, upright, diagonal="by chance", width=_WIDTH), calibration], 2)
