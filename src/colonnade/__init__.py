"""Colonnade: differentially private learning on vertically partitioned data, with no trusted party."""

from typing import TYPE_CHECKING

from colonnade.kinds import PUBLIC
from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    __version__: str
    from colonnade.errors import ColonnadeError as ColonnadeError
    from colonnade.kinds import (
        GLM as GLM,
        PCA as PCA,
        JointPrediction as JointPrediction,
        LinearRegression as LinearRegression,
        LogisticRegression as LogisticRegression,
        PolynomialSum as PolynomialSum,
        SplitClassifier as SplitClassifier,
        SplitRegressor as SplitRegressor,
        SplitScores as SplitScores,
        Synthesizer as Synthesizer,
        evaluate_synthetic as evaluate_synthetic,
        joint_scores as joint_scores,
        polynomial_sum as polynomial_sum,
    )
    from colonnade.models import (
        Estimate as Estimate,
        Federation as Federation,
        Party as Party,
        assess_chances as assess_chances,
    )
    from colonnade.privacy import (
        Adjacency as Adjacency,
        Ledger as Ledger,
        Observer as Observer,
        Statement as Statement,
    )
    from colonnade.study import PartyConfig as PartyConfig, Study as Study, preflight as preflight
    from colonnade.tables import (
        Key as Key,
        KeyColumn as KeyColumn,
        Query as Query,
        Schema as Schema,
        Table as Table,
        category as category,
        date as date,
        flag as flag,
        number as number,
        read_table as read_table,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "errors": "ColonnadeError",
        "models": "Estimate Federation Party assess_chances",
        "privacy": "Adjacency Ledger Observer Statement",
        "study": "PartyConfig Study preflight",
        "tables": "Key KeyColumn Query Schema Table category date flag number read_table",
        "versions": "__version__",
        "kinds": " ".join(PUBLIC.values()),
    },
)
