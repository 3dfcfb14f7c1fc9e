"""Federations, parties and what every model shares: what a data scientist uses besides the kinds of study."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.models.base import Estimator as Estimator
    from colonnade.models.classifier_mixin import Assessment as Assessment, assess_chances as assess_chances
    from colonnade.models.federation import Federation as Federation, Party as Party
    from colonnade.models.pictures import Estimate as Estimate
    from colonnade.models.planner import Roster as Roster
    from colonnade.models.score_result import JointScores as JointScores

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "classifier_mixin": "Assessment assess_chances",
        "base": "Estimator",
        "pictures": "Estimate",
        "federation": "Federation Party",
        "planner": "Roster",
        "score_result": "JointScores",
    },
)
