"""Models, federations and parties: what a data scientist uses."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

if TYPE_CHECKING:
    from colonnade.models.assessment import Assessment as Assessment, assess as assess
    from colonnade.models.base import Estimator as Estimator
    from colonnade.models.estimates import Estimate as Estimate
    from colonnade.models.federation import Federation as Federation, Party as Party, Roster as Roster
    from colonnade.models.glm.crossval import cross_validate as cross_validate
    from colonnade.models.glm.guarantees import Guarantees as Guarantees
    from colonnade.models.glm.kept_scores import KeptScores as KeptScores
    from colonnade.models.glm.model import GLM as GLM
    from colonnade.models.pca import PCA as PCA
    from colonnade.models.polynomial import PolynomialSum as PolynomialSum, polynomial_sum as polynomial_sum
    from colonnade.models.predicted import JointScores as JointScores
    from colonnade.models.prediction import JointPrediction as JointPrediction, joint_scores as joint_scores
    from colonnade.models.regression.linear import LinearRegression as LinearRegression
    from colonnade.models.regression.logistic import LogisticRegression as LogisticRegression
    from colonnade.models.split.encoders import (
        Encoder as Encoder,
        encoder_from as encoder_from,
        load_encoder as load_encoder,
        save_encoder as save_encoder,
    )
    from colonnade.models.split.model import SplitClassifier as SplitClassifier, SplitRegressor as SplitRegressor
    from colonnade.models.split.scores import SplitScores as SplitScores
    from colonnade.models.synthesis.model import Synthesizer as Synthesizer
    from colonnade.models.synthesis.quality import (
        SyntheticQuality as SyntheticQuality,
        evaluate_synthetic as evaluate_synthetic,
    )

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "assessment": "Assessment assess",
        "base": "Estimator",
        "estimates": "Estimate",
        "federation": "Federation Party Roster",
        "glm.crossval": "cross_validate",
        "glm.guarantees": "Guarantees",
        "glm.kept_scores": "KeptScores",
        "glm.model": "GLM",
        "pca": "PCA",
        "polynomial": "PolynomialSum polynomial_sum",
        "predicted": "JointScores",
        "prediction": "JointPrediction joint_scores",
        "regression.linear": "LinearRegression",
        "regression.logistic": "LogisticRegression",
        "split.encoders": "Encoder encoder_from load_encoder save_encoder",
        "split.model": "SplitClassifier SplitRegressor",
        "split.scores": "SplitScores",
        "synthesis.model": "Synthesizer",
        "synthesis.quality": "SyntheticQuality evaluate_synthetic",
    },
)
