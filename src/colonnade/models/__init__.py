"""Federations, parties and what every model shares: what a data scientist uses besides the kinds of study."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

if TYPE_CHECKING:
    from colonnade.models.assessment import Assessment as Assessment, assess as assess
    from colonnade.models.base import Estimator as Estimator
    from colonnade.models.estimates import Estimate as Estimate
    from colonnade.models.federation import Federation as Federation, Party as Party
    from colonnade.models.predicted import JointScores as JointScores
    from colonnade.models.roster import Roster as Roster

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "assessment": "Assessment assess",
        "base": "Estimator",
        "estimates": "Estimate",
        "federation": "Federation Party",
        "predicted": "JointScores",
        "roster": "Roster",
    },
)
