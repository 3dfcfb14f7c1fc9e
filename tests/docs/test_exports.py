"""The public names, exactly, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import colonnade

EXPORTED = [
    "Adjacency",
    "ColonnadeError",
    "Estimate",
    "Federation",
    "GLM",
    "JointPrediction",
    "Key",
    "KeyColumn",
    "Ledger",
    "LinearRegression",
    "LogisticRegression",
    "Observer",
    "PCA",
    "Party",
    "PartyConfig",
    "PolynomialSum",
    "Query",
    "Schema",
    "SplitClassifier",
    "SplitRegressor",
    "SplitScores",
    "Statement",
    "Study",
    "Synthesizer",
    "Table",
    "__version__",
    "assess",
    "category",
    "cross_validate",
    "date",
    "evaluate_synthetic",
    "flag",
    "joint_scores",
    "number",
    "polynomial_sum",
    "preflight",
    "read_table",
]


def test_exactly_these_names_are_exported() -> None:
    assert sorted(colonnade.__all__) == EXPORTED
    assert all(hasattr(colonnade, name) for name in colonnade.__all__)


def test_importing_loads_nothing_that_only_some_need() -> None:
    large = {"torch", "pandas", "clkhash", "nacl", "matplotlib"}
    models = "from colonnade import GLM, PCA, Ledger, SplitClassifier, Statement, Synthesizer, assess"
    program = f"import colonnade, sys; {models}; sys.exit(' '.join({large} & set(sys.modules)) or 0)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
