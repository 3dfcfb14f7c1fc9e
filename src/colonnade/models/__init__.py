"""What a data scientist calls."""

from colonnade.models.base import Estimator
from colonnade.models.federation import Federation, Party, Roster
from colonnade.models.glm.crossval import CrossValidation, cross_validate
from colonnade.models.glm.guarantees import Guarantee, Guarantees
from colonnade.models.glm.kept_scores import KeptScores
from colonnade.models.glm.model import GLM
from colonnade.models.pca import PCA
from colonnade.models.polynomial import PolynomialSum, polynomial_sum
from colonnade.models.predicted import JointScores
from colonnade.models.prediction import JointPrediction, joint_scores
from colonnade.models.regression.linear import LinearRegression
from colonnade.models.regression.logistic import LogisticRegression

__all__ = [
    "GLM",
    "PCA",
    "CrossValidation",
    "Estimator",
    "Federation",
    "Guarantee",
    "Guarantees",
    "JointPrediction",
    "JointScores",
    "KeptScores",
    "LinearRegression",
    "LogisticRegression",
    "Party",
    "PolynomialSum",
    "Roster",
    "cross_validate",
    "joint_scores",
    "polynomial_sum",
]
