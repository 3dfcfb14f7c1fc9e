"""What a data scientist calls."""

from colonnade.models.base import MODELS, Estimator
from colonnade.models.crossval import CrossValidation, cross_validate
from colonnade.models.federation import Federation, Party, Roster
from colonnade.models.glm import GLM
from colonnade.models.glm_guarantees import Guarantee, Guarantees
from colonnade.models.glm_scores import KeptScores
from colonnade.models.linear import LinearRegression
from colonnade.models.logistic import LogisticRegression
from colonnade.models.pca import PCA
from colonnade.models.polynomial import PolynomialSum, polynomial_sum
from colonnade.models.predicted import JointScores
from colonnade.models.prediction import JointPrediction, joint_scores

__all__ = [
    "GLM",
    "MODELS",
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
