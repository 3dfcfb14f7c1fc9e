"""Where nobody knows whom all parties hold, only computations on second moments go on."""

from __future__ import annotations

from colonnade.errors import StudyError
from colonnade.models.federation import Roster


def require_known_members(roster: Roster, what: str) -> None:
    """Refuse what works on the rows that all parties hold when a hidden alignment told nobody which those are."""
    if roster.hidden:
        raise StudyError(
            f"{what} does not work after a hidden alignment, in which nobody learns whom all parties hold: hidden "
            "alignment works with pca, linear and logistic (one-shot, functional); use one of those, or hidden = false"
        )
