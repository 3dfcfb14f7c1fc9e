"""Linear weights for people who do not have this library: scikit-learn estimators, and how to score in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.schema import Schema

FORMAT = "colonnade regression 1"
SCORE = "score = intercept + sum of coefficient x encoded column"
UNIT = "that is the label in its unit, or log(1 + label) where the label has transform log1p"
ENCODED = (
    "A number is encoded to [-1, 1], or to [0, 1] with scale unit, between low and high (after its transform); a "
    "category one-hot; a flag 0 or 1."
)
HOW = {
    "linear": f"{SCORE}; {UNIT}. {ENCODED}",
    "logistic": (
        f"{SCORE}, for each class; with two classes the second one is predicted where the score is positive, with "
        f"chance 1 / (1 + exp(-score)), otherwise the class of the largest score. {ENCODED}"
    ),
}


def rarer_rules(schemas: Iterable[Schema]) -> str:
    """What else there is to say of how these schemas encode columns, with a blank before it; mostly nothing."""
    columns = (column for schema in schemas for column in schema.columns.values())
    return "".join(f" {note}" for note in dict.fromkeys(note for column in columns for note in column.notes))


@dataclass(frozen=True)
class Weights:
    """Public weights of encoded columns, a row for each class, and an intercept for each row."""

    names: list[str]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]

    def into(self, made: Any, row: int | None = None) -> Any:
        """The scikit-learn estimator, with these weights or with those of one row, as a fit would have left them."""
        rows = slice(None) if row is None else slice(row, row + 1)
        made.coef_, made.intercept_ = self.coef[rows].copy(), self.intercept[rows].copy()
        made.n_features_in_ = len(self.names)
        return self.named(made)

    def into_regressor(self, made: Any) -> Any:
        """The same for an estimator of numbers, which has one row of weights as a vector."""
        made.coef_, made.intercept_ = self.coef[0].copy(), float(self.intercept[0])
        made.n_features_in_ = len(self.names)
        return self.named(made)

    def named(self, made: Any) -> Any:
        """The estimator, with the names of its columns."""
        made.feature_names_in_ = np.array(self.names, dtype=object)
        return made


def classifier(weights: Weights, classes: NDArray[Any]) -> Any:
    """A fitted ``LogisticRegression`` for two classes, and a ``OneVsRestClassifier`` of them for more."""
    # Imported here and below because importing scikit-learn is slow.
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    if len(classes) == 2:
        return _binary(weights, 0, classes)
    several = OneVsRestClassifier(LogisticRegression())
    several.classes_ = np.array(classes)
    several.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    several.estimators_ = [_binary(weights, row, np.array([0, 1])) for row in range(len(classes))]
    return weights.named(several)


def _binary(weights: Weights, row: int, classes: NDArray[Any]) -> Any:
    from sklearn.linear_model import LogisticRegression

    made = weights.into(LogisticRegression(), row)
    made.classes_ = np.array(classes)
    made.n_iter_ = np.zeros(1, dtype=np.int32)
    return made


def regressor(weights: Weights, ridge: float | None, *, logarithmic: bool) -> Any:
    """A fitted ``LinearRegression`` or, with a ridge, a ``Ridge``; wrapped where the label has a logarithmic scale."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.preprocessing import FunctionTransformer

    made = weights.into_regressor(Ridge(alpha=ridge) if ridge else LinearRegression())
    if not logarithmic:
        return made
    outer = TransformedTargetRegressor(made, func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    outer.regressor_ = made
    outer.transformer_ = FunctionTransformer(np.log1p, np.expm1, check_inverse=False).fit(np.zeros((1, 1)))
    outer._training_dim = 1
    return weights.named(outer)
