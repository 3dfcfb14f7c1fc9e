"""Federations, parties and what every model shares: what a data scientist uses besides the kinds of study."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.models.assessment import Assessment as Assessment, assess_chances as assess_chances
    from colonnade.models.base import Estimator as Estimator
    from colonnade.models.estimates import Estimate as Estimate
    from colonnade.models.federation import Federation as Federation, Party as Party
    from colonnade.models.planner import Roster as Roster
    from colonnade.models.score_result import JointScores as JointScores

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "assessment": "Assessment assess_chances",
        "base": "Estimator",
        "estimates": "Estimate",
        "federation": "Federation Party",
        "planner": "Roster",
        "score_result": "JointScores",
    },
)
