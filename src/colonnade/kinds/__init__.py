"""The kinds of study, a folder each: everything about one kind, from its model to its audit games.

No floor of the core imports a kind: the rows of :mod:`colonnade.models.registry` name what each of them has. A kind
imports another one only where ``docs/explanation/architecture.md`` says so. Each folder begins with a page of its own.
"""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.kinds.glm.kept_scores import KeptScores as KeptScores
    from colonnade.kinds.glm.model import GLM as GLM
    from colonnade.kinds.glm.preflight import Guarantees as Guarantees
    from colonnade.kinds.pca.model import PCA as PCA
    from colonnade.kinds.polynomial.model import PolynomialSum as PolynomialSum, polynomial_sum as polynomial_sum
    from colonnade.kinds.prediction.model import JointPrediction as JointPrediction, joint_scores as joint_scores
    from colonnade.kinds.regression.model import (
        LinearRegression as LinearRegression,
        LogisticRegression as LogisticRegression,
    )
    from colonnade.kinds.split.encoders import (
        Encoder as Encoder,
        encoder_from as encoder_from,
        load_encoder as load_encoder,
        save_encoder as save_encoder,
    )
    from colonnade.kinds.split.model import SplitClassifier as SplitClassifier, SplitRegressor as SplitRegressor
    from colonnade.kinds.split.scores import SplitScores as SplitScores
    from colonnade.kinds.synthesis.model import Synthesizer as Synthesizer
    from colonnade.kinds.synthesis.quality import (
        SyntheticQuality as SyntheticQuality,
        evaluate_synthetic as evaluate_synthetic,
    )

PUBLIC = {
    "glm.model": "GLM",
    "pca.model": "PCA",
    "polynomial.model": "PolynomialSum polynomial_sum",
    "prediction.model": "JointPrediction joint_scores",
    "regression.model": "LinearRegression LogisticRegression",
    "split.model": "SplitClassifier SplitRegressor",
    "split.scores": "SplitScores",
    "synthesis.model": "Synthesizer",
    "synthesis.quality": "evaluate_synthetic",
}
"""What ``colonnade`` exports of them."""
_BESIDES = {
    "glm.kept_scores": "KeptScores",
    "glm.preflight": "Guarantees",
    "split.encoders": "Encoder encoder_from load_encoder save_encoder",
    "synthesis.quality": "SyntheticQuality",
}
__all__, __getattr__, __dir__ = lazy_exports(
    __name__, {home: f"{PUBLIC.get(home, '')} {_BESIDES.get(home, '')}" for home in {**PUBLIC, **_BESIDES}}
)
