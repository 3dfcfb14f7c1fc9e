"""What a data scientist calls."""

from colonnade.models.base import MODELS, Estimator
from colonnade.models.federation import Federation, Party, Roster
from colonnade.models.linear import LinearRegression
from colonnade.models.logistic import LogisticRegression
from colonnade.models.pca import PCA
from colonnade.models.polynomial import PolynomialSum, polynomial_sum
from colonnade.models.prediction import JointPrediction, JointScores, joint_scores

__all__ = [
    "MODELS",
    "PCA",
    "Estimator",
    "Federation",
    "JointPrediction",
    "JointScores",
    "LinearRegression",
    "LogisticRegression",
    "Party",
    "PolynomialSum",
    "Roster",
    "joint_scores",
    "polynomial_sum",
]
