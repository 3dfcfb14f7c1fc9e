"""Colonnade: differentially private learning on vertically partitioned data, with no trusted party."""

from colonnade.errors import ColonnadeError
from colonnade.models import (
    GLM,
    PCA,
    Federation,
    JointPrediction,
    LinearRegression,
    LogisticRegression,
    Party,
    PolynomialSum,
    cross_validate,
    joint_scores,
    polynomial_sum,
)
from colonnade.privacy import Adjacency, Ledger, Observer, Statement
from colonnade.study import PartyConfig, Study, preflight
from colonnade.tables import Key, KeyColumn, Schema, Table, category, flag, number, read_table

__version__ = "0.1.0"

__all__ = [
    "GLM",
    "PCA",
    "Adjacency",
    "ColonnadeError",
    "Federation",
    "JointPrediction",
    "Key",
    "KeyColumn",
    "Ledger",
    "LinearRegression",
    "LogisticRegression",
    "Observer",
    "Party",
    "PartyConfig",
    "PolynomialSum",
    "Schema",
    "Statement",
    "Study",
    "Table",
    "__version__",
    "category",
    "cross_validate",
    "flag",
    "joint_scores",
    "number",
    "polynomial_sum",
    "preflight",
    "read_table",
]
